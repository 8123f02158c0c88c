//! The system calls that an engine lets a container make, from the first instruction on: the list of `belljar-seal`, in the
//! engines' own form. The program that settles into the place puts the real filters there besides, which look at arguments
//! in ways that this form cannot say.

use belljar_seal::{allowed_names, namespace_flags};
use serde_json::{Value, json};

const ENOSYS: u32 = 38;

/// As JSON, for `seccomp=` of an engine's security options.
pub(super) fn profile() -> String {
    let plain: Vec<&str> = allowed_names().into_iter().filter(|name| !["clone", "socket"].contains(name)).collect();
    let allow = |names: &[&str], args: Value| json!({ "names": names, "action": "SCMP_ACT_ALLOW", "args": args });
    let family = |family: i32| json!([{ "index": 0, "value": family, "valueTwo": 0, "op": "SCMP_CMP_EQ" }]);
    let mut calls = vec![
        allow(&plain, json!([])),
        // Of no use to a program, which loses them to the filters inside: what the runtime and the settling take.
        allow(&["capset", "seccomp", "prctl", "setgroups", "setresgid", "setresuid"], json!([])),
        allow(
            &["clone"],
            json!([{ "index": 0, "value": namespace_flags(), "valueTwo": 0, "op": "SCMP_CMP_MASKED_EQ" }]),
        ),
        // Every C library then uses clone, whose flags a filter can see.
        json!({ "names": ["clone3"], "action": "SCMP_ACT_ERRNO", "errnoRet": ENOSYS, "args": [] }),
    ];
    for known in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
        calls.push(allow(&["socket"], family(known)));
    }
    json!({
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": ENOSYS,
        "archMap": [
            { "architecture": "SCMP_ARCH_X86_64", "subArchitectures": [] },
            { "architecture": "SCMP_ARCH_AARCH64", "subArchitectures": [] },
        ],
        "syscalls": calls,
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_opens_doors_is_not_in_the_profile() {
        let profile = profile();
        for name in ["mount", "unshare", "setns", "bpf", "ptrace", "io_uring_setup", "keyctl", "open_by_handle_at"] {
            assert!(!profile.contains(&format!("\"{name}\"")), "{name}");
        }
        for name in ["read", "execveat", "landlock_restrict_self", "openat"] {
            assert!(profile.contains(&format!("\"{name}\"")), "{name}");
        }
    }
}
