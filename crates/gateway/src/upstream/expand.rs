//! `${NAME}` and `${NAME:-default}` in configured text.

/// The text with its variables filled in, or the name of the one that is not set. A `$` that begins no variable stays as it
/// is, and so does a value's own: what was filled in is not looked at again.
pub(super) fn expand(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find("${") {
        let (before, variable) = rest.split_at(start);
        out.push_str(before);
        let inside = &variable[2..];
        let Some(end) = inside.find('}') else {
            out.push_str(variable);
            return Ok(out);
        };
        let (name, default) = match inside[..end].split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (&inside[..end], None),
        };
        // Other clients write `${env:NAME}`.
        let name = name.strip_prefix("env:").unwrap_or(name);
        if is_name(name) {
            match lookup(name).filter(|value| !(value.is_empty() && default.is_some())) {
                Some(value) => out.push_str(&value),
                None => out.push_str(default.ok_or_else(|| name.to_owned())?),
            }
        } else if name.starts_with("input:") {
            // Some clients ask a person for these; here nobody is asked.
            return Err(name.to_owned());
        } else {
            out.push_str(&variable[..end + 3]);
        }
        rest = &inside[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lookup(name: &str) -> Option<String> {
        match name {
            "HOST" => Some("example.org".into()),
            "EMPTY" => Some(String::new()),
            "NESTED" => Some("${HOST}".into()),
            _ => None,
        }
    }

    #[test]
    fn variables_are_filled_in_once() {
        for (text, expected) in [
            ("https://${HOST}/mcp", "https://example.org/mcp"),
            ("${env:HOST}", "example.org"),
            ("${GONE:-there}", "there"),
            ("${EMPTY:-there}", "there"),
            ("a${EMPTY}b", "ab"),
            ("${GONE:-}", ""),
            ("${NESTED}", "${HOST}"),
            ("$HOST ${} ${not a name} ${open", "$HOST ${} ${not a name} ${open"),
        ] {
            assert_eq!(expand(text, &lookup).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn an_unset_variable_is_named() {
        assert_eq!(expand("Bearer ${API_KEY}", &lookup), Err("API_KEY".into()));
        assert_eq!(expand("${input:token}", &lookup), Err("input:token".into()));
    }
}
