//! What people ask for, from the registry that this host uses.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar_core::{Language, PackageKind, Spec};
use belljar_packages::{InstallErrorKind, Installed, Packages, Phase, Settings, Wanted};
use belljar_testkit::contract::{command, run};

use crate::ground::{Ground, ground, ground_in, only_index, python, registries, strays, told};

#[tokio::test(flavor = "multi_thread")]
async fn pandas_is_inferred_and_installed_and_found_again() {
    let Ground { backend, packages, store } = ground(|_| ());
    let code = "import os\ndef f():\n    import pandas as pd\ntry:\n    import ujson, mine\nexcept ImportError: pass\nimport mine";
    let needs = packages.needs(Language::Python, code, &belljar_core::Ground::default(), &["mine".to_owned()]).await;
    assert_eq!((needs.required.len(), needs.inferred.as_slice()), (0, ["pandas".to_owned()].as_slice()));
    let phases = Mutex::new(Vec::new());
    let wanted = Wanted { inferred: needs.inferred, ..python(&[], &[]) };
    let first = packages.environment(wanted.clone(), |progress| phases.lock().unwrap().push(progress)).await.unwrap();
    assert!(first.built && first.left_out.is_empty());
    let phases = phases.into_inner().unwrap();
    for phase in [Phase::Resolving, Phase::Downloading, Phase::Compiling] {
        assert!(phases.iter().any(|progress| progress.phase == phase), "{phase:?} is not in {phases:?}");
    }
    let environment = first.environment.as_ref().unwrap();
    assert!(environment.has("pandas") && environment.has("numpy") && environment.modules.contains("pandas"));
    let line = "python3 -c 'import pandas; print(pandas.DataFrame({\"a\": [1, 2]}).a.sum(), pandas.__cached__)'";
    let said = told(&*backend, &first, line).await;
    assert!(said.starts_with("3 /belljar/packages/lib/python") && said.ends_with(".pyc"), "{said}");

    let second = packages.environment(wanted.clone(), |_| ()).await.unwrap();
    assert!(!second.built);
    // A server that starts later finds it on disk, and needs no network for it.
    let settings = Settings::new(store.path().to_owned(), registries(), Arc::new(|_| Box::pin(async { false })));
    let later = Packages::new(backend.clone(), settings);
    let third = later.environment(wanted, |_| ()).await.unwrap();
    assert_eq!(third.environment.unwrap().layer, second.environment.unwrap().layer);
    assert_eq!(strays(store.path()), [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn packages_are_added_to_a_sandbox_that_lives_and_what_it_has_stays() {
    let Ground { backend, packages, store: _store } = ground(|_| ());
    let first = packages.environment(python(&["six==1.16.0"], &[]), |_| ()).await.unwrap().environment.unwrap();
    let sandbox = backend.open(&Spec { layers: vec![first.layer.clone()], ..Spec::default() }).await.unwrap();
    let wanted = Wanted { on_top_of: Some(first.clone()), ..python(&["python-dateutil"], &[]) };
    let both = packages.environment(wanted, |_| ()).await.unwrap().environment.unwrap();
    assert!(both.has("six") && both.has("python-dateutil") && both.packages.contains(&("six".into(), "1.16.0".into())));
    sandbox.add_layer(&both.layer).await.unwrap();
    let ran = run(&*sandbox, command("python3 -c 'import six, dateutil; print(six.__version__)'")).await;
    assert_eq!(ran.stdout.trim(), "1.16.0", "{}", ran.stderr);
    // What is there already needs no other layer.
    let wanted = Wanted { on_top_of: Some(both.clone()), ..python(&["six"], &["python-dateutil"]) };
    let same = packages.environment(wanted, |_| ()).await.unwrap();
    assert!(!same.built && same.environment.unwrap().layer == both.layer);
    // Another version goes before it where it is asked for by name, and the rest stays.
    let wanted = Wanted { on_top_of: Some(both.clone()), ..python(&["six>=1.17"], &[]) };
    let other = packages.environment(wanted, |_| ()).await.unwrap().environment.unwrap();
    assert!(other.has("python-dateutil") && !other.packages.contains(&("six".into(), "1.16.0".into())), "{other:?}");
    // What does not go together is a conflict, and told.
    let wanted = Wanted { on_top_of: Some(both), ..python(&["six>=1.17", "six<1.17"], &[]) };
    let error = packages.environment(wanted, |_| ()).await.unwrap_err();
    assert_eq!(error.kind, InstallErrorKind::Conflict, "{error}");
    assert!(error.words.contains("six"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_was_only_inferred_and_is_nowhere_does_not_stand_in_the_way() {
    let Ground { backend, packages, store: _store } = ground(|_| ());
    let wanted = python(&[], &["six", "belljar-no-such-one", "belljar-no-such-two"]);
    let installed = packages.environment(wanted.clone(), |_| ()).await.unwrap();
    let mut left_out = installed.left_out.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>();
    left_out.sort();
    assert_eq!(left_out, ["belljar-no-such-one", "belljar-no-such-two"]);
    assert_eq!(told(&*backend, &installed, "python3 -c 'import six; print(1)'").await, "1");
    let again = packages.environment(wanted, |_| ()).await.unwrap();
    assert!(!again.built && again.left_out.len() == 2);
    let nothing = packages.environment(python(&[], &["belljar-no-such-one"]), |_| ()).await.unwrap();
    assert!(nothing.environment.is_none() && !nothing.built);
    let error = packages.environment(python(&["belljar-no-such-one"], &["six"]), |_| ()).await.unwrap_err();
    assert_eq!(error.kind, InstallErrorKind::NotFound);
    assert!(error.words.contains("belljar-no-such-one was not found"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_ask_for_the_same_at_once_get_it_built_once() {
    let Ground { backend, packages, store } = ground(|_| ());
    let settings = Settings::new(store.path().to_owned(), registries(), Arc::new(|_| Box::pin(async { true })));
    let other_server = Packages::new(backend.clone(), settings);
    let ask =
        |packages: Arc<Packages>| async move { packages.environment(python(&["six"], &[]), |_| ()).await.unwrap() };
    let (a, b, c) = tokio::join!(ask(packages.clone()), ask(packages.clone()), ask(other_server));
    assert_eq!([&a, &b, &c].iter().filter(|installed| installed.built).count(), 1);
    let layer = |installed: Installed| installed.environment.unwrap().layer.clone();
    let (a, b, c) = (layer(a), layer(b), layer(c));
    assert!(a == b && b == c);
}

#[tokio::test(flavor = "multi_thread")]
async fn npms_packages_are_imported_in_both_ways() {
    let Ground { backend, packages, store: _store } = ground(|_| ());
    if !backend.capabilities().languages.contains(&Language::JavaScript) {
        eprintln!("skipped: there is no Node here");
        return;
    }
    let code = "import isOdd from 'is-odd';\nimport fs from 'fs';\nimport ms from 'npm:ms@2.1.3';\nimport './near.js';";
    let needs = packages.needs(Language::JavaScript, code, &belljar_core::Ground::default(), &[]).await;
    assert_eq!((needs.required.clone(), needs.inferred.clone()), (vec!["ms@2.1.3".into()], vec!["is-odd".to_owned()]));
    let wanted = Wanted {
        required: needs.required,
        inferred: needs.inferred,
        ..Wanted::new(PackageKind::Node, &belljar_core::Ground::default())
    };
    let installed = packages.environment(wanted, |_| ()).await.unwrap();
    let environment = installed.environment.as_ref().unwrap();
    assert!(environment.packages.contains(&("ms".into(), "2.1.3".into())) && environment.has("is-number"));
    let line = "cd /tmp && node -e 'console.log(require(\"ms\")(60000), require(\"is-odd\")(3))'";
    assert_eq!(told(&*backend, &installed, line).await, "1m true");
    let wanted = Wanted {
        required: vec!["left-pad".into()],
        on_top_of: installed.environment.clone(),
        ..Wanted::new(PackageKind::Node, &belljar_core::Ground::default())
    };
    let more = packages.environment(wanted, |_| ()).await.unwrap();
    assert!(more.environment.as_ref().unwrap().packages.contains(&("ms".into(), "2.1.3".into())));
    let line = "cd /tmp && node -e 'console.log(require(\"ms\")(60000), require(\"left-pad\")(1, 3, 0))'";
    assert_eq!(told(&*backend, &more, line).await, "1m 001");
    let wanted = Wanted {
        required: vec!["@belljar/no-such".into()],
        ..Wanted::new(PackageKind::Node, &belljar_core::Ground::default())
    };
    let error = packages.environment(wanted, |_| ()).await.unwrap_err();
    assert_eq!(error.kind, InstallErrorKind::NotFound, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn offline_is_told_at_once() {
    let Ground { packages, store: _store, .. } =
        ground(|settings| settings.reachable = Arc::new(|_| Box::pin(async { false })));
    let error = packages.environment(python(&["six"], &[]), |_| ()).await.unwrap_err();
    assert_eq!(error.kind, InstallErrorKind::Offline);
    assert!(error.words.starts_with("offline: "), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it downloads and keeps half a gigabyte"]
async fn the_base_is_built_and_then_used_by_whoever_it_suffices() {
    let Ground { backend, packages, store: _store } = ground(|_| ());
    let built = packages.warm_up(&belljar_core::Ground::default(), |_| ()).await.unwrap();
    eprintln!("built in {:?}", built.took);
    let base = packages.base(&belljar_core::Ground::default()).unwrap();
    let used = packages.environment(python(&["numpy"], &["scikit-learn"]), |_| ()).await.unwrap();
    assert!(!used.built && used.environment.as_ref().unwrap().layer == base.layer);
    let line = "python3 -c 'import numpy, pandas, matplotlib, seaborn, plotly, sympy, scipy, sklearn, PIL, requests, IPython; print(1)'";
    assert_eq!(told(&*backend, &used, line).await, "1");
    let wanted = Wanted { on_top_of: Some(base), ..python(&["six"], &[]) };
    let more = packages.environment(wanted, |_| ()).await.unwrap();
    eprintln!("one more on top of it in {:?}", more.took);
    assert!(more.environment.unwrap().has("pandas"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registry_that_does_not_answer_is_offline_and_a_host_that_is_none_is_refused() {
    let quickly = || ("UV_HTTP_RETRIES".to_owned(), "0".to_owned());
    let Ground { packages, store, .. } = ground(|settings| settings.registries.env.push(quickly()));
    let elsewhere = "six @ https://example.org/six-1.16.0.zip";
    let error = packages.environment(python(&[elsewhere], &[]), |_| ()).await.unwrap_err();
    assert!(error.kind == InstallErrorKind::Failed && error.words.contains("refused: example.org:443"), "{error}");
    // Nobody listens at the port that is kept for nothing.
    let Ground { packages, store: _store, .. } = ground_in(store, |settings| {
        settings.registries = only_index(9);
        settings.registries.env.push(quickly());
    });
    let error = packages.environment(python(&["six"], &[]), |_| ()).await.unwrap_err();
    assert_eq!(error.kind, InstallErrorKind::Offline, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_resolved_long_ago_is_resolved_anew_and_used_on_when_that_cannot_be() {
    let away = Arc::new(AtomicBool::new(false));
    let seen = away.clone();
    let Ground { packages, store: _store, .. } = ground(move |settings| {
        settings.refresh = Duration::ZERO;
        settings.reachable = Arc::new(move |_| {
            let is_there = !seen.load(Ordering::SeqCst);
            Box::pin(async move { is_there })
        });
    });
    let ask = |requirement: &'static str| packages.environment(python(&[requirement], &[]), |_| ());
    let first = ask("six").await.unwrap();
    let anew = ask("six").await.unwrap();
    assert!(first.built && anew.built);
    let layer = |installed: &Installed| installed.environment.as_ref().unwrap().layer.clone();
    assert_eq!(layer(&first), layer(&anew), "the same versions are the same layer");
    assert!(ask("six==1.16.0").await.unwrap().built);
    assert!(!ask("six==1.16.0").await.unwrap().built, "what has a version stays as it is");
    away.store(true, Ordering::SeqCst);
    let old = ask("six").await.unwrap();
    assert!(!old.built && layer(&old) == layer(&first));
}

#[tokio::test(flavor = "multi_thread")]
async fn past_the_budget_what_nobody_uses_goes() {
    let Ground { packages, store, .. } = ground(|settings| settings.budget_bytes = 1);
    let first = packages.environment(python(&["six"], &[]), |_| ()).await.unwrap().environment.unwrap().layer.clone();
    let used = packages.environment(python(&["iniconfig"], &[]), |_| ()).await.unwrap().environment.unwrap();
    while store.path().join(&first.id).exists() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(store.path().join(&used.layer.id).is_dir());
    assert!(packages.environment(python(&["six"], &[]), |_| ()).await.unwrap().built);
}
