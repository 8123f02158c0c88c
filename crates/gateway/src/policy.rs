//! What a call needs: nothing, a person, or another operator.
//!
//! Rules are words such as `create_*`, `query(sql~(?i)^\s*drop)` or `send(to=*@example.org)`, in three lists per server. The
//! strictest that fits decides. A tool that no rule fits: denied where there is a list of allowed ones; otherwise by
//! [`Approve`] and, for servers whose word is believed, by the tool's annotations.

use regex::Regex;
use serde_json::{Map, Value};

use crate::catalogue::Tool;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    Allow,
    Ask,
    Deny,
}

/// When a person is asked, of what no rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Approve {
    Never,
    /// Calls that are not known to change nothing.
    #[default]
    Writes,
    /// Those, and every program before it runs.
    Ask,
}

/// The rules of one server.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    allow: Vec<Rule>,
    ask: Vec<Rule>,
    deny: Vec<Rule>,
    trusted: bool,
}

#[derive(Debug, Clone)]
struct Rule {
    tool: Glob,
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone)]
struct Condition {
    /// The way to the argument, part by part.
    argument: Vec<String>,
    pattern: Pattern,
}

#[derive(Debug, Clone)]
enum Pattern {
    Glob(Glob),
    Regex(Regex),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{rule:?} is no rule: {why}; write such as create_*, query(sql~^DROP) or send(to=*@example.org)")]
pub struct BadRule {
    pub rule: String,
    pub why: String,
}

/// A compiled pattern takes no more memory than this, whatever it says.
const REGEX_BYTES_MAX: usize = 1 << 20;

impl Rules {
    pub fn new(allow: &[String], ask: &[String], deny: &[String], trusted: bool) -> Result<Rules, BadRule> {
        let all = |rules: &[String]| rules.iter().map(|rule| Rule::parse(rule)).collect::<Result<Vec<_>, _>>();
        Ok(Rules { allow: all(allow)?, ask: all(ask)?, deny: all(deny)?, trusted })
    }

    pub fn trusts(&self) -> bool {
        self.trusted
    }

    /// Whether programs are to know of this tool at all: there are arguments that it could be called with.
    pub fn offers(&self, tool: &Tool) -> bool {
        let denied = self.deny.iter().any(|rule| rule.conditions.is_empty() && rule.names(tool));
        let mut listed = self.allow.iter().chain(&self.ask);
        !denied && (self.allow.is_empty() || listed.any(|rule| rule.names(tool)))
    }

    pub fn decide(&self, tool: &Tool, arguments: &Map<String, Value>, approve: Approve) -> Decision {
        let fits = |rules: &[Rule], of| rules.iter().any(|rule| rule.fits(tool, arguments, of));
        if fits(&self.deny, Of::Any) {
            return Decision::Deny;
        }
        if fits(&self.ask, Of::Any) {
            return Decision::Ask;
        }
        if fits(&self.allow, Of::All) {
            return Decision::Allow;
        }
        if !self.allow.is_empty() {
            return Decision::Deny;
        }
        let changes_nothing = self.trusted && tool.annotations.read_only == Some(true);
        if approve == Approve::Never || changes_nothing { Decision::Allow } else { Decision::Ask }
    }
}

impl Rule {
    fn parse(rule: &str) -> Result<Rule, BadRule> {
        let bad = |why: &str| BadRule { rule: rule.chars().take(80).collect(), why: why.to_owned() };
        let (tool, conditions) = match rule.split_once('(') {
            None => (rule, ""),
            Some((tool, rest)) => (tool, rest.strip_suffix(')').ok_or_else(|| bad("its bracket is not closed"))?),
        };
        if tool.trim().is_empty() {
            return Err(bad("it names no tool"));
        }
        let conditions = conditions.split(" & ").map(str::trim).filter(|condition| !condition.is_empty());
        let conditions = conditions.map(|condition| {
            let at = condition.find(['=', '~']).ok_or_else(|| bad("a condition has no = or ~"))?;
            let (argument, pattern) = condition.split_at(at);
            let argument = argument.trim().split('.').map(str::to_owned).collect();
            let pattern = match pattern.strip_prefix('~') {
                None => Pattern::Glob(Glob::new(pattern[1..].trim())),
                Some(regex) => {
                    let regex = regex::RegexBuilder::new(regex.trim()).size_limit(REGEX_BYTES_MAX).build();
                    Pattern::Regex(regex.map_err(|error| bad(&error.to_string()))?)
                }
            };
            Ok(Condition { argument, pattern })
        });
        Ok(Rule { tool: Glob::new(tool.trim()), conditions: conditions.collect::<Result<_, _>>()? })
    }

