//! Programs that were kept: each with a description and the tools that it needs, for its owner's later sandboxes.
//!
//! ```text
//! <folder>/<digest of the owner>/<name>.json       what is kept
//! /skills/<name>/SKILL.md, main.py                 what a sandbox sees of it, as a layer
//! ```
//!
//! A skill remembers the definitions of its tools. When one is another by now, or is gone, the skill is refused: what it does
//! was approved for the tools as they were.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::audit::sha256;
use crate::catalogue::{Catalogue, Tool};
use crate::error::{CallError, ErrorKind};

const SKILLS_MAX: usize = 200;
const CODE_BYTES_MAX: usize = 128 * 1024;
const DESCRIPTION_CHARS_MAX: usize = 1_000;
const TOOLS_MAX: usize = 50;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skill {
    pub name: String,
    pub description: String,
    pub language: String,
    pub code: String,
    /// Its tools, as `server.tool`, with the digest of each one's definition.
    pub tools: BTreeMap<String, String>,
}

/// What a program wants to keep.
#[derive(Debug, Clone, Deserialize)]
pub struct Wanted {
    pub name: String,
    pub description: String,
    #[serde(default = "python")]
    pub language: String,
    pub code: String,
    #[serde(default)]
    pub tools: Vec<String>,
}

fn python() -> String {
    "python".to_owned()
}

#[derive(Debug, Clone)]
pub struct Skills {
    folder: Option<PathBuf>,
}

impl Skill {
    /// The same with the tools of one server alone.
    pub(crate) fn of(&self, server: &str, catalogue: &Catalogue) -> Skill {
        let is_its = |path: &str| tool(catalogue, path).is_some_and(|tool| tool.server == server);
        let tools = self.tools.iter().filter(|(path, _)| is_its(path));
        Skill { tools: tools.map(|(path, digest)| (path.clone(), digest.clone())).collect(), ..self.clone() }
    }
}

impl Skills {
    /// Without a folder none are kept.
    pub fn at(folder: Option<PathBuf>) -> Skills {
        Skills { folder }
    }

    fn of(&self, owner: &str) -> Result<PathBuf, CallError> {
        let Some(folder) = &self.folder else {
            return Err(refused(
                "this server keeps no skills: it has no folder for them; the operator can name one as [skills] folder",
            ));
        };
        Ok(folder.join(&sha256(owner.as_bytes())[..32]))
    }

    /// What this would be kept as, or why not.
    pub fn check(&self, wanted: Wanted, catalogue: &Catalogue) -> Result<Skill, CallError> {
        let Wanted { name, description, language, code, tools } = wanted;
        let is_name = name.len() <= 64
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-');
        if !is_name {
            return Err(refused(
                "a skill's name is lower-case letters, digits, - and _, at most 64, beginning with a letter",
            ));
        }
        let description = crate::stubs::clean(&description, DESCRIPTION_CHARS_MAX);
        if description.trim().is_empty() {
            return Err(refused("a skill needs a description, by which it is found"));
        }
        if extension(&language).is_none() {
            return Err(refused("a skill is in python, javascript, typescript or shell"));
        }
        if code.trim().is_empty() || code.len() > CODE_BYTES_MAX || tools.len() > TOOLS_MAX {
            let words =
                format!("a skill has code of at most {} KiB, and at most {TOOLS_MAX} tools", CODE_BYTES_MAX >> 10);
            return Err(refused(&words));
        }
        let digest_of = |path: String| match find(catalogue, &path) {
            Some(digest) => Ok((path, digest)),
            None => Err(refused(&format!("the skill needs {path}, which is not there; name its tools as server.tool"))),
        };
        let tools = tools.into_iter().map(digest_of).collect::<Result<_, _>>()?;
        Ok(Skill { name, description, language, code, tools })
    }

    /// Keeps it, in place of the one of its name. Blocking.
    pub fn keep(&self, owner: &str, skill: &Skill) -> Result<(), CallError> {
        let folder = self.of(owner)?;
        let path = folder.join(format!("{}.json", skill.name));
        if !path.exists() && self.list(owner).len() >= SKILLS_MAX {
            return Err(refused(&format!("{SKILLS_MAX} skills are kept already; remove one first")));
        }
        let written = fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder).and_then(|()| {
            let fresh = folder.join(format!(".{}.new", skill.name));
            let mut options = fs::OpenOptions::new();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
            io::Write::write_all(&mut file, &serde_json::to_vec(skill)?)?;
            fs::rename(&fresh, &path)
        });
        written.map_err(|error| {
            tracing::warn!(%error, "a skill could not be kept");
            refused("the skill could not be written; the server's log says why")
        })
    }

    pub fn get(&self, owner: &str, name: &str, catalogue: &Catalogue) -> Result<Skill, CallError> {
        let found =
            self.list(owner).into_iter().find(|skill| skill.name == name || skill.name.replace('-', "_") == name);
        let Some(skill) = found else {
            let names: Vec<String> = self.list(owner).into_iter().map(|skill| skill.name).collect();
            let mut error = CallError::new(ErrorKind::UnknownTool, format!("there is no skill {name:?}"));
            error.suggestions = names.into_iter().take(10).collect();
            return Err(error);
        };
        current(&skill, catalogue).map(|()| skill)
    }

    pub fn remove(&self, owner: &str, name: &str) -> Result<(), CallError> {
        let known = self.list(owner).into_iter().find(|skill| skill.name == name);
        let Some(skill) = known else { return Err(refused(&format!("there is no skill {name:?}"))) };
        fs::remove_file(self.of(owner)?.join(format!("{}.json", skill.name))).map_err(|error| {
            tracing::warn!(%error, "a skill could not be removed");
            refused("the skill could not be removed; the server's log says why")
        })
    }

    /// All of an owner's, by name.
    pub fn list(&self, owner: &str) -> Vec<Skill> {
        let Ok(folder) = self.of(owner) else { return Vec::new() };
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let named = entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "json"));
        let mut skills: Vec<Skill> = named.take(SKILLS_MAX).filter_map(|entry| read(&entry.path())).collect();
        skills.sort_by(|one, other| one.name.cmp(&other.name));
        skills
    }

    /// What a sandbox of this owner's sees.
    pub(crate) fn files(&self, owner: &str) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for skill in self.list(owner) {
            let Some(extension) = extension(&skill.language) else { continue };
            let tools: String = skill.tools.keys().map(|tool| format!("- {tool}\n")).collect();
            let text = format!(
                "---\nname: {}\ndescription: {}\n---\n\nLanguage: {}\n\nTools:\n{tools}",
                skill.name,
                skill.description.replace('\n', " "),
                skill.language
            );
            files.insert(format!("{}/SKILL.md", skill.name), text.into_bytes());
            files.insert(format!("{}/main.{extension}", skill.name), skill.code.into_bytes());
        }
        files
    }
}

