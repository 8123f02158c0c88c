//! Why a tool has no result, in words for the agent. The engine's sentences name the tools of the default surface, so
//! those that do are said again here.

use std::fmt;

use belljar_core::BackendError;
use belljar_engine::EngineError;

use super::table::Style;
use crate::approval::{Question, Unanswered};

#[derive(Debug)]
pub(super) enum Fault {
    Argument(String),
    Engine(EngineError),
    /// Something that this surface had and Belljar does not have, or an operation that failed in the sandbox.
    Refused(String),
    /// A person has to say something first.
    Asks(Question),
}

impl Fault {
    pub(super) fn argument(sentence: impl Into<String>) -> Fault {
        Fault::Argument(sentence.into())
    }

    pub(super) fn refused(sentence: impl Into<String>) -> Fault {
        Fault::Refused(sentence.into())
    }

    /// The sandbox that the caller means is not there, and nothing was done.
    pub(super) fn is_gone(&self) -> bool {
        matches!(self, Fault::Engine(EngineError::UnknownSandbox | EngineError::SandboxGone { .. }))
    }

    pub(super) fn is_lost(&self) -> bool {
        matches!(self, Fault::Engine(EngineError::Lost))
    }

    /// What the surface's users know such errors as.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Fault::Argument(_) => "ValueError",
            _ if self.is_gone() || self.is_lost() => "SandboxError",
            Fault::Engine(
                EngineError::EmptyCode
                | EngineError::BadCode
                | EngineError::CodeTooLong { .. }
                | EngineError::BadCwd { .. }
                | EngineError::BadEnv { .. },
            ) => "ValueError",
            _ => "CommandExecutionError",
        }
    }

    pub(super) fn told(&self, style: Style) -> String {
        match self {
            Fault::Argument(sentence) | Fault::Refused(sentence) => sentence.clone(),
            Fault::Engine(error) => engine(error, style),
            Fault::Asks(_) => "a person is asked".into(),
        }
    }
}

fn engine(error: &EngineError, style: Style) -> String {
    match error {
        EngineError::Backend(BackendError::File(file)) => file.kind.to_string(),
        EngineError::Lost => match style {
            Style::Daytona | Style::Morph => {
                "the sandbox went down and nothing of it remains; call create_sandbox for a new one".into()
            }
            _ => "the sandbox went down and nothing of it remains; the next call begins in a new one".into(),
        },
        EngineError::LimitTooHigh { .. } | EngineError::LimitTooLow { .. } if style == Style::Daytona => {
            let sentence = error.to_string();
            let megabytes = if sentence.contains("_mb") { " (in MB)" } else { "" };
            let sentence = sentence.replace("memory_mb", "memory").replace("disk_mb", "disk").replace("cpus", "cpu");
            format!("{}{megabytes}", sentence.replace("timeout", "autoStopInterval"))
        }
        EngineError::CodeTooLong { max_bytes } => {
            format!("the code is longer than {max_bytes} bytes; send less at once")
        }
        EngineError::TooManySandboxes { max } => {
            let next = match style {
                Style::Daytona | Style::Morph => "call destroy_sandbox for one that is no longer needed",
                Style::Interpreter => "call clear_session for one that is no longer needed",
                _ => "try again when others have gone",
            };
            format!("there are already {max} sandboxes, the most this server keeps; {next}")
        }
        other => other.to_string(),
    }
}

impl From<EngineError> for Fault {
    fn from(error: EngineError) -> Fault {
        Fault::Engine(error)
    }
}

impl From<Unanswered> for Fault {
    fn from(unanswered: Unanswered) -> Fault {
        match unanswered {
            Unanswered::Engine(error) => Fault::Engine(error),
            Unanswered::Refused(sentence) => Fault::Refused(sentence),
            Unanswered::Asks(question) => Fault::Asks(question),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.told(Style::E2b))
    }
}
