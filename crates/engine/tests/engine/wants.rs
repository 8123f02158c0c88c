//! What a program wants around it: packages, a network; and what it asks for while it runs.

use belljar_core::{Grant, Network};
use belljar_engine::{EngineError, NetworkSettings, Wants};

use super::*;

fn wants(packages: &[&str], network: &[&str]) -> Wants {
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    Wants { packages: own(packages), network: own(network) }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_answered_whoever_asks() {
    let (_fake, engine) = engine();
    let id = sandbox(&engine).await;
    for request in
        [fresh("ask {\"install\":{\"kind\":\"python\",\"requirements\":[\"x\"]}}"), within(&id, "ask nonsense")]
    {
        let answered = engine.run(&me(), request).await.unwrap();
        let told = String::from_utf8(answered.report.stdout).unwrap();
        let last: serde_json::Value = serde_json::from_str(told.trim_end().lines().last().unwrap()).unwrap();
        assert!(last["exit"].as_i64().unwrap() > 0, "{told}");
        assert!(told.contains("packages are not installed") || told.contains("no question"), "{told}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_network_is_granted_to_the_sandbox_that_was_asked_for() {
    let allow: Vec<Grant> = vec!["*.example.org".parse().unwrap()];
    let network = NetworkSettings { allow, ..NetworkSettings::default() };
    let (fake, engine) = engine_with(Manners::default(), Settings { network, ..Settings::default() });
    let granted = || Network::Granted(vec!["a.example.org".parse().unwrap()]);
    engine.run(&me(), RunRequest { wants: wants(&[], &["a.example.org"]), ..fresh("print a") }).await.unwrap();
    let created = CreateRequest { wants: wants(&[], &["a.example.org"]), ..CreateRequest::default() };
    let id = engine.create(&me(), created).await.unwrap().id;
    engine.run(&me(), fresh("print a")).await.unwrap();
    assert_eq!([0, 1, 2].map(|place| fake.spec_of(place).unwrap().network), [granted(), granted(), Network::None]);

    let refused = RunRequest { wants: wants(&[], &["a.example.org"]), ..within(&id, "print a") };
    assert!(matches!(engine.run(&me(), refused).await, Err(EngineError::NetworkIsSet)));
    let refused = RunRequest { wants: wants(&[], &["evil.test"]), ..fresh("print a") };
    assert!(matches!(engine.run(&me(), refused).await, Err(EngineError::HostNotAllowed { .. })));
    let refused = CreateRequest { wants: wants(&[], &["evil.test"]), ..CreateRequest::default() };
    assert!(matches!(engine.create(&me(), refused).await, Err(EngineError::HostNotAllowed { .. })));
    assert_eq!(fake.asked(), 3, "nothing is opened for what is refused");
}

#[tokio::test(start_paused = true)]
async fn where_no_packages_are_installed_who_names_one_is_told() {
    let (fake, engine) = engine();
    let request = RunRequest { wants: wants(&["six"], &[]), ..fresh("print a") };
    assert!(matches!(engine.run(&me(), request).await, Err(EngineError::NoPackages)));
    let created = CreateRequest { wants: wants(&["six"], &[]), ..CreateRequest::default() };
    assert!(matches!(engine.create(&me(), created).await, Err(EngineError::NoPackages)));
    for bad in ["", "-r x", "six --index-url=x", "a\nb"] {
        let request = RunRequest { wants: wants(&[bad], &[]), ..fresh("print a") };
        let refused = engine.run(&me(), request).await.unwrap_err();
        assert!(matches!(refused, EngineError::BadPackages { .. }), "{bad:?}: {refused}");
    }
    assert_eq!(fake.asked(), 0);
}
