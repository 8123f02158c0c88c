//! `belljar run`: one program in a fresh sandbox, its streams passed through.

use std::convert::Infallible;
use std::io::{IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use belljar_backends::Preload;
use belljar_core::{
    Backend, BackendError, Ending, Language, Limit, Program, Source, State, Stdin, Stream, Then, WallState,
};
use belljar_engine::{Console, EngineError, Phase, Principal, RunRequest, Wants};
use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot};

use super::values;
use crate::complaint::Complaint;
use crate::config::{Config, Hosts, approve};
use crate::wiring;

#[derive(Debug, Args)]
pub(super) struct Run {
    /// The program's file, whose ending tells the language; or give --code and --language
    #[arg(value_name = "FILE", required_unless_present = "code", conflicts_with = "code")]
    file: Option<PathBuf>,
    /// The program itself
    #[arg(short, long, value_name = "CODE", requires = "language")]
    code: Option<String>,
    /// python, javascript, typescript, shell, go or rust
    #[arg(short, long, value_name = "LANG")]
    language: Option<Language>,
    /// Seconds until it is stopped
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = values::seconds)]
    timeout: Duration,
    /// A package that it needs, besides those that it imports, such as pandas==2.2.3; may be given more than once
    #[arg(short, long, value_name = "NAME")]
    package: Vec<String>,
    /// A host that it may reach, such as api.example.com; the word packages for the package registries. May be given more
    /// than once
    #[arg(long, value_name = "HOST")]
    network: Vec<String>,
    /// A file of other MCP servers in the usual mcpServers form, whose tools it may call; may be given more than once
    #[arg(long, value_name = "FILE")]
    mcp_config: Vec<PathBuf>,
    /// What a person would be asked about, and is refused here: never, or writes (calls that are not known to change nothing)
    /// [default: writes]
    #[arg(long, value_name = "WHEN")]
    approve: Option<String>,
    /// Print the whole report as one JSON object when it has ended, instead of its output as it comes
    #[arg(long)]
    json: bool,
}

impl Run {
    /// Exits with the program's own code: 124 if it ran into its time limit, 128 + the signal if it was killed.
    pub(super) fn execute(self, mut config: Config) -> anyhow::Result<ExitCode> {
        let (language, code) = self.program()?;
        let (source, stdin) = match language {
            // Its types go in a kernel, whose input is whole.
            Language::TypeScript => (Source::Cell { language, code, then: Then::End }, Stdin::Whole(whole_stdin()?)),
            _ => (Source::Code { language, code }, Stdin::Live),
        };
        let program = Program { source, env: Vec::new(), cwd: None, stdin, wall: self.timeout, changed_max: 0 };
        let runtime = wiring::runtime_for_one()?;
        // Whoever starts it is the operator, and allows what it asks for.
        let allowed = config.network.allow.value.clone().and(Hosts::read(&self.network)?);
        config.network.allow.or_flag(Some(allowed));
        if !self.mcp_config.is_empty() {
            config.upstreams.files.or_flag(Some(self.mcp_config));
        }
        config.upstreams.approve.or_flag(self.approve.as_deref().map(approve).transpose()?);
        let wants = Wants { packages: self.package, network: self.network };
        let ran = runtime.block_on(run(&config, RunRequest { sandbox: None, program, wants }, self.json));
        // Standard input may still be waited for, on a thread that only its end can wake.
        runtime.shutdown_background();
        let ran = match ran? {
            Ended::Ran(ran) => ran,
            Ended::Interrupted { signal } => return Ok(ExitCode::from(128 + signal)),
        };
        if self.json {
            writeln!(std::io::stdout(), "{:#}", as_json(&ran))?;
        } else {
            if let Some(error) = &ran.rich.error {
                writeln!(std::io::stderr(), "{}", error.traceback)?;
            }
            if let Some(word) = last_word(&ran) {
                writeln!(std::io::stderr(), "belljar: {word}")?;
            }
        }
        Ok(ExitCode::from(u8::try_from(ran.report.ending.exit_code()).unwrap_or(1)))
    }

    fn program(&self) -> anyhow::Result<(Language, String)> {
        if let (Some(code), Some(language)) = (&self.code, self.language) {
            return Ok((language, code.clone()));
        }
        let path = self.file.clone().unwrap_or_default();
        let shown = path.display();
        let by_name = path.file_name().and_then(|name| name.to_str()).and_then(Language::of_file);
        let Some(language) = self.language.or(by_name) else {
            let hint = format!("name it: belljar run {shown} --language python");
            return Err(Complaint::new(format!("cannot tell the language of {shown} by its name"), hint).into());
        };
        let bytes = std::fs::read(&path).map_err(|error| {
            Complaint::new(format!("cannot read {shown}: {error}"), "give the path of a program's file")
        })?;
        let code = String::from_utf8(bytes)
            .map_err(|_| Complaint::new(format!("{shown} is not UTF-8 text"), "give a file of source code"))?;
        Ok((language, code))
    }
}

async fn run(config: &Config, request: RunRequest, quiet: bool) -> anyhow::Result<Ended> {
    let parts = wiring::parts(Preload::No, config)?;
    if parts.backend.capabilities().languages.is_empty() {
        unusable(parts.backend.as_ref())?;
    }
    let gateway = parts.gateway.clone();
    let engine = wiring::engine(parts, wiring::settings());
    let (output, shown) = mpsc::unbounded_channel();
    let phase = Phase::default();
    let console = Console { output, input: read_stdin(), phase: phase.clone() };
    let who = Principal::local();
    let running = engine.run_with_console(&who, request, console);
    let mut showing = show(shown, quiet);
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let done = async {
        let ran = running.await.map_err(complain);
        // Nothing more to come is no error of the thread's.
        let _ = (&mut showing).await;
        ran.map(|ran| Ended::Ran(Box::new(ran)))
    };
    let ended = tokio::select! {
        ended = done => ended,
        never = tell(phase) => match never {},
        _ = interrupt.recv() => Ok(Ended::Interrupted { signal: 2 }),
        _ = terminate.recv() => Ok(Ended::Interrupted { signal: 15 }),
    };
    engine.shutdown().await;
    if let Some(gateway) = gateway {
        gateway.end().await;
    }
    ended
}

