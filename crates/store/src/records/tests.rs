use std::path::Path;

use belljar_core::Source;
use belljar_engine::{Principal, Refusal, RunId};
use serde_json::Value;

use super::*;
use crate::{AuditSettings, HistorySettings, Reader, Wanted};

const CODE: &str = "print('a secret word')";

struct Kept {
    records: Records,
    folder: tempfile::TempDir,
}

impl Kept {
    fn new(history_code: bool, audit_code: bool) -> Kept {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let history = HistorySettings { file: path("history.db"), days: 30, bytes_max: 512 << 20, code: history_code };
        let audit =
            AuditSettings { file: path("audit.jsonl"), bytes_max: 64 << 20, keep: 8, code: audit_code, required: true };
        let (history, audit) = (History::open(history).unwrap(), AuditFile::open(audit).unwrap());
        Kept { records: Records::new(Some(history), Some(audit)), folder }
    }

    fn refuse(&self, principal: &str, kind: &'static str, sandbox: Option<&str>) {
        let why = Refusal { kind, words: "try again ".repeat(1000) };
        self.records.observe(&Event::RunRefused {
            owner: &Principal::new(principal),
            run: &RunId::random().unwrap(),
            sandbox,
            source: &Source::Command(CODE.to_owned()),
            why: &why,
        });
    }

    fn read(&self) -> (Vec<crate::PastRun>, i64) {
        self.records.end();
        let reader = Reader::open(&self.folder.path().join("history.db")).unwrap().unwrap();
        let wanted = Wanted { limit: 10_000, ..Wanted::default() };
        (reader.runs(&wanted).unwrap(), reader.dropped().unwrap())
    }

    fn lines(&self) -> Vec<Value> {
        lines(&self.folder.path().join("audit.jsonl"))
    }
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn what_was_refused_is_in_both_with_its_kind() {
    let kept = Kept::new(true, false);
    kept.refuse("ann", "quota", Some(&"sb_".repeat(1000)));
    let (runs, dropped) = kept.read();
    let run = &runs[0];
    assert_eq!((runs.len(), dropped), (1, 0));
    assert_eq!((run.ending.as_str(), run.error_kind.as_deref()), ("refused", Some("quota")));
    assert_eq!((run.tool.as_str(), run.principal.as_str(), run.code.as_deref()), ("exec", "ann", Some(CODE)));
    assert!(run.ended_ms.is_some() && run.exit_code.is_none());
    assert_eq!((run.sandbox.as_ref().unwrap().len(), run.error.as_ref().unwrap().len()), (64, 1024), "bounded");
    let line = &kept.lines()[0];
    assert_eq!(
        (&line["event"], &line["ending"], &line["error_kind"]),
        (&"run".into(), &"refused".into(), &"quota".into())
    );
    assert_eq!((&line["run"], &line["code_sha256"]), (&run.id.as_str().into(), &run.code_sha256.as_str().into()));
    assert!(line.get("code").is_none(), "each has its own word on the text: {line}");
}

#[test]
fn a_flood_of_refusals_is_counted_and_not_written() {
    let kept = Kept::new(false, true);
    for _ in 0..1000 {
        kept.refuse("flooder", "busy", None);
    }
    kept.refuse("ann", "quota", None);
    let (runs, dropped) = kept.read();
    assert_eq!((runs.len(), dropped), (31, 970));
    assert!(runs.iter().all(|run| run.code.is_none()));
    let lines = kept.lines();
    assert_eq!(lines.len(), 32);
    assert_eq!((&lines[30]["principal"], &lines[30]["code"]), (&"ann".into(), &CODE.into()), "others are written");
    let last = &lines[31];
    assert_eq!(
        (&last["event"], &last["principal"], &last["count"]),
        (&"runs-refused".into(), &"flooder".into(), &970.into())
    );
}

#[test]
fn what_the_audit_could_not_take_is_no_line_of_its() {
    let kept = Kept::new(false, false);
    kept.refuse("ann", EngineError::NotRecorded.name(), None);
    assert_eq!(kept.read().0.len(), 1);
    assert!(kept.lines().is_empty());
}

#[test]
fn what_a_person_said_is_always_written_and_that_nobody_was_there_a_few_times() {
    let kept = Kept::new(false, false);
    let decide = |outcome| {
        let (principal, name) = ("ann".to_owned(), "python".to_owned());
        let (run, what, sha256) = (None, "program", "0".repeat(64));
        kept.records.decided(Decision { principal, run, what, name, sha256, outcome });
    };
    for _ in 0..100 {
        decide("nobody");
    }
    for _ in 0..100 {
        decide("denied");
    }
    kept.records.end();
    let lines = kept.lines();
    assert_eq!(lines.len(), 130);
    assert_eq!((&lines[0]["event"], &lines[0]["outcome"]), (&"decision".into(), &"nobody".into()));
    assert_eq!((&lines[30]["principal"], &lines[30]["outcome"]), (&"ann".into(), &"denied".into()));
    assert!(lines[0].get("run").is_none(), "{}", lines[0]);
    let reader = Reader::open(&kept.folder.path().join("history.db")).unwrap().unwrap();
    assert_eq!(reader.decisions(&Wanted { limit: 10_000, ..Wanted::default() }).unwrap().len(), 130);
}
