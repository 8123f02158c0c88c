//! A wall that this build of ours does not have.

use belljar_core::{Backend, BackendError, Capabilities, Language, Later, Probe, Sandbox, Spec, Wall, WallState};

#[derive(Debug)]
pub(crate) struct Absent(pub(crate) &'static str);

impl Absent {
    fn why(&self) -> String {
        format!("this build of belljar has no {} wall", self.0)
    }

    fn fix(&self) -> String {
        format!("build it with `cargo build --release --features {}`", self.0)
    }
}

impl Backend for Absent {
    fn name(&self) -> &'static str {
        self.0
    }

    fn probe(&self) -> Probe {
        let state = WallState::Missing { why: self.why(), fix: self.fix() };
        Probe { walls: vec![Wall { name: "build", state }], languages: Vec::new() }
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            languages: Vec::new(),
            interpreters: Vec::new(),
            missing: Language::ALL.map(|language| (language, self.fix())).into(),
            network: false,
            layers: false,
            processes: false,
            images: false,
        }
    }

    fn open<'a>(&'a self, _: &'a Spec) -> Later<'a, Box<dyn Sandbox>> {
        let refusal = BackendError::Unavailable { why: self.why(), fix: self.fix() };
        Box::pin(std::future::ready(Err(refusal)))
    }
}
