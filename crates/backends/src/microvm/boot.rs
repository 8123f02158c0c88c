//! Whether machines run here at all. That `/dev/kvm` opens proves nothing: there are hosts on which it does, and on which a
//! machine with an ordinary kernel then crawls or dies. So one is booted, and has to be up in time. What came of it is
//! kept: until this host or what we boot changes, it stays so.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::BackendError;

use super::control::Control;
use super::process::Walls;
use super::snapshot::name_of;
use super::vmm::{Beginning, Machine, Started, Vmm};

/// Real hardware needs a fraction of a second.
const KVM_MAX: Duration = Duration::from_secs(4);

/// A machine that only has to come up.
const MEMORY_BYTES: u64 = 256 << 20;

/// What a boot came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Up {
        after: Duration,
    },
    /// In words for the operator.
    Not {
        why: String,
    },
}

/// What this processor and this kernel say of KVM, before anything is booted. `None` is that nothing speaks against it.
pub(super) fn objection() -> Option<String> {
    objection_of(Path::new("/"))
}

fn objection_of(root: &Path) -> Option<String> {
    let device = root.join("dev/kvm");
    if !device.exists() {
        return Some(
            "there is no /dev/kvm: this machine's processor or its own host does not allow virtual machines".into(),
        );
    }
    if let Err(error) = std::fs::File::options().read(true).write(true).open(&device) {
        return Some(format!("/dev/kvm cannot be opened ({error}); the server's user has to be in the group kvm"));
    }
    None
}

/// What may be behind a machine that did not come up.
fn suspicion_of(root: &Path) -> &'static str {
    if root.join("sys/module/kvm_pvm").exists() {
        return "; this host has KVM by PVM, which needs a guest kernel that is made for it";
    }
    let flags = std::fs::read_to_string(root.join("proc/cpuinfo")).unwrap_or_default();
    let has = |flag: &str| flags.split_whitespace().any(|word| word == flag);
    if cfg!(target_arch = "x86_64") && !has("vmx") && !has("svm") {
        return "; this processor shows no support for virtual machines";
    }
    ""
}

/// Boots a machine and says whether it was up in time; the one answer for each `name` is kept in `directory`.
pub(super) async fn tried(
    directory: &Path,
    vmm: &dyn Vmm,
    walls: &Arc<Walls>,
    kernel: (PathBuf, PathBuf),
) -> Result<Verdict, BackendError> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let kept = directory.join(format!("{}.verdict", name_of(&(boot.trim(), vmm.name(), vmm.version(), &kernel))));
    if let Some(verdict) = std::fs::read_to_string(&kept).ok().and_then(|text| parse(&text)) {
        return Ok(verdict);
    }
    let verdict = boot_once(vmm, walls, kernel, KVM_MAX).await;
    // Kept or not, it is the answer for now.
    let _ = std::fs::write(&kept, words(&verdict));
    Ok(verdict)
}

async fn boot_once(vmm: &dyn Vmm, walls: &Arc<Walls>, kernel: (PathBuf, PathBuf), patience: Duration) -> Verdict {
    let machine = Machine {
        memory_bytes: MEMORY_BYTES,
        cpu_milli: 1000,
        kernel: kernel.0,
        initramfs: kernel.1,
        command_line: format!("{} belljar.fs=none", vmm.command_line()),
        drives: Vec::new(),
    };
    let began = Instant::now();
    let booted = async {
        let Started { vm, streams } = vmm.start(walls, &machine, Beginning::default()).await?;
        let ready = Control::new(streams.keeper).ready(patience).await;
        let console = vm.console();
        vm.process().destroy().await;
        ready.map_err(|error| match console.as_str() {
            "" => error,
            last => crate::setup("booting", &format!("{}; the last it said: {last}", in_short(&error))),
        })
    };
    match tokio::time::timeout(patience * 2, booted).await {
        Ok(Ok(())) => Verdict::Up { after: began.elapsed() },
        Ok(Err(error)) => Verdict::Not { why: format!("{}{}", in_short(&error), suspicion_of(Path::new("/"))) },
        Err(_) => Verdict::Not { why: format!("its monitor hung{}", suspicion_of(Path::new("/"))) },
    }
}

/// Without what every such error begins with, for one that is part of another.
pub(super) fn in_short(error: &BackendError) -> String {
    match error {
        BackendError::Setup { step, why } => format!("{step}: {why}"),
        other => other.to_string(),
    }
}

fn words(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Up { after } => format!("up {}", after.as_millis()),
        Verdict::Not { why } => format!("not {why}"),
    }
}

fn parse(text: &str) -> Option<Verdict> {
    if let Some(after) = text.strip_prefix("up ") {
        return Some(Verdict::Up { after: Duration::from_millis(after.trim().parse().ok()?) });
    }
    text.strip_prefix("not ").map(|why| Verdict::Not { why: why.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_read_as_it_was_written() {
        for verdict in [Verdict::Up { after: Duration::from_millis(312) }, Verdict::Not { why: "it hung".to_owned() }] {
            assert_eq!(parse(&words(&verdict)), Some(verdict));
        }
        assert_eq!(parse("perhaps"), None);
    }

    #[test]
    fn a_host_says_what_may_be_wrong() {
        let root = tempfile::tempdir().unwrap();
        assert!(objection_of(root.path()).unwrap().contains("no /dev/kvm"));
        std::fs::create_dir_all(root.path().join("dev")).unwrap();
        std::fs::write(root.path().join("dev/kvm"), "").unwrap();
        assert_eq!(objection_of(root.path()), None);
        std::fs::create_dir_all(root.path().join("proc")).unwrap();
        std::fs::write(root.path().join("proc/cpuinfo"), "flags : fpu svm\n").unwrap();
        assert_eq!(suspicion_of(root.path()), "");
        std::fs::create_dir_all(root.path().join("sys/module/kvm_pvm")).unwrap();
        assert!(suspicion_of(root.path()).contains("PVM"));
    }
}
