//! Which system calls a sandbox may make: a list of what is allowed, everything else refused.
//!
//! Installing a filter makes the kernel try it on every call number, which for the long list takes most of a
//! millisecond. So the long list is put on the jail itself, once, with the few calls added that making a sandbox takes;
//! sandboxes inherit it, and each adds two short filters that take those few away again.
//!
//! | filter  | on             | answers                                                                           |
//! |---------|----------------|-----------------------------------------------------------------------------------|
//! | allow   | jail and below | ENOSYS to all that is off the list: runtimes fall back as on an older kernel      |
//! | refuse  | jail and below | EPERM to the refusals that people meet                                            |
//! | finish  | sandbox        | EPERM to the calls that made it                                                   |
//! | clone3  | sandbox        | ENOSYS, upon which every C library uses clone, whose flags a filter can see       |
//!
//! In a place that another made, a container's or gVisor's, there is no jail, and the first process puts up all four.
//!
//! A zygote has them all but for `setns`, which its forks lose when they have entered their sandbox.
//!
//! Of several errors the kernel returns the one of the filter installed last. Another architecture than the machine's
//! own, such as 32-bit calls on x86_64, ends the process; x32 numbers are simply not on the list.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, apply_filter,
};

use crate::error::{Failure, Outcome};
use crate::walls::is_gvisors;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

const ENOSYS: SeccompAction = SeccompAction::Errno(libc::ENOSYS as u32);
const EPERM: SeccompAction = SeccompAction::Errno(libc::EPERM as u32);

/// Puts the long filters on this process and all that it will start.
pub fn restrict_jail() -> Outcome<()> {
    install(&program(allowed()?, ENOSYS, SeccompAction::Allow)?)?;
    install(&program(refused()?, SeccompAction::Allow, EPERM)?)
}

/// What a process adds to the filters that it inherits. Compiled once.
#[derive(Debug)]
pub struct Filter(Vec<BpfProgram>);

impl Filter {
    /// For a sandbox's first process.
    pub fn sandbox() -> Outcome<Filter> {
        Filter::new(&[MAKING, ENTERING].concat(), &[libc::SYS_clone3])
    }

    /// For the first process of a place that no jail of ours has made, which inherits no list: all of it.
    pub fn settled() -> Outcome<Filter> {
        let long = program(allowed()?, ENOSYS, SeccompAction::Allow)?;
        let known = program(refused()?, SeccompAction::Allow, EPERM)?;
        let mut programs = vec![long, known];
        programs.extend(Filter::sandbox()?.0);
        if is_gvisors() {
            // For a link its answer is that the descriptor is bad, which `ls -l` and `cp -a` take for a fault of the file's.
            let none = SeccompAction::Errno(libc::ENOTSUP as u32);
            programs.push(program(unconditional(&[libc::SYS_lgetxattr]), SeccompAction::Allow, none)?);
        }
        Ok(Filter(programs))
    }

    /// For a zygote.
    pub fn zygote() -> Outcome<Filter> {
        Filter::new(MAKING, &[libc::SYS_clone3])
    }

    /// For what a zygote has forked: with the one above it makes the sandbox's.
    pub fn forked() -> Outcome<Filter> {
        Filter::new(ENTERING, &[])
    }

    fn new(refused: &[i64], unknown: &[i64]) -> Outcome<Filter> {
        let mut programs = vec![program(unconditional(refused), SeccompAction::Allow, EPERM)?];
        if !unknown.is_empty() {
            programs.push(program(unconditional(unknown), SeccompAction::Allow, ENOSYS)?);
        }
        Ok(Filter(programs))
    }

    pub fn install(&self) -> Outcome<()> {
        self.0.iter().try_for_each(install)
    }
}

fn install(program: &BpfProgram) -> Outcome<()> {
    apply_filter(program).map_err(|_| failure("installing a seccomp filter"))
}

fn unconditional(calls: &[i64]) -> Rules {
    calls.iter().map(|&call| (call, Vec::new())).collect()
}

fn program(rules: Rules, otherwise: SeccompAction, matched: SeccompAction) -> Outcome<BpfProgram> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(|_| failure("naming the architecture"))?;
    SeccompFilter::new(rules, otherwise, matched, arch)
        .and_then(BpfProgram::try_from)
        .map_err(|_| failure("compiling a seccomp filter"))
}

