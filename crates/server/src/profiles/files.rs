//! Files as the surfaces tell of them, and the commands that do what the engine's own file operations do not.
//!
//! No argument becomes part of a command: it travels in the environment, and is always quoted there.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use belljar_core::{BackendError, Content, Entry, FileErrorKind, FileKind, Language, Program, Source, Stdin};
use belljar_engine::EngineError;
use serde::Serialize;

use super::act::program;
use super::fault::Fault;
use super::memory::Variables;
use crate::clean;

const WALL: Duration = Duration::from_secs(30);
const CLONE_WALL: Duration = Duration::from_secs(300);

const DIRECTORY: u32 = 0o040_000;
const SYMLINK: u32 = 0o120_000;
const KIND: u32 = 0o170_000;
/// Where our commands are looked for: not where packages and programs can have put some of the same names.
const PATH: &str = "/usr/bin:/bin";

/// Daytona's `FileInfo`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct FileInfo {
    group: String,
    is_dir: bool,
    mod_time: String,
    mode: String,
    name: String,
    owner: String,
    permissions: String,
    size: u64,
}

/// A file of a session, as the interpreter tells of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct FileRef {
    pub(super) uri: String,
    pub(super) mime_type: &'static str,
    pub(super) name: String,
    pub(super) size: u64,
}

impl FileRef {
    pub(super) fn new(session: &str, path: &str, size: u64) -> FileRef {
        let mut uri = format!("kernel://{session}/");
        for byte in path.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => uri.push(byte.into()),
                other => uri.push_str(&format!("%{other:02X}")),
            }
        }
        FileRef { uri, mime_type: mime_of_name(path), name: clean::reveal(path).into_owned(), size }
    }
}

/// By the name alone: nobody has looked into it.
fn mime_of_name(path: &str) -> &'static str {
    crate::mime::by_name(path).unwrap_or("application/octet-stream")
}

/// Owner and permissions by name.
pub(super) type Details = BTreeMap<String, (u32, String, String)>;

impl FileInfo {
    pub(super) fn of(entry: &Entry, details: &Details) -> FileInfo {
        let is_dir = entry.metadata.kind == FileKind::Directory;
        let detail = details.get(&entry.path);
        let (mode, permissions) =
            detail.map(|(bits, _, _)| (mode(*bits), format!("{:04o}", bits & 0o777))).unwrap_or_default();
        let (owner, group) = detail.map(|(_, owner, group)| (owner.clone(), group.clone())).unwrap_or_default();
        FileInfo {
            group,
            is_dir,
            mod_time: time(entry.metadata.modified),
            mode,
            name: clean::reveal(&entry.path).into_owned(),
            owner,
            permissions,
            size: entry.metadata.size,
        }
    }

    /// From what [`stat`] prints.
    pub(super) fn parse(path: &str, printed: &str) -> Option<FileInfo> {
        let mut fields = printed.trim().split(' ');
        let bits = u32::from_str_radix(fields.next()?, 16).ok()?;
        let size = fields.next()?.parse().ok()?;
        let modified = fields.next()?.parse().ok()?;
        let (owner, group) = (fields.next()?.to_owned(), fields.next()?.to_owned());
        let name = path.trim_end_matches('/').rsplit('/').next().filter(|name| !name.is_empty()).unwrap_or("/");
        Some(FileInfo {
            group,
            is_dir: bits & KIND == DIRECTORY,
            mod_time: time(modified),
            mode: mode(bits),
            name: clean::reveal(name).into_owned(),
            owner,
            permissions: format!("{:04o}", bits & 0o777),
            size,
        })
    }
}

/// `drwxr-xr-x`.
fn mode(bits: u32) -> String {
    let kind = match bits & KIND {
        DIRECTORY => 'd',
        SYMLINK => 'L',
        _ => '-',
    };
    let letters = (0..9).rev().zip("rwxrwxrwx".chars());
    let letters = letters.map(|(bit, letter)| if bits & (1 << bit) == 0 { '-' } else { letter });
    std::iter::once(kind).chain(letters).collect()
}

/// A time in seconds since 1970, as Go writes it.
fn time(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01 of the proleptic Gregorian calendar, in eras of 400 years.
    let days = days.saturating_add(719_468);
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} +0000 UTC")
}

/// Whether a look at a path found something.
pub(super) fn is_there(looked: Result<Content, Fault>) -> Result<bool, Fault> {
    match looked {
        Ok(_) => Ok(true),
        Err(Fault::Engine(EngineError::Backend(BackendError::File(file)))) => match file.kind {
            FileErrorKind::NotFound | FileErrorKind::NotDirectory => Ok(false),
            FileErrorKind::IsDirectory | FileErrorKind::NotRegular => Ok(true),
            _ => Err(Fault::Engine(EngineError::Backend(BackendError::File(file)))),
        },
        Err(fault) => Err(fault),
    }
}

