//! What programs in a sandbox ask of us while they run: packages, and the tools of other servers.
//!
//! A question is one object of JSON. The answer to one for packages is lines of JSON, of which the last says how it went:
//! `{"err": "text"}`, `{"out": "text"}`, `{"exit": 0}`. What is asked of tools is for the program's desk to answer. Whoever asks is code of the sandbox, and its words are checked as a
//! caller's are.

use std::collections::{HashMap, VecDeque};
use std::pin::pin;

use belljar_core::wire::Part;
use belljar_core::{Asked, Ground, PackageKind, Sandbox};
use belljar_packages::Wanted;
use futures::StreamExt as _;
use futures::future::OptionFuture;
use futures::stream::FuturesUnordered;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::desks::Desks;
use crate::provision::{Provisions, Shelf};
use crate::shared::Shared;
use crate::{EngineError, Phase, check};

/// Questions that wait while one is answered. Each changes the same sandbox, so they go one after the other.
const WAITING_MAX: usize = 16;

#[derive(Debug, Deserialize)]
struct Question {
    install: Option<Install>,
    // Of these it matters here only that they are there.
    call: Option<IgnoredAny>,
    search: Option<IgnoredAny>,
    describe: Option<IgnoredAny>,
    list: Option<IgnoredAny>,
    skills: Option<IgnoredAny>,
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

/// Answers until the sandbox is gone. Dropping it leaves the last questions without an answer.
///
/// Installing changes the sandbox, so that goes one after the other; calls are answered side by side.
pub(crate) async fn answer_all(sandbox: &dyn Sandbox, shared: &Shared, shelf: &Shelf, desks: &Desks) {
    let mut waiting: VecDeque<(u32, Install)> = VecDeque::new();
    let mut installing = None;
    let mut calling = FuturesUnordered::new();
    let mut withdrawn: HashMap<u32, CancellationToken> = HashMap::new();
    loop {
        if installing.is_none()
            && let Some((id, install)) = waiting.pop_front()
        {
            let given_up = withdrawn.entry(id).or_default().clone();
            let install = answer(sandbox, id, install, shared.provisions.as_ref(), shelf, given_up);
            installing = Some(Box::pin(async move {
                install.await;
                id
            }));
        }
        tokio::select! {
            Some(id) = OptionFuture::from(installing.as_mut()) => {
                withdrawn.remove(&id);
                installing = None;
            }
            Some(id) = calling.next() => {
                withdrawn.remove(&id);
            }
            asked = sandbox.asked() => match asked {
                Ok(Asked::Question { id, by, body }) => match read(&body) {
                    Wish::Install(_) if waiting.len() >= WAITING_MAX => {
                        say(sandbox, id, "too many questions at once; ask again later", 1);
                    }
                    Wish::Install(install) => waiting.push_back((id, install)),
                    Wish::Unknown => say(sandbox, id, "this is no question that belljar knows", 2),
                    Wish::Call => match desks.find(by) {
                        Some(place) => {
                            let given_up = withdrawn.entry(id).or_default().clone();
                            calling.push(async move {
                                tokio::select! {
                                    biased;
                                    () = given_up.cancelled() => {}
                                    answer = place.ask(&body, sandbox) => match answer {
                                        Some(answer) => sandbox.answer(id, answer, Part::Last),
                                        None => refuse(sandbox, id, "Cancelled", OVER),
                                    },
                                }
                                id
                            });
                        }
                        None if shared.calls.is_none() => refuse(sandbox, id, "UnknownTool", NO_SERVERS),
                        None => refuse(sandbox, id, "Cancelled", OVER),
                    },
                },
                Ok(Asked::Withdrawn { id }) => {
                    waiting.retain(|(other, _)| *other != id);
                    if let Some(given_up) = withdrawn.get(&id) {
                        given_up.cancel();
                    }
                }
                Err(_) => return,
            },
        }
    }
}

const OVER: &str = "the run that this process belongs to has ended, and calls are made within a run; start it again in a run of its own";
const NO_SERVERS: &str = "no MCP servers are configured here; the operator can name some with --mcp-config FILE";

/// What a question wants.
enum Wish {
    Install(Install),
    /// Something of the tools; the desk knows more.
    Call,
    Unknown,
}

fn read(body: &[u8]) -> Wish {
    match serde_json::from_slice(body) {
        Ok(Question { install: Some(install), .. }) => Wish::Install(install),
        Ok(Question { call: None, search: None, describe: None, list: None, skills: None, .. }) | Err(_) => {
            Wish::Unknown
        }
        Ok(_) => Wish::Call,
    }
}

/// An error as programs catch it.
fn refuse(sandbox: &dyn Sandbox, id: u32, kind: &str, message: &str) {
    line(sandbox, id, &json!({"error": {"type": kind, "message": message, "retryable": false}}), Part::Last);
}

async fn answer(
    sandbox: &dyn Sandbox,
    id: u32,
    install: Install,
    provisions: Option<&Provisions>,
    shelf: &Shelf,
    withdrawn: CancellationToken,
) {
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
        Kind::Python => PackageKind::Python,
        Kind::Node => PackageKind::Node,
    };
    let wanted = Wanted { required: install.requirements, ..Wanted::new(kind, &Ground::default()) };
    let phase = Phase::default();
    let mut told = phase.listen();
    let mut installing = pin!(provisions.asked_for(sandbox, wanted, shelf, &phase));
    let installed = loop {
        tokio::select! {
            installed = &mut installing => break installed,
            () = withdrawn.cancelled() => return,
            () = told.changed() => {
                let words = told.now();
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
