//! Files of requirements: one a line, with comments, lines that go on, and other files named in them.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::options::{Meaning, Value, Written};
use super::wish::{Wish, checked, local, note};

const FILE_BYTES_MAX: u64 = 1 << 20;
/// Those that name each other have no end.
const FILES_MAX: usize = 100;
const LINES_MAX: usize = 10_000;

/// The requirements of a file, with those of the files that it names. Constraints that it names go to the wish.
pub(super) fn read(name: &str, folder: &Path, wish: &mut Wish) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    read_into(&mut found, name, folder, wish, &mut { FILES_MAX })?;
    Ok(found)
}

fn read_into(
    found: &mut Vec<String>,
    name: &str,
    folder: &Path,
    wish: &mut Wish,
    files_left: &mut usize,
) -> Result<(), String> {
    if name.contains("://") {
        return Err(format!("{name} is an address; get the file first, and name that"));
    }
    if name.ends_with(".toml") {
        return Err(format!("{name}: only plain files of requirements are read; name what its dependencies list"));
    }
    *files_left =
        files_left.checked_sub(1).ok_or_else(|| format!("{name}: more than {FILES_MAX} files name each other"))?;
    let path = folder.join(name);
    let text = text_of(&path).map_err(|why| format!("{name}: {why}"))?;
    let folder = path.parent().unwrap_or(folder);
    for line in lines(&text) {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let Some(option) = Written::read(first) else {
            // Options of one requirement are behind it.
            let end = line.find(" --").unwrap_or(line.len());
            let (requirement, options) = line.split_at(end);
            if options.contains("--hash") {
                note(wish, format!("{name}: hashes are not compared"));
            }
            found.push(checked(requirement).map_err(|why| format!("{name}: {why}"))?);
            if found.len() > LINES_MAX {
                return Err(format!("{name}: these are more than {LINES_MAX} lines"));
            }
            continue;
        };
        let value = match option.value {
            Value::Here(value) => value,
            Value::None | Value::Next => words.next().unwrap_or_default(),
        };
        match option.meaning {
            Meaning::Requirements => read_into(found, value, folder, wish, files_left)?,
            Meaning::Constraints => {
                let mut constraints = Vec::new();
                read_into(&mut constraints, value, folder, wish, files_left)?;
                wish.constraints.extend(constraints);
            }
            Meaning::Editable => return Err(format!("{name}: {}", local(value))),
            Meaning::Pre => wish.pre = true,
            Meaning::Index => note(wish, format!("{} in {name} is ignored: the operator says where from", option.name)),
            _ => note(wish, format!("{} in {name} is ignored", option.name)),
        }
    }
    Ok(())
}

fn text_of(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let file = File::open(path).map_err(|error| error.to_string())?;
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err("it is longer than 1 MiB".to_owned());
    }
    Ok(text)
}

/// Lines without comments, those put together that a backslash joins.
fn lines(text: &str) -> Vec<String> {
    let mut whole = vec![String::new()];
    for line in text.trim_start_matches('\u{feff}').lines() {
        let line = match line.find('#') {
            Some(at) if at == 0 || line[..at].ends_with(char::is_whitespace) => &line[..at],
            _ => line,
        };
        let (line, goes_on) = match line.trim_end().strip_suffix('\\') {
            Some(line) => (line, true),
            None => (line, false),
        };
        if let Some(last) = whole.last_mut() {
            last.push_str(line);
            last.push(' ');
        }
        if !goes_on {
            whole.push(String::new());
        }
    }
    whole.into_iter().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_in(files: &[(&str, &str)]) -> (Result<Vec<String>, String>, Wish) {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let mut wish = Wish::default();
        (read(files[0].0, folder.path(), &mut wish), wish)
    }

    #[test]
    fn a_file_is_read_with_those_that_it_names() {
        let (found, wish) = read_in(&[
            (
                "all.txt",
                "\u{feff}# these\nnumpy>=1 # fast\n\n-r more/some.txt\npandas \\\n  ==2.0 \\\n  --hash=sha256:00\r\n",
            ),
            ("more/some.txt", "-c limits.txt\n--requirement=deep.txt\n--pre\n-i https://a.test\nx#y"),
            ("more/limits.txt", "scipy<2"),
            ("more/deep.txt", "-rlast.txt"),
            ("more/last.txt", "deep"),
        ]);
        assert_eq!(found.unwrap(), ["numpy>=1", "deep", "x#y", "pandas    ==2.0"]);
        assert_eq!((wish.constraints, wish.pre), (vec!["scipy<2".to_owned()], true));
        assert_eq!(wish.notes.len(), 2, "{:?}", wish.notes);
    }

    #[test]
    fn what_has_no_end_is_refused() {
        assert!(read_in(&[("a.txt", "-r a.txt")]).0.unwrap_err().contains("name each other"));
        assert!(read_in(&[("a.txt", &"x\n".repeat(1 << 20))]).0.unwrap_err().contains("longer"));
        assert!(read_in(&[("a.txt", "-r b.toml")]).0.unwrap_err().contains("b.toml"));
        let wide = format!("{}\n", "-r b.txt\n".repeat(100));
        let (found, _) = read_in(&[("a.txt", &wide[..99 * 9]), ("b.txt", &"x\n".repeat(200))]);
        assert!(found.unwrap_err().contains("more than"));
    }
}
