//! What an engine is asked to make for a sandbox: everything taken away that can be, and a bound on the rest.

use std::collections::HashMap;

use belljar_core::Limits;
use belljar_core::wire::SETTLE;
use bollard::models::{
    ContainerCreateBody, HealthConfig, HostConfig, HostConfigCgroupnsModeEnum, HostConfigLogConfig, Mount, MountType,
    ResourcesUlimits, RestartPolicy, RestartPolicyNameEnum,
};
use rustix::process::{Resource, getrlimit};

use super::engine::Kind;

/// The user that programs are, in every place.
const USER: &str = "1000:1000";

/// How the disk is shared out, in parts of 32. An engine mounts each writable place by itself, and together they may be no
/// larger than the disk. The last is `/dev/shm`, which engines have a setting of its own for.
const PARTS: [(&str, u64, &str); 4] =
    [("/workspace", 20, "0755"), ("/tmp", 6, "1777"), ("/home/agent", 3, "0755"), ("/var/tmp", 1, "1777")];
const SHM_PARTS: u64 = 2;
const ALL_PARTS: u64 = 32;

/// A file takes at least a page.
const PAGE: u64 = 4096;

/// The guest and the runner beside each program are not the caller's.
const OWN_PROCESSES: u32 = 2;

/// What Podman may give on any host: it takes no more than 32768 for itself.
const PROCESSES_MAX: u64 = 16_384;

/// What gVisor's own kernel takes beside what the programs have, before the guest's watch can have seen it.
const SENTRY_BYTES: u64 = 192 * 1024 * 1024;
/// Threads of gVisor's own, which the engine's limit counts too.
const SENTRY_PROCESSES: u32 = 512;

/// More of /proc and /sys than engines hide by themselves: what tells of the host and is of no use inside.
const MASKED: [&str; 18] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/cmdline",
    "/proc/interrupts",
    "/proc/kallsyms",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/partitions",
    "/proc/pressure",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/devices/virtual/dmi",
    "/sys/firmware",
    "/sys/kernel",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// What holds for every container of one server.
#[derive(Debug, Clone)]
pub(super) struct Ways {
    pub(super) kind: Kind,
    pub(super) runtime: Option<String>,
    /// The system calls, in the form that this engine takes: the profile itself, or a file with it. None if there is no way.
    pub(super) seccomp: Option<String>,
    pub(super) labels: HashMap<String, String>,
}

impl Ways {
    /// Whether the container's kernel is gVisor's, and not the host's.
    pub(super) fn is_gvisor(&self) -> bool {
        self.runtime.as_deref().is_some_and(|runtime| runtime.contains("runsc"))
    }
}

/// One container.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    pub(super) image: &'a str,
    /// What settles there is told.
    pub(super) arguments: Vec<String>,
    pub(super) limits: &'a Limits,
    /// Directories of the host, as (there, inside, writable).
    pub(super) binds: Vec<(String, String, Writable)>,
    /// Places that the image wants as volumes of its own, which would be disk without a bound.
    pub(super) volumes: &'a [String],
    pub(super) has_network: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Writable {
    Yes,
    No,
}

pub(super) fn body(ways: &Ways, wanted: Wanted<'_>) -> ContainerCreateBody {
    ContainerCreateBody {
        hostname: Some("belljar".to_owned()),
        user: Some(USER.to_owned()),
        attach_stdin: Some(true),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        open_stdin: Some(true),
        // Whoever is attached is the only one: when the server is gone, however it went, the guest's stream ends.
        stdin_once: Some(true),
        tty: Some(false),
        entrypoint: Some(vec![SETTLE.to_owned()]),
        cmd: Some(wanted.arguments.clone()),
        working_dir: Some("/".to_owned()),
        image: Some(wanted.image.to_owned()),
        network_disabled: Some(false),
        // An image's own would be run beside the programs, again and again.
        healthcheck: Some(HealthConfig { test: Some(vec!["NONE".to_owned()]), ..HealthConfig::default() }),
        labels: Some(ways.labels.clone()),
        host_config: Some(host_config(ways, &wanted)),
        ..ContainerCreateBody::default()
    }
}

