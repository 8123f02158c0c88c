//! The egress part of the battery, run against this proxy alone: its programs in a network of their own.

use serde_json::Value;

use super::room::Room;
use super::world::World;

#[tokio::test(flavor = "multi_thread")]
async fn every_egress_case_is_quiet() {
    let world = World::new().await;
    let cases = include_str!("../../../testkit/battery/cases.jsonl");
    let cases = cases.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let cases: Vec<Value> = cases.filter(|case| case["id"].as_str().unwrap().starts_with("eg-")).collect();
    assert!(cases.len() >= 9, "there are {}", cases.len());
    for case in cases {
        let id = case["id"].as_str().unwrap();
        let list = case["limits"]["net"].as_str().unwrap().strip_prefix("allowlist:").unwrap();
        let list = list.replace("@@EGRESS_ALLOWED@@", "allowed.test");
        let grants = if list.is_empty() { Vec::new() } else { world.grants(&[&list]) };
        let mut room = Room::new(&world, grants).await;
        let code = case["code"].as_str().unwrap();
        let code = [
            ("@@EGRESS_IP_ALLOWED@@", "127.0.10.10"),
            ("@@EGRESS_IP_DENIED@@", "127.0.10.20"),
            ("@@EGRESS_ALLOWED@@", "allowed.test"),
            ("@@EGRESS_DENIED@@", "denied.test"),
            ("@@EGRESS_PORT@@", &world.allowed.plain.to_string()),
            ("@@HOST_PORT@@", &world.denied.plain.to_string()),
            ("@@MARK@@", "mark"),
        ]
        .iter()
        .fold(code.to_owned(), |code, (what, with)| code.replace(what, with));
        assert!(!code.contains("@@"), "{id}: {code}");
        let said = room
            .run_with(&["python3", "-c", &code], &[("HTTP_PROXY", "http://127.0.0.1:3128"), ("NO_PROXY", "")])
            .await;
        for text in case["expect"]["must_contain"].as_array().unwrap() {
            assert!(said.contains(text.as_str().unwrap()), "{id}: {said}");
        }
        for text in ["ESCAPED", "REACHABLE", "LEAK", "Traceback"] {
            assert!(!said.contains(text), "{id}: {said}");
        }
        assert_eq!(world.denied.seen.lock().unwrap().connections, 0, "{id}: {said}");
    }
}
