//! Builds the programs that live inside the walls, static and small, so that the one binary can carry them.
//!
//! Cargo has no stable way to depend on another package's executable, so this runs cargo once more, for another
//! profile and with its own target directory, which debug, release and clippy builds share.

#![expect(
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "a build script fails by panicking, and cargo speaks to it by environment"
)]

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What is built at once shares the features of its dependencies. The first ones are to be small, and so stay apart from
/// what the third one's parser asks for.
const PROGRAMS: [&[&str]; 2] = [&["belljar-guest", "belljar-jail", "belljar-settle"], &["belljar-transpile"]];

/// A library that interpreters load, and so the one thing that is not static.
const LIBRARY: (&str, &str) = ("belljar-zygote", "libbelljar_zygote.so");

fn main() {
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    let workspace = manifest.ancestors().nth(2).expect("this crate is two levels below the workspace");
    for watched in
        ["core", "guest", "jail", "seal", "settle", "transpile", "zygote"].map(|name| format!("crates/{name}"))
    {
        println!("cargo::rerun-if-changed={}", workspace.join(watched).display());
    }
    for watched in ["Cargo.toml", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={}", workspace.join(watched).display());
    }

    let target = env::var("TARGET").expect("cargo sets TARGET");
    // out is <target>/<profile>/build/<package>/out.
    let inside = out.ancestors().nth(4).expect("OUT_DIR lies in the target directory").join("inside");
    for programs in PROGRAMS {
        build(programs, "+crt-static", workspace, &target, &inside);
        for program in programs {
            copy(&inside.join(&target).join("inside").join(program), &out.join(program));
        }
    }
    let (package, file) = LIBRARY;
    // Elsewhere, or the two ways of linking would each time undo what the other has built.
    let shared = inside.with_file_name("inside-shared");
    build(&[package], "-crt-static", workspace, &target, &shared);
    copy(&shared.join(&target).join("inside").join(file), &out.join(file));
}

fn build(programs: &[&str], linking: &str, workspace: &Path, target: &str, inside: &Path) {
    let mut cargo = Command::new(env::var_os("CARGO").expect("cargo sets CARGO"));
    cargo
        .current_dir(workspace)
        .args(["build", "--locked", "--profile", "inside", "--target", target, "--target-dir"])
        .arg(inside)
        // With --target these go to the programs only, not to build scripts and macros, which cannot be static.
        .env("CARGO_ENCODED_RUSTFLAGS", format!("-Ctarget-feature={linking}"))
        .env_remove("RUSTFLAGS")
        // Set by `cargo clippy`, which would check instead of build.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS");
    for program in programs {
        cargo.args(["--package", program]);
    }
    let status = cargo.status().expect("cargo runs");
    assert!(
        status.success(),
        "building the programs inside the walls failed; if the linker misses libc.a, install the static C library \
         (Debian and Ubuntu: libc6-dev; Fedora: glibc-static; Alpine: nothing to do)"
    );
}

fn copy(from: &Path, to: &Path) {
    std::fs::copy(from, to).unwrap_or_else(|error| panic!("copying {}: {error}", from.display()));
}
