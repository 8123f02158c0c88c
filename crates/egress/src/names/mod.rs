//! Names, answered with stand-ins. Nothing is looked up: a question tells nobody outside anything.

pub mod message;
mod stand_ins;

use std::sync::Arc;

use belljar_core::Host;
use tokio::net::UdpSocket;

use self::message::{Answer, BYTES_MAX, Kind, Question};
pub(crate) use self::stand_ins::{InUse, StandIns};
use crate::serving::Serving;

/// Answers for as long as the socket lasts.
pub(crate) async fn serve(serving: Arc<Serving>, socket: UdpSocket) {
    let mut datagram = [0; BYTES_MAX];
    loop {
        let (count, from) = match socket.recv_from(&mut datagram).await {
            Ok(received) => received,
            // Somebody who was answered was gone; the next question is another's.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
            Err(error) => {
                tracing::warn!(%error, "names of a sandbox are no longer answered");
                return;
            }
        };
        serving.pace().await;
        if let Some(answer) = answer(&serving, &datagram[..count]) {
            // One that does not fit now is asked for again.
            let _ = socket.try_send_to(&answer, from);
        }
    }
}

/// What one datagram is answered, if anything.
pub(crate) fn answer(serving: &Serving, datagram: &[u8]) -> Option<Vec<u8>> {
    match Question::parse(datagram) {
        Ok(question) => Some(question.answer(decide(serving, &question))),
        Err(bad) => bad.answer(),
    }
}

fn decide(serving: &Serving, question: &Question) -> Answer {
    let name = match question.name.parse() {
        Ok(host @ Host::Name(_)) if serving.policy.knows(&host) => host.to_string(),
        Ok(Host::Name(name)) => {
            serving.refuse_name(&name);
            return Answer::NoSuchName;
        }
        Ok(Host::Address(_)) | Err(_) => return Answer::NoSuchName,
    };
    match question.kind {
        Kind::Address => serving.stand_ins.address(&name).map_or(Answer::Failure, Answer::Address),
        Kind::Other => Answer::Empty,
    }
}
