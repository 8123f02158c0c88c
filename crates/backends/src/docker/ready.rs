//! An image made ready for sandboxes: ours is in it, and what it has is known.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use belljar_core::wire::SURVEY;
use belljar_core::{BackendError, Limits};
use bollard::query_parameters::CreateContainerOptionsBuilder;
use tokio::io::AsyncReadExt;

use super::container::{self, Wanted};
use super::engine::{WORK, within};
use super::place::Container;
use super::survey::Survey;
use super::{Fetch, There, fresh_name, image, stream};
use crate::setup;

/// All that a survey may say.
const TOLD_MAX: u64 = 64 * 1024;
/// And how long it may take: the image's own programs are asked.
const SURVEYED: Duration = Duration::from_secs(40);

#[derive(Debug)]
pub(super) struct Ready {
    /// The name that it was asked for by.
    pub(super) reference: String,
    /// The image with the fittings.
    pub(super) image: String,
    pub(super) volumes: Vec<String>,
    pub(super) survey: Survey,
}

impl There {
    /// The image of that name, ready. The first time takes a second, or as long as it takes to fetch it; whoever else asks
    /// in the meantime waits for the same.
    pub(super) async fn ready(self: &Arc<Self>, reference: &str, fetch: Fetch) -> Result<Arc<Ready>, BackendError> {
        let cell = {
            let mut images = self.images.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(images.entry(reference.to_owned()).or_default())
        };
        let made = cell.get_or_try_init(|| async {
            let (there, reference) = (Arc::clone(self), reference.to_owned());
            // In a task of its own: a caller that goes away while the engine makes a container would leave it behind.
            let making = tokio::spawn(async move { there.make_ready(&reference, fetch).await });
            making.await.map_err(|error| setup("making an image ready", &error))?
        });
        made.await.map(Arc::clone)
    }

    async fn make_ready(&self, reference: &str, fetch: Fetch) -> Result<Arc<Ready>, BackendError> {
        let base = image::find(&self.engine, reference, fetch).await?;
        let fitted = image::fit(&self.engine, &base, &self.mark).await?;
        let told = self.survey(&fitted, &base).await?;
        let survey = Survey::read(&told, base.path.as_deref());
        Ok(Arc::new(Ready { reference: reference.to_owned(), image: fitted, volumes: base.volumes, survey }))
    }

    /// Has the image looked into from inside, confined as any sandbox.
    async fn survey(&self, fitted: &str, base: &image::Image) -> Result<String, BackendError> {
        let wanted = Wanted {
            image: fitted,
            arguments: vec![SURVEY.to_owned(), base.path.clone().unwrap_or_default()],
            limits: &Limits { disk_bytes: 4 << 20, ..Limits::default() },
            binds: Vec::new(),
            volumes: &base.volumes,
            has_network: false,
        };
        let body = container::body(&self.ways, wanted);
        let name = fresh_name()?;
        let container = Container::new(&self.engine, name.clone(), None);
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        let client = &self.engine.client;
        within(WORK, "making a container to look into an image", client.create_container(Some(options), body)).await?;
        let ends = stream::attach(&self.engine, &name).await?;
        within(WORK, "looking into an image", client.start_container(&name, None)).await?;
        let mut told = Vec::new();
        let mut read = ends.read.take(TOLD_MAX);
        let reading = async {
            // Its end comes as an error, and is what we wait for.
            while read.read_buf(&mut told).await.is_ok_and(|read| read > 0) {}
        };
        tokio::time::timeout(SURVEYED, reading)
            .await
            .map_err(|_| setup("looking into an image", &"its programs do not tell their versions in time"))?;
        drop(read);
        crate::linked::Place::destroy(container).await?;
        Ok(String::from_utf8_lossy(&told).into_owned())
    }
}

/// Writes the list of system calls where an engine can read it; `None` if that cannot be done.
pub(super) fn profile_file(cache: &Path, profile: &str) -> Option<String> {
    let written = || -> std::io::Result<String> {
        fs::create_dir_all(cache)?;
        let place = cache.join("seccomp.json");
        let mut file = tempfile_in(cache)?;
        file.1.write_all(profile.as_bytes())?;
        file.1.set_permissions(fs::Permissions::from_mode(0o644))?;
        fs::rename(&file.0, &place)?;
        place.to_str().map(str::to_owned).ok_or_else(|| std::io::ErrorKind::InvalidInput.into())
    };
    written().inspect_err(|error| tracing::warn!(%error, "the list of system calls cannot be written down")).ok()
}

fn tempfile_in(cache: &Path) -> std::io::Result<(std::path::PathBuf, fs::File)> {
    let unfinished = cache.join(format!("seccomp-{}.unfinished", crate::unique()));
    let _ = fs::remove_file(&unfinished);
    Ok((unfinished.clone(), fs::File::create_new(unfinished)?))
}
