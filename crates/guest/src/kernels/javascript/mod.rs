//! JavaScript: Node runs the code with `--eval`, which knows CommonJS from ES modules by itself.

use super::{Invocation, fits_an_argument};

const LARGE: &str = include_str!("large.js");

pub(super) fn invocation(code: String) -> Invocation {
    // One argument with `=`: code that begins with a dash would be taken for an option.
    if fits_an_argument(&code) {
        Invocation { name: None, arguments: vec![format!("--eval={code}")], code: None }
    } else {
        Invocation { name: None, arguments: vec![format!("--eval={LARGE}")], code: Some(code) }
    }
}