/// Refuses one whose tools are others by now.
pub(crate) fn current(skill: &Skill, catalogue: &Catalogue) -> Result<(), CallError> {
    match stale(skill, catalogue) {
        Some(why) => {
            Err(refused(&format!("the skill {} is not run: {why}; look at it, and save it again", skill.name)))
        }
        None => Ok(()),
    }
}

/// The servers whose tools it calls.
pub(crate) fn servers(skill: &Skill, catalogue: &Catalogue) -> BTreeSet<String> {
    let tools = skill.tools.keys().filter_map(|path| tool(catalogue, path));
    tools.map(|tool| tool.server.clone()).collect()
}

/// Why it must not run, if it must not.
pub fn stale(skill: &Skill, catalogue: &Catalogue) -> Option<String> {
    skill.tools.iter().find_map(|(path, digest)| match find(catalogue, path) {
        None => Some(format!("its tool {path} is gone")),
        Some(now) if now != *digest => Some(format!("its tool {path} has changed since it was saved")),
        Some(_) => None,
    })
}

fn find(catalogue: &Catalogue, path: &str) -> Option<String> {
    tool(catalogue, path).map(|tool| tool.digest.clone())
}

fn tool<'a>(catalogue: &'a Catalogue, path: &str) -> Option<&'a Tool> {
    let is_named = |tool: &&Arc<Tool>| tool.path() == path || format!("{}.{}", tool.server, tool.name) == path;
    catalogue.tools().find(is_named).map(Arc::as_ref)
}

fn extension(language: &str) -> Option<&'static str> {
    match language {
        "python" => Some("py"),
        "javascript" => Some("js"),
        "typescript" => Some("ts"),
        "shell" => Some("sh"),
        _ => None,
    }
}

fn read(path: &Path) -> Option<Skill> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(1 << 20).read_to_end(&mut bytes).ok()?;
    serde_json::from_slice(&bytes).ok()
}

fn refused(words: &str) -> CallError {
    CallError::new(ErrorKind::PolicyDenied, words)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::{Map, Value};

    use super::*;
    use crate::catalogue::{Annotations, Server, Tool};

    fn catalogue(digest: &str) -> Catalogue {
        let tool = Tool {
            server: "github".into(),
            server_ident: "github".into(),
            name: "list".into(),
            ident: "list".into(),
            description: String::new(),
            input_schema: Map::new(),
            output_schema: None,
            annotations: Annotations::default(),
            definition: Value::Null,
            digest: digest.into(),
        };
        let server = Server {
            name: "github".into(),
            ident: "github".into(),
            instructions: None,
            tools: vec![Arc::new(tool)],
            refused: Vec::new(),
            trouble: None,
        };
        Catalogue { servers: vec![Arc::new(server)] }
    }

    fn wanted(name: &str, tools: &[&str]) -> Wanted {
        let tools = tools.iter().map(|&tool| tool.to_owned()).collect();
        Wanted { name: name.into(), description: "lists".into(), language: "python".into(), code: "1".into(), tools }
    }

    #[test]
    fn a_skill_is_its_owners_and_is_refused_when_its_tool_changes() {
        let folder = tempfile::tempdir().unwrap();
        let skills = Skills::at(Some(folder.path().to_owned()));
        let before = catalogue("a");
        let skill = skills.check(wanted("weekly-report", &["github.list"]), &before).unwrap();
        skills.keep("me", &skill).unwrap();
        assert_eq!(skills.get("me", "weekly_report", &before).unwrap(), skill);
        assert!(skills.get("you", "weekly-report", &before).is_err());
        let changed = skills.get("me", "weekly-report", &catalogue("b")).unwrap_err();
        assert!(changed.message.contains("has changed"), "{changed}");
        let gone = skills.get("me", "weekly-report", &Catalogue::default()).unwrap_err();
        assert!(gone.message.contains("is gone"), "{gone}");
        assert!(skills.files("me").contains_key("weekly-report/main.py"));
        skills.remove("me", "weekly-report").unwrap();
        assert!(skills.list("me").is_empty());
    }

    #[test]
    fn what_is_no_skill_is_refused() {
        let skills = Skills::at(Some("/nowhere".into()));
        for bad in ["", "../x", "A", "1a", "a b", "a/b"] {
            assert!(skills.check(wanted(bad, &[]), &Catalogue::default()).is_err(), "{bad}");
        }
        assert!(skills.check(wanted("a", &["no.such"]), &Catalogue::default()).is_err());
        assert!(skills.remove("me", "../../etc/passwd").is_err());
        assert!(Skills::at(None).keep("me", &skills.check(wanted("a", &[]), &Catalogue::default()).unwrap()).is_err());
    }
}
