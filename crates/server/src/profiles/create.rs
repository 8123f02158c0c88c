//! `create_sandbox` of the surfaces that have it. What cannot be done here is refused in a sentence when it is asked
//! for, and passed over when it is asked for as it is anyway.

use std::time::Duration;

use belljar_core::Language;
use belljar_engine::{CreateRequest, Wish};

use super::act::{Doing, Outcome};
use super::fault::Fault;
use super::memory::Variables;
use super::table::Style;

const GIB: f64 = (1u64 << 30) as f64;
const MINUTES_MAX: f64 = 1e6;
const NAME_BYTES_MAX: usize = 256;
/// With room for what a command of the surface adds: the engine has bounds for a program's environment too.
const VARIABLES_MAX: usize = 100;
const VARIABLES_BYTES_MAX: usize = 96 * 1024;

/// What Daytona has and a sandbox here has not, and what to do instead.
const MISSING: &[(&str, &str)] = &[
    ("snapshot", "there are no snapshots here; leave it out, and put files in with file_upload"),
    ("public", "a sandbox cannot be reached from outside; leave it out, or send false"),
    ("gpu", "there is no GPU in a sandbox; leave it out, or send 0"),
    ("volumes", "there are no volumes here; leave it out, and put files in with file_upload"),
    ("buildInfo", "sandboxes are not built from Dockerfiles here; leave it out"),
    ("networkAllowList", "sandboxes have no network; leave it out"),
];

pub(super) async fn create(doing: &mut Doing<'_>) -> Result<Outcome, Fault> {
    match doing.profile.style {
        Style::Daytona => daytona(doing).await,
        _ => morph(doing).await,
    }
}

async fn daytona(doing: &mut Doing<'_>) -> Result<Outcome, Fault> {
    let (engine, who) = (doing.call.engine, doing.call.who);
    let args = &mut doing.args;
    if let Some(given) = args.nonempty("id")? {
        let sandbox = doing.desk.sandbox_of(&given).unwrap_or_else(|| given.clone());
        let stands = engine.sandboxes(who).iter().any(|info| info.id.as_str() == sandbox);
        return match stands {
            true => Ok(Outcome::Created { sandbox, reused: true, note: None }),
            false => {
                Err(Fault::refused("that sandbox was not found or is not running; leave out id to create a new one"))
            }
        };
    }
    for (name, sentence) in MISSING {
        if args.says(name) {
            return Err(Fault::refused(format!("{name}: {sentence}")));
        }
    }
    if args.nonempty("target")?.is_some_and(|target| target != "us") {
        return Err(Fault::refused("target: there are no regions here, only this machine; leave it out"));
    }
    if args.nonempty("user")?.is_some_and(|user| user != "daytona") {
        return Err(Fault::refused("user: all sandboxes have the same user; leave it out"));
    }
    args.strings("labels")?;
    args.flag("networkBlockAll")?;
    args.number("autoArchiveInterval", 0.0, f64::MAX)?;
    args.number("autoDeleteInterval", f64::MIN, f64::MAX)?;
    let name = args.nonempty("name")?;
    let bytes = |size: Option<f64>| size.map(|size| (size * GIB) as u64);
    let wish = Wish {
        cpu_milli: args.number("cpu", 0.05, 4.0)?.map(|cpus| (cpus * 1000.0).round() as u32),
        memory_bytes: bytes(args.number("memory", 0.016, 8.0)?),
        disk_bytes: bytes(args.number("disk", 0.001, 10.0)?),
        ..Wish::default()
    };
    let minutes = args.number("autoStopInterval", 0.0, MINUTES_MAX)?.unwrap_or(15.0);
    let idle = match minutes {
        0.0 => engine.tenure().age_max,
        minutes => Duration::from_secs_f64(minutes * 60.0),
    };
    if let Some(name) = &name {
        if name.len() > NAME_BYTES_MAX || name.starts_with("sb_") {
            return Err(Fault::argument("name is too long, or looks like an id; choose another"));
        }
        doing.desk.make_room(engine, who)?;
        let standing = engine.sandboxes(who);
        match doing.desk.sandbox_of(name) {
            Some(sandbox) if standing.iter().any(|info| info.id.as_str() == sandbox) => return Err(taken()),
            Some(sandbox) => doing.desk.forget(&sandbox),
            None => {}
        }
    }
    let variables = variables(doing.args.strings("env")?)?;
    let request = CreateRequest { wish, idle: Some(idle), ..CreateRequest::default() };
    let sandbox = engine.create(who, request).await?.id.as_str().to_owned();
    doing.desk.give(engine, who, &sandbox, variables);
    if let Some(name) = &name
        && !doing.desk.name(name, &sandbox)
    {
        engine.destroy(who, &sandbox).await?;
        return Err(taken());
    }
    Ok(Outcome::Created { sandbox, reused: false, note: None })
}