fn failure(step: &str) -> Failure {
    Failure { step: step.to_owned(), errno: libc::EINVAL }
}

fn allowed() -> Outcome<Rules> {
    let mut rules = unconditional(ALLOWED);
    rules.extend(unconditional(LEGACY));
    rules.extend(unconditional(MAKING));
    rules.extend(unconditional(ENTERING));
    rules.insert(libc::SYS_clone3, Vec::new());

    // No new namespaces: with one of one's own, a process has every capability over much of the kernel.
    rules.insert(libc::SYS_clone, vec![rule([zero_bits(0, NAMESPACE_FLAGS)])?]);

    // Families by list, and of the internet's only the plain protocols: others are rarely used code that some kernels
    // load on demand. Netlink only to ask for addresses and routes, as getifaddrs does.
    let family = |family: i32| equal(0, family as u64);
    let protocol = |protocol: i32| equal(2, protocol as u64);
    let mut socket =
        vec![rule([family(libc::AF_UNIX)])?, rule([family(libc::AF_NETLINK), protocol(libc::NETLINK_ROUTE)])?];
    for internet in [libc::AF_INET, libc::AF_INET6] {
        for plain in [libc::IPPROTO_IP, libc::IPPROTO_TCP, libc::IPPROTO_UDP] {
            socket.push(rule([family(internet), protocol(plain)])?);
        }
    }
    rules.insert(libc::SYS_socket, socket);
    rules.insert(libc::SYS_socketpair, vec![rule([family(libc::AF_UNIX)])?]);

    // No packet filters: the kernel keeps their code in a small store that all of the machine shares. No protocols on
    // top of TCP.
    let (socket_level, tcp_level) = (libc::SOL_SOCKET as u64, libc::IPPROTO_TCP as u64);
    let filters = [libc::SO_ATTACH_FILTER, SO_ATTACH_BPF, SO_ATTACH_REUSEPORT_CBPF, SO_ATTACH_REUSEPORT_EBPF];
    let [one, two, three, four] = filters.map(|option| differs(2, option as u64));
    rules.insert(
        libc::SYS_setsockopt,
        vec![
            rule([differs(1, socket_level), differs(1, tcp_level)])?,
            rule([equal(1, socket_level), one, two, three, four])?,
            rule([equal(1, tcp_level), differs(2, libc::TCP_ULP as u64)])?,
        ],
    );

    // Programs have the guest's user id; its limits and its share of the processor are not theirs to set. Zero is
    // oneself. A whole user's processes would be the guest's too.
    rules.insert(libc::SYS_prlimit64, vec![rule([equal(0, 0)])?, rule([null(2)])?]);
    for call in
        [libc::SYS_sched_setaffinity, libc::SYS_sched_setattr, libc::SYS_sched_setparam, libc::SYS_sched_setscheduler]
    {
        rules.insert(call, vec![rule([differs(0, GUEST_PID)])?]);
    }
    let of_process = |process: u64| rule([equal(0, process), differs(1, GUEST_PID)]);
    let of_group = |group: u64| rule([equal(0, group)]);
    let (process, group) = (u64::from(libc::PRIO_PROCESS), u64::from(libc::PRIO_PGRP));
    rules.insert(libc::SYS_setpriority, vec![of_process(process)?, of_group(group)?]);
    rules.insert(libc::SYS_ioprio_set, vec![of_process(IOPRIO_WHO_PROCESS)?, of_group(IOPRIO_WHO_PGRP)?]);

    // A watch on a directory shows what everyone on the host does in it: see inotify, which is off the list.
    rules.insert(libc::SYS_fcntl, vec![rule([differs(1, libc::F_NOTIFY as u64)])?]);

    // Pipes and sockets, and no devices: a kernel that is not the host's may let anybody make and open them.
    rules.insert(libc::SYS_mknodat, vec![rule([zero_bits(2, DEVICE)])?]);
    #[cfg(target_arch = "x86_64")]
    rules.insert(libc::SYS_mknod, vec![rule([zero_bits(1, DEVICE)])?]);

    // No pushing of input into a terminal. The kernel looks at 32 bits of the request, and so do we.
    rules.insert(libc::SYS_ioctl, vec![rule([differs(1, TIOCSTI), differs(1, TIOCLINUX)])?]);

    // Only "tell me which": others turn off ASLR or read-implies-exec.
    rules.insert(libc::SYS_personality, vec![rule([equal(0, 0)])?, rule([equal(0, 0xffff_ffff)])?]);
    Ok(rules)
}

