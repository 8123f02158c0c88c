//! Sandboxes that stay: what a new one is given, and who answers what is asked in it.

use belljar_core::{Ground, Network, Source, Spec};
use tokio::time::Instant;

use super::Engine;
use crate::provision::{NotProvided, Shelf};
use crate::sandboxes::Arrival;
use crate::{CreateRequest, EngineError, Event, Phase, Principal, Refusal, SandboxId, SandboxInfo, Wants};
use crate::{check, limits, network, questions, templates, traffic};

impl Engine {
    pub async fn create(&self, who: &Principal, request: CreateRequest) -> Result<SandboxInfo, EngineError> {
        let created = self.try_create(who, request).await;
        created.inspect_err(|error| {
            self.shared().tell(&Event::SandboxRefused { owner: who, why: &Refusal::from(error) });
        })
    }

    async fn try_create(&self, who: &Principal, request: CreateRequest) -> Result<SandboxInfo, EngineError> {
        let shared = self.shared();
        let _entered = shared.enter()?;
        shared.books.came(who);
        shared.can_record()?;
        let template = shared.template(request.template.as_deref())?;
        let limits = limits::grant(&request.wish.over(&template.wish), &shared.settings.ceiling)?;
        let age_max = shared.sandboxes.tenure().age_max;
        if request.idle.is_some_and(|idle| idle > age_max) {
            return Err(EngineError::LimitTooHigh { name: "timeout", max: format!("{} seconds", age_max.as_secs()) });
        }
        check::env(&request.env)?;
        check::packages(&request.wants.packages)?;
        let wished = if request.wants.network.is_empty() { &template.network } else { &request.wants.network };
        let granted = network::grant(wished, &shared.settings.network)?;
        let has_network = granted.network != Network::None;
        let packages = [template.packages, request.wants.packages].concat();
        // To build them is work of ours that no sandbox of its owner's pays for; who has used up his own begins none.
        if !packages.is_empty() {
            shared.books.may_run(who)?;
        }
        if has_network || !packages.is_empty() {
            shared.books.may_move(who)?;
        }
        let id = SandboxId::random()?;
        let hold = shared.books.hold_sandbox(who, limits.memory_bytes)?;
        let slot = shared.sandboxes.slot().await?;
        let env = over(granted.env, over(template.env, request.env));
        let waiting = templates::kernel(&template.ground, &shared.interpreters, &shared.languages);
        let shelf = self.furnish(who, &template.ground, packages).await?;
        let files = shared.files(who).await;
        let layers = [shelf.layers(), files.clone()].concat();
        let (network, ground) = (granted.network, template.ground);
        let owner = shelf.owner(shared.provisions.as_ref());
        let spec = Spec { limits, env, network, ground, layers, owner, waiting, ..Spec::default() };
        let opening = Instant::now();
        let sandbox = tokio::select! {
            biased;
            () = shared.stop.cancelled() => return Err(EngineError::ShuttingDown),
            opened = shared.lessor.open(&spec) => opened?,
        };
        let arrival = Arrival { id, limits, idle: request.idle, sandbox, shelf, files, slot, hold, has_network };
        // Before anybody can close it: its end is told after its beginning.
        shared.tell(&Event::SandboxOpened {
            owner: who,
            sandbox: &arrival.id,
            template: request.template.as_deref(),
            limits: &arrival.limits,
            isolation: arrival.sandbox.isolation(),
            took: opening.elapsed(),
        });
        let info = shared.sandboxes.add(who, arrival)?;
        self.answer_questions(who, &info.id);
        tracing::info!(sandbox = %info.id, owner = who.as_str(), "a sandbox was created");
        Ok(info)
    }

    /// What a created sandbox has of packages: those it was asked for, or what most ask for, if that is there.
    async fn furnish(&self, who: &Principal, ground: &Ground, packages: Vec<String>) -> Result<Shelf, EngineError> {
        let shared = self.shared();
        let Some(provisions) = &shared.provisions else {
            return if packages.is_empty() {
                Ok(Shelf::new(who, ground, Vec::new()))
            } else {
                Err(EngineError::NoPackages)
            };
        };
        provisions.packages.look_for_base(ground).await;
        let base = provisions.packages.base(ground);
        let mut shelf = Shelf::new(who, ground, base.into_iter().collect());
        if !packages.is_empty() {
            let wants = Wants { packages, network: Vec::new() };
            // Without a program there is nothing to infer from, and the shell's packages are Python's.
            let (nothing, phase) = (Source::Command(String::new()), Phase::default());
            tokio::select! {
                biased;
                () = shared.stop.cancelled() => return Err(EngineError::ShuttingDown),
                provided = provisions.ahead(&nothing, &wants, &mut shelf, &[], &phase) => match provided {
                    Ok(_) => {}
                    Err(NotProvided::Refused(error)) => return Err(error),
                    Err(NotProvided::Failed { error }) => {
                        return Err(EngineError::NotInstalled { next_step: error.kind.next_step(), words: error.words });
                    }
                },
            }
        }
        Ok(shelf)
    }

    /// As long as the sandbox stands.
    fn answer_questions(&self, who: &Principal, id: &SandboxId) {
        let shared = self.shared().clone();
        let Ok(mut used) = shared.sandboxes.take(who, id.as_str()) else { return };
        used.rest();
        self.shared().tasks.spawn(async move {
            let closing = used.named.closing.clone();
            tokio::select! {
                () = closing.cancelled() => {}
                // Nobody may come to it any more, and what it holds of its owner's quota would be held for ever so long.
                () = questions::answer_all(used.sandbox(), &shared, &used.named.shelf, &used.named.desks) => used.fell(),
                never = traffic::watch_created(&used, &shared) => match never {},
            }
        });
    }
}

/// Variables, of which the second list's go before the first's.
fn over(base: Vec<(String, String)>, own: Vec<(String, String)>) -> Vec<(String, String)> {
    let kept = base.into_iter().filter(|(name, _)| !own.iter().any(|(other, _)| other == name));
    let kept: Vec<_> = kept.collect();
    kept.into_iter().chain(own).collect()
}
