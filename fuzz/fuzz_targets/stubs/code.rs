//! What is left of a stub without its strings and comments, and whether that is only what a stub is made of.
//!
//! Far less than a parser of either language, of which the unit tests have whole ones; but it tells code from text.

/// Words that begin or join statements, and never stand in a stub.
const NEVER: [&str; 22] = [
    "lambda", "for", "while", "if", "else", "with", "try", "return", "yield", "await", "async", "assert", "del",
    "raise", "global", "nonlocal", "not", "and", "or", "in", "is", "except",
];

pub fn python(text: &str, ident: &str) -> Result<(), String> {
    let code = python_code(text)?;
    only(&code, "_ \n(){}[]:,=|*.>-+")?;
    let (mut depth, mut opened) = (0, 0);
    for (number, line) in code.lines().enumerate() {
        if depth == 0 {
            let inner = line.strip_prefix("    ");
            let is_known = match inner {
                Some(inner) => inner == "pass" || inner.starts_with('D') || is_declared(inner, ": "),
                None => {
                    line.trim().is_empty()
                        || number == 0 && line.starts_with("from typing import ")
                        || line.strip_prefix("class ").is_some_and(|rest| is_declared(rest, "(TypedDict):"))
                        || is_declared(line, " = TypedDict(S, {")
                        || is_declared(line, ": TypeAlias = ")
                        || line.starts_with(&format!("def {ident}("))
                }
            };
            if !is_known {
                return Err(format!("a statement that no stub has: {line:?}"));
            }
            opened += usize::from(inner.is_none() && line.contains('('));
        }
        depth = nested(line, depth)?;
    }
    if depth != 0 || code.matches('(').count() != opened {
        return Err("brackets that no stub has".to_owned());
    }
    match words(&code).find(|word| NEVER.contains(word)) {
        Some(word) => Err(format!("the keyword {word}")),
        None => Ok(()),
    }
}

pub fn typescript(text: &str, ident: &str) -> Result<(), String> {
    let code = typescript_code(text)?;
    only(&code, "_$ \n(){}[]<>:;,?|.=-+")?;
    let (mut depth, mut statement, mut functions) = (0, String::new(), 0);
    for c in code.chars() {
        depth = nested(c.encode_utf8(&mut [0; 4]), depth)?;
        if c != ';' || depth > 0 {
            statement.push(c);
            continue;
        }
        let one = std::mem::take(&mut statement);
        let one = one.trim();
        let is_function = one.starts_with(&format!("export declare function {ident}("));
        functions += usize::from(is_function);
        if !is_function && !one.strip_prefix("export type ").is_some_and(|rest| is_declared(rest, " = ")) {
            return Err(format!("a statement that no stub has: {one:?}"));
        }
    }
    if !statement.trim().is_empty() || depth != 0 || functions != 1 || code.matches('(').count() != 1 {
        return Err("more, or less, than one function".to_owned());
    }
    Ok(())
}

/// `S` for each string, `D` for one in three quotes, and no comments.
fn python_code(text: &str) -> Result<String, String> {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['"', '#']) {
        code.push_str(&rest[..at]);
        rest = &rest[at..];
        if rest.starts_with('#') {
            rest = &rest[rest.find('\n').ok_or("a comment without an end")?..];
        } else if let Some(inner) = rest.strip_prefix("\"\"\"") {
            rest = after(inner, "\"\"\"")?;
            code.push('D');
        } else {
            rest = string(&rest[1..])?;
            code.push('S');
        }
    }
    Ok(code + rest)
}

fn typescript_code(text: &str) -> Result<String, String> {
    let (mut code, mut rest) = (String::new(), text);
    while let Some(at) = rest.find(['"', '/']) {
        code.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(inner) = rest.strip_prefix("/*") {
            // No backslash ends or hides anything in a comment.
            rest = &inner[inner.find("*/").ok_or("a comment without an end")? + 2..];
        } else if rest.starts_with('"') {
            rest = string(&rest[1..])?;
            code.push('S');
        } else {
            return Err("a slash outside of comments".to_owned());
        }
    }
    Ok(code + rest)
}

fn string(inner: &str) -> Result<&str, String> {
    let rest = after(inner, "\"")?;
    match inner[..inner.len() - rest.len()].contains('\n') {
        true => Err("a string over two lines".to_owned()),
        false => Ok(rest),
    }
}

/// What follows the end of a string, which no backslash is before.
fn after<'a>(text: &'a str, end: &str) -> Result<&'a str, String> {
    let mut at = 0;
    while let Some(found) = text[at..].find(['\\', '"']) {
        at += found;
        if let Some(rest) = text[at..].strip_prefix(end) {
            return Ok(rest);
        }
        let escaped =
            if text[at..].starts_with('\\') { text[at + 1..].chars().next().map_or(0, char::len_utf8) } else { 0 };
        at += 1 + escaped;
    }
    Err("a string without an end".to_owned())
}

fn only(code: &str, signs: &str) -> Result<(), String> {
    match code.chars().find(|c| !c.is_ascii_alphanumeric() && !signs.contains(*c)) {
        Some(c) => Err(format!("{c:?} outside of strings and comments")),
        None => Ok(()),
    }
}

fn is_declared(text: &str, then: &str) -> bool {
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '$').unwrap_or(text.len());
    end > 0 && !text.starts_with(|c: char| c.is_ascii_digit()) && text[end..].starts_with(then)
}

fn nested(line: &str, mut depth: usize) -> Result<usize, String> {
    for c in line.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth = depth.checked_sub(1).ok_or("a bracket that nothing opened")?,
            _ => {}
        }
    }
    Ok(depth)
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}
