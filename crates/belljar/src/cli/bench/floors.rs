//! The bare programs that everything is compared with: spawned, read to the end, reaped.
//!
//! std spawns by posix_spawn, which shares our memory until the exec, so that the size of this process costs nothing.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use tempfile::TempDir;

use super::client::{Client, Sample};

pub(super) const SUM: &str = "print(1+1)";

/// The interpreters that sandboxes use, which are the same files outside: each side must run the same one, and not a shim
/// that has to find it first.
#[derive(Debug)]
pub(super) struct Interpreters {
    python: Option<PathBuf>,
    node: Option<PathBuf>,
    bash: Option<PathBuf>,
}

impl Interpreters {
    pub(super) fn ask(client: &mut impl Client) -> Interpreters {
        let mut ask = |language, code| client.ask(language, code).ok().map(PathBuf::from).filter(|path| path.is_file());
        Interpreters {
            python: ask("python", "import sys; print(sys.executable)"),
            node: ask("javascript", "console.log(process.execPath)"),
            bash: ask("shell", "command -v bash"),
        }
    }

    pub(super) fn python(&self) -> anyhow::Result<&Path> {
        self.python.as_deref().context("this machine has no python; belljar doctor says how to get it")
    }

    pub(super) fn node(&self) -> anyhow::Result<&Path> {
        self.node.as_deref().context("this machine has no node; belljar doctor says how to get it")
    }

    pub(super) fn bash(&self) -> anyhow::Result<&Path> {
        self.bash.as_deref().context("this machine has no bash; belljar doctor says how to get it")
    }
}

/// A program from nothing to its end; what it says on stderr is its own.
pub(super) fn run(program: &Path, words: &[&str], expected: &str) -> anyhow::Result<Sample> {
    let mut output = Vec::with_capacity(expected.len() + 1);
    let took = time(Command::new(program).args(words), &mut output)?;
    if output != expected.as_bytes() {
        let printed: String = String::from_utf8_lossy(&output).chars().take(100).collect();
        bail!("{} printed {printed:?}", program.display());
    }
    Ok(Ok(took))
}

fn time(command: &mut Command, output: &mut Vec<u8>) -> anyhow::Result<Duration> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let started = Instant::now();
    let mut child = command.spawn().context("starting a bare program")?;
    if let Some(stdout) = &mut child.stdout {
        stdout.read_to_end(output).context("reading from a bare program")?;
    }
    let status = child.wait().context("waiting for a bare program")?;
    let took = started.elapsed();
    if !status.success() {
        bail!("a bare program failed ({status})");
    }
    Ok(took)
}

/// What a program prints, however long that takes; `None` if it fails.
pub(super) fn output(program: &Path, words: &[&str]) -> Option<String> {
    let mut output = Vec::new();
    time(Command::new(program).args(words), &mut output).ok()?;
    String::from_utf8(output).ok()
}

/// A file written and read by `cat`.
#[derive(Debug)]
pub(super) struct Cat {
    folder: TempDir,
    length: usize,
}

impl Cat {
    pub(super) fn of(data: &[u8]) -> anyhow::Result<Cat> {
        let folder = tempfile::tempdir().context("making a folder")?;
        fs::write(folder.path().join("data"), data).context("writing a file")?;
        Ok(Cat { folder, length: data.len() })
    }

    pub(super) fn round_trip(&self) -> anyhow::Result<Sample> {
        let (data, copy) = (self.folder.path().join("data"), self.folder.path().join("copy"));
        let data = File::open(data).context("opening a file")?;
        let mut output = Vec::with_capacity(self.length + 1);
        let started = Instant::now();
        let copy_to = File::create(&copy).context("making a file")?;
        let status = Command::new("cat").stdin(data).stdout(copy_to).status().context("running cat")?;
        time(Command::new("cat").arg(&copy), &mut output)?;
        let took = started.elapsed();
        if !status.success() || output.len() != self.length {
            bail!("cat gave {} bytes of {}", output.len(), self.length);
        }
        Ok(Ok(took))
    }
}

/// A program in a language that is compiled, each time another one, so that no cache has it.
#[derive(Debug)]
pub(super) struct Compiled {
    pub(super) language: &'static str,
    compiler: PathBuf,
    folder: TempDir,
}

impl Compiled {
    /// `None` where sandboxes do not have the compiler.
    pub(super) fn find(client: &mut impl Client, language: &'static str) -> anyhow::Result<Option<Compiled>> {
        let name = if language == "go" { "go" } else { "rustc" };
        let compiler = client.ask("shell", &format!("command -v {name}")).ok().map(PathBuf::from);
        let Some(compiler) = compiler.filter(|compiler| compiler.is_file()) else { return Ok(None) };
        Ok(Some(Compiled { language, compiler, folder: tempfile::tempdir().context("making a folder")? }))
    }

    pub(super) fn code(&self, number: u32) -> String {
        match self.language {
            "go" => format!("package main\nimport \"fmt\"\nfunc main() {{ fmt.Println({number}+1) }}\n"),
            _ => format!("fn main() {{ println!(\"{{}}\", {number}+1); }}\n"),
        }
    }

    pub(super) fn expected(number: u32) -> String {
        format!("{}\n", number + 1)
    }

    /// As one would by hand: `go run`, or `rustc` and then the program.
    pub(super) fn run(&self, number: u32) -> anyhow::Result<Sample> {
        let folder = self.folder.path();
        let mut output = Vec::new();
        let took = if self.language == "go" {
            fs::write(folder.join("main.go"), self.code(number))?;
            time(Command::new(&self.compiler).args(["run", "main.go"]).current_dir(folder), &mut output)?
        } else {
            fs::write(folder.join("main.rs"), self.code(number))?;
            let mut compile = Command::new(&self.compiler);
            let compiled = time(compile.args(["-o", "main", "main.rs"]).current_dir(folder), &mut output)?;
            compiled + time(&mut Command::new(folder.join("main")), &mut output)?
        };
        if output != Compiled::expected(number).as_bytes() {
            bail!("bare {} printed something else", self.language);
        }
        Ok(Ok(took))
    }

    pub(super) fn floor(&self) -> &'static str {
        if self.language == "go" { "bare go run" } else { "bare rustc, then run" }
    }
}