    /// By either spelling: the server's own, and the one that programs and people are shown.
    fn names(&self, tool: &Tool) -> bool {
        self.tool.fits(&tool.name) || self.tool.fits(&tool.ident)
    }

    fn fits(&self, tool: &Tool, arguments: &Map<String, Value>, of: Of) -> bool {
        self.names(tool) && self.conditions.iter().all(|condition| condition.fits(arguments, of))
    }
}

impl Condition {
    /// An argument that is not there fits nothing but the empty text. Where it is a list or an object, what is in it counts.
    fn fits(&self, arguments: &Map<String, Value>, of: Of) -> bool {
        let mut parts = self.argument.iter();
        let first = parts.next().and_then(|part| arguments.get(part));
        let found = parts.fold(first, |value, part| match value {
            Some(Value::Array(items)) => part.parse().ok().and_then(|index: usize| items.get(index)),
            Some(value) => value.get(part),
            None => None,
        });
        let mut texts = Vec::new();
        match found {
            None => texts.push(String::new()),
            Some(value) => leaves(value, &mut texts),
        }
        let fits = |text: &String| match &self.pattern {
            Pattern::Glob(glob) => glob.fits(text),
            Pattern::Regex(regex) => regex.is_match(text),
        };
        match of {
            Of::Any => texts.iter().any(fits),
            Of::All => texts.iter().all(fits),
        }
    }
}

/// Whether it is enough that one of several values fits: what forbids is to be hard to spell around, and what allows too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    Any,
    All,
}

/// The values in a value, as text. A list or an object is one by itself too, as JSON.
fn leaves(value: &Value, texts: &mut Vec<String>) {
    match value {
        Value::String(text) => texts.push(text.clone()),
        Value::Array(items) if !items.is_empty() => items.iter().for_each(|item| leaves(item, texts)),
        Value::Object(fields) if !fields.is_empty() => fields.values().for_each(|field| leaves(field, texts)),
        // 1000.0 is 1000 to whoever takes a whole number.
        Value::Number(number) => texts.push(match number.as_f64() {
            Some(float) if float.fract() == 0.0 && float.abs() < 1e15 => format!("{float:.0}"),
            _ => number.to_string(),
        }),
        other => texts.push(other.to_string()),
    }
}

/// Text in which `*` stands for any.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Glob(Vec<String>);

impl Glob {
    fn new(text: &str) -> Glob {
        Glob(text.split('*').map(str::to_owned).collect())
    }

