//! `job`: a run in the background, looked at, waited for and talked to.

use belljar_engine::{JobAction, StdinThen};
use rmcp::model::CallToolResult;

use super::{Arguments, BadArgument, Call, ToolError, looked_at};
use crate::approval;

const ARGUMENTS: &[&str] = &["job_id", "action", "offset", "timeout", "stdin", "eof", "signal"];

pub(super) async fn call(mut call: Call<'_>) -> Result<CallToolResult, ToolError> {
    let mut arguments = Arguments::new(call.arguments.take(), ARGUMENTS)?;
    let id = arguments.text("job_id")?;
    let offset = arguments.optional_whole("offset", 0, i64::MAX as u64)?;
    let timeout = arguments.optional_seconds("timeout")?;
    let stdin = arguments.optional_text("stdin")?;
    let eof = arguments.optional_flag("eof")?.unwrap_or(false);
    let signal = arguments.optional_text("signal")?;
    let action = match arguments.choice("action", &["poll", "wait", "stdin", "signal"])? {
        // The caller's own patience bounds every wait; it can wait again.
        "wait" => JobAction::Wait(timeout.unwrap_or(call.patience).min(call.patience)),
        "stdin" => {
            // What a shell reads is a program too, and this one nobody would have seen.
            if call.asking.as_ref().is_some_and(|asking| asking.code_mode.approves_code()) {
                let words =
                    "programs are approved by a person here, and so is their input: send stdin with the program itself";
                return Err(BadArgument::new(words).into());
            }
            let Some(text) = stdin.or_else(|| eof.then(String::new)) else {
                return Err(BadArgument::new("stdin is missing; send the text, or eof: true to end the input").into());
            };
            JobAction::Stdin { bytes: text.into_bytes(), then: if eof { StdinThen::End } else { StdinThen::Open } }
        }
        "signal" => JobAction::Signal(number(signal.as_deref().unwrap_or("INT"))?),
        _ => JobAction::Poll,
    };
    let job = approval::wait_for_job(&call, &id, action, offset).await?;
    Ok(looked_at(&call, &job))
}

/// The signals that people send to programs, by name with or without SIG, or by number.
fn number(name: &str) -> Result<i32, BadArgument> {
    let upper = name.to_ascii_uppercase();
    let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
    let known = [("HUP", 1), ("INT", 2), ("QUIT", 3), ("KILL", 9), ("USR1", 10), ("USR2", 12), ("TERM", 15)];
    let stops = [("CONT", 18), ("STOP", 19), ("TSTP", 20), ("WINCH", 28)];
    let named = known.iter().chain(&stops).find(|(known, number)| *known == bare || number.to_string() == bare);
    named.map(|(_, number)| *number).ok_or_else(|| {
        BadArgument::new("signal must be one of: INT, TERM, KILL, HUP, QUIT, USR1, USR2, STOP, CONT, TSTP, WINCH")
    })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn a_signal_has_several_names() {
        for (name, expected) in [("INT", 2), ("SIGTERM", 15), ("sigkill", 9), ("2", 2), ("19", 19)] {
            assert_eq!(number(name).unwrap(), expected);
        }
        for name in ["", "SIG", "0", "-9", "64", "SEGV", "2 "] {
            assert!(number(name).is_err(), "{name:?}");
        }
    }
}
