//! The command line behind a wall.

use serde_json::{Value, json};

use super::wall::{Wall, stands_behind};

pub(super) fn doctor_tells_of_it(wall: &Wall) {
    let doctor = wall.doctor();
    assert_eq!((&doctor["backend"], &doctor["usable"]), (&json!(wall.backend()), &json!(true)), "{doctor}");
    assert!(doctor["sandbox"]["open_ms"].as_f64().is_some_and(|took| took > 0.0), "{doctor}");
    let walls = doctor["walls"].as_array().unwrap();
    assert!(!walls.is_empty());
    for part in walls.iter().chain(doctor["languages"].as_array().unwrap()) {
        let told = |name: &str| part[name].as_str().is_some_and(|text| !text.is_empty());
        let whole = if part["state"] == "ok" { told("detail") } else { told("why") && told("fix") };
        assert!(told("name") && whole, "{part}");
    }
}

pub(super) fn the_command_line_runs_a_program(wall: &Wall) {
    let words = ["--backend", wall.backend(), "run", "--json", "-l", "python", "-c", "print('hello')\n6 * 7"];
    let output = wall.command_line(&words);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text} {}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&report["stdout"], &report["ending"]), (&json!("hello\n"), &json!("exited")), "{report}");
    stands_behind(&report["isolation"], wall.backend());
    let failing = wall.command_line(&["--backend", wall.backend(), "run", "-l", "python", "-c", "raise SystemExit(5)"]);
    assert_eq!(failing.status.code(), Some(5), "{}", String::from_utf8_lossy(&failing.stderr));
}