/// What every program will have is refused at once if none can have it.
fn variables(given: Variables) -> Result<Variables, Fault> {
    let bytes: usize = given.iter().map(|(name, value)| name.len() + value.len()).sum();
    if given.len() > VARIABLES_MAX || bytes > VARIABLES_BYTES_MAX {
        let sentence =
            "env: the environment is too large; send at most 100 variables and 96 KiB, and the rest as files";
        return Err(Fault::argument(sentence));
    }
    let is_bad =
        |(name, value): &(String, String)| name.is_empty() || name.contains(['=', '\0']) || value.contains('\0');
    match given.iter().any(is_bad) {
        true => Err(Fault::argument(
            "env: no environment can hold a variable with an empty name, '=' in its name, or a NUL byte; change it",
        )),
        false => Ok(given),
    }
}

fn taken() -> Fault {
    Fault::refused("name: another sandbox has it; use that one, or choose another name")
}

async fn morph(doing: &mut Doing<'_>) -> Result<Outcome, Fault> {
    let (engine, who) = (doing.call.engine, doing.call.who);
    let asked = doing.args.nonempty("template")?;
    let (template, note) = match &asked {
        None => (None, None),
        Some(asked) => template(asked, &engine.templates(), &engine.languages())?,
    };
    let seconds = doing.args.number("timeout", 1.0, 1e9)?;
    let request = CreateRequest { template, idle: seconds.map(Duration::from_secs_f64), ..CreateRequest::default() };
    let info = engine.create(who, request).await?;
    Ok(Outcome::Created { sandbox: info.id.as_str().to_owned(), reused: false, note })
}

/// The host's template for what was asked. Where it has another version of the same language, that one, and a note.
fn template(asked: &str, there: &[String], languages: &[Language]) -> Result<(Option<String>, Option<String>), Fault> {
    if there.iter().any(|name| name == asked) {
        return Ok((Some(asked.to_owned()), None));
    }
    let family = asked.split_once('-').map_or(asked, |(family, _)| family);
    let language = match family {
        "python" => Language::Python,
        "node" => Language::JavaScript,
        "go" => Language::Go,
        "rust" => Language::Rust,
        _ => return Err(Fault::argument("template must be one of: python-3.12, node-20, go, rust")),
    };
    if !languages.contains(&language) {
        return Err(Fault::refused(format!("template: this host has no {family}; create a sandbox without template")));
    }
    let asked: String = asked.chars().take(40).collect();
    let asked = crate::clean::clean(asked.as_bytes());
    let found = there.iter().find(|name| *name == family).cloned();
    let version = there.iter().find(|name| name.starts_with(&format!("{family}-")));
    let has = version.map_or_else(|| format!("its own {family}"), Clone::clone);
    Ok((found, (asked != family).then(|| format!("[this host has no {asked}; the sandbox has {has}]"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_given_with_a_note_and_another_language_never() {
        let there: Vec<String> = ["python", "python-3.11", "node", "node-20"].map(String::from).to_vec();
        let languages = [Language::Python, Language::JavaScript];
        assert_eq!(template("node-20", &there, &languages).unwrap(), (Some("node-20".into()), None));
        let (found, note) = template("python-3.12", &there, &languages).unwrap();
        assert_eq!(found.as_deref(), Some("python"));
        assert_eq!(note.unwrap(), "[this host has no python-3.12; the sandbox has python-3.11]");
        assert!(template("go", &there, &languages).unwrap_err().to_string().contains("has no go"));
        assert!(template("cobol", &there, &languages).is_err());
    }
}
