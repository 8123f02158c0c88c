//! The block of comments in which a script says what it needs: PEP 723. Read by the PEP's own rule, line by line.

use serde::Deserialize;

/// A block is at most this long; scripts name packages in it, not data.
const BLOCK_MAX: usize = 64 << 10;

#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Script {
    #[serde(default)]
    pub(super) dependencies: Vec<String>,
    #[serde(default, rename = "requires-python")]
    pub(super) requires_python: Option<String>,
}

/// `None` where there is no block; an error says why one cannot be read.
pub(super) fn read(code: &str) -> Option<Result<Script, String>> {
    let lines = code.lines().collect::<Vec<_>>();
    let mut blocks = Vec::new();
    let mut at = 0;
    while let Some(line) = lines.get(at) {
        at += 1;
        if line.strip_prefix("# /// ").is_none_or(|kind| !is_kind(kind)) {
            continue;
        }
        let rest = lines.get(at..).unwrap_or_default();
        let comments = rest.iter().take_while(|line| **line == "#" || line.starts_with("# ")).count();
        // The last end in the comments that follow ends it, and there must be one.
        let Some(end) = rest.get(..comments)?.iter().rposition(|line| *line == "# ///") else {
            // Nor for whatever else begins in them; to look again for each would take for ever.
            at += comments;
            continue;
        };
        if *line == "# /// script" {
            blocks.push(rest.get(..end)?);
        }
        at += end + 1;
    }
    let [block] = blocks.as_slice() else {
        return (!blocks.is_empty()).then(|| Err("there is more than one `# /// script` block".to_owned()));
    };
    let toml = block.iter().map(|line| line.strip_prefix("# ").unwrap_or("").to_owned() + "\n").collect::<String>();
    if toml.len() > BLOCK_MAX {
        return Some(Err("the `# /// script` block is longer than 64 KB".to_owned()));
    }
    Some(toml::from_str(&toml).map_err(|error| format!("the `# /// script` block cannot be read: {}", error.message())))
}

fn is_kind(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_beginnings_without_an_end_are_read_once() {
        let begun = std::time::Instant::now();
        assert_eq!(read(&"# /// a\n".repeat(100_000)), None);
        assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
        let script = read("# /// a\n# x\n\n# /// script\n# dependencies = [\"b\"]\n# ///\n").unwrap().unwrap();
        assert_eq!(script.dependencies, ["b"]);
    }

    #[test]
    fn the_example_of_the_pep_is_read() {
        let code = "#!/usr/bin/env python\n# /// script\n# requires-python = \">=3.11\"\n# dependencies = [\n#   \"requests<3\",\n#   \
                    \"rich\",\n# ]\n# ///\n\nimport requests\n";
        let script = read(code).unwrap().unwrap();
        assert_eq!(script.dependencies, ["requests<3", "rich"]);
        assert_eq!(script.requires_python.as_deref(), Some(">=3.11"));
    }

    #[test]
    fn tables_within_and_other_blocks_are_no_matter() {
        let code = "# /// other\n# x = 1\n# ///\n\n# /// script\n# dependencies = ['a']\n#\n# [tool.x]\n# y = '# ///'\n# ///\n";
        assert_eq!(read(code).unwrap().unwrap().dependencies, ["a"]);
    }

    #[test]
    fn the_last_end_ends_it() {
        let code = "# /// script\n# dependencies = [\n# 'a',\n# ///\n# 'b']\n# ///\n";
        assert!(read(code).unwrap().unwrap_err().contains("cannot be read"));
    }

    #[test]
    fn what_is_no_block_is_none() {
        for code in [
            "",
            "import x",
            "# /// script\nx = 1\n# ///\n",
            "# /// script\n# dependencies = []\n",
            " # /// script\n# ///",
        ] {
            assert!(read(code).is_none(), "{code:?}");
        }
    }

    #[test]
    fn two_blocks_and_broken_ones_are_told() {
        let two = "# /// script\n# ///\n\n# /// script\n# ///\n";
        assert!(read(two).unwrap().unwrap_err().contains("more than one"));
        assert!(read("# /// script\n# dependencies = 3\n# ///").unwrap().is_err());
        let deep = format!("# /// script\n# x = {}\n# ///\n", "[".repeat(60_000));
        assert!(read(&deep).unwrap().is_err());
    }
}
