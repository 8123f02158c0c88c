//! The store of layers: a directory of the host's in the jail's own world, of which a sandbox gets single directories.
//!
//! ```text
//! jail:   /store/<id> ── a mount of its own, attached nowhere ──▶ sandbox: over the empty directory that waits for it
//! ```
//!
//! The jail makes the mount, since only it can look into the store; whoever is in the sandbox's namespaces puts it there.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use belljar_core::wire::{is_building, is_store_name};
use belljar_core::{BUILD, Layer};
use belljar_seal::{At, Failure, Outcome, end};
use rustix::fs::CWD;
use rustix::mount::{MoveMountFlags, OpenTreeFlags, move_mount, open_tree};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::sys::{self, Cloned};

/// Where the store is in the jail's world, which sandboxes leave.
pub(crate) const STORE: &str = "store";

/// A directory of the store as a mount that is attached nowhere yet.
#[derive(Debug)]
pub(crate) struct Tree {
    mount: OwnedFd,
    inside: &'static str,
}

impl Tree {
    /// Of a layer, which nobody can change by it.
    pub(crate) fn of_layer(layer: &Layer) -> Outcome<Tree> {
        let tree = Tree::of(&layer.id, layer.kind.inside())?;
        sys::mount_attributes_of(tree.mount.as_fd(), libc::MOUNT_ATTR_RDONLY).at("making a layer read-only")?;
        Ok(tree)
    }

    /// Of a directory in which a layer is built.
    pub(crate) fn of_build(name: &str) -> Outcome<Tree> {
        // What is built already is nobody's to write.
        if !is_building(name) {
            return Err(not_a_name());
        }
        Tree::of(name, BUILD)
    }

    fn of(name: &str, inside: &'static str) -> Outcome<Tree> {
        if !is_store_name(name) {
            return Err(not_a_name());
        }
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_SYMLINK_NOFOLLOW;
        let mount = open_tree(CWD, format!("/{STORE}/{name}"), flags).at("looking for a layer in the store")?;
        sys::mount_attributes_of(mount.as_fd(), libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV)
            .at("setting mount attributes")?;
        Ok(Tree { mount, inside })
    }

    /// Puts it into the root that is the working directory.
    pub(crate) fn put(&self) -> Outcome<()> {
        let inside = self.inside.trim_start_matches('/');
        move_mount(&self.mount, "", CWD, inside, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH).at("mounting a layer")
    }
}

fn not_a_name() -> Failure {
    Failure { step: "naming a layer".to_owned(), errno: libc::EINVAL }
}

/// Puts a layer into a sandbox that stands, over the one of its kind that it may have. Its processes go on, and cannot undo
/// it: none of them may mount.
pub(crate) fn add(layer: &Layer, fds: Vec<OwnedFd>) -> Outcome<()> {
    let Some(first_process) = fds.into_iter().next() else {
        return Err(Failure { step: "taking the sandbox's process".to_owned(), errno: libc::EBADF });
    };
    let tree = Tree::of_layer(layer)?;
    let (told, tell) = pipe_with(PipeFlags::CLOEXEC).at("making a pipe")?;
    // Another process: whoever goes in does not come out again.
    match sys::clone_into(0, None, None).at("cloning")? {
        Cloned::Child => {
            let entered = sys::enter_mounts(first_process.as_fd()).at("entering the sandbox");
            // Where the sandbox's processes are at home too, which is what the kernel takes us to.
            let errno = entered.and_then(|()| tree.put()).map_or_else(|failure| failure.errno, |()| 0);
            let _ = fs::File::from(tell).write_all(&errno.to_le_bytes());
            end(0)
        }
        Cloned::Parent { .. } => {
            drop(tell);
            let mut errno = [0; 4];
            fs::File::from(told).read_exact(&mut errno).at("hearing of a layer")?;
            match i32::from_le_bytes(errno) {
                0 => Ok(()),
                errno => Err(Failure { step: "putting a layer into a sandbox".to_owned(), errno }),
            }
        }
    }
}