/// Refusals with the errno that people and programs know. All of these are off the list above as well.
fn refused() -> Outcome<Rules> {
    let mut rules = unconditional(REFUSED);
    let families = [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];
    let other = families.map(|family| differs(0, family as u64));
    rules.insert(libc::SYS_socket, vec![rule(other)?]);
    Ok(rules)
}

const NAMESPACE_FLAGS: u64 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET) as u64;
const GUEST_PID: u64 = 1;
const IOPRIO_WHO_PROCESS: u64 = 1;
const IOPRIO_WHO_PGRP: u64 = 2;
const SO_ATTACH_BPF: i32 = 50;
const SO_ATTACH_REUSEPORT_CBPF: i32 = 51;
const SO_ATTACH_REUSEPORT_EBPF: i32 = 52;
/// The bit of a mode that devices have, of characters or of blocks, and nothing else.
const DEVICE: u64 = 0o020_000;
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541C;

type Condition = Result<SeccompCondition, seccompiler::BackendError>;

fn equal(argument: u8, value: u64) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
}

fn differs(argument: u8, value: u64) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Ne, value)
}

fn null(argument: u8) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)
}

fn zero_bits(argument: u8, mask: u64) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(mask), 0)
}

fn rule<const N: usize>(conditions: [Condition; N]) -> Outcome<SeccompRule> {
    let conditions: Result<Vec<_>, _> = conditions.into_iter().collect();
    SeccompRule::new(conditions.map_err(|_| failure("a seccomp condition"))?).map_err(|_| failure("a seccomp rule"))
}

macro_rules! calls {
    ($($name:ident)*) => { &[$(libc::$name),*] };
}

