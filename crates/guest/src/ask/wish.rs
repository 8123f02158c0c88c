//! From the words of a command line to what is asked for.

use std::path::Path;

use super::Tool;
use super::options::{Meaning, Value, Written};
use super::others::Others;
use super::requirements;

/// Packages to install.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) requirements: Vec<String>,
    pub(super) constraints: Vec<String>,
    pub(super) upgrade: bool,
    pub(super) pre: bool,
    pub(super) quiet: bool,
    /// The interpreter that they are for, if one was named.
    pub(super) python: Option<String>,
    /// What is worth a word before it begins.
    pub(super) notes: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    Install(Wish),
    /// Something else, which the real program may know.
    Other(Others),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) why: String,
    /// The same command for the real pip, if that may be able to.
    pub(super) others: Option<Others>,
}

/// What is more than this is a mistake.
const REQUIREMENTS_MAX: usize = 1000;

const BY_NAME: &str = "packages are installed by name here, outside of this sandbox, where its files are not seen";

pub(super) fn parse(tool: Tool, words: &[String], cwd: &Path) -> Result<Parsed, Refusal> {
    let mut wish = Wish::default();
    let (leading, rest) = before_the_command(words, &mut wish);
    let whole = leading.iter().chain(rest).cloned().collect();
    let others = Others { python: wish.python.clone(), words: whole };
    if rest.first().is_some_and(|word| word == "add") {
        note(&mut wish, "pyproject.toml is left as it is; what is named is installed".to_owned());
    }
    match command(tool, rest) {
        Command::Install(words) => match read(&mut wish, words, cwd) {
            Ok(()) => Ok(Parsed::Install(wish)),
            Err(why) => {
                Err(Refusal { why: format!("{}: {why}", tool.name()), others: (tool == Tool::Pip).then_some(others) })
            }
        },
        Command::Remove => Err(Refusal {
            why: format!(
                "{}: packages are read-only here, and shared with other sandboxes; begin a new sandbox without them, or \
                 install another version by name",
                tool.name()
            ),
            others: (tool == Tool::Pip).then_some(others),
        }),
        Command::Other => Ok(Parsed::Other(others)),
    }
}

/// Options before the command are few. `--python` is how `python -m pip` says which interpreter it is.
fn before_the_command<'w>(words: &'w [String], wish: &mut Wish) -> (Vec<String>, &'w [String]) {
    let (mut leading, mut rest) = (Vec::new(), words);
    while let [word, after @ ..] = rest
        && let Some(option) = Written::read(word)
    {
        rest = after;
        match (option.meaning, option.value) {
            (Meaning::Python, Value::Here(value)) => wish.python = Some(value.to_owned()),
            (Meaning::Python, Value::Next) => {
                wish.python = rest.first().cloned();
                rest = rest.get(1..).unwrap_or_default();
            }
            _ => leading.push(word.clone()),
        }
    }
    (leading, rest)
}

#[derive(Debug)]
enum Command<'w> {
    Install(&'w [String]),
    Remove,
    Other,
}

fn command(tool: Tool, words: &[String]) -> Command<'_> {
    if words.iter().any(|word| word == "--help" || word == "-h") {
        return Command::Other;
    }
    let first = words.iter().map(String::as_str).take(2).collect::<Vec<_>>();
    match (tool, first.as_slice()) {
        (Tool::Pip, ["install", ..]) | (Tool::Uv, ["add", ..]) => Command::Install(&words[1..]),
        (Tool::Uv, ["pip", "install"]) => Command::Install(&words[2..]),
        (Tool::Pip, ["uninstall", ..]) | (Tool::Uv, ["remove", ..] | ["pip", "uninstall"]) => Command::Remove,
        _ => Command::Other,
    }
}

fn read(wish: &mut Wish, words: &[String], cwd: &Path) -> Result<(), String> {
    let mut words = words.iter();
    let mut plain = false;
    while let Some(word) = words.next() {
        let Some(option) = Written::read(word).filter(|_| !plain) else {
            wish.requirements.push(checked(word)?);
            continue;
        };
        if word == "--" {
            plain = true;
            continue;
        }
        let value = match option.value {
            Value::None => "",
            Value::Here(value) => value,
            Value::Next => words.next().ok_or_else(|| format!("{word} has no value"))?,
        };
        match option.meaning {
            Meaning::Requirements => {
                let found = requirements::read(value, cwd, wish)?;
                wish.requirements.extend(found);
            }
            Meaning::Constraints => {
                let constraints = requirements::read(value, cwd, wish)?;
                wish.constraints.extend(constraints);
            }
            Meaning::Upgrade => wish.upgrade = true,
            Meaning::Pre => wish.pre = true,
            Meaning::Quiet => wish.quiet = true,
            Meaning::Python => wish.python = Some(value.to_owned()),
            Meaning::Idle => {}
            Meaning::Editable => return Err(local(value)),
            Meaning::Elsewhere => {
                return Err(format!("{}: {BY_NAME}, to where all programs of this sandbox find them", option.name));
            }
            Meaning::Index => note(wish, format!("{} is ignored: the operator says where from", option.name)),
            Meaning::Ignored => note(wish, format!("{} is ignored", option.name)),
        }
    }
    if wish.requirements.is_empty() {
        return Err("nothing to install: name packages, or a file of them with -r".to_owned());
    }
    if wish.requirements.len() + wish.constraints.len() > REQUIREMENTS_MAX {
        return Err(format!("these are more than {REQUIREMENTS_MAX} packages"));
    }
    Ok(())
}

