//! uv, where the machine has none: brought in once, as a layer of its own, by its known hash.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

use belljar_core::{BUILD, Ground, Language, PackageKind};
use rustix::fs::{FileType, Mode, OFlags};
use serde_json::json;

use super::site::{Site, Tell};
use super::{Builder, record};
use crate::facts::Facts;
use crate::key::Key;
use crate::store::{Building, Lock, Store, trouble};
use crate::{Environment, InstallError, InstallErrorKind};

const VERSION: &str = "0.13.7";

/// The wheels of that version, for machines as Python names them.
const WHEELS: [(&str, &str, &str); 2] = [
    (
        "x86_64",
        "uv-0.13.7-py3-none-manylinux_2_17_x86_64.manylinux2014_x86_64.whl",
        "2c9bdc4a872b60a93c5f26c0791089ea11585a4f9d3b3c017d78eb8487505e25",
    ),
    (
        "aarch64",
        "uv-0.13.7-py3-none-manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64.whl",
        "a90f5d95716ab83091f0f73a8e7ec64e557abf2a28537fcd719b2ac88e6f725a",
    ),
];

impl Builder<'_> {
    /// The layer that has uv, for an interpreter's machine.
    pub(super) async fn uv(
        &self,
        facts: &Facts,
        ground: &Ground,
        tell: Tell<'_>,
    ) -> Result<Arc<Environment>, InstallError> {
        let known = WHEELS.iter().find(|(machine, ..)| *machine == facts.machine && facts.made_for.contains("glibc"));
        let Some((_, wheel, sha256)) = known else {
            return Err(InstallError::new(InstallErrorKind::Unavailable, "no uv is known for this machine"));
        };
        let id = Key::new("uv").with(wheel).with(sha256).finish();
        if let Some(found) = self.store.hold(&id) {
            found.touch();
            return Ok(found);
        }
        self.store.prepare()?;
        let _turn = Lock::take(&self.store.lock_path("uv"), || ())
            .await
            .map_err(|error| trouble("waiting for another build", &error))?;
        if let Some(found) = self.store.hold(&id) {
            return Ok(found);
        }
        let site = Site::open(self.backend, self.settings, self.store, ground, Vec::new(), |_| Ok(())).await?;
        let index = &self.settings.registries.python_index;
        let job = json!({ "build": BUILD, "index": index, "wheel": wheel, "sha256": sha256, "version": VERSION });
        let built = site.run(self.settings, Language::Python, include_str!("inside/uv.py"), &job, tell).await?;
        let made_for = facts.made_for.clone();
        site.publish(self.settings, move |building, measured| {
            let asked = [format!("uv=={VERSION}")];
            building.publish(&id, &record(PackageKind::Python, built, &asked, Vec::new(), measured, made_for))
        })
        .await
    }
}

/// Copies uv to a build. Not a link: what is built could write to it.
pub(super) fn lend(store: &Store, uv: &Environment, building: &Building) -> Result<(), InstallError> {
    let copied = (|| -> io::Result<u64> {
        let directory = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::PATH;
        let layer = rustix::fs::open(store.root().join(&uv.layer.id), directory, Mode::empty())?;
        let bin = rustix::fs::openat(&layer, "bin", directory, Mode::empty())?;
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let program = rustix::fs::openat(&bin, "uv", flags, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&program)?.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("it is no file"));
        }
        let mut copy = OpenOptions::new().create_new(true).write(true).mode(0o755).open(building.path.join("uv"))?;
        io::copy(&mut File::from(program), &mut copy)
    })();
    copied.map(drop).map_err(|error| trouble("copying uv", &error))
}
