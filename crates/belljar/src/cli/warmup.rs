//! `belljar warmup`: does once what every first run would otherwise pay for.

#[cfg(feature = "wasm")]
mod wasm;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

#[cfg(feature = "wasm")]
use belljar_backends::{Choice, WishedWall};
use belljar_backends::{NotWarm, Preload, warm_up};
use belljar_core::Ground;
use belljar_core::PackageKind;
use belljar_engine::{Provisions, Template};
use belljar_packages::{Environment, InstallError, Installed, Progress, Wanted};
use clap::Args;
use serde_json::json;

use crate::complaint::Complaint;
use crate::config::Config;
use crate::wiring;

/// Installs the base scientific packages, and compiles Go's own library, once for all sandboxes to come
#[derive(Debug, Args)]
pub(super) struct Warmup {
    /// Install the packages of this template of the configuration's instead
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Print what is ready as one JSON object
    #[arg(long)]
    json: bool,
}

/// One thing that was prepared, or could not be.
struct Ready {
    name: String,
    state: Result<String, String>,
}

impl Warmup {
    /// Exits with 1 if something could not be prepared.
    pub(super) fn execute(self, config: &Config) -> anyhow::Result<ExitCode> {
        let runtime = wiring::runtime_for_many()?;
        #[cfg(feature = "wasm")]
        if config.walls.backend.value == WishedWall::Named(Choice::Wasm) {
            return self.tell(runtime.block_on(wasm::prepare(config))?);
        }
        let template = self.template.as_deref().map(|name| template(config, name)).transpose()?;
        let mut ready = vec![runtime.block_on(packages(config, template))?];
        if template.is_none() {
            ready.extend(go(config));
        }
        self.tell(ready)
    }

    fn tell(&self, ready: Vec<Ready>) -> anyhow::Result<ExitCode> {
        let failed = ready.iter().any(|ready| ready.state.is_err());
        let mut out = std::io::stdout().lock();
        if self.json {
            let all: serde_json::Map<_, _> = ready
                .into_iter()
                .map(|Ready { name, state }| match state {
                    Ok(detail) => (name, json!({"ready": true, "detail": detail})),
                    Err(why) => (name, json!({"ready": false, "why": why})),
                })
                .collect();
            writeln!(out, "{:#}", serde_json::Value::Object(all))?;
        } else {
            for Ready { name, state } in ready {
                match state {
                    Ok(detail) => writeln!(out, "ready    {name}: {detail}")?,
                    Err(why) => writeln!(out, "MISSING  {name}: {why}")?,
                }
            }
        }
        Ok(if failed { ExitCode::from(1) } else { ExitCode::SUCCESS })
    }
}

fn template<'a>(config: &'a Config, name: &str) -> Result<&'a Template, Complaint> {
    config.templates.iter().find(|template| template.name == name).ok_or_else(|| {
        let names: Vec<&str> = config.templates.iter().map(|template| template.name.as_str()).collect();
        let hint = match names.as_slice() {
            [] => "write one into the configuration: docs/configuration.md shows how".to_owned(),
            names => format!("use one of: {}", names.join(", ")),
        };
        Complaint::new(format!("the configuration has no template {name:?}"), hint)
    })
}

async fn packages(config: &Config, template: Option<&Template>) -> anyhow::Result<Ready> {
    let name =
        template.map_or_else(|| "scientific packages".to_owned(), |template| format!("template {}", template.name));
    let parts = wiring::parts(Preload::No, config)?;
    let Some(Provisions { packages, .. }) = parts.provisions else {
        let what = "no packages are installed on this host";
        return Err(Complaint::new(what, "set install = true and a cache below [packages] in the configuration").into());
    };
    let bar = Bar::new(&name);
    let installed: Result<Vec<Installed>, InstallError> = match template {
        None => {
            packages.warm_up(&Ground::default(), |progress| bar.shows(&progress)).await.map(|installed| vec![installed])
        }
        Some(template) => {
            let mut all = Ok(Vec::new());
            for wanted in wanted(template) {
                let installed = packages.environment(wanted, |progress| bar.shows(&progress)).await;
                all = all.and_then(|mut all: Vec<Installed>| {
                    all.push(installed?);
                    Ok(all)
                });
            }
            all
        }
    };
    bar.ends();
    let state = match installed {
        Ok(all) if all.is_empty() => Ok("it names no packages".to_owned()),
        Ok(all) => Ok(all
            .iter()
            .filter_map(|installed| Some(described(installed.environment.as_ref()?)))
            .collect::<Vec<_>>()
            .join("; ")),
        Err(error) => Err(format!("{}; {}", error.words.trim_end(), error.kind.next_step())),
    };
    Ok(Ready { name, state })
}