pub(super) fn base64_decode(text: &str) -> Option<Vec<u8>> {
    let text: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    STANDARD.decode(&text).or_else(|_| STANDARD_NO_PAD.decode(&text)).ok()
}

/// One line for the shell, with its arguments beside it.
fn command(line: &'static str, arguments: &[(&str, &str)]) -> Program {
    let env = [("PATH", PATH)].iter().chain(arguments);
    let env = env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Program { env, ..program(Source::Command(line.to_owned()), WALL) }
}

/// A relative path cannot be taken for an option, nor `-` for the last directory.
fn plain(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("./{path}") }
}

pub(super) fn move_file(from: &str, to: &str) -> Program {
    command(r#"mv -fT -- "$BELLJAR_FROM" "$BELLJAR_TO""#, &[("BELLJAR_FROM", &plain(from)), ("BELLJAR_TO", &plain(to))])
}

pub(super) fn delete(path: &str) -> Program {
    let line = r#"
        if [ -e "$BELLJAR_PATH" ] || [ -L "$BELLJAR_PATH" ]; then rm -rf -- "$BELLJAR_PATH"
        else echo "no such file or directory" >&2; exit 1; fi"#;
    command(line, &[("BELLJAR_PATH", &plain(path))])
}

pub(super) fn make_folder(path: &str, mode: &str) -> Program {
    let line = r#"mkdir -p -m "$BELLJAR_MODE" -- "$BELLJAR_PATH""#;
    command(line, &[("BELLJAR_PATH", &plain(path)), ("BELLJAR_MODE", mode)])
}

pub(super) fn stat(path: &str) -> Program {
    command(r#"stat -L -c '%f %s %Y %u %g' -- "$BELLJAR_PATH""#, &[("BELLJAR_PATH", &plain(path))])
}

pub(super) fn list_details(path: &str) -> Program {
    let line = r#"cd -- "$BELLJAR_PATH" && find . -mindepth 1 -maxdepth 1 -printf '%f\0%y%m\0%U\0%G\0'"#;
    command(line, &[("BELLJAR_PATH", &plain(path))])
}

/// From what [`list_details`] prints; what cannot be read is left out.
pub(super) fn parse_details(printed: &[u8]) -> Details {
    let fields: Vec<String> =
        printed.split(|byte| *byte == 0).map(|f| String::from_utf8_lossy(f).into_owned()).collect();
    let detail = |fields: &[String]| {
        let [name, mode, owner, group] = fields else { return None };
        let kind = match mode.chars().next()? {
            'd' => DIRECTORY,
            'l' => SYMLINK,
            _ => 0,
        };
        let bits = u32::from_str_radix(mode.get(1..)?, 8).ok()?;
        let is_number = |text: &str| !text.is_empty() && text.len() < 12 && text.bytes().all(|b| b.is_ascii_digit());
        (is_number(owner) && is_number(group)).then(|| (name.clone(), (kind | bits, owner.clone(), group.clone())))
    };
    fields.chunks(4).filter_map(detail).collect()
}

/// Runs what a configuration in the sandbox tells git to run: a program of the caller's, with the environment of those.
pub(super) fn clone(
    url: &str,
    path: &str,
    branch: Option<&str>,
    commit: Option<&str>,
    variables: Variables,
) -> Program {
    let line = r#"
        git clone -q ${BELLJAR_BRANCH:+"--branch=$BELLJAR_BRANCH"} -- "$BELLJAR_URL" "$BELLJAR_PATH" || exit
        [ -z "$BELLJAR_COMMIT" ] || git -C "$BELLJAR_PATH" checkout -q --detach "$BELLJAR_COMMIT" --"#;
    let arguments = [
        ("BELLJAR_URL", url),
        ("BELLJAR_PATH", &plain(path)),
        ("BELLJAR_BRANCH", branch.unwrap_or_default()),
        ("BELLJAR_COMMIT", commit.unwrap_or_default()),
        ("GIT_TERMINAL_PROMPT", "0"),
    ];
    let arguments = arguments.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let env = variables.into_iter().chain(arguments).collect();
    Program { env, ..program(Source::Command(line.to_owned()), CLONE_WALL) }
}

/// Succeeds if something in the sandbox listens on the port.
pub(super) fn is_listening(port: u16) -> Program {
    let line = r#"
        cat /proc/net/tcp /proc/net/tcp6 2>/dev/null |
            grep -Eq "^ *[0-9]+: [0-9A-F]+:$BELLJAR_PORT [0-9A-F]+:[0-9A-F]+ 0A ""#;
    command(line, &[("BELLJAR_PORT", &format!("{port:04X}"))])
}

/// Says whether the host has a package, and fails if it has not.
pub(super) fn is_installed(manager: &str, name: &str) -> Program {
    const PIP: &str = r#"
import re, sys
from importlib.metadata import version
asked = sys.stdin.read()
name = re.match(r"[\w.-]*", asked.strip()).group()
try:
    print("Requirement already satisfied: %s (%s)" % (name, version(name)))
except Exception:
    sys.exit("%s is not installed, and cannot be: the sandbox has no network. "
        "Only packages of this host can be used." % name[:100])
"#;
    let stdin = Stdin::Whole(name.as_bytes().to_vec());
    match manager {
        "pip" => Program { stdin, ..program(Source::Code { language: Language::Python, code: PIP.into() }, WALL) },
        _ => command(
            r#"
                echo "packages of $BELLJAR_MANAGER cannot be installed: the sandbox has no network; use its standard" \
                    "library" >&2
                exit 1"#,
            &[("BELLJAR_MANAGER", manager)],
        ),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_argument_is_ever_part_of_a_command() {
        let evil = "-x; $(touch /tmp/pwned) `id` \"' \n && rm -rf /";
        for program in [
            move_file(evil, evil),
            delete(evil),
            make_folder(evil, "0755"),
            stat(evil),
            list_details(evil),
            clone(evil, evil, Some(evil), Some(evil), Variables::new()),
            is_installed("pip", evil),
            is_installed("npm", evil),
        ] {
            let (Source::Command(text) | Source::Code { code: text, .. }) = &program.source else { panic!("a cell") };
            assert!(!text.contains("pwned"), "{text}");
            // Each use is quoted, so that it stays one word.
            for (at, _) in text.match_indices("$BELLJAR_") {
                let before = &text[..at];
                assert_eq!(before.matches('"').count() % 2, 1, "unquoted in {text}");
            }
        }
    }

    #[test]
    fn a_relative_path_is_no_option() {
        let path = |program: Program| program.env.into_iter().find(|(name, _)| name == "BELLJAR_PATH").unwrap().1;
        assert_eq!(path(delete("-rf")), "./-rf");
        assert_eq!(path(delete("/a")), "/a");
    }

    #[test]
    fn what_nobody_is_asked_about_runs_only_what_the_system_has() {
        for own in
            [move_file("a", "b"), delete("a"), make_folder("a", "0755"), stat("a"), list_details("a"), is_listening(1)]
        {
            assert_eq!(own.env[0], ("PATH".to_owned(), PATH.to_owned()));
            assert!(own.env[1..].iter().all(|(name, _)| name.starts_with("BELLJAR_")), "{own:?}");
        }
    }

    #[test]
    fn times_are_written_as_go_does() {
        assert_eq!(time(0), "1970-01-01 00:00:00 +0000 UTC");
        assert_eq!(time(1_709_210_096), "2024-02-29 12:34:56 +0000 UTC");
        assert_eq!(time(-1), "1969-12-31 23:59:59 +0000 UTC");
        assert_eq!(time(4_102_444_800), "2100-01-01 00:00:00 +0000 UTC");
        let _ = (time(i64::MAX), time(i64::MIN));
    }

    #[test]
    fn stat_becomes_a_file_info() {
        let info = FileInfo::parse("dir/a.txt", "81a4 12 1709210096 10001 10001\n").unwrap();
        assert_eq!(
            serde_json::to_value(&info).unwrap(),
            json!({
                "name": "a.txt", "isDir": false, "size": 12, "modTime": "2024-02-29 12:34:56 +0000 UTC",
                "mode": "-rw-r--r--", "permissions": "0644", "owner": "10001", "group": "10001",
            })
        );
        let folder = FileInfo::parse("/", "41ed 80 0 0 0").unwrap();
        assert_eq!((folder.is_dir, folder.mode.as_str(), folder.name.as_str()), (true, "drwxr-xr-x", "/"));
        for bad in ["", "x", "81a4 12", "81a4 -1 0 0 0", "zz 1 2 3 4"] {
            assert_eq!(FileInfo::parse("a", bad), None, "{bad}");
        }
    }

    #[test]
    fn details_are_read_strictly() {
        let printed = ["a\nb", "f640", "10", "20", "d", "d755", "0", "0", "bad", "fxyz", "1", "1", "half", "f644"];
        let printed = printed.join("\0").into_bytes();
        let details = parse_details(&printed);
        assert_eq!(details.len(), 2);
        assert_eq!(details["a\nb"], (0o640, "10".into(), "20".into()));
        assert_eq!(details["d"], (DIRECTORY | 0o755, "0".into(), "0".into()));
    }

    #[test]
    fn a_uri_has_no_character_of_its_own_meaning() {
        let file = FileRef::new("s", "a b/é?#.png", 3);
        assert_eq!((file.uri.as_str(), file.mime_type), ("kernel://s/a%20b/%C3%A9%3F%23.png", "image/png"));
        assert_eq!(mime_of_name("x"), "application/octet-stream");
        assert_eq!(mime_of_name("t.csv"), "text/csv");
    }
}
