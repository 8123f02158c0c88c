//! What programs in a sandbox ask of us while they run: today, packages.
//!
//! A question is one object of JSON; its answer is lines of JSON, of which the last says how it went:
//! `{"err": "text"}`, `{"out": "text"}`, `{"exit": 0}`. Whoever asks is code of the sandbox, and its words are checked as a
//! caller's are.

use std::pin::pin;

use belljar_core::wire::Part;
use belljar_core::{Asked, LayerKind, Sandbox};
use belljar_packages::Wanted;
use serde::Deserialize;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::provision::{Provisions, Shelf};
use crate::{EngineError, Phase, check};

/// Questions that wait while one is answered. Each changes the same sandbox, so they go one after the other.
const WAITING_MAX: usize = 16;

#[derive(Debug, Deserialize)]
struct Question {
    install: Option<Install>,
}

#[derive(Debug, Deserialize)]
struct Install {
    kind: Kind,
    requirements: Vec<String>,
    #[serde(default)]
    constraints: Vec<String>,
    #[serde(default)]
    pre: bool,
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Python,
    Node,
}

/// Answers until the sandbox is gone. Dropping it leaves the last question without an answer.
pub(crate) async fn answer_all(sandbox: &dyn Sandbox, provisions: Option<&Provisions>, shelf: &Shelf) {
    let mut waiting: std::collections::VecDeque<(u32, Vec<u8>)> = std::collections::VecDeque::new();
    loop {
        let Some((id, body)) = waiting.pop_front() else {
            match sandbox.asked().await {
                Ok(Asked::Question { id, body }) => waiting.push_back((id, body)),
                Ok(Asked::Withdrawn { .. }) => {}
                Err(_) => return,
            }
            continue;
        };
        let withdrawn = CancellationToken::new();
        let mut answering = pin!(answer(sandbox, id, &body, provisions, shelf, &withdrawn));
        loop {
            tokio::select! {
                () = &mut answering => break,
                asked = sandbox.asked() => match asked {
                    Ok(Asked::Question { id, body }) if waiting.len() < WAITING_MAX => waiting.push_back((id, body)),
                    Ok(Asked::Question { id, .. }) => say(sandbox, id, "too many questions at once; ask again later", 1),
                    Ok(Asked::Withdrawn { id: gone }) if gone == id => withdrawn.cancel(),
                    Ok(Asked::Withdrawn { id: gone }) => waiting.retain(|(id, _)| *id != gone),
                    Err(_) => return,
                },
            }
        }
    }
}

async fn answer(
    sandbox: &dyn Sandbox,
    id: u32,
    body: &[u8],
    provisions: Option<&Provisions>,
    shelf: &Shelf,
    withdrawn: &CancellationToken,
) {
    let Ok(Question { install: Some(install) }) = serde_json::from_slice(body) else {
        return say(sandbox, id, "this is no question that belljar knows", 2);
    };
    let Some(provisions) = provisions else {
        return say(sandbox, id, &EngineError::NoPackages.to_string(), 1);
    };
    if !install.constraints.is_empty() || install.pre {
        let words = "constraints and --pre are not known here; name the versions themselves, such as pandas==2.2.3";
        return say(sandbox, id, words, 2);
    }
    if let Err(refused) = check::packages(&install.requirements) {
        return say(sandbox, id, &refused.to_string(), 2);
    }
    let kind = match install.kind {
        Kind::Python => LayerKind::Python,
        Kind::Node => LayerKind::Node,
    };
    let wanted = Wanted { required: install.requirements, ..Wanted::new(kind, &[]) };
    let phase = Phase::default();
    let mut installing = pin!(provisions.asked_for(sandbox, wanted, shelf, &phase));
    let installed = loop {
        tokio::select! {
            installed = &mut installing => break installed,
            () = withdrawn.cancelled() => return,
            () = phase.changed() => {
                let words = phase.now();
                if !words.is_empty() {
                    line(sandbox, id, &json!({"err": format!("{words}\n")}), Part::MoreComes);
                }
            }
        }
    };
    match installed {
        Ok(installed) => {
            let packages: Vec<String> =
                installed.packages.iter().map(|(name, version)| format!("{name}-{version}")).collect();
            let words = match packages.as_slice() {
                [] => "Requirement already satisfied\n".to_owned(),
                packages => format!("Successfully installed {}\n", packages.join(" ")),
            };
            line(sandbox, id, &json!({"out": words}), Part::MoreComes);
            line(sandbox, id, &json!({"exit": 0}), Part::Last);
        }
        Err(error) => say(sandbox, id, &format!("ERROR: {error}\n{}", error.kind.next_step()), 1),
    }
}

/// The last words of an answer.
fn say(sandbox: &dyn Sandbox, id: u32, words: &str, exit: i32) {
    line(sandbox, id, &json!({"err": format!("{words}\n")}), Part::MoreComes);
    line(sandbox, id, &json!({"exit": exit}), Part::Last);
}

fn line(sandbox: &dyn Sandbox, id: u32, value: &serde_json::Value, part: Part) {
    sandbox.answer(id, format!("{value}\n").into_bytes(), part);
}
