//! JavaScript: Node runs the code with `--eval`, which knows CommonJS from ES modules by itself.

use super::{Driver, Invocation, fits_an_argument};

const LARGE: &str = include_str!("large.js");

/// What lets a script import `npm:` packages.
const NPM: &str = include_str!("npm.mjs");

/// What a script that calls tools needs before it.
const TOOLS: &str = "/belljar/node/belljar/once.js";

const BOOT: &str = include_str!("boot.js");

/// What parts the pieces of the library: the driver, two that it loads when it needs them, and its worker.
const PART: &str = "\n// belljar: next part\n";

pub(super) fn driver() -> Driver {
    let parts =
        [include_str!("driver.js"), include_str!("show.js"), include_str!("imports.js"), include_str!("worker.js")];
    // Without the flag Node aborts when a callback of a timer's is interrupted.
    let arguments = vec!["--no-force-async-hooks-checks", "-e", BOOT];
    Driver { arguments, library: parts.join(PART) }
}

pub(super) fn invocation(code: String) -> Invocation {
    // Not for others: it takes a thread, and 30 ms.
    let mut arguments = match code.contains("npm:") {
        true => vec![format!("--import=data:text/javascript,{}", escaped(NPM))],
        false => Vec::new(),
    };
    if code.contains("tools") && rustix::fs::access(TOOLS, rustix::fs::Access::READ_OK).is_ok() {
        arguments.push(format!("--require={TOOLS}"));
    }
    // One argument with `=`: code that begins with a dash would be taken for an option.
    let (code, rest) = if fits_an_argument(&code) { (code, None) } else { (LARGE.to_owned(), Some(code)) };
    arguments.push(format!("--eval={code}"));
    Invocation { name: None, arguments, code: rest }
}

/// As a part of a URL.
fn escaped(text: &str) -> String {
    text.bytes()
        .map(|byte| if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
