//! Files of `[section]` and `key = value`, as pip and npm write them.

/// Each value with its section and key, in order; a value may go on in lines that are indented.
pub(super) fn parse(text: &str) -> Vec<(String, String, String)> {
    let mut section = String::new();
    let mut values: Vec<(String, String, String)> = Vec::new();
    let mut goes_on = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if line.starts_with([' ', '\t']) && goes_on {
            if let Some((_, _, value)) = values.last_mut() {
                value.push('\n');
                value.push_str(trimmed);
            }
            continue;
        }
        if let Some(name) = trimmed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim().to_ascii_lowercase();
            goes_on = false;
        } else if let Some((key, value)) = trimmed.split_once('=') {
            let value = value.trim();
            let value = value.strip_prefix('"').and_then(|inner| inner.strip_suffix('"')).unwrap_or(value);
            values.push((section.clone(), key.trim().to_owned(), value.to_owned()));
            goes_on = true;
        }
    }
    values
}
