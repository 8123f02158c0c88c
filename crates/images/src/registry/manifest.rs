//! What registries describe images by. Only what we need of it is read.

use serde::Deserialize;

use super::LayerBlob;
use crate::bounds::Bounds;
use crate::decode::digits;
use crate::error::{ImageError, ImageErrorKind};

#[derive(Debug)]
pub(super) enum Manifest {
    Image(Image),
    Index(Index),
}

#[derive(Debug, Deserialize)]
pub(super) struct Image {
    pub(super) config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Index {
    manifests: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
struct Listed {
    digest: String,
    platform: Option<Platform>,
}

#[derive(Debug, Deserialize)]
struct Platform {
    os: String,
    architecture: String,
}

#[derive(Debug, Clone, Deserialize)]
pub(super) struct Descriptor {
    pub(super) digest: String,
    pub(super) size: u64,
}

#[derive(Debug, Deserialize)]
pub(super) struct Config {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    config: Option<Running>,
    rootfs: RootFs,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Running {
    #[serde(default)]
    env: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
struct RootFs {
    diff_ids: Vec<String>,
}

impl Manifest {
    pub(super) fn parse(body: &[u8]) -> Result<Manifest, ImageError> {
        let value: serde_json::Value = serde_json::from_slice(body).map_err(|error| nonsense(&error))?;
        if value.get("manifests").is_some() {
            return serde_json::from_value(value).map(Manifest::Index).map_err(|error| nonsense(&error));
        }
        if value.get("layers").is_some() {
            return serde_json::from_value(value).map(Manifest::Image).map_err(|error| nonsense(&error));
        }
        // Docker's first format has neither.
        Err(ImageError::new(ImageErrorKind::Unsupported, "the image's manifest is of a format that we do not read"))
    }
}

impl Index {
    /// The digest of the image for Linux and this machine's architecture.
    pub(super) fn for_this_machine(&self) -> Result<String, ImageError> {
        let is_ours = |platform: &Platform| platform.os == "linux" && platform.architecture == architecture();
        let found = self.manifests.iter().find(|listed| listed.platform.as_ref().is_some_and(is_ours));
        if let Some(found) = found.filter(|found| digits(&found.digest).is_some()) {
            return Ok(found.digest.clone());
        }
        let there = self.manifests.iter().filter_map(|listed| listed.platform.as_ref());
        let there: Vec<String> =
            there.take(8).map(|platform| format!("{}/{}", platform.os, platform.architecture)).collect();
        let words = format!("the image is not there for linux/{}, only for {}", architecture(), there.join(", "));
        Err(ImageError::new(ImageErrorKind::Unsupported, words))
    }
}

impl Image {
    pub(super) fn check(&self, bounds: &Bounds) -> Result<(), ImageError> {
        let too_large = |words: String| Err(ImageError::new(ImageErrorKind::TooLarge, words));
        if self.layers.len() > bounds.layers_max {
            return too_large(format!("the image has more than {} layers", bounds.layers_max));
        }
        if self.config.size > bounds.document_bytes_max {
            return too_large("the image's configuration is larger than any honest one".to_owned());
        }
        if let Some(layer) = self.layers.iter().find(|layer| layer.size > bounds.blob_bytes_max) {
            return too_large(format!("a layer is {} MiB", layer.size >> 20));
        }
        if self.layers.iter().chain([&self.config]).any(|descriptor| digits(&descriptor.digest).is_none()) {
            let words = "the image's manifest names its parts by digests other than sha256";
            return Err(ImageError::new(ImageErrorKind::Unsupported, words));
        }
        Ok(())
    }
}

impl Config {
    pub(super) fn parse(text: &[u8]) -> Result<Config, ImageError> {
        let config: Config = serde_json::from_slice(text).map_err(|error| nonsense(&error))?;
        let fits = |says: &str, ours: &str| says.is_empty() || says == ours;
        if fits(&config.os, "linux") && fits(&config.architecture, architecture()) {
            return Ok(config);
        }
        let words = format!("the image is for {}/{}", config.os, config.architecture);
        Err(ImageError::new(ImageErrorKind::Unsupported, words))
    }

    /// The layers with what they have to unpack to.
    pub(super) fn layers(&self, manifest: &Image) -> Result<Vec<LayerBlob>, ImageError> {
        let diff_ids = &self.rootfs.diff_ids;
        if diff_ids.is_empty() || diff_ids.len() != manifest.layers.len() {
            let words =
                format!("the image has {} layers and {} digests of them", manifest.layers.len(), diff_ids.len());
            return Err(ImageError::new(ImageErrorKind::Unsupported, words));
        }
        let layer = |(descriptor, diff_id): (&Descriptor, &String)| {
            let diff_id = digits(diff_id).ok_or_else(|| {
                ImageError::new(ImageErrorKind::Unsupported, "the image names a layer by a digest other than sha256")
            })?;
            Ok(LayerBlob { descriptor: descriptor.clone(), diff_id: diff_id.to_owned(), bytes: descriptor.size })
        };
        manifest.layers.iter().zip(diff_ids).map(layer).collect()
    }

    pub(super) fn env(&self) -> Vec<(String, String)> {
        let env = self.config.as_ref().and_then(|config| config.env.as_deref()).unwrap_or_default();
        let split = |line: &String| line.split_once('=').map(|(name, value)| (name.to_owned(), value.to_owned()));
        let is_sound =
            |(name, value): &(String, String)| !name.is_empty() && !name.contains('\0') && !value.contains('\0');
        env.iter().filter_map(split).filter(is_sound).take(ENV_MAX).collect()
    }
}

const ENV_MAX: usize = 256;

/// As images call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        "x86" => "386",
        other => other,
    }
}

fn nonsense(error: &serde_json::Error) -> ImageError {
    ImageError::new(ImageErrorKind::Corrupt, format!("the registry's description of the image cannot be read: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_without_this_machine_says_what_it_has() {
        let index =
            br#"{"manifests": [{"digest": "sha256:00", "platform": {"os": "windows", "architecture": "s390x"}}]}"#;
        let Manifest::Index(index) = Manifest::parse(index).unwrap() else { panic!() };
        let error = index.for_this_machine().unwrap_err();
        assert_eq!(error.kind, ImageErrorKind::Unsupported);
        assert!(error.words.contains("windows/s390x"), "{error}");
    }

    #[test]
    fn digests_that_would_be_paths_are_refused() {
        let image = |digest: &str| {
            let text = format!(r#"{{"config": {{"digest": {digest:?}, "size": 1}}, "layers": []}}"#);
            let Manifest::Image(image) = Manifest::parse(text.as_bytes()).unwrap() else { panic!() };
            image.check(&Bounds::default()).map(drop)
        };
        assert!(image(&format!("sha256:{}", "a".repeat(64))).is_ok());
        for digest in ["sha256:../../etc", "sha512:00", "", &format!("sha256:{}/", "a".repeat(63))] {
            assert_eq!(image(digest).unwrap_err().kind, ImageErrorKind::Unsupported, "{digest}");
        }
    }

    #[test]
    fn environments_are_taken_as_they_are_written() {
        let text =
            br#"{"rootfs": {"diff_ids": []}, "config": {"Env": ["PATH=/a:/b", "EMPTY=", "NONE", "=x", "A=b=c"]}}"#;
        let env = Config::parse(text).unwrap().env();
        let pairs: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, [("PATH", "/a:/b"), ("EMPTY", ""), ("A", "b=c")]);
    }
}