fn host_config(ways: &Ways, wanted: &Wanted<'_>) -> HostConfig {
    let limits = wanted.limits;
    let mut memory = limits.memory_bytes;
    let mut processes = limits.processes + OWN_PROCESSES;
    if ways.is_gvisor() {
        memory += memory / 4 + SENTRY_BYTES;
        processes += SENTRY_PROCESSES;
    }
    let memory = i64::try_from(memory).unwrap_or(i64::MAX);
    let mut security = vec!["no-new-privileges".to_owned()];
    security.extend(ways.seccomp.iter().map(|profile| format!("seccomp={profile}")));
    let files = i64::from(limits.open_files);
    // Processes are counted for the user by the kernel, and all sandboxes have the same one: the engine's own limit, which
    // is the sandbox's alone, is what holds them.
    let mut ulimits: Vec<_> =
        [("nofile", files), ("core", 0), ("memlock", 0), ("msgqueue", 0)].map(|(name, most)| limit(name, most)).into();
    if ways.kind == Kind::Podman {
        // Otherwise it asks for as many as there can be, which it may not have itself.
        let most = getrlimit(Resource::Nproc).maximum.map_or(PROCESSES_MAX, |most| most.min(PROCESSES_MAX));
        ulimits.push(limit("nproc", i64::try_from(most).unwrap_or(i64::MAX)));
    }
    let bind = |(host, inside, writable): &(String, String, Writable)| Mount {
        target: Some(inside.clone()),
        source: Some(host.clone()),
        typ: Some(MountType::BIND),
        read_only: Some(*writable == Writable::No),
        ..Mount::default()
    };
    HostConfig {
        memory: Some(memory),
        memory_swap: Some(memory),
        nano_cpus: Some(i64::from(limits.cpu_milli) * 1_000_000),
        pids_limit: Some(i64::from(processes)),
        ulimits: Some(ulimits),
        init: Some(false),
        log_config: Some(HostConfigLogConfig { typ: Some("none".to_owned()), config: None }),
        network_mode: Some("none".to_owned()),
        dns: Some(vec!["127.0.0.1".to_owned()]),
        restart_policy: Some(RestartPolicy { name: Some(RestartPolicyNameEnum::NO), maximum_retry_count: None }),
        auto_remove: Some(true),
        mounts: Some(wanted.binds.iter().map(bind).collect()),
        cap_drop: Some(vec!["ALL".to_owned()]),
        // gVisor has no cgroups of the host's to show.
        cgroupns_mode: (!ways.is_gvisor()).then_some(HostConfigCgroupnsModeEnum::PRIVATE),
        ipc_mode: Some("private".to_owned()),
        oom_score_adj: Some(500),
        privileged: Some(false),
        readonly_rootfs: Some(true),
        security_opt: Some(security),
        tmpfs: Some(places(ways.kind, limits.disk_bytes, wanted.volumes)),
        shm_size: Some(i64::try_from(part(limits.disk_bytes, SHM_PARTS)).unwrap_or(i64::MAX)),
        sysctls: (wanted.has_network && !ways.is_gvisor())
            .then(|| HashMap::from([("net.ipv4.ip_unprivileged_port_start".to_owned(), "0".to_owned())])),
        runtime: ways.runtime.clone(),
        masked_paths: Some(MASKED.map(str::to_owned).into()),
        readonly_paths: Some(READ_ONLY.map(str::to_owned).into()),
        ..HostConfig::default()
    }
}

fn limit(name: &str, most: i64) -> ResourcesUlimits {
    ResourcesUlimits { name: Some(name.to_owned()), soft: Some(most), hard: Some(most) }
}

fn part(disk_bytes: u64, parts: u64) -> u64 {
    (disk_bytes / ALL_PARTS * parts / PAGE * PAGE).max(PAGE)
}

/// What is mounted at each writable place.
fn places(kind: Kind, disk_bytes: u64, volumes: &[String]) -> HashMap<String, String> {
    let own = PARTS.map(|(path, parts, mode)| {
        let bytes = part(disk_bytes, parts);
        let inodes = (bytes / PAGE).max(256);
        let options = match kind {
            Kind::Docker => {
                format!("rw,exec,nosuid,nodev,size={bytes},nr_inodes={inodes},mode={mode},uid=1000,gid=1000")
            }
            // Podman knows fewer, and the runtime takes the mode of the image's own directory, which is made for it.
            Kind::Podman => format!("rw,exec,nosuid,nodev,size={bytes},mode=1777,notmpcopyup"),
        };
        (path.to_owned(), options)
    });
    let of_image = volumes.iter().map(|path| (path.clone(), "ro,noexec,nosuid,nodev,size=4096".to_owned()));
    // Nobody in there has a terminal, and to read one that does not exist yet is to wait for ever.
    let hidden = [("/dev/pts".to_owned(), "ro,noexec,nosuid,nodev,size=4096,mode=555".to_owned())];
    of_image.chain(own).chain(hidden).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_places_together_are_no_larger_than_the_disk() {
        assert_eq!(PARTS.iter().map(|(_, parts, _)| parts).sum::<u64>() + SHM_PARTS, ALL_PARTS);
        for disk_bytes in [1 << 20, 4 << 20, 512 << 20, (1 << 30) + 12_345] {
            let sum: u64 = PARTS.iter().map(|(_, parts, _)| part(disk_bytes, *parts)).sum();
            assert!(sum + part(disk_bytes, SHM_PARTS) <= disk_bytes, "{disk_bytes}");
        }
    }

    #[test]
    fn a_volume_of_the_image_is_no_disk() {
        let places = places(Kind::Docker, 64 << 20, &["/data".to_owned(), "/tmp".to_owned()]);
        assert!(places["/data"].starts_with("ro,"));
        assert!(places["/tmp"].starts_with("rw,"), "our own places stay ours");
    }
}
