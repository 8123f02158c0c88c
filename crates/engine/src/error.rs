//! What we failed to do, in one sentence with the next step. What a program did is never here: that is a report.
//!
//! These sentences go to an agent, so no host path is in them; what a backend says for the log was logged where it
//! happened.

use belljar_core::{BackendError, FileErrorKind, Language};

#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The same for unknown, foreign, expired and destroyed: who asks for another's sandbox learns nothing.
    #[error("no such sandbox (it may have expired or been destroyed); call create_sandbox and use the new id")]
    UnknownSandbox,
    /// It stood when the call came, and fell before it could do anything.
    #[error(
        "the sandbox went down and nothing of it remains; use a new one (call create_sandbox, or run without sandbox_id)"
    )]
    Lost,
    /// It may still be at work; the call was given up.
    #[error("the sandbox did not answer in time; try again, or destroy it and create a new one")]
    NotAnswering,
    #[error("there are already {max} sandboxes, the most this server keeps; destroy one that is no longer needed")]
    TooManySandboxes { max: usize },
    #[error("too many programs are waiting to run; try again in a few seconds")]
    Busy,
    #[error("the server is shutting down; try again when it is back")]
    ShuttingDown,
    #[error("{language} is not available here; use one of: {}", names(.available))]
    LanguageMissing { language: Language, available: Vec<Language> },
    #[error("there is nothing to run: the code is empty; send the program's text")]
    EmptyCode,
    #[error(
        "the code is longer than {max_bytes} bytes; write it to a file of a sandbox with write_file and run that file"
    )]
    CodeTooLong { max_bytes: usize },
    #[error("the code has a NUL byte, which no interpreter accepts in a program; write it as an escape (\\0) instead")]
    BadCode,
    #[error(
        "stdin is longer than {max_bytes} bytes; write it to a file of a sandbox with write_file and read it from there"
    )]
    StdinTooLong { max_bytes: usize },
    #[error("the timeout is out of range; give more than 0 and at most {max_seconds} seconds")]
    BadTimeout { max_seconds: u64 },
    /// `name` and `max` as the caller writes them.
    #[error("{name} is more than this server allows; ask for at most {max}")]
    LimitTooHigh { name: &'static str, max: String },
    #[error("{name} is too low to run anything; ask for at least {min}")]
    LimitTooLow { name: &'static str, min: String },
    #[error("bad environment: {why}")]
    BadEnv { why: &'static str },
    /// Apart from other file errors, since the caller of a run may not think of this path.
    #[error("cwd: {kind}; name a directory that is in the sandbox")]
    BadCwd { kind: FileErrorKind },
    #[error("{}", told(.0))]
    Backend(#[source] BackendError),
}

/// What an agent is told of a backend's failure; the rest is for the log.
fn told(error: &BackendError) -> String {
    match error {
        BackendError::Unavailable { .. } => {
            "this server cannot open a sandbox now; its operator can see what is missing with `belljar doctor`".into()
        }
        BackendError::Setup { .. } => {
            "a sandbox or program could not be set up; try again, and if it goes on, look at the server's log".into()
        }
        BackendError::Lost { .. } => EngineError::Lost.to_string(),
        BackendError::File(error) => error.to_string(),
    }
}

fn names(languages: &[Language]) -> String {
    languages.iter().map(|language| language.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_the_log_is_not_told() {
        let error = EngineError::Backend(BackendError::Setup {
            step: "mount /var/lib/belljar".into(),
            why: "EPERM on /home/operator".into(),
        });
        let told = error.to_string();
        assert!(!told.contains("/var/lib") && !told.contains("/home"), "{told}");
        assert!(told.contains("try again"), "{told}");
    }

    #[test]
    fn a_missing_language_names_the_others() {
        let error = EngineError::LanguageMissing {
            language: Language::JavaScript,
            available: vec![Language::Python, Language::Shell],
        };
        assert_eq!(error.to_string(), "javascript is not available here; use one of: python, shell");
    }
}