/// A list by numbers, and the same by names, for those who install filters by them.
macro_rules! named_calls {
    ($(#[$attribute:meta])* $list:ident $names:ident: $($name:ident)*) => {
        $(#[$attribute])*
        const $list: &[i64] = calls![$($name)*];
        $(#[$attribute])*
        const $names: &[&str] = &[$(stringify!($name)),*];
    };
}

/// What making a sandbox takes besides the list, and `clone3`. Gone once it is made.
const MAKING: &[i64] = calls![
    SYS_mount SYS_mount_setattr SYS_move_mount SYS_open_tree SYS_pivot_root SYS_sethostname SYS_umount2 SYS_unshare
];

/// What entering one takes.
const ENTERING: &[i64] = calls![SYS_setns];

const REFUSED: &[i64] = calls![
    SYS_acct SYS_add_key SYS_bpf SYS_chroot SYS_clock_settime SYS_delete_module SYS_fanotify_init SYS_finit_module
    SYS_fsmount SYS_fsopen SYS_init_module SYS_kcmp SYS_kexec_load SYS_keyctl SYS_name_to_handle_at SYS_open_by_handle_at SYS_perf_event_open SYS_pidfd_getfd
    SYS_process_vm_readv SYS_process_vm_writev SYS_ptrace SYS_quotactl SYS_reboot SYS_request_key SYS_setdomainname
    SYS_settimeofday SYS_swapoff SYS_swapon SYS_syslog SYS_userfaultfd SYS_vhangup
];

named_calls! {
    /// Not here though harmless by their looks: inotify, whose watches on the shared root show what the host and other
    /// sandboxes do there, and whose instances are counted for the whole of the host's user; sync and syncfs, which flush the
    /// host's disks. What needs an argument looked at is added in [`allowed`].
    ALLOWED ALLOWED_NAMES:
    SYS_accept SYS_accept4 SYS_bind SYS_brk SYS_capget SYS_capset SYS_chdir SYS_clock_getres SYS_clock_gettime
    SYS_clock_nanosleep SYS_close SYS_close_range SYS_connect SYS_copy_file_range SYS_dup SYS_dup3 SYS_epoll_create1
    SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_eventfd2 SYS_execve SYS_execveat SYS_exit SYS_exit_group
    SYS_faccessat SYS_faccessat2 SYS_fadvise64 SYS_fallocate SYS_fchdir SYS_fchmod SYS_fchmodat SYS_fchmodat2 SYS_fchown
    SYS_fchownat SYS_fdatasync SYS_fgetxattr SYS_flistxattr SYS_flock SYS_fremovexattr SYS_fsetxattr
    SYS_fstat SYS_fstatfs SYS_fsync SYS_ftruncate SYS_futex SYS_futex_waitv SYS_getcpu SYS_getcwd SYS_getdents64
    SYS_getegid SYS_geteuid SYS_getgid SYS_getgroups SYS_getitimer SYS_getpeername SYS_getpgid SYS_getpid SYS_getppid
    SYS_getpriority SYS_getrandom SYS_getresgid SYS_getresuid SYS_getrlimit SYS_get_robust_list SYS_getrusage
    SYS_getsid SYS_getsockname SYS_getsockopt SYS_gettid SYS_gettimeofday SYS_getuid SYS_getxattr
    SYS_ioprio_get SYS_kill SYS_landlock_add_rule
    SYS_landlock_create_ruleset SYS_landlock_restrict_self SYS_lgetxattr SYS_linkat SYS_listen SYS_listxattr
    SYS_llistxattr SYS_lremovexattr SYS_lseek SYS_lsetxattr SYS_madvise SYS_membarrier SYS_memfd_create SYS_mincore
    SYS_mkdirat SYS_mknodat SYS_mlock SYS_mlock2 SYS_mlockall SYS_mmap SYS_mprotect SYS_mq_getsetattr SYS_mq_notify
    SYS_mq_open SYS_mq_timedreceive SYS_mq_timedsend SYS_mq_unlink SYS_mremap SYS_msgctl SYS_msgget SYS_msgrcv
    SYS_msgsnd SYS_msync SYS_munlock SYS_munlockall SYS_munmap SYS_nanosleep SYS_newfstatat SYS_openat SYS_openat2
    SYS_pidfd_open SYS_pidfd_send_signal SYS_pipe2 SYS_pkey_alloc SYS_pkey_free SYS_pkey_mprotect SYS_ppoll SYS_prctl
    SYS_pread64 SYS_preadv SYS_preadv2 SYS_process_madvise SYS_process_mrelease SYS_pselect6 SYS_pwrite64
    SYS_pwritev SYS_pwritev2 SYS_read SYS_readahead SYS_readlinkat SYS_readv SYS_recvfrom SYS_recvmmsg SYS_recvmsg
    SYS_remap_file_pages SYS_removexattr SYS_renameat SYS_renameat2 SYS_restart_syscall SYS_rseq SYS_rt_sigaction
    SYS_rt_sigpending SYS_rt_sigprocmask SYS_rt_sigqueueinfo SYS_rt_sigreturn SYS_rt_sigsuspend SYS_rt_sigtimedwait
    SYS_rt_tgsigqueueinfo SYS_sched_getaffinity SYS_sched_getattr SYS_sched_getparam SYS_sched_get_priority_max
    SYS_sched_get_priority_min SYS_sched_getscheduler SYS_sched_rr_get_interval
    SYS_sched_yield SYS_seccomp SYS_semctl SYS_semget SYS_semop SYS_semtimedop
    SYS_sendfile SYS_sendmmsg SYS_sendmsg SYS_sendto SYS_setfsgid SYS_setfsuid SYS_setgid SYS_setgroups SYS_setitimer
    SYS_setpgid SYS_setregid SYS_setresgid SYS_setresuid SYS_setreuid SYS_setrlimit SYS_set_robust_list
    SYS_setsid SYS_set_tid_address SYS_setuid SYS_setxattr SYS_shmat SYS_shmctl SYS_shmdt SYS_shmget
    SYS_shutdown SYS_sigaltstack SYS_signalfd4 SYS_splice SYS_statfs SYS_statx SYS_symlinkat
    SYS_sysinfo SYS_tee SYS_tgkill SYS_timer_create SYS_timer_delete SYS_timerfd_create SYS_timerfd_gettime
    SYS_timerfd_settime SYS_timer_getoverrun SYS_timer_gettime SYS_timer_settime SYS_times SYS_tkill SYS_truncate
    SYS_umask SYS_uname SYS_unlinkat SYS_utimensat SYS_vmsplice SYS_wait4 SYS_waitid SYS_write SYS_writev
}

named_calls! {
    /// Calls that only older architectures have, most with a newer form above.
    #[cfg(target_arch = "x86_64")]
    LEGACY LEGACY_NAMES:
    SYS_access SYS_alarm SYS_arch_prctl SYS_chmod SYS_chown SYS_creat SYS_dup2 SYS_epoll_create SYS_epoll_wait
    SYS_eventfd SYS_fork SYS_futimesat SYS_getdents SYS_getpgrp SYS_lchown SYS_link SYS_lstat SYS_mkdir
    SYS_mknod SYS_open SYS_pause SYS_pipe SYS_poll SYS_readlink SYS_rename SYS_rmdir SYS_select SYS_signalfd SYS_stat
    SYS_symlink SYS_time SYS_unlink SYS_utime SYS_utimes SYS_vfork
}
#[cfg(not(target_arch = "x86_64"))]
const LEGACY: &[i64] = &[];
#[cfg(not(target_arch = "x86_64"))]
const LEGACY_NAMES: &[&str] = &[];

/// Those that [`allowed`] looks at the arguments of.
const LOOKED_AT: [&str; 14] = [
    "clone",
    "fcntl",
    "ioctl",
    "ioprio_set",
    "personality",
    "prlimit64",
    "sched_setaffinity",
    "sched_setattr",
    "sched_setparam",
    "sched_setscheduler",
    "setpriority",
    "setsockopt",
    "socket",
    "socketpair",
];

/// Every call of the list that stays, by its name: for a filter that an engine puts around a place before anything of ours
/// runs there. With some of them the arguments matter too, and only the filters of this crate look at all of those.
pub fn allowed_names() -> Vec<&'static str> {
    let names = ALLOWED_NAMES.iter().chain(LEGACY_NAMES).map(|name| name.strip_prefix("SYS_").unwrap_or(name));
    names.chain(LOOKED_AT).collect()
}

/// The flags of `clone` that make a namespace.
pub const fn namespace_flags() -> u64 {
    NAMESPACE_FLAGS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filters_compile() {
        program(allowed().unwrap(), ENOSYS, SeccompAction::Allow).unwrap();
        program(refused().unwrap(), SeccompAction::Allow, EPERM).unwrap();
        for filter in [Filter::sandbox(), Filter::settled(), Filter::zygote(), Filter::forked()] {
            filter.unwrap();
        }
    }

    #[test]
    fn nothing_is_both_allowed_and_refused() {
        let allowed = allowed().unwrap();
        for call in REFUSED {
            assert!(!allowed.contains_key(call), "system call {call}");
        }
    }

    #[test]
    fn the_names_are_those_of_the_list() {
        // Besides what makes a sandbox, and clone3, which is not on the list that stays.
        assert_eq!(allowed_names().len(), allowed().unwrap().len() - MAKING.len() - ENTERING.len() - 1);
        assert!(allowed_names().iter().all(|name| !name.starts_with("SYS_")));
    }

    #[test]
    fn what_makes_a_sandbox_is_not_on_the_list_that_stays() {
        for call in MAKING.iter().chain(ENTERING).chain(&[libc::SYS_clone3]) {
            assert!(!ALLOWED.contains(call) && !LEGACY.contains(call), "system call {call}");
        }
    }

    #[test]
    fn the_doors_that_escapes_came_through_are_off_the_list() {
        let allowed = allowed().unwrap();
        let doors = calls![
            SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_mbind SYS_set_mempolicy SYS_memfd_secret
            SYS_move_pages SYS_migrate_pages SYS_inotify_init1 SYS_inotify_add_watch SYS_sync SYS_fspick SYS_fsconfig SYS_adjtimex SYS_clock_adjtime
        ];
        for call in doors {
            assert!(!allowed.contains_key(call), "system call {call}");
        }
    }
}
