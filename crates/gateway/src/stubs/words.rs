//! What is wrong with arguments, in a program's words and not in a schema's.

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::Value;

use super::text;

const VALUE_CHARACTERS_MAX: usize = 80;

pub(super) fn unknown(name: &str, meant: Option<&str>) -> String {
    let name = quoted(name);
    match meant {
        Some(meant) => format!("unknown argument {name}; did you mean {}?", quoted(meant)),
        None => format!("unknown argument {name}"),
    }
}

/// `edits[0].oldText`; empty for the arguments as a whole.
pub(super) fn place(error: &ValidationError<'_>) -> String {
    let mut place = String::new();
    let pointer = error.instance_path().as_str();
    for token in pointer.split('/').skip(1) {
        if !token.is_empty() && token.bytes().all(|byte| byte.is_ascii_digit()) {
            place.push_str(&format!("[{token}]"));
        } else {
            place.push_str(if place.is_empty() { "" } else { "." });
            place.push_str(&token.replace("~1", "/").replace("~0", "~"));
        }
    }
    place
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", text::cut(&text::line(name, 400), VALUE_CHARACTERS_MAX))
}

fn shown(value: &Value) -> String {
    text::cut(&text::line(&value.to_string(), 8 * VALUE_CHARACTERS_MAX), VALUE_CHARACTERS_MAX)
}

pub(super) fn sentence(error: &ValidationError<'_>, place: &str, depth: usize) -> String {
    let subject = if place.is_empty() { "the arguments".to_owned() } else { quoted(place) };
    let got = shown(error.instance());
    match error.kind() {
        ValidationErrorKind::Required { property } => {
            let name = property.as_str().map_or_else(|| shown(property), quoted);
            if place.is_empty() {
                format!("missing required argument {name}")
            } else {
                format!("{subject} lacks the required property {name}")
            }
        }
        ValidationErrorKind::Enum { options } => {
            let options = options.as_array().map(Vec::as_slice).unwrap_or_default();
            let mut words: Vec<String> = options
                .iter()
                .take(20)
                .map(|option| option.as_str().map_or_else(|| shown(option), |word| text::cut(word, 40)))
                .collect();
            if options.len() > words.len() {
                words.push(format!("… ({} in all)", options.len()));
            }
            format!("{subject} must be one of {}, got {got}", text::cut(&words.join(", "), 240))
        }
        ValidationErrorKind::Constant { expected_value } => {
            format!("{subject} must be {}, got {got}", shown(expected_value))
        }
        ValidationErrorKind::Type { kind } => format!("{subject} must be {}, got {got}", kinds(kind)),
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => {
            let names: Vec<String> = unexpected.iter().take(5).map(|name| quoted(name)).collect();
            format!("{subject} has unknown properties: {}", names.join(", "))
        }
        ValidationErrorKind::Minimum { limit } => format!("{subject} must be at least {limit}, got {got}"),
        ValidationErrorKind::Maximum { limit } => format!("{subject} must be at most {limit}, got {got}"),
        ValidationErrorKind::ExclusiveMinimum { limit } => format!("{subject} must be more than {limit}, got {got}"),
        ValidationErrorKind::ExclusiveMaximum { limit } => format!("{subject} must be less than {limit}, got {got}"),
        ValidationErrorKind::MultipleOf { multiple_of } => {
            format!("{subject} must be a multiple of {multiple_of}, got {got}")
        }
        ValidationErrorKind::MinLength { limit } => {
            format!("{subject} must have at least {limit} characters, got {got}")
        }
        ValidationErrorKind::MaxLength { limit } => {
            format!("{subject} must have at most {limit} characters, got {got}")
        }
        ValidationErrorKind::MinItems { limit } => format!("{subject} must have at least {limit} items, got {got}"),
        ValidationErrorKind::MaxItems { limit } => format!("{subject} must have at most {limit} items, got {got}"),
        ValidationErrorKind::UniqueItems => format!("{subject} must have no item twice, got {got}"),
        ValidationErrorKind::Pattern { pattern } => {
            format!("{subject} must match the pattern {}, got {got}", text::cut(&text::line(pattern, 400), 120))
        }
        ValidationErrorKind::FalseSchema => format!("{subject} is not allowed"),
        ValidationErrorKind::AnyOf { context } | ValidationErrorKind::OneOfNotValid { context } => {
            forms(context, &subject, &got, depth)
        }
        ValidationErrorKind::OneOfMultipleValid { .. } => {
            format!("{subject} fits several of the forms of which it must have one, got {got}")
        }
        _ => format!("{subject} does not fit the schema ({}), got {got}", error.kind().keyword()),
    }
}

