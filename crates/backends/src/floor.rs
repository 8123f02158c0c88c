//! What each wall costs without us: the engine's own way to run one program in a place of its own. For `belljar bench`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::host::Host;
use crate::registry::Choice;

/// A command that prints 2, made by the engine's own means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Floor {
    /// In a few words, for a table.
    pub words: &'static str,
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    pub output: &'static str,
}

/// The program that all of them run, where the engine runs any.
const SUM: [&str; 3] = ["python3", "-c", "print(1+1)"];

/// The floor of a wall; none for one that has no engine, and where its programs are not there, why.
pub fn floor(choice: Choice, host: &Host) -> Option<Result<Floor, String>> {
    match choice {
        Choice::Native => None,
        Choice::Docker => Some(docker(host)),
        Choice::Gvisor => Some(gvisor(host)),
        Choice::Microvm => Some(microvm(host)),
        Choice::Wasm => Some(wasm(host)),
    }
}

#[cfg(feature = "wasm")]
fn wasm(host: &Host) -> Result<Floor, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program cannot be started again: {error}"))?;
    let compiled = crate::wasm::compiled_python(host)?;
    let arguments = vec![belljar_wasm::FLOOR.into(), compiled.into(), "print(1+1)".into()];
    Ok(Floor { words: "bare wasmtime", program, arguments, output: "2\n" })
}

#[cfg(not(feature = "wasm"))]
fn wasm(_: &Host) -> Result<Floor, String> {
    Err("this build has no wasm wall".to_owned())
}

fn docker(host: &Host) -> Result<Floor, String> {
    let settings = &host.walls.docker;
    let program = in_path(host, "docker").ok_or("there is no `docker` command to compare with")?;
    let image = settings.image.clone().ok_or("[docker] image names no image")?;
    let mut arguments: Vec<OsString> = Vec::new();
    if let Some(socket) = &settings.socket {
        let socket = if socket.contains("://") { socket.clone() } else { format!("unix://{socket}") };
        arguments.extend(["-H".into(), socket.into()]);
    }
    arguments.extend(["run", "--rm", "--network", "none"].map(OsString::from));
    if let Some(runtime) = &settings.runtime {
        arguments.extend(["--runtime".into(), runtime.into()]);
    }
    arguments.push(image.into());
    arguments.extend(SUM.map(OsString::from));
    Ok(Floor { words: "docker run", program, arguments, output: "2\n" })
}

fn gvisor(host: &Host) -> Result<Floor, String> {
    let named = host.walls.gvisor.runsc.clone();
    let program = named.or_else(|| in_path(host, "runsc")).ok_or("there is no runsc")?;
    let mut arguments: Vec<OsString> =
        ["--network=none", "--platform=systrap", "--ignore-cgroups"].map(OsString::from).into();
    if !crate::sys::is_admin() {
        arguments.push("--rootless".into());
    }
    arguments.push("do".into());
    arguments.extend(SUM.map(OsString::from));
    Ok(Floor { words: "runsc do", program, arguments, output: "2\n" })
}

/// No program: to run one in a machine is what a monitor has no way for.
fn microvm(host: &Host) -> Result<Floor, String> {
    let (program, arguments) = crate::microvm::floor(host)?;
    Ok(Floor { words: "a bare machine to its first line", program, arguments, output: crate::microvm::FLOOR_OUTPUT })
}

pub(crate) fn in_path(host: &Host, name: &str) -> Option<PathBuf> {
    std::env::split_paths(&host.path).map(|directory| directory.join(name)).find(|path| is_program(path))
}

fn is_program(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok() && path.is_file()
}
