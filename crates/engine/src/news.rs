//! What happens to sandboxes, told to whoever listens. Nobody looks into a sandbox for it: each change is told by the
//! call that made it.

use std::sync::Arc;

use belljar_core::{Changes, WORKSPACE};
use tokio::sync::broadcast;

use crate::{Principal, SandboxId};

/// Who is slower than this misses the oldest, and is told so by the channel.
const WAITING_MAX: usize = 256;

/// Something that happened to a sandbox. Not for everyone: whoever passes it on looks at `owner`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct News {
    pub owner: Principal,
    pub sandbox: SandboxId,
    pub event: SandboxEvent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SandboxEvent {
    Created,
    Gone,
    Changed(FileChanges),
}

/// Files that were written, by a caller or by a program that has ended since. What a program removed is not known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileChanges {
    /// As [`workspace_path`] has them.
    pub paths: Arc<[String]>,
    /// There were more, which nobody counted by name.
    pub more: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct Newsroom(broadcast::Sender<News>);

impl Newsroom {
    pub(crate) fn new() -> Newsroom {
        Newsroom(broadcast::Sender::new(WAITING_MAX))
    }

    pub(crate) fn subscribe(&self) -> broadcast::Receiver<News> {
        self.0.subscribe()
    }

    /// To nobody, often.
    pub(crate) fn tell(&self, owner: &Principal, sandbox: &SandboxId, event: SandboxEvent) {
        if self.0.receiver_count() > 0 {
            // It fails only when the last listener has just left.
            let _ = self.0.send(News { owner: owner.clone(), sandbox: sandbox.clone(), event });
        }
    }

    pub(crate) fn tell_written(&self, owner: &Principal, sandbox: &SandboxId, path: &str) {
        let changes = FileChanges { paths: Arc::from([workspace_path(path)]), more: false };
        self.tell(owner, sandbox, SandboxEvent::Changed(changes));
    }

    pub(crate) fn tell_changes(&self, owner: &Principal, sandbox: &SandboxId, changes: &Changes) {
        if changes.entries.is_empty() && changes.more == 0 || self.0.receiver_count() == 0 {
            return;
        }
        let paths = changes.entries.iter().map(|entry| workspace_path(&entry.path)).collect();
        self.tell(owner, sandbox, SandboxEvent::Changed(FileChanges { paths, more: changes.more > 0 }));
    }
}

/// One spelling for each path, as far as spelling alone can say: relative to the workspace if it is in it, absolute
/// otherwise; empty for the workspace itself. Symbolic links are not looked at.
pub fn workspace_path(path: &str) -> String {
    let workspace: Vec<&str> = WORKSPACE.split('/').filter(|part| !part.is_empty()).collect();
    let mut parts = if path.starts_with('/') { Vec::new() } else { workspace.clone() };
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    match parts.strip_prefix(&workspace[..]) {
        Some(inside) => inside.join("/"),
        None => format!("/{}", parts.join("/")),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use belljar_core::{Language, Program, Source, Stdin};
    use belljar_testkit::fake::{Fake, Manners};

    use super::*;
    use crate::{Attendance, Away, CreateRequest, Engine, RunRequest, Settings, Stays, Wants};

    fn changed(paths: &[&str], more: bool) -> SandboxEvent {
        SandboxEvent::Changed(FileChanges { paths: paths.iter().map(|path| path.to_string()).collect(), more })
    }

    #[tokio::test]
    async fn every_change_is_told_by_who_made_it() {
        let engine = Engine::new(Fake::new(Manners::default()), Settings::default());
        let who = Principal::new("ann");
        let mut news = engine.news();
        let id = engine.create(&who, CreateRequest::default()).await.unwrap().id;
        engine.write(&who, id.as_str(), "./a.txt", b"x".to_vec()).await.unwrap();
        let request = |acts: &str| RunRequest {
            sandbox: Some(id.as_str().to_owned()),
            program: Program {
                source: Source::Code { language: Language::Python, code: acts.to_owned() },
                env: Vec::new(),
                cwd: None,
                stdin: Stdin::empty(),
                wall: Duration::from_secs(10),
                changed_max: 2,
            },
            wants: Wants::default(),
        };
        engine.run(&who, request("print nothing changed")).await.unwrap();
        engine.run(&who, request("write b.txt x\nwrite c.txt x\nwrite d.txt x")).await.unwrap();
        // A job, which nobody waits for, tells as well.
        let stays = Stays::Away(Away::KeepsSandbox);
        let attendance = Attendance::new(stays);
        engine.attend(&who, request("write e.txt x"), attendance).await.unwrap();
        let mut told = Vec::new();
        for _ in 0..4 {
            let next = tokio::time::timeout(Duration::from_secs(10), news.recv()).await.expect("told in time").unwrap();
            assert_eq!((&next.owner, &next.sandbox), (&who, &id));
            told.push(next.event);
        }
        engine.destroy(&who, id.as_str()).await.unwrap();
        told.push(news.recv().await.unwrap().event);
        let expected = [
            SandboxEvent::Created,
            changed(&["a.txt"], false),
            changed(&["b.txt", "c.txt"], true),
            changed(&["e.txt"], false),
            SandboxEvent::Gone,
        ];
        assert_eq!(told, expected);
        assert!(news.try_recv().is_err(), "and nothing else");
    }

    #[test]
    fn a_path_has_one_spelling() {
        for path in ["a/b.txt", "./a//b.txt", "/workspace/a/b.txt", "a/c/../b.txt", "../workspace/a/b.txt"] {
            assert_eq!(workspace_path(path), "a/b.txt", "{path}");
        }
        assert_eq!(workspace_path("/tmp/x"), "/tmp/x");
        assert_eq!(workspace_path("../tmp/./x"), "/tmp/x");
        assert_eq!(workspace_path("../../../.."), "/");
        assert_eq!((workspace_path("."), workspace_path("/workspace/")), (String::new(), String::new()));
        assert_eq!(workspace_path("/workspaces/x"), "/workspaces/x");
    }
}