/// Why a wall that has no language has none, if it knows.
fn unusable(backend: &dyn Backend) -> Result<(), Complaint> {
    for wall in backend.probe().walls {
        if let WallState::Missing { why, fix } = wall.state {
            return Err(Complaint::new(format!("the {} wall cannot be used: {why}", backend.name()), fix));
        }
    }
    Ok(())
}

/// Says what is done before the program runs. For ever.
async fn tell(phase: Phase) -> Infallible {
    let mut told = phase.listen();
    loop {
        told.changed().await;
        let words = told.now();
        if !words.is_empty() {
            // Without a stderr nobody reads it.
            let _ = writeln!(std::io::stderr(), "belljar: {words}");
        }
    }
}

/// How `belljar run` itself came to its end.
enum Ended {
    Ran(Box<belljar_engine::Run>),
    Interrupted { signal: u8 },
}

/// All of standard input. Nobody is asked: at a terminal it is empty.
fn whole_stdin() -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if !std::io::stdin().is_terminal() {
        let room = belljar_engine::STDIN_BYTES_MAX as u64 + 1;
        std::io::stdin().lock().take(room).read_to_end(&mut bytes).context("reading standard input")?;
    }
    Ok(bytes)
}

/// Passes standard input on as it comes. From a terminal too: a program may ask a question.
fn read_stdin() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(4);
    // A thread of its own and not the runtime's: it sits in read(2) until the process ends.
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        let mut buffer = vec![0; 64 * 1024];
        while let Ok(length @ 1..) = stdin.read(&mut buffer) {
            if sender.blocking_send(buffer[..length].to_vec()).is_err() {
                break;
            }
        }
    });
    receiver
}

/// Shows output as it comes, on a thread of its own: a reader that stalls, as `less` does, must not hold up the time
/// limit. What is returned ends when all is shown.
fn show(mut output: mpsc::UnboundedReceiver<(Stream, Vec<u8>)>, quiet: bool) -> oneshot::Receiver<()> {
    let (shown, all_shown) = oneshot::channel();
    std::thread::spawn(move || {
        while let Some((stream, bytes)) = output.blocking_recv() {
            if quiet {
                continue;
            }
            // A reader that has gone away, as `head` does, is no reason to stop the program.
            let _ = match stream {
                Stream::Stdout => std::io::stdout().write_all(&bytes).and_then(|()| std::io::stdout().flush()),
                Stream::Stderr => std::io::stderr().write_all(&bytes),
            };
        }
        let _ = shown.send(());
    });
    all_shown
}

fn complain(error: EngineError) -> anyhow::Error {
    let doctor = "belljar doctor says what this machine has and lacks";
    let (what, hint) = match &error {
        EngineError::Backend(BackendError::Unavailable { why, fix }) => (why.clone(), fix.clone()),
        EngineError::Backend(inner) => (inner.to_string(), doctor.to_owned()),
        EngineError::LanguageMissing { language, .. } => {
            (format!("{language} is not available here"), doctor.to_owned())
        }
        // The engine's sentences are written for agents: what happened, a semicolon, the next step.
        other => match other.to_string().split_once("; ") {
            Some((what, next_step)) => (what.to_owned(), next_step.to_owned()),
            None => (other.to_string(), "belljar run --help shows what can be given".to_owned()),
        },
    };
    Complaint::new(what, hint).into()
}

/// What the program's own output does not tell.
fn last_word(ran: &belljar_engine::Run) -> Option<String> {
    match ran.report.ending {
        Ending::Exited { .. } => None,
        Ending::Killed { signal } => Some(format!("killed by signal {signal}")),
        Ending::Stopped { limit: Limit::Wall } => {
            Some(format!("stopped after {:.1} s; give it longer with --timeout", ran.report.duration.as_secs_f64()))
        }
        Ending::Stopped { limit: Limit::Memory } => Some("stopped: out of memory".to_owned()),
        Ending::Stopped { limit: Limit::Output } => Some("stopped: it printed more than its output limit".to_owned()),
        Ending::Cancelled => Some("cancelled".to_owned()),
        Ending::NotInstalled => Some("its packages could not be installed, and it was not started".to_owned()),
    }
}

fn as_json(ran: &belljar_engine::Run) -> Value {
    let report = &ran.report;
    json!({
        "stdout": String::from_utf8_lossy(&report.stdout),
        "stderr": String::from_utf8_lossy(&report.stderr),
        "exit_code": report.ending.exit_code(),
        "ending": report.ending.name(),
        "state": state(report.state),
        "duration_ms": report.duration.as_millis() as u64,
        "usage": { "cpu_ms": report.usage.cpu_ms, "memory_peak_bytes": report.usage.memory_peak_bytes },
        "isolation": report.isolation,
        "packages": ran.installed.as_ref().map(|installed| json!({
            "installed": installed.packages.iter().map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>(),
            "duration_ms": installed.took.as_millis() as u64,
            "cached": !installed.was_built,
        })),
        "refused_hosts": ran.refused,
    })
}

fn state(state: State) -> Value {
    serde_json::to_value(state).unwrap_or_default()
}
