//! Layers: seen by every program, changed by none, put over one another while a sandbox lives, and built in one.

use std::fs;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use belljar_core::{BUILD, Exit, Language, Layer, LayerKind, PackageKind, Sandbox, Spec};

use super::{Stage, cell, command, run};

/// A Python layer with one module that has one value. Its files belong to whoever runs the tests.
fn python_layer(store: &Path, id: &str, version: &str, value: u32) -> Layer {
    let site = store.join(id).join(format!("lib/python{version}/site-packages"));
    fs::create_dir_all(&site).expect("the store can be written");
    fs::write(site.join(format!("layered_{value}.py")), format!("value = {value}\n"))
        .expect("the store can be written");
    fs::write(site.join("shared.py"), format!("value = {value}\n")).expect("the store can be written");
    // Python looks again into a directory whose time has changed; real ones are not made within one tick of the clock.
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000 + u64::from(value));
    fs::File::open(&site).and_then(|site| site.set_modified(time)).expect("its time can be set");
    Layer { kind: LayerKind::Packages(PackageKind::Python), id: id.to_owned() }
}

fn tools_layer(store: &Path, id: &str, text: &str) -> Layer {
    fs::create_dir_all(store.join(id).join("echo")).expect("the store can be written");
    fs::write(store.join(id).join("echo/README.md"), text).expect("the store can be written");
    Layer { kind: LayerKind::Tools, id: id.to_owned() }
}

async fn told(sandbox: &dyn Sandbox, line: &str) -> String {
    run(sandbox, command(line)).await.stdout.trim().to_owned()
}

/// The version of Python, as in the names of directories.
async fn python(stage: &Stage) -> String {
    let sandbox = stage.backend.open(&Spec::default()).await.expect("a sandbox opens");
    let ran = run(&*sandbox, cell(Language::Python, "import sys\nprint('%d.%d' % sys.version_info[:2])")).await;
    sandbox.close().await.expect("closes");
    ran.stdout.trim().to_owned()
}

/// Packages and files that a sandbox begins with are there for every program, and nothing changes them.
pub async fn layers_are_seen_and_kept(stage: &Stage) {
    let Some(store) = stage.store() else { return };
    let version = python(stage).await;
    let layers = vec![python_layer(store, "a1", &version, 11), tools_layer(store, "a2", "what it does")];
    let sandbox = stage.backend.open(&Spec { layers, ..Spec::default() }).await.expect("a sandbox opens");
    for program in [
        super::code(Language::Python, "import layered_11\nprint(layered_11.value)"),
        cell(Language::Python, "import layered_11\nprint(layered_11.value)"),
    ] {
        let ran = run(&*sandbox, program).await;
        assert_eq!(ran.stdout.trim(), "11", "{ran:?}");
    }
    assert_eq!(
        told(&*sandbox, "cat /tools/echo/README.md; ls /skills /node_modules").await,
        "what it does/node_modules:\n\n/skills:"
    );
    let site = format!("/belljar/packages/lib/python{version}/site-packages");
    let spoil =
        format!("echo 1 > {site}/layered_11.py; echo 1 > /tools/echo/new; rm -f /tools/echo/README.md; echo $?");
    assert_ne!(told(&*sandbox, &spoil).await, "0");
    sandbox.close().await.expect("closes");
    assert_eq!(fs::read_to_string(store.join("a2/echo/README.md")).expect("it is there"), "what it does");
    assert!(!store.join("a2/echo/new").exists());
}

/// A layer that comes while a kernel lives is seen by it, over the one before.
pub async fn a_layer_comes_to_a_live_sandbox(stage: &Stage) {
    let Some(store) = stage.store() else { return };
    let version = python(stage).await;
    let (first, second) = (python_layer(store, "b1", &version, 21), python_layer(store, "b2", &version, 22));
    let sandbox = stage.backend.open(&Spec::default()).await.expect("a sandbox opens");
    let none = run(
        &*sandbox,
        cell(Language::Python, "kept = 5\ntry:\n    import layered_21\nexcept ImportError:\n    print('none')"),
    )
    .await;
    assert_eq!(none.stdout.trim(), "none", "{none:?}");
    sandbox.add_layer(&first).await.expect("a layer is added");
    let seen = run(&*sandbox, cell(Language::Python, "import layered_21\nprint(layered_21.value, kept)")).await;
    assert_eq!(seen.stdout.trim(), "21 5", "{seen:?}");
    sandbox.add_layer(&second).await.expect("a layer is added");
    let seen = run(&*sandbox, cell(Language::Python, "import layered_22\nprint(layered_22.value, kept)")).await;
    assert_eq!(seen.stdout.trim(), "22 5", "{seen:?}");
    sandbox.add_layer(&tools_layer(store, "b3", "first")).await.expect("a layer is added");
    assert_eq!(told(&*sandbox, "cat /tools/echo/README.md").await, "first");
    sandbox.add_layer(&tools_layer(store, "b4", "second")).await.expect("a layer is added");
    assert_eq!(told(&*sandbox, "cat /tools/echo/README.md").await, "second");
    let missing = Layer { kind: LayerKind::Tools, id: "bbbb".to_owned() };
    assert!(sandbox.add_layer(&missing).await.is_err(), "there is no such layer");
    assert_eq!(told(&*sandbox, "cat /tools/echo/README.md").await, "second");
    sandbox.close().await.expect("closes");
}

/// What is built in a sandbox is in the store afterwards, and nothing else of the store can be written or seen.
pub async fn a_layer_is_built(stage: &Stage) {
    let Some(store) = stage.store() else { return };
    python_layer(store, "c1", "3", 31);
    fs::create_dir(store.join("building-contract")).expect("the store can be written");
    let spec = Spec { build: Some("building-contract".to_owned()), ..Spec::default() };
    let sandbox = stage.backend.open(&spec).await.expect("a sandbox opens");
    let build = format!(
        "mkdir -p {BUILD}/lib/x && echo built > {BUILD}/lib/x/file && ln -s file {BUILD}/lib/x/link && ls {BUILD}/.. | grep -c c1"
    );
    let ran = run(&*sandbox, command(&build)).await;
    assert_eq!((ran.stdout.trim(), ran.finish.exit), ("0", Exit::Code(1)), "{ran:?}");
    sandbox.close().await.expect("closes");
    assert_eq!(fs::read_to_string(store.join("building-contract/lib/x/file")).expect("it was built"), "built\n");
    assert_eq!(fs::read_link(store.join("building-contract/lib/x/link")).expect("it was built"), Path::new("file"));
}
