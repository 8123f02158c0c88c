//! The user that programs are.

use belljar_core::BUILD;
use belljar_seal::{At, Outcome};
use rustix::process::{Gid, Uid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

const INSIDE_ID: u32 = 1000;

/// Who they are to be. Whoever builds has to be somebody whom files of the host's can belong to, and behind a gVisor that an
/// ordinary user started that is its root alone: it stays root then, with no right that root has.
pub(crate) fn choose(builds: bool) -> u32 {
    if !builds || !geteuid().is_root() {
        return INSIDE_ID;
    }
    let (uid, gid) = (Uid::from_raw(INSIDE_ID), Gid::from_raw(INSIDE_ID));
    // Its answer alone does not tell: there it is a success without an effect.
    let _ = rustix::fs::chown(BUILD, Some(uid), Some(gid));
    let belongs = rustix::fs::stat(BUILD).is_ok_and(|found| found.st_uid == INSIDE_ID);
    if belongs { INSIDE_ID } else { 0 }
}

/// Becomes that user, unless the place was entered as it.
pub(crate) fn take(user: u32) -> Outcome<()> {
    let (uid, gid) = (Uid::from_raw(user), Gid::from_raw(user));
    if geteuid() == uid {
        return Ok(());
    }
    set_thread_groups(&[]).at("dropping groups")?;
    set_thread_res_gid(gid, gid, gid).at("setting the group")?;
    set_thread_res_uid(uid, uid, uid).at("setting the user")
}
