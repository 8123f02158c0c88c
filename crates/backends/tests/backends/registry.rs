//! Whoever registers a backend also tests it and says what it promises.

use belljar_backends::Choice;

/// Where the suite is run.
const CONTRACTS: [&str; 3] = [include_str!("contract.rs"), include_str!("microvm.rs"), include_str!("wasm.rs")];
const SECURITY: &str = include_str!("../../../../docs/security.md");

#[test]
fn every_backend_keeps_the_contract() {
    for choice in Choice::ALL {
        let run = format!("keeps_the_contract!({choice},");
        let plain = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
        let is_run = CONTRACTS.iter().any(|text| plain(text).contains(&run));
        assert!(is_run, "{choice} is registered, and no test has `{run}`");
    }
}

#[test]
fn every_backend_says_what_it_promises() {
    for choice in Choice::ALL {
        let heading = format!("## `{choice}`");
        let has_it = SECURITY.lines().any(|line| line.starts_with(&heading));
        assert!(has_it, "{choice} is registered, and docs/security.md has no heading {heading}");
    }
}
