//! Which Python a script asks for, by the `requires-python` of its PEP 723 block.

use belljar_core::Language;

/// The first of the host's that will do, by its name; `Ok(None)` where that is the default, and an error where none does. Of a version only
/// the first two numbers are looked at: that is all that names of interpreters tell.
pub(crate) fn choose(wanted: &str, interpreters: &[(Language, String)]) -> Result<Option<String>, String> {
    let pythons: Vec<&str> = interpreters
        .iter()
        .filter(|(language, _)| *language == Language::Python)
        .map(|(_, name)| name.as_str())
        .collect();
    let bounds: Vec<Bound> = wanted.split(',').filter_map(Bound::read).collect();
    let fits = |name: &&&str| version(name).is_none_or(|version| bounds.iter().all(|bound| bound.holds(version)));
    match pythons.iter().find(fits) {
        Some(first) if pythons.first() == Some(first) => Ok(None),
        Some(other) => Ok(Some((*other).to_owned())),
        None if pythons.is_empty() => Ok(None),
        None => Err(format!("the script asks for Python {}, and here are: {}", wanted.trim(), pythons.join(", "))),
    }
}

type Version = (u32, u32);

struct Bound {
    operator: String,
    version: Version,
}

impl Bound {
    /// `None` for what says nothing about the first two numbers, or is none.
    fn read(text: &str) -> Option<Bound> {
        let text = text.trim();
        let end = text.find(|c: char| !"<>=!~".contains(c))?;
        let (operator, number) = text.split_at(end);
        // What is less than 3.12.4 may be a 3.12, and so may what is more.
        let is_exact = number.trim().trim_end_matches(".*").matches('.').count() < 2;
        let operator = match operator {
            "<" if !is_exact => "<=",
            ">" if !is_exact => ">=",
            "!=" if !is_exact => return None,
            other => other,
        };
        Some(Bound { operator: operator.to_owned(), version: numbers(number)? })
    }

    fn holds(&self, found: Version) -> bool {
        match self.operator.as_str() {
            ">=" => found >= self.version,
            ">" => found > self.version,
            "<=" => found <= self.version,
            "<" => found < self.version,
            "==" | "===" => found == self.version,
            "!=" => found != self.version,
            "~=" => found.0 == self.version.0 && found >= self.version,
            _ => true,
        }
    }
}

fn version(name: &str) -> Option<Version> {
    numbers(name.strip_prefix("python-")?)
}

fn numbers(text: &str) -> Option<Version> {
    let mut parts = text.trim().split('.');
    let first = parts.next()?.parse().ok()?;
    Some((first, parts.next().and_then(|part| part.parse().ok()).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_will_do_is_chosen() {
        let found = ["python-3.11", "python-3.13", "python-3.8"].map(|name| (Language::Python, name.to_owned()));
        for (wanted, chosen) in [
            ("", None),
            (">=3.9", None),
            (">=3.11.2", None),
            (">=3.12", Some("python-3.13")),
            (">3.11", Some("python-3.13")),
            ("<3.11", Some("python-3.8")),
            ("==3.8.*", Some("python-3.8")),
            ("~=3.12", Some("python-3.13")),
            (">=3.8,<3.11", Some("python-3.8")),
            ("!=3.11.*", Some("python-3.13")),
            ("<3.11.9", None),
            ("nonsense", None),
        ] {
            assert_eq!(choose(wanted, &found), Ok(chosen.map(str::to_owned)), "{wanted}");
        }
        let none = choose(">=3.14", &found).unwrap_err();
        assert!(none.contains(">=3.14") && none.contains("python-3.8"), "{none}");
        assert_eq!(choose(">=3.14", &[]), Ok(None));
    }
}
