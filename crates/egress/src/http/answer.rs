//! An answer on its way back.

use super::body::Way;
use super::head::{self, After, Framing, Request, Response, Version};
use crate::io::{ReadSide, Reader, WriteSide, within};
use crate::refusal::Refusal;

const INTERIM_MAX: usize = 16;

/// The answer, from its head to its end. An error only while nothing of it has been passed on.
pub(crate) async fn download<C>(
    mut way: Way<'_, C>,
    answers: &mut Reader<ReadSide>,
    writer: &mut WriteSide,
    request: &Request,
) -> Result<After, Refusal>
where
    C: Fn(usize) -> std::io::Result<()>,
{
    let mut interim = 0;
    let response = loop {
        let head = match within(way.idle, answers.head()).await {
            Ok(Some(head)) => head,
            Ok(None) => return Err(Refusal::BadAnswer("it ended without one")),
            Err(error) if error.kind() == std::io::ErrorKind::TimedOut => {
                return Err(Refusal::BadAnswer("it did not come in time"));
            }
            Err(_) => return Err(Refusal::BadAnswer("its head broke off, or is too long")),
        };
        let response = head::response(&head, &request.method).map_err(|bad| Refusal::BadAnswer(bad.0))?;
        match response.status {
            101 => return Err(Refusal::BadAnswer("it changes the protocol")),
            100..200 if interim < INTERIM_MAX => {
                interim += 1;
                if request.version == Version::Http11 {
                    let head = blanked(&way, format!("HTTP/1.1 {} Continue\r\n\r\n", response.status).into_bytes());
                    if way.put(&head, writer).await.is_err() {
                        return Ok(After::Closes);
                    }
                }
            }
            100..200 => return Err(Refusal::BadAnswer("it is never final")),
            _ => break response,
        }
    };
    if way.blanker.is_some() && is_compressed(&response) {
        return Err(Refusal::BadAnswer(
            "it is compressed although that was not asked for, and could not be looked through for secrets",
        ));
    }
    let framing = match (response.framing, request.version) {
        (Framing::Chunked, Version::Http10) => Framing::UntilClose,
        (framing, _) => framing,
    };
    let closes = request.after == After::Closes || response.after == After::Closes || framing == Framing::UntilClose;
    let after = if closes { After::Closes } else { After::Stays };
    let head = blanked(&way, response.write(framing, after));
    if way.put(&head, writer).await.is_err() {
        return Ok(After::Closes);
    }
    let body = if request.method == "HEAD" { Framing::None } else { response.framing };
    match way.pass(answers, body, writer, framing).await {
        Ok(()) => Ok(after),
        Err(_) => Ok(After::Closes),
    }
}

fn blanked<C>(way: &Way<'_, C>, head: Vec<u8>) -> Vec<u8> {
    match &way.blanker {
        Some(blanker) => blanker.whole(head),
        None => head,
    }
}

fn is_compressed(response: &Response) -> bool {
    response
        .headers
        .iter()
        .any(|header| header.is("content-encoding") && !header.value.eq_ignore_ascii_case(b"identity"))
}