/// None of several forms fits: the types, if it has none of them; else what is wrong with the form that it is nearest to.
fn forms(context: &[Vec<ValidationError<'static>>], subject: &str, got: &str, depth: usize) -> String {
    let mut types: Vec<String> = Vec::new();
    let mut best: Option<&Vec<ValidationError<'static>>> = None;
    let height = |form: &[ValidationError<'_>]| form.iter().map(|error| error.instance_path().as_str().len()).min();
    for form in context {
        match form.as_slice() {
            [] => {}
            [error, ..]
                if matches!(error.kind(), ValidationErrorKind::Type { .. }) && height(form) == lowest(context) =>
            {
                if let ValidationErrorKind::Type { kind } = error.kind() {
                    let kind = kinds(kind);
                    if !types.contains(&kind) {
                        types.push(kind);
                    }
                }
            }
            form_errors if best.is_none_or(|best| form_errors.len() < best.len()) => best = Some(form),
            _ => {}
        }
    }
    match best.and_then(|best| best.first()) {
        Some(error) if depth > 0 => sentence(error, &place(error), depth - 1),
        _ if !types.is_empty() => format!("{subject} must be {}, got {got}", types.join(" or ")),
        _ => format!("{subject} has none of the forms that it may have, got {got}"),
    }
}

fn lowest(context: &[Vec<ValidationError<'static>>]) -> Option<usize> {
    context.iter().flatten().map(|error| error.instance_path().as_str().len()).min()
}

fn kinds(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => kind.to_string(),
        TypeKind::Multiple(kinds) => {
            let mut words: Vec<String> = kinds.iter().map(|kind| kind.to_string()).collect();
            words.sort_by_key(|word| word == "null");
            words.join(" or ")
        }
    }
}

/// The one that is the same but for case and separators, or one or two letters away.
pub(super) fn nearest<'a>(name: &str, candidates: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    let plain = |name: &str| name.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    let wanted: String = plain(name);
    if wanted.is_empty() || wanted.len() > 64 {
        return None;
    }
    let distance = |candidate: &&String| {
        let candidate: String = plain(candidate);
        if candidate.len() > 64 { usize::MAX } else { distance(wanted.as_bytes(), candidate.as_bytes()) }
    };
    let allowed = if wanted.len() < 4 { 1 } else { 2 };
    let scored = candidates.take(1000).map(|candidate| (distance(&candidate), candidate));
    scored
        .filter(|(distance, _)| *distance <= allowed)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name.as_str())
}

/// Letters to add, drop, change, or swap with their neighbour.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let width = other.len() + 1;
    let mut rows = vec![vec![0; width]; one.len() + 1];
    for (i, row) in rows.iter_mut().enumerate() {
        row[0] = i;
    }
    rows[0] = (0..width).collect();
    for i in 1..=one.len() {
        for j in 1..width {
            let changed = usize::from(one[i - 1] != other[j - 1]);
            let mut best = (rows[i - 1][j] + 1).min(rows[i][j - 1] + 1).min(rows[i - 1][j - 1] + changed);
            if i > 1 && j > 1 && one[i - 1] == other[j - 2] && one[i - 2] == other[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            rows[i][j] = best;
        }
    }
    rows[one.len()][other.len()]
}
