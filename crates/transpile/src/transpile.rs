//! The way from the source to the result: parse, collect edits, apply.

use std::collections::HashSet;
use std::fmt;

use oxc_allocator::Allocator;
use oxc_ast_visit::Visit;
use oxc_parser::{Parser, ParserReturn};
use oxc_span::SourceType;

use crate::blank::Blank;

/// What the driver defines for `import`. As long as that word, so that columns stay right.
pub(crate) const IMPORTER: &str = "$mport";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    JavaScript,
    TypeScript,
    /// A TypeScript file that Node loads as a module: types go, `import` and `export` stay.
    Module,
}

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) language: Language,
    /// Top-level `const` becomes `let`: other cells follow, and V8 never lets a `const` become anything else.
    pub(crate) live: bool,
    /// Names to declare with `let`, and with `var`, whatever the code says: V8 has them so from an earlier cell.
    pub(crate) lexical: HashSet<String>,
    pub(crate) var: HashSet<String>,
}

impl Options {
    pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Self, String> {
        let language = match arguments.next().as_deref() {
            Some("javascript") => Language::JavaScript,
            Some("typescript") => Language::TypeScript,
            Some("module") => Language::Module,
            other => {
                return Err(format!(
                    "the language is javascript, typescript or module, not {}",
                    other.unwrap_or("nothing")
                ));
            }
        };
        let mut options = Self { language, live: false, lexical: HashSet::new(), var: HashSet::new() };
        for argument in arguments {
            match argument.split_once('=') {
                None if argument == "live" => options.live = true,
                Some(("let", name)) => drop(options.lexical.insert(name.to_owned())),
                Some(("var", name)) => drop(options.var.insert(name.to_owned())),
                _ => return Err(format!("an option is live, let=NAME or var=NAME, not {argument}")),
            }
        }
        Ok(options)
    }
}

/// What is wrong with the code, and where.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    message: String,
    line: usize,
    column: usize,
    text: String,
}

impl SyntaxError {
    pub(crate) fn new(source: &str, at: u32, message: impl Into<String>) -> Self {
        let mut at = (at as usize).min(source.len());
        while !source.is_char_boundary(at) {
            at -= 1;
        }
        let before = source.get(..at).unwrap_or_default();
        let start = before.rfind('\n').map_or(0, |end| end + 1);
        let text = source.get(start..).and_then(|rest| rest.lines().next()).unwrap_or_default().to_owned();
        let column = before.get(start..).unwrap_or_default().chars().map(char::len_utf16).sum::<usize>() + 1;
        let message = message.into().replace('\n', " ");
        Self { message, line: before.matches('\n').count() + 1, column, text }
    }
}

impl fmt::Display for SyntaxError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { message, line, column, text } = self;
        write!(f, "SyntaxError: {message} ({line}:{column})\n{text}\n{:>column$}", "^")
    }
}

pub(crate) fn transpile(source: &str, options: &Options) -> Result<String, SyntaxError> {
    let allocator = Allocator::default();
    let parsed = parse(&allocator, source, options.language)?;
    let mut blank = Blank::new(source, options);
    blank.prepare(&parsed.program);
    blank.visit_program(&parsed.program);
    let (edits, wrong) = blank.finish();
    match wrong {
        Some((at, message)) => Err(SyntaxError::new(source, at, message)),
        None => Ok(edits.apply(source)),
    }
}

fn parse<'a>(allocator: &'a Allocator, source: &'a str, language: Language) -> Result<ParserReturn<'a>, SyntaxError> {
    let module = match language {
        Language::JavaScript => SourceType::mjs(),
        Language::TypeScript | Language::Module => SourceType::ts().with_module(true),
    };
    let first = Parser::new(allocator, source, module).parse();
    if !first.panicked && !first.diagnostics.has_errors() {
        return Ok(first);
    }
    // A cell is no module: what only a script may do (`with`, octal numbers, a variable named `await`) it may as well.
    if language != Language::Module {
        let second = Parser::new(allocator, source, module.with_script(true)).parse();
        if !second.panicked && !second.diagnostics.has_errors() {
            return Ok(second);
        }
    }
    let error = first.diagnostics.iter().next();
    let at = error.and_then(|error| error.labels.first()).map_or(0, |label| label.offset());
    let message = error.map_or_else(|| "the code cannot be read".to_owned(), |error| error.message.to_string());
    Err(SyntaxError::new(source, at, message))
}
