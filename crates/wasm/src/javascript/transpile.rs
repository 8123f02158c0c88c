//! Code as QuickJS evaluates it: without types, imports and, at the top level, names that cannot be declared again.

use std::io::Write;
use std::process::{Command, Stdio};

use belljar_core::wire::TRANSPILE;

/// The code as plain JavaScript, or why it is none.
pub(super) fn plain(code: &str, language: &str) -> Result<String, String> {
    let is_typed = language == "typescript";
    if !is_typed && !["import", "export"].iter().any(|word| code.contains(word)) {
        return Ok(redeclarable(code));
    }
    match transpiled(code, language) {
        Ok(text) => Ok(redeclarable(&text)),
        // QuickJS says better what is wrong with JavaScript.
        Err(_) if !is_typed => Ok(code.to_owned()),
        Err(why) => Err(why),
    }
}

/// Cells follow each other in one scope, where what was declared with `let` or `const` could never be declared again. At the
/// beginning of a line they are at the top level, but for text within backticks.
fn redeclarable(code: &str) -> String {
    if code.contains('`') {
        return code.to_owned();
    }
    let lines = code.split_inclusive('\n').map(|line| {
        let rest = line.strip_prefix("const ").map(|rest| ("var   ", rest));
        match rest.or_else(|| line.strip_prefix("let ").map(|rest| ("var ", rest))) {
            Some((word, rest)) => format!("{word}{rest}"),
            None => line.to_owned(),
        }
    });
    lines.collect()
}

/// By our own program in the place, which reads hostile text: the one process that the worker starts.
fn transpiled(code: &str, language: &str) -> Result<String, String> {
    let failed = |error: std::io::Error| format!("the code cannot be read: {error}");
    let mut child = Command::new(TRANSPILE)
        .args([language, "live"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    // It reads all before it writes.
    let written = child.stdin.take().map(|mut stdin| stdin.write_all(code.as_bytes()));
    let output = child.wait_with_output().map_err(failed)?;
    if output.status.success() && written.is_some_and(|written| written.is_ok()) {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let told = String::from_utf8_lossy(&output.stderr);
    Err(told.lines().next().unwrap_or("the code is nested too deeply").to_owned())
}

#[cfg(test)]
mod tests {
    use super::redeclarable;

    #[test]
    fn what_is_declared_at_the_top_can_be_declared_again() {
        assert_eq!(
            redeclarable("const a = 1\n  let b = 2\nlet c = 3\nletter\n"),
            "var   a = 1\n  let b = 2\nvar c = 3\nletter\n"
        );
        assert_eq!(redeclarable("const a = `\nconst b`"), "const a = `\nconst b`");
    }
}
