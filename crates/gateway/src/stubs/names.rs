//! Names as programs write them.
//!
//! A name that is an identifier in Python and in JavaScript stays as it is; nothing is ever changed from one case to
//! another. Of any other name, by this rule and in this order:
//!
//! 1. An ASCII character that is no letter, digit or `_` becomes `_`; any other character becomes `_uXXXX`, its number in
//!    hexadecimal digits, so that letters which look alike stay apart and no path can come of a name.
//! 2. A digit in front gets `_` before it; two or more `_` in front become one, for `__` belongs to the languages.
//! 3. Over 100 characters, the end is replaced by `_` and eight digits of the name's SHA-256.
//! 4. A keyword, or a name that means something else in that place, gets `_` after it.
//!
//! Names that are not 1 to 128 characters, or have characters that nobody can see, are refused.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::text;

const NAME_CHARACTERS_MAX: usize = 128;
const IDENT_CHARACTERS_MAX: usize = 100;

/// Where a name is to stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// `tools.<server>`.
    Server,
    /// `tools.<server>.<tool>`.
    Tool,
}

const PYTHON_KEYWORDS: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "class", "continue", "def", "del",
    "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is", "lambda", "nonlocal",
    "not", "or", "pass", "raise", "return", "try", "while", "with", "yield",
];

/// Of JavaScript, with the names that nothing can be declared by in strict mode.
const SCRIPT_KEYWORDS: &[&str] = &[
    "arguments",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "let",
    "new",
    "null",
    "package",
    "private",
    "protected",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "this",
    "throw",
    "true",
    "try",
    "typeof",
    "undefined",
    "var",
    "void",
    "while",
    "with",
    "yield",
];

/// What every object of JavaScript has, and what makes a promise of one.
const OBJECT_NAMES: &[&str] = &[
    "constructor",
    "hasOwnProperty",
    "isPrototypeOf",
    "propertyIsEnumerable",
    "prototype",
    "then",
    "toJSON",
    "toLocaleString",
    "toString",
    "valueOf",
];

/// What the `tools` package has of its own.
const PACKAGE_NAMES: &[&str] = &[
    "aio",
    "call",
    "call_tool",
    "describe",
    "list",
    "parallel",
    "raw",
    "search",
    "servers",
    "show",
    "skills",
    "tools",
    "ToolError",
    "InvalidArguments",
    "UnknownTool",
    "PolicyDenied",
    "ApprovalDenied",
    "AuthRequired",
    "RateLimited",
    "ToolTimeout",
    "Cancelled",
    "Upstream",
    "BudgetExceeded",
    "ToolResult",
    "mcp_runtime",
];

pub(super) fn is_python_keyword(name: &str) -> bool {
    // `__debug__` is none by name, and yet nothing can be called so.
    PYTHON_KEYWORDS.contains(&name) || name == "__debug__"
}

/// Whether both languages can write it, keywords aside.
pub(super) fn is_plain(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// The name as programs write it, or why there is none.
pub(super) fn ident(name: &str, place: Place) -> Result<String, String> {
    if name.is_empty() {
        return Err("it has no name".to_owned());
    }
    if name.chars().nth(NAME_CHARACTERS_MAX).is_some() {
        return Err(format!("its name has more than {NAME_CHARACTERS_MAX} characters"));
    }
    if name.chars().any(|c| c == '\n' || c == '\t' || text::is_hidden(c)) {
        return Err("its name has characters that cannot be seen".to_owned());
    }
    Ok(escaped(name, place))
}

/// The same for a name that cannot be refused, since it is the operator's own.
pub(super) fn escaped(name: &str, place: Place) -> String {
    let mut ident = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            c if c.is_ascii_alphanumeric() || c == '_' => ident.push(c),
            c if c.is_ascii() => ident.push('_'),
            c => ident.push_str(&format!("_u{:04X}", u32::from(c))),
        }
    }
    if ident.is_empty() || ident.starts_with(|first: char| first.is_ascii_digit()) {
        ident.insert(0, '_');
    }
    if ident.starts_with("__") {
        ident = format!("_{}", ident.trim_start_matches('_'));
    }
    if ident.len() > IDENT_CHARACTERS_MAX {
        ident.truncate(IDENT_CHARACTERS_MAX - 9);
        ident = format!("{ident}_{}", short_hash(name));
    }
    if is_taken(&ident, place) {
        ident.push('_');
    }
    ident
}

/// Eight hexadecimal digits.
pub(super) fn short_hash(text: &str) -> String {
    hex(&Sha256::digest(text)[..4])
}

pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn is_taken(ident: &str, place: Place) -> bool {
    let languages = PYTHON_KEYWORDS.contains(&ident) || SCRIPT_KEYWORDS.contains(&ident);
    // A lone `_` is a convention in both places, and the last value in Python's prompt.
    let objects = OBJECT_NAMES.contains(&ident) || ident == "_";
    languages
        || objects
        || match place {
            Place::Server => PACKAGE_NAMES.contains(&ident),
            Place::Tool => ident == "raw",
        }
}

/// Names of types in one stub, each given once.
#[derive(Debug)]
pub(super) struct Taken {
    /// With the number that was last put after it.
    names: HashMap<String, usize>,
}

impl Taken {
    pub(super) fn new(reserved: &[&str], ident: &str) -> Taken {
        let names = reserved.iter().chain([&ident]).map(|name| ((*name).to_owned(), 1));
        Taken { names: names.collect() }
    }

    /// An identifier like a class's, other than all before.
    pub(super) fn fresh(&mut self, wanted: &str) -> String {
        let mut name = String::new();
        for part in wanted.split(|c: char| !c.is_ascii_alphanumeric()) {
            let mut letters = part.chars();
            if let Some(first) = letters.next() {
                name.push(first.to_ascii_uppercase());
                name.push_str(letters.as_str());
            }
        }
        name.truncate(60);
        if !name.starts_with(|first: char| first.is_ascii_alphabetic()) {
            name.insert(0, 'T');
        }
        let Some(mut number) = self.names.get(&name).copied() else {
            self.names.insert(name.clone(), 1);
            return name;
        };
        let numbered = loop {
            number += 1;
            let numbered = format!("{name}_{number}");
            if !self.names.contains_key(&numbered) {
                break numbered;
            }
        };
        self.names.insert(name, number);
        self.names.insert(numbered.clone(), 1);
        numbered
    }
}
