//! What `belljar doctor` shows of the host's languages.

use belljar_core::{Language, Wall, WallState};

use super::Interpreters;

impl Interpreters {
    pub(crate) fn probe(&self) -> Vec<Wall> {
        let wall = |language: Language| Wall { name: language.name(), state: of_language(language, self) };
        Language::ALL.into_iter().map(wall).collect()
    }
}

fn of_language(language: Language, interpreters: &Interpreters) -> WallState {
    let Some(interpreter) = interpreters.default_of(language) else {
        let missing = interpreters.missing().iter().find(|missing| missing.language == language);
        let why = missing.map_or("not found", |missing| missing.why.as_str());
        // Whoever wants TypeScript may not expect this to be what is missing.
        let why = if language == Language::TypeScript { format!("it needs Node.js: {why}") } else { why.to_owned() };
        return WallState::Missing { why, fix: missing.map_or("install it", |missing| missing.fix).to_owned() };
    };
    let own = interpreter.name();
    let program = interpreter.program.display();
    let mut detail = match (&own, language) {
        (None, _) => program.to_string(),
        (Some(_), Language::TypeScript) => format!("on Node.js {} {program}", interpreter.version),
        (Some(_), _) => format!("{} {program}", interpreter.version),
    };
    let names = interpreters.names();
    let others: Vec<&str> = names
        .iter()
        .filter(|(of, name)| *of == language && own.as_ref() != Some(name))
        .map(|(_, name)| name.as_str())
        .collect();
    if !others.is_empty() && language != Language::TypeScript {
        detail += &format!("; also {}", others.join(", "));
    }
    WallState::Stands { detail }
}
