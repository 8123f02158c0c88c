//! What we failed to do, in one sentence with the next step. What a program did is never here: that is a report.
//!
//! These sentences go to an agent, so no host path is in them; what a backend says for the log was logged where it
//! happened.

use std::time::Duration;

use belljar_core::{BackendError, FileErrorKind, Language};

use crate::Over;

#[derive(Debug, Clone, thiserror::Error)]
pub enum EngineError {
    /// The same for unknown, foreign, expired and destroyed: who asks for another's sandbox learns nothing.
    #[error("no such sandbox (it may have expired or been destroyed); call create_sandbox and use the new id")]
    UnknownSandbox,
    /// Told to its owner only.
    #[error("{why}; call create_sandbox for a new one: its files and variables are gone")]
    SandboxGone { why: Gone },
    #[error("no such job; job ids are in the answer of the call that began them, and ended ones are forgotten in time")]
    UnknownJob,
    #[error("there are already {max} jobs running; end one with job and action signal")]
    TooManyJobs { max: usize },
    #[error("the program does not read its input, and this piece was not sent; wait until it does, and send it again")]
    StdinNotTaken,
    #[error("its stdin was given whole when it began; for live input, start it with exec and background")]
    NoLiveStdin,
    #[error(
        "the {language} kernel is busy with job {job}; wait for it or interrupt it with job, or use another sandbox"
    )]
    KernelBusy { language: Language, job: String },
    #[error("no template {name:?}; use one of: {}", .available.join(", "))]
    UnknownTemplate { name: String, available: Vec<String> },
    /// It stood when the call came, and fell before it could do anything.
    #[error(
        "the sandbox went down and nothing of it remains; use a new one (call create_sandbox, or run without sandbox_id)"
    )]
    Lost,
    /// It may still be at work; the call was given up.
    #[error("the sandbox did not answer in time; try again, or destroy it and create a new one")]
    NotAnswering,
    #[error(
        "there are already {max} sandboxes, the most this server keeps; destroy one that is no longer needed, or end a job \
         that has one of its own"
    )]
    TooManySandboxes { max: usize },
    #[error("{0}")]
    OverQuota(Over),
    #[error("too many programs are waiting to run; try again in a few seconds")]
    Busy,
    #[error(
        "this server runs nothing that its audit cannot take down, and the audit cannot be written; its operator has to make \
         room for it"
    )]
    NotRecorded,
    #[error("the server is shutting down; try again when it is back")]
    ShuttingDown,
    /// `fix` is how the operator gets it, where that is known.
    #[error("{language} is not available here; {}", instead(.available, .fix.as_deref()))]
    LanguageMissing { language: Language, available: Vec<Language>, fix: Option<String> },
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
    #[error(transparent)]
    BadHost(belljar_core::BadGrant),
    #[error(
        "this server's operator does not allow the network host {host}; do without it, or have the operator start the \
         server with --allow-network '{host}' (or [network] allow in its configuration)"
    )]
    HostNotAllowed { host: String },
    #[error("network names more than {max} hosts; name fewer, or a pattern such as *.example.org")]
    TooManyHosts { max: usize },
    #[error(
        "the sandbox has the network that it was created with; leave network out, or create another sandbox with it"
    )]
    NetworkIsSet,
    #[error(
        "packages are not installed on this server; use what is there, or have its operator set install = true below [packages]"
    )]
    NoPackages,
    #[error(
        "packages are for python, javascript, typescript and shell; for {language}, write its project file into the \
         /workspace of a sandbox that was created with network [\"packages\"]"
    )]
    NoPackagesFor { language: Language },
    /// Of a sandbox that was to begin with them.
    #[error("packages could not be installed: {words}; {next_step}")]
    NotInstalled { words: String, next_step: &'static str },
    #[error("bad packages: {why}")]
    BadPackages { why: &'static str },
    #[error("bad environment: {why}")]
    BadEnv { why: &'static str },
    /// Apart from other file errors, since the caller of a run may not think of this path.
    #[error("cwd: {kind}; name a directory that is in the sandbox")]
    BadCwd { kind: FileErrorKind },
    #[error("{}", told(.0))]
    Backend(#[source] BackendError),
}

impl EngineError {
    /// One word for records: what kind of refusal it is.
    pub fn name(&self) -> &'static str {
        match self {
            EngineError::UnknownSandbox | EngineError::SandboxGone { .. } => "no-sandbox",
            EngineError::UnknownJob => "no-job",
            EngineError::TooManyJobs { .. } => "too-many-jobs",
            EngineError::KernelBusy { .. } => "kernel-busy",
            EngineError::UnknownTemplate { .. } => "no-template",
            EngineError::Lost => "lost",
            EngineError::NotAnswering => "not-answering",
            EngineError::TooManySandboxes { .. } => "too-many-sandboxes",
            EngineError::OverQuota(_) => "quota",
            EngineError::Busy => "busy",
            EngineError::NotRecorded => "not-recorded",
            EngineError::ShuttingDown => "shutdown",
            EngineError::LanguageMissing { .. } => "no-language",
            EngineError::HostNotAllowed { .. } => "network",
            EngineError::NoPackages | EngineError::NoPackagesFor { .. } => "no-packages",
            EngineError::NotInstalled { .. } => "not-installed",
            EngineError::Backend(BackendError::Unavailable { .. }) => "unavailable",
            EngineError::Backend(_) => "backend",
            EngineError::StdinNotTaken
            | EngineError::NoLiveStdin
            | EngineError::EmptyCode
            | EngineError::CodeTooLong { .. }
            | EngineError::BadCode
            | EngineError::StdinTooLong { .. }
            | EngineError::BadTimeout { .. }
            | EngineError::LimitTooHigh { .. }
            | EngineError::LimitTooLow { .. }
            | EngineError::BadHost(_)
            | EngineError::TooManyHosts { .. }
            | EngineError::NetworkIsSet
            | EngineError::BadPackages { .. }
            | EngineError::BadEnv { .. }
            | EngineError::BadCwd { .. } => "invalid",
        }
    }
}

/// Why a sandbox that was there no longer is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Gone {
    #[error("the sandbox expired after {} without use", time(.0))]
    Idle(Duration),
    #[error("the sandbox expired at its greatest age of {}", time(.0))]
    Old(Duration),
    #[error("the sandbox was destroyed")]
    Destroyed,
    #[error("the sandbox was closed, since what ran on in it moved more over the network than your quota allows")]
    Spent,
    #[error("the sandbox went down")]
    Lost,
    #[error("the sandbox was lost with the server that it was in")]
    WithItsServer,
}

/// As a person says it.
fn time(duration: &Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..=119 => format!("{seconds} s"),
        seconds @ 120..=7199 => format!("{} min", seconds / 60),
        seconds => format!("{} h", seconds / 3600),
    }
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
        BackendError::Lacks { .. } => error.to_string(),
    }
}

/// What to do about a language that is missing; there may be no other.
fn instead(available: &[Language], fix: Option<&str>) -> String {
    let names: Vec<&str> = available.iter().map(|language| language.name()).collect();
    let others = (!names.is_empty()).then(|| format!("use one of: {}", names.join(", ")));
    let fix = fix.map(|fix| format!("have the operator {fix}"));
    match (others, fix) {
        (Some(others), Some(fix)) => format!("{others}, or {fix}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => "no language is; have the operator look at `belljar doctor`".to_owned(),
    }
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
        let told = |available: &[Language], fix: Option<&str>| {
            let (language, available) = (Language::JavaScript, available.to_vec());
            EngineError::LanguageMissing { language, available, fix: fix.map(str::to_owned) }.to_string()
        };
        assert_eq!(
            told(&[Language::Python, Language::Shell], Some("install nodejs")),
            "javascript is not available here; use one of: python, shell, or have the operator install nodejs"
        );
        assert_eq!(
            told(&[], Some("install nodejs")),
            "javascript is not available here; have the operator install nodejs"
        );
        assert!(told(&[], None).ends_with("; no language is; have the operator look at `belljar doctor`"));
    }
}
