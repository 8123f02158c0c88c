//! Programs that a person approves before they run.

use std::fmt::Write as _;
use std::sync::atomic::Ordering;

use belljar_core::{Source, Stdin};
use belljar_engine::{Phase, Refusal, RunRequest};
use belljar_gateway::approval::{Pending, Subject, Verdict};
use belljar_gateway::audit::Decided;

use super::elicit::Form;
use super::flow::{Asking, Unanswered, WAITS};
use super::state::{About, Answered, digest};
use super::{PATIENCE, Way};
use crate::tools::Call;

const DENIED: &str =
    "a person did not approve this program, and it did not run; ask what to change before trying again";
const CANNOT_ASK: &str = "programs run here only after a person has approved them, and this client cannot ask one: it has \
                          no elicitation. Use a client that has, or start the server with --approve never";

/// What a program is given besides its text, which may be the better part of it: a shell's input is a program too.
pub(super) fn besides(request: &RunRequest) -> String {
    let program = &request.program;
    let mut text = String::new();
    // Writing to a String cannot fail.
    if let Stdin::Whole(bytes) = &program.stdin
        && !bytes.is_empty()
    {
        let _ = write!(text, "\n\n[standard input]\n{}", String::from_utf8_lossy(bytes));
    }
    for (name, value) in &program.env {
        let _ = write!(text, "\n[environment] {name}={value}");
    }
    if let Some(cwd) = &program.cwd {
        let _ = write!(text, "\n[directory] {cwd}");
    }
    for package in &request.wants.packages {
        let _ = write!(text, "\n[package] {package}");
    }
    for host in &request.wants.network {
        let _ = write!(text, "\n[network] {host}");
    }
    text
}

/// A program that nobody approved is one that was refused, as those who watch the engine are told.
fn refuse(call: &Call<'_>, source: &Source, words: &str) -> Unanswered {
    call.engine.was_refused(call.who, source, &Refusal { kind: "approval", words: words.to_owned() });
    Unanswered::Refused(words.to_owned())
}

impl Asking<'_> {
    /// Where programs are approved: asks, unless this one was.
    pub(crate) async fn approve(&self, call: &Call<'_>, request: &RunRequest) -> Result<(), Unanswered> {
        if self.came_back.job().is_some() {
            return Ok(());
        }
        let phase = Phase::default();
        let source = &request.program.source;
        let besides = besides(request);
        let approving = self.approve_code(call, source, &besides, self.came_back.take(), &phase);
        call.progress.during(PATIENCE, &phase, Box::pin(approving)).await
    }

    pub(super) async fn approve_code(
        &self,
        call: &Call<'_>,
        source: &Source,
        besides: &str,
        came_back: Option<Answered>,
        phase: &Phase,
    ) -> Result<(), Unanswered> {
        if !self.code_mode.approves_code() || self.approved.load(Ordering::Acquire) {
            return Ok(());
        }
        let (language, code) = match source {
            Source::Cell { language, code, .. } | Source::Code { language, code } => (language.name(), code),
            Source::Command(line) => ("shell", line),
        };
        let shown = format!("{code}{besides}");
        let texts = [("owner", call.who.as_str()), ("language", language), ("code", shown.as_str())];
        let texts = texts.map(|(name, text)| (name.to_owned(), text.into()));
        let program = digest("program", Some(&texts.into_iter().collect()));
        let language = language.to_owned();
        // By its text alone, which is what its runs are known by.
        let subject = Subject::Code { language: language.clone(), code: code.clone() };
        let tell = |verdict| self.code_mode.decided(&Decided::new(call.who.as_str(), None, &subject, verdict));
        let verdict = match came_back {
            Some(Answered::Code(verdict)) => verdict,
            // It was decided on, and written down, when it came first.
            _ if self.desk.remembers(&program) => {
                self.approved.store(true, Ordering::Release);
                return Ok(());
            }
            _ if !self.can_ask() => {
                tell(None);
                return Err(refuse(call, source, CANNOT_ASK));
            }
            _ => {
                let subject = Subject::Code { language, code: shown };
                self.ask_about_code(call, Pending { id: 0, subject }, phase).await?
            }
        };
        tell(Some(verdict));
        match verdict {
            Verdict::Deny => return Err(refuse(call, source, DENIED)),
            Verdict::Same => self.desk.remember(program),
            Verdict::Once | Verdict::Run => {}
        }
        self.approved.store(true, Ordering::Release);
        Ok(())
    }

    async fn ask_about_code(&self, call: &Call<'_>, code: Pending, phase: &Phase) -> Result<Verdict, Unanswered> {
        match &self.way {
            Way::Nobody => Err(Unanswered::Refused(CANNOT_ASK.into())),
            Way::Returns => Err(self.question(call, &[code], About::Code)),
            Way::Elicits { peer, titles } => {
                phase.is(WAITS);
                let decision = Form::send(peer, *titles, &[code]).await.decision().await;
                phase.is("");
                Ok(if decision.ids.is_empty() { Verdict::Deny } else { decision.verdict })
            }
        }
    }
}
