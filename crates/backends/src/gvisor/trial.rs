//! Whether runsc can start anything here at all, found out by letting it.

use std::io::Read;
use std::process::Stdio;
use std::time::{Duration, Instant};

use belljar_core::wire::SETTLE;

use super::Base;
use super::bundle::Bundle;
use super::runsc::Runsc;

/// More than a busy machine takes.
const PATIENCE: Duration = Duration::from_secs(15);
const SAID_MAX: u64 = 2048;

/// Starts settle without a plan, which it says is none, and ends. How long that took, or what runsc said instead.
pub(super) fn run(runsc: &Runsc, base: &Base) -> Result<Duration, String> {
    let directory = base.run.add().map_err(|error| error.to_string())?;
    let binds = base.root.binds.clone();
    let bundle = Bundle { root: &base.root.path, arguments: vec![SETTLE.to_owned()], binds, build: None };
    let ran = bundle.write(&directory).map_err(|error| error.to_string()).and_then(|()| {
        let mut command = runsc.run("s", &directory, &directory.join("r"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let started = Instant::now();
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        while child.try_wait().is_ok_and(|status| status.is_none()) && started.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(2));
        }
        let took = started.elapsed();
        let _ = child.kill();
        let _ = child.wait();
        let mut word = Vec::new();
        let heard = child.stdout.take().is_some_and(|out| out.take(SAID_MAX).read_to_end(&mut word).is_ok());
        if heard && !word.is_empty() {
            return Ok(took);
        }
        let mut said = Vec::new();
        let _ = child.stderr.take().map(|err| err.take(SAID_MAX).read_to_end(&mut said));
        let said = String::from_utf8_lossy(&said).split_whitespace().collect::<Vec<_>>().join(" ");
        Err(if took >= PATIENCE { format!("no word in {} seconds {said}", PATIENCE.as_secs()) } else { said })
    });
    let _ = std::fs::remove_dir_all(&directory);
    ran
}
