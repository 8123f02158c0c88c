//! JavaScript: Node runs the code with `--eval`, which knows CommonJS from ES modules by itself.

use super::{Driver, Invocation, fits_an_argument};

const LARGE: &str = include_str!("large.js");

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
    // One argument with `=`: code that begins with a dash would be taken for an option.
    if fits_an_argument(&code) {
        Invocation { name: None, arguments: vec![format!("--eval={code}")], code: None }
    } else {
        Invocation { name: None, arguments: vec![format!("--eval={LARGE}")], code: Some(code) }
    }
}
