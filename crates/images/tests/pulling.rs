//! Images of a registry, over the real protocol.

#![expect(clippy::unwrap_used, reason = "a test that cannot prepare itself fails")]

mod registry;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar_images::{Bounds, ImageError, ImageErrorKind, Progress, Registries, Source, Store, Tell};
use registry::{Registry, architecture, sha256};

fn tar(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, text) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(if path.contains("bin/") { 0o755 } else { 0o644 });
        builder.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn plain(files: &[(&str, &str)]) -> (Vec<u8>, String) {
    let tar = tar(files);
    let diff_id = sha256(&tar);
    (tar, diff_id)
}

struct Here {
    directory: tempfile::TempDir,
    store: Store,
}

fn quick() -> Bounds {
    Bounds { pause: Duration::from_millis(1), ..Bounds::default() }
}

fn here(registries: Registries) -> Here {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::open(&directory.path().join("images")).unwrap().with(registries, quick());
    Here { directory, store }
}

fn silent() -> Tell {
    Arc::new(|_| {})
}

impl Here {
    async fn build(&self, name: &str, reference: String) -> Result<belljar_images::Built, ImageError> {
        self.store.build(name, Source::Image(reference), silent()).await
    }

    /// All that is in the store, but the directories that always are.
    fn left(&self) -> Vec<String> {
        let images = self.directory.path().join("images");
        let of = |directory: &Path| -> Vec<String> {
            let entries = std::fs::read_dir(directory).unwrap();
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let top = of(&images).into_iter().filter(|name| !["lock", "layers", "roots", "names"].contains(&name.as_str()));
        top.chain(["layers", "roots", "names"].iter().flat_map(|part| of(&images.join(part)))).collect()
    }
}

#[tokio::test]
async fn layers_of_every_compression_become_a_root() {
    let registry = Registry::start().await;
    let (base, base_id) = plain(&[("usr/bin/python3.12", "x"), ("etc/gone", "1"), ("etc/kept", "1")]);
    let (second, second_id) = plain(&[("etc/.wh.gone", ""), ("usr/bin/bash", "x")]);
    let (third, third_id) = plain(&[("etc/kept", "3")]);
    let layers = [(gzip(&base), base_id), (zstd::encode_all(&*second, 1).unwrap(), second_id), (third, third_id)];
    let digest = registry.put("one", &layers, &["PATH=/usr/bin", "LANG=C"]);
    registry.put_index("many", &[("s390x", &sha256(b"none")), (architecture(), &digest)]);

    let here = here(Registries::default());
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell: Tell = {
        let told = Arc::clone(&told);
        Arc::new(move |progress| told.lock().unwrap().push(progress))
    };
    let built = here.store.build("science", Source::Image(registry.reference(":many")), tell).await.unwrap();
    assert_eq!((built.layers, built.skipped, &built.root.digest), (3, 0, &digest));
    assert_eq!(built.root.env, [("PATH".to_owned(), "/usr/bin".to_owned()), ("LANG".to_owned(), "C".to_owned())]);
    let names: Vec<&str> = built.root.interpreters.iter().map(|found| found.name.as_str()).collect();
    assert_eq!(names, ["python-3.12", "bash"]);
    let root = &built.root.path;
    assert_eq!(std::fs::read_to_string(root.join("etc/kept")).unwrap(), "3");
    assert!(!root.join("etc/gone").exists());
    // Ours alone, but for what a sandbox of another user is shown of it.
    assert_eq!(std::fs::metadata(here.directory.path().join("images")).unwrap().permissions().mode() & 0o777, 0o700);
    assert_eq!(std::fs::metadata(root).unwrap().permissions().mode() & 0o777, 0o755);

    let total: u64 = layers.iter().map(|(bytes, _)| bytes.len() as u64).sum();
    let told = told.lock().unwrap().clone();
    assert!(
        told.contains(&Progress::Downloading { number: 3, of: 3, done_bytes: total, total_bytes: total }),
        "{told:?}"
    );
    assert_eq!(told.last(), Some(&Progress::Assembling));

    // The same image again, by its digest: nothing of it is downloaded twice.
    let before = registry.asked("blobs/");
    here.build("again", registry.reference(&format!("@{digest}"))).await.unwrap();
    assert_eq!(registry.asked("blobs/") - before, 1, "the configuration alone");
    let listed = here.store.list().unwrap();
    assert_eq!(listed.iter().map(|listed| listed.name.as_str()).collect::<Vec<_>>(), ["again", "science"]);

    // What is in use stays when its names are gone; then all goes.
    let found = here.store.find("science").unwrap().unwrap();
    drop(built);
    assert!(here.store.remove("again").unwrap() && here.store.remove("science").unwrap());
    assert!(!here.store.remove("science").unwrap());
    assert!(found.path.join("etc/kept").is_file());
    drop(found);
    registry.put("other", &[plain(&[("a", "1")])], &[]);
    here.build("other", registry.reference(":other")).await.unwrap();
    here.store.remove("other").unwrap();
    assert_eq!(here.left(), [""; 0]);
}

#[tokio::test]
async fn lies_are_found_out_and_leave_nothing() {
    let registry = Registry::start().await;
    let (layer, diff_id) = plain(&[("usr/bin/sh", &"x".repeat(100_000))]);
    registry.put("good", &[(layer.clone(), diff_id.clone())], &[]);
    registry.put("other-content", &[plain(&[("a", "1")]), (layer, sha256(b"something else"))], &[]);
    let here = here(Registries::default());
    let kind = async |tag: &str| here.build("x", registry.reference(tag)).await.unwrap_err().kind;

    assert_eq!(kind(":other-content").await, ImageErrorKind::Corrupt);
    assert_eq!(here.left(), [""; 0], "not the layer either that was sound");
    assert_eq!(kind(":none").await, ImageErrorKind::NotFound);
    assert_eq!(kind(&format!("@{}", sha256(b"none"))).await, ImageErrorKind::NotFound);

    let lie = |lies: registry::Lies| registry.content.lock().unwrap().lies = lies;
    lie(registry::Lies { other_byte: 100, ..Default::default() });
    assert_eq!(kind(":good").await, ImageErrorKind::Corrupt);
    lie(registry::Lies { cut: 100, ..Default::default() });
    assert_eq!(kind(":good").await, ImageErrorKind::Corrupt);
    lie(registry::Lies { endless: true, ..Default::default() });
    assert_eq!(kind(":good").await, ImageErrorKind::Corrupt);
    lie(registry::Lies { busy: 100, ..Default::default() });
    assert_eq!(kind(":good").await, ImageErrorKind::Busy);
    let digest = registry.put("pinned", &[plain(&[("usr/bin/sh", "x")])], &[]);
    lie(registry::Lies { other_manifest: true, ..Default::default() });
    assert_eq!(kind(&format!("@{digest}")).await, ImageErrorKind::Corrupt);
    assert_eq!(here.left(), [""; 0]);

    // What passes is passed over.
    lie(registry::Lies { busy: 2, ..Default::default() });
    here.build("x", registry.reference(":good")).await.unwrap();
    here.store.remove("x").unwrap();
    lie(registry::Lies { cut: 1, ..Default::default() });
    here.build("x", registry.reference(":good")).await.unwrap();
}

#[tokio::test]
async fn a_login_is_taken_from_dockers_file() {
    let registry = Registry::start().await;
    registry.put("private", &[plain(&[("usr/bin/sh", "x")])], &[]);
    registry.content.lock().unwrap().login = Some(("user".to_owned(), "pass:word".to_owned()));

    let nobody = here(Registries::default());
    let error = nobody.build("x", registry.reference(":private")).await.unwrap_err();
    assert_eq!(error.kind, ImageErrorKind::Denied, "{error}");
    assert!(error.kind.next_step().contains("credential helpers are not run"));

    let file = nobody.directory.path().join("config.json");
    let text = format!(r#"{{"auths": {{"{}": {{"auth": "dXNlcjpwYXNzOndvcmQ="}}}}}}"#, registry.address);
    std::fs::write(&file, text).unwrap();
    let somebody = here(Registries { auth: Some(file.clone()), ..Registries::default() });
    somebody.build("x", registry.reference(":private")).await.unwrap();

    std::fs::write(&file, "not json with a secret in it").unwrap();
    let error = somebody.build("x", registry.reference(":private")).await.unwrap_err();
    assert!(error.kind == ImageErrorKind::Denied && !error.words.contains("secret"), "{error}");
}

#[tokio::test]
async fn mirrors_are_asked_first_and_the_registry_last() {
    let (mirror, broken) = (Registry::start().await, Registry::start().await);
    mirror.put("1", &[plain(&[("usr/bin/sh", "x")])], &[]);
    let mirrors = [("registry.invalid".to_owned(), vec![broken.address.to_string(), mirror.address.to_string()])];
    let here = here(Registries { mirrors: mirrors.into(), ..Registries::default() });
    let built = here.build("x", "registry.invalid/team/image:1".to_owned()).await.unwrap();
    assert_eq!(built.root.source, "registry.invalid/team/image:1");
    assert_eq!((broken.asked("manifests/"), mirror.asked("manifests/")), (1, 1));
}

#[tokio::test]
async fn names_and_references_are_checked() {
    let here = here(Registries::default());
    for name in ["", ".", "..", "a/b", "a b", ".hidden", &"x".repeat(65)] {
        let error = here.build(name, "image".to_owned()).await.unwrap_err();
        assert_eq!(error.kind, ImageErrorKind::BadName, "{name}");
        assert!(here.store.find(name).is_err() && here.store.remove(name).is_err());
    }
    let error = here.build("x", "no reference!".to_owned()).await.unwrap_err();
    assert_eq!(error.kind, ImageErrorKind::BadName);
    assert_eq!(here.left(), [""; 0]);
}
