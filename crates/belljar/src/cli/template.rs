//! `belljar template`: root file systems for sandboxes, made of images, tars and directories.

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use belljar_images::{Bounds, Built, ImageError, Progress, Source, Store, Tell};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::complaint::Complaint;
use crate::config::Config;
use crate::wiring;

#[derive(Debug, Args)]
pub(super) struct Template {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make a root file system, and give it a name
    Build {
        /// How templates of the configuration call it: image = "NAME"
        name: String,
        #[command(flatten)]
        from: From,
        /// The image's registry has no TLS
        #[arg(long, requires = "image")]
        insecure: bool,
    },
    /// Every root file system that was made
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Take a name away, with all that nothing else needs
    Remove { name: String },
}

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct From {
    /// An image of a registry, such as python:3.12-slim
    #[arg(long, value_name = "REF")]
    image: Option<String>,
    /// A root file system as a tar, plain or compressed with gzip or zstd
    #[arg(long, value_name = "FILE")]
    tar: Option<PathBuf>,
    /// A directory that is a root file system
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Template {
    pub(super) fn execute(self, config: &Config) -> anyhow::Result<ExitCode> {
        let Some(cache) = wiring::usual_cache() else {
            return Err(Complaint::new("there is no home directory to keep images in", "set HOME").into());
        };
        let store = Store::open(&cache.join("images")).map_err(complain)?;
        match self.action {
            Action::Build { name, from, insecure } => build(store, &name, from, insecure, config)?,
            Action::List { json } => list(&store, json)?,
            Action::Remove { name } => {
                if !store.remove(&name).map_err(complain)? {
                    let names: Vec<String> = store.list().map_err(complain)?.into_iter().map(|one| one.name).collect();
                    let hint = match names.as_slice() {
                        [] => "there is none; `belljar template build NAME --image REF` makes one".to_owned(),
                        names => format!("use one of: {}", names.join(", ")),
                    };
                    return Err(Complaint::new(format!("there is no image {name:?}"), hint).into());
                }
                writeln!(std::io::stdout(), "removed  {name}")?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn complain(error: ImageError) -> Complaint {
    Complaint::new(error.words, error.kind.next_step())
}

fn build(store: Store, name: &str, from: From, insecure: bool, config: &Config) -> anyhow::Result<()> {
    let mut registries = config.images.registries();
    let source = match from {
        From { image: Some(reference), .. } => {
            if insecure {
                registries.insecure.extend(host_of(&reference));
            }
            Source::Image(reference)
        }
        From { tar: Some(file), .. } => Source::Tar(file),
        From { dir, .. } => Source::Dir(dir.unwrap_or_default()),
    };
    let store = store.with(registries, Bounds::default());
    let runtime = wiring::runtime_for_many()?;
    let bar = Arc::new(Bar::new(name));
    let tell: Tell = {
        let bar = Arc::clone(&bar);
        Arc::new(move |progress| bar.shows(progress))
    };
    let built = runtime.block_on(async {
        tokio::select! {
            built = store.build(name, source, tell) => built.map_err(complain),
            // Dropped, it removes what it has made so far.
            _ = tokio::signal::ctrl_c() => Err(Complaint::new("interrupted", "nothing of it is left; start it again")),
        }
    });
    bar.ends();
    let Built { root, bytes, layers, skipped } = built?;
    let mut out = std::io::stdout().lock();
    let words: Vec<&str> = root.interpreters.iter().map(|found| found.name.as_str()).collect();
    let has = if words.is_empty() { "no interpreter and no shell".to_owned() } else { words.join(", ") };
    writeln!(out, "ready    {name}: {} MB in {layers} layers, {}; has {has}", bytes / 1_000_000, root.digest)?;
    if skipped > 0 {
        writeln!(std::io::stderr(), "belljar: {skipped} devices, pipes and sockets were left out")?;
    }
    if words.is_empty() {
        writeln!(std::io::stderr(), "belljar: no program can be run on it; sandboxes need a shell, Python or Node.js")?;
    }
    Ok(())
}

/// The registry of a reference that names one.
fn host_of(reference: &str) -> Option<String> {
    let (host, _) = reference.split_once('/')?;
    (host == "localhost" || host.contains(['.', ':'])).then(|| host.to_owned())
}

fn list(store: &Store, as_json: bool) -> anyhow::Result<()> {
    let all = store.list().map_err(complain)?;
    let mut out = std::io::stdout().lock();
    if as_json {
        let all: Vec<_> = all
            .iter()
            .map(|one| {
                let interpreters: Vec<_> = one
                    .interpreters
                    .iter()
                    .map(|found| json!({"language": found.language.name(), "name": found.name, "path": found.path}))
                    .collect();
                json!({"name": one.name, "source": one.source, "digest": one.digest, "bytes": one.bytes,
                       "built": one.built, "interpreters": interpreters})
            })
            .collect();
        writeln!(out, "{:#}", json!(all))?;
        return Ok(());
    }
    if all.is_empty() {
        writeln!(std::io::stderr(), "belljar: there is none; `belljar template build NAME --image REF` makes one")?;
    }
    for one in all {
        let names: Vec<&str> = one.interpreters.iter().map(|found| found.name.as_str()).collect();
        let megabytes = one.bytes / 1_000_000;
        writeln!(out, "{:<16} {megabytes:>6} MB  {}  ({})", one.name, one.source, names.join(", "))?;
    }
    Ok(())
}

/// How far it is, on one line of a terminal; elsewhere a line for each new thing, not too often.
struct Bar {
    began: Instant,
    is_terminal: bool,
    last: Mutex<(Option<Instant>, String)>,
}

const AGAIN: Duration = Duration::from_millis(100);
const AGAIN_ON_PAPER: Duration = Duration::from_secs(2);
const WIDTH: u64 = 20;

impl Bar {
    fn new(name: &str) -> Bar {
        let _ = writeln!(std::io::stderr(), "belljar: building {name}");
        Bar { began: Instant::now(), is_terminal: std::io::stderr().is_terminal(), last: Mutex::default() }
    }

    fn shows(&self, progress: Progress) {
        let (step, filled, words) = match progress {
            Progress::Downloading { number, of, done_bytes, total_bytes } => {
                let filled = done_bytes * WIDTH / total_bytes.max(1);
                let megabytes = |bytes: u64| bytes as f64 / 1e6;
                let (done, total) = (megabytes(done_bytes), megabytes(total_bytes));
                let step = format!("layer {number} of {of}");
                (step.clone(), filled, format!("{step}: {done:.1} of {total:.1} MB"))
            }
            Progress::Unpacking { number, of } => {
                let words = format!("unpacking layer {number} of {of}");
                (words.clone(), number as u64 * WIDTH / of.max(1) as u64, words)
            }
            Progress::Assembling => ("assembling".to_owned(), WIDTH, "putting the layers together".to_owned()),
        };
        let Ok(mut last) = self.last.lock() else { return };
        let again = if self.is_terminal { AGAIN } else { AGAIN_ON_PAPER };
        if last.1 == step && last.0.is_some_and(|told| told.elapsed() < again) {
            return;
        }
        *last = (Some(Instant::now()), step);
        let seconds = self.began.elapsed().as_secs();
        let filled = usize::try_from(filled.min(WIDTH)).unwrap_or(0);
        let mut err = std::io::stderr().lock();
        let _ = if self.is_terminal {
            let left = WIDTH as usize - filled;
            write!(err, "\r\x1b[K[{}{}] {seconds:>3} s {words}", "#".repeat(filled), ".".repeat(left))
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
