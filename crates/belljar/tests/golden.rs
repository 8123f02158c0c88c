//! The profiles' transcripts against the real program. `golden/play.py` plays them, and with `--update` writes them
//! anew.

#![expect(clippy::unwrap_used, reason = "a helper that fails is a test that fails")]

use std::process::Command;

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden");
const BELLJAR: &str = env!("CARGO_BIN_EXE_belljar");

fn python(words: &[&str]) {
    let output = Command::new("python3").arg("-B").args(words).current_dir(GOLDEN).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
}

#[test]
fn every_profile_answers_as_its_transcript_says() {
    let help = Command::new(BELLJAR).args(["serve", "--help"]).output().unwrap();
    if !String::from_utf8_lossy(&help.stdout).contains("--profile") {
        println!("skipped: this program has no --profile yet");
        return;
    }
    python(&["play.py", "--", BELLJAR, "serve", "--profile", "{profile}"]);
}

#[test]
fn the_wrapper_of_run_python_tells_what_the_code_came_to() {
    python(&["wrap_test.py"]);
}

#[test]
fn every_profile_has_its_transcript() {
    let names = std::fs::read_dir(GOLDEN).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter_map(|name| name.strip_suffix(".jsonl").map(str::to_owned)).collect();
    names.sort();
    let mut profiles = belljar_server::PROFILES.to_vec();
    profiles.sort_unstable();
    assert_eq!(names, profiles);
}