fn wanted(template: &Template) -> Vec<Wanted> {
    let (node, python): (Vec<&String>, Vec<&String>) =
        template.packages.iter().partition(|name| name.starts_with("npm:"));
    let of = |kind, names: Vec<String>| {
        let wanted = Wanted { required: names, ..Wanted::new(kind, &template.ground) };
        Some(wanted).filter(|wanted| !wanted.required.is_empty())
    };
    let node = node.iter().map(|name| name.trim_start_matches("npm:").to_owned()).collect();
    let python = python.into_iter().cloned().collect();
    of(PackageKind::Python, python).into_iter().chain(of(PackageKind::Node, node)).collect()
}

fn described(environment: &Environment) -> String {
    let names: Vec<String> = environment.packages.iter().map(|(name, version)| format!("{name} {version}")).collect();
    format!("{} packages, {} MB: {}", names.len(), environment.bytes / 1_000_000, names.join(", "))
}

fn go(config: &Config) -> Option<Ready> {
    let name = "Go's library".to_owned();
    let began = Instant::now();
    let (done, is_done) = mpsc::channel::<()>();
    std::thread::spawn(move || {
        // A word only where it takes long: what is there is there at once.
        if is_done.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
            let _ = writeln!(std::io::stderr(), "belljar: compiling Go's library, which takes a minute, once");
        }
    });
    let warm = warm_up(&wiring::host(config));
    drop(done);
    match warm {
        Ok(cache) => {
            Some(Ready { name, state: Ok(format!("{} ({:.1} s)", cache.display(), began.elapsed().as_secs_f64())) })
        }
        // Nobody misses it who has no Go.
        Err(NotWarm::NoGo { .. }) => None,
        Err(error) => Some(Ready { name, state: Err(error.to_string()) }),
    }
}

/// What is being done, on one line of a terminal; elsewhere a line for each new thing, not too often.
struct Bar {
    began: Instant,
    is_terminal: bool,
    last: Mutex<(Instant, String)>,
}

const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_ON_PAPER: Duration = Duration::from_secs(2);
const WIDTH: usize = 20;

impl Bar {
    fn new(name: &str) -> Bar {
        let began = Instant::now();
        let _ = writeln!(std::io::stderr(), "belljar: installing the {name}");
        Bar { began, is_terminal: std::io::stderr().is_terminal(), last: Mutex::new((began, String::new())) }
    }

    fn shows(&self, progress: &Progress) {
        let Ok(mut last) = self.last.lock() else { return };
        let again = if self.is_terminal { AGAIN } else { AGAIN_ON_PAPER };
        if last.1 == progress.words || (last.0.elapsed() < again && !last.1.is_empty()) {
            return;
        }
        *last = (Instant::now(), progress.words.clone());
        let seconds = self.began.elapsed().as_secs();
        // Downloads and builds tell no total, so the bar shows how far the phases are.
        let filled = (progress.phase as usize + 1) * WIDTH / 8;
        let words: String = progress.words.chars().filter(|c| !c.is_control()).take(60).collect();
        let mut err = std::io::stderr().lock();
        let _ = if self.is_terminal {
            write!(err, "\r\x1b[K[{}{}] {seconds:>3} s {words}", "#".repeat(filled), ".".repeat(WIDTH - filled))
                .and_then(|()| err.flush())
        } else {
            writeln!(err, "belljar: {words} ({seconds} s)")
        };
    }

    fn ends(&self) {
        if self.is_terminal {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