/// Notes are few, and each comes once.
pub(super) fn note(wish: &mut Wish, text: String) {
    if wish.notes.len() < 10 && !wish.notes.contains(&text) {
        wish.notes.push(text);
    }
}

/// A requirement by name, as it is passed on.
pub(super) fn checked(word: &str) -> Result<String, String> {
    let word = word.trim();
    if word.contains("://") || word.starts_with("git+") {
        return Err(format!(
            "{word} is an address: {BY_NAME}; install a released version by its name, or get the files with network and put \
             their folder on PYTHONPATH"
        ));
    }
    let is_file = [".whl", ".tar.gz", ".zip"].iter().any(|ending| word.ends_with(ending));
    if word.starts_with(['.', '/', '~']) || word.contains('/') || is_file {
        return Err(local(word));
    }
    let fine = word.starts_with(|c: char| c.is_ascii_alphanumeric()) && !word.contains(char::is_control);
    if !fine || word.len() > 1000 {
        return Err(format!("{word:?} is no requirement; write it as name, name==1.2 or \"name>=1,<2\""));
    }
    Ok(word.to_owned())
}

pub(super) fn local(path: &str) -> String {
    format!(
        "{path} is a project in this sandbox: {BY_NAME}; install what it requires by name, and put its folder on the path \
         (PYTHONPATH, or sys.path.insert)"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(tool: Tool, line: &str) -> Result<Parsed, Refusal> {
        let words = line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        parse(tool, &words, Path::new("/nowhere"))
    }

    fn wish(tool: Tool, line: &str) -> Wish {
        match parsed(tool, line) {
            Ok(Parsed::Install(wish)) => wish,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn packages_are_named_among_options() {
        let found =
            wish(Tool::Pip, "install -q --user numpy>=1 -U --no-cache-dir --pre pandas[excel]==2.0;python_version>'3'");
        assert_eq!(found.requirements, ["numpy>=1", "pandas[excel]==2.0;python_version>'3'"]);
        assert!(found.quiet && found.upgrade && found.pre && found.notes.is_empty());
        let found = wish(Tool::Uv, "pip install --system -p 3.12 x --link-mode copy -- y");
        assert_eq!((found.requirements, found.python.as_deref()), (vec!["x".to_owned(), "y".to_owned()], Some("3.12")));
        assert_eq!(wish(Tool::Uv, "add --dev x").requirements, ["x"]);
        let found = wish(Tool::Pip, "--python /usr/bin/python3 install x");
        assert_eq!(found.python.as_deref(), Some("/usr/bin/python3"));
    }

    #[test]
    fn an_option_that_is_ignored_is_told_of_with_its_value() {
        let found =
            wish(Tool::Pip, "install x --index-url https://a.test/simple --extra-index-url=b --new-one --no-deps -iz");
        assert_eq!(found.requirements, ["x"]);
        let told = found.notes.join("\n");
        for name in ["--index-url", "--extra-index-url", "--new-one", "--no-deps", "-i"] {
            assert!(told.contains(&format!("{name} is ignored")), "{name}: {told}");
        }
        assert!(!told.contains("a.test"));
    }

    #[test]
    fn what_cannot_be_done_this_way_is_told_with_what_can() {
        for (line, told) in [
            ("install -e .", "put its folder on the path"),
            ("install ./thing", "put its folder on the path"),
            ("install .[dev]", "put its folder on the path"),
            ("install a-1.0-py3-none-any.whl", "put its folder on the path"),
            ("install git+https://a.test/b", "a released version by its name"),
            ("install x@https://a.test/b.whl", "a released version by its name"),
            ("install --target /tmp/x y", "--target"),
            ("install", "nothing to install"),
            ("install -U", "nothing to install"),
            ("install -r", "-r has no value"),
            ("install -r nowhere.txt", "nowhere.txt"),
            ("install ?x", "is no requirement"),
            ("uninstall -y x", "read-only"),
        ] {
            let refusal = parsed(Tool::Pip, line).unwrap_err();
            assert!(refusal.why.contains(told), "{line}: {}", refusal.why);
        }
        assert!(parsed(Tool::Uv, "pip uninstall x").unwrap_err().why.contains("read-only"));
    }

    #[test]
    fn other_commands_are_for_others() {
        for (tool, line) in [
            (Tool::Pip, "list"),
            (Tool::Pip, "--version"),
            (Tool::Pip, "show install"),
            (Tool::Pip, "show uninstall"),
            (Tool::Pip, "install --help"),
            (Tool::Uv, "run install.py"),
            (Tool::Uv, "pip list"),
        ] {
            let words = line.split(' ').map(str::to_owned).collect();
            assert_eq!(parsed(tool, line), Ok(Parsed::Other(Others { python: None, words })));
        }
    }
}