    fn fits(&self, text: &str) -> bool {
        let [first, middle @ .., last] = self.0.as_slice() else {
            return self.0.first().is_some_and(|all| all == text);
        };
        let Some(mut rest) = text.strip_prefix(first.as_str()) else { return false };
        for part in middle {
            let Some(at) = rest.find(part.as_str()) else { return false };
            rest = &rest[at + part.len()..];
        }
        rest.ends_with(last.as_str())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::catalogue::Annotations;

    fn tool(name: &str, read_only: Option<bool>) -> Tool {
        Tool {
            server: "s".into(),
            server_ident: "s".into(),
            name: name.into(),
            ident: name.into(),
            description: String::new(),
            input_schema: Map::new(),
            output_schema: None,
            annotations: Annotations { read_only, ..Annotations::default() },
            definition: Value::Null,
            digest: String::new(),
        }
    }

    fn rules(allow: &[&str], ask: &[&str], deny: &[&str], trusted: bool) -> Rules {
        let own = |list: &[&str]| list.iter().map(|&rule| rule.to_owned()).collect::<Vec<_>>();
        Rules::new(&own(allow), &own(ask), &own(deny), trusted).unwrap()
    }

    fn decided(rules: &Rules, name: &str, arguments: Value) -> Decision {
        let Value::Object(arguments) = arguments else { panic!("no arguments") };
        rules.decide(&tool(name, None), &arguments, Approve::Writes)
    }

    #[test]
    fn the_strictest_rule_that_fits_decides() {
        let rules = rules(&["*"], &["query(sql~(?i)^\\s*(insert|delete))"], &["drop_*", "send(to=*@evil.test)"], false);
        for (name, arguments, expected) in [
            ("list", json!({}), Decision::Allow),
            ("query", json!({"sql": "select 1"}), Decision::Allow),
            ("query", json!({"sql": "  DELETE from x"}), Decision::Ask),
            ("drop_table", json!({}), Decision::Deny),
            ("send", json!({"to": "a@evil.test"}), Decision::Deny),
            ("send", json!({"to": "a@evil.test.example.org"}), Decision::Allow),
        ] {
            assert_eq!(decided(&rules, name, arguments.clone()), expected, "{name} {arguments}");
        }
    }

    #[test]
    fn a_rule_holds_for_both_spellings_and_for_values_of_other_types() {
        let rules = rules(&[], &[], &["drop_table", "send(to=*@evil.test)", "pay(amount=1000)"], false);
        let dashed = Tool { ident: "drop_table".into(), ..tool("drop-table", None) };
        assert_eq!(rules.decide(&dashed, &Map::new(), Approve::Never), Decision::Deny);
        assert!(!rules.offers(&dashed));
        assert_eq!(decided(&rules, "send", json!({"to": ["b@good.test", "a@evil.test"]})), Decision::Deny);
        assert_eq!(decided(&rules, "pay", json!({"amount": 1000.0})), Decision::Deny);
        let allowing = super::Rules::new(&["send(to=*@good.test)".into()], &[], &[], false).unwrap();
        assert_eq!(decided(&allowing, "send", json!({"to": ["b@good.test", "a@evil.test"]})), Decision::Deny);
        assert_eq!(decided(&allowing, "send", json!({"to": ["b@good.test"]})), Decision::Allow);
    }

    #[test]
    fn an_argument_deep_inside_can_be_named() {
        let rules = rules(&[], &[], &["put(to.0.host=internal*)"], false);
        assert_eq!(decided(&rules, "put", json!({"to": [{"host": "internal.test"}]})), Decision::Deny);
        assert_eq!(decided(&rules, "put", json!({"to": [{"host": "x.test"}]})), Decision::Ask);
    }

    #[test]
    fn with_a_list_of_allowed_ones_others_are_denied_and_not_offered() {
        let rules = rules(&["read_*"], &["write"], &["read_secret"], false);
        let offers = |name: &str| rules.offers(&tool(name, None));
        assert!(offers("read_x") && offers("write"));
        assert!(!offers("other") && !offers("read_secret"));
        assert_eq!(decided(&rules, "other", json!({})), Decision::Deny);
        assert!(super::Rules::default().offers(&tool("anything", None)));
    }

    #[test]
    fn annotations_count_for_trusted_servers_only() {
        let none = Map::new();
        let reads = tool("t", Some(true));
        assert_eq!(rules(&[], &[], &[], false).decide(&reads, &none, Approve::Writes), Decision::Ask);
        let trusted = rules(&[], &[], &[], true);
        assert_eq!(trusted.decide(&reads, &none, Approve::Writes), Decision::Allow);
        assert_eq!(trusted.decide(&tool("t", Some(false)), &none, Approve::Ask), Decision::Ask);
        assert_eq!(trusted.decide(&tool("t", None), &none, Approve::Never), Decision::Allow);
    }

    #[test]
    fn what_is_no_rule_is_told() {
        for bad in ["", "(a=b)", "x(a=b", "x(a)", "x(a~[)"] {
            let refused = Rules::new(&[bad.to_owned()], &[], &[], false).unwrap_err();
            assert!(refused.to_string().contains("is no rule"), "{refused}");
        }
    }

    #[test]
    fn a_star_stands_for_anything() {
        for (glob, text, fits) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*", "", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*b*c", "axbxc", true),
            ("a*bc", "abcbc", true),
            ("ab*ba", "aba", false),
            ("*x*", "axb", true),
        ] {
            assert_eq!(Glob::new(glob).fits(text), fits, "{glob} {text}");
        }
    }
}
