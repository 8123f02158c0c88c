//! The form that a person decides by: exactly what is to be done, and what can be said to it.

use std::fmt::Write;

use belljar_gateway::approval::{Pending, Subject, Verdict};
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, ElicitationSchema, EnumSchema, LegacyEnumSchema, StringSchema,
};

use crate::answer::shorten_text;
use crate::clean;

/// Of one call's arguments, and of all together.
const ONE_BYTES_MAX: usize = 2 * 1024;
const ALL_BYTES_MAX: usize = 8 * 1024;
/// Calls of one form; the others come in the next.
pub(super) const CALLS_MAX: usize = 32;
const NAME_BYTES_MAX: usize = 200;

/// How a client is told what a choice means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Titles {
    /// Each choice has its title.
    OfChoices,
    /// As clients before 2025-11-25 know it: a list of titles beside the list of names.
    BesideNames,
}

/// The form for what waits, of which there is at least one.
pub(super) fn form(pending: &[Pending], titles: Titles) -> ElicitRequestParams {
    let is_code = matches!(pending, [Pending { subject: Subject::Code { .. }, .. }]);
    let choices = choices(pending.len(), is_code);
    let mut schema = ElicitationSchema::builder().required_enum_schema("decision", decision(&choices, titles));
    if pending.len() > 1 {
        let except = StringSchema::new()
            .title("Except")
            .description("Numbers of calls to deny all the same, such as 2, 5")
            .max_length(200);
        schema = schema.string_property("except", |_| except);
    }
    ElicitRequestParams::FormElicitationParams {
        meta: None,
        message: message(pending),
        requested_schema: schema.build_unchecked(),
    }
}

fn choices(count: usize, is_code: bool) -> Vec<(&'static str, String)> {
    if is_code {
        return vec![
            ("approve", "Run this program".into()),
            ("approve_same", "Always run exactly this program".into()),
            ("deny", "Deny".into()),
        ];
    }
    let (these, tools, exactly) = match count {
        1 => ("Approve this call".to_owned(), "this tool", "this call"),
        _ => (format!("Approve these {count} calls"), "these tools", "these calls"),
    };
    vec![
        ("approve", these),
        ("approve_run", format!("Approve {tools} for the rest of this run")),
        ("approve_same", format!("Always approve exactly {exactly}")),
        ("deny", "Deny".into()),
    ]
}

fn decision(choices: &[(&'static str, String)], titles: Titles) -> EnumSchema {
    let names: Vec<String> = choices.iter().map(|(name, _)| (*name).to_owned()).collect();
    let words: Vec<String> = choices.iter().map(|(_, title)| title.clone()).collect();
    if titles == Titles::OfChoices
        && let Ok(builder) = EnumSchema::builder(names.clone()).enum_titles(words.clone())
    {
        return builder.title("Decision").build();
    }
    let mut schema = LegacyEnumSchema::new(names);
    schema.title = Some("Decision".into());
    schema.enum_names = Some(words);
    EnumSchema::Legacy(schema)
}

/// Everything that is to be done, in the words that it is done with; what does not fit is said not to be there.
fn message(pending: &[Pending]) -> String {
    let mut message = match pending {
        [Pending { subject: Subject::Code { language, .. }, .. }] => {
            format!("A program in {} wants to run:\n", one_line(language))
        }
        [_] => "A program wants to make this call:\n".into(),
        many => format!("A program wants to make these {} calls:\n", many.len()),
    };
    let count = pending.len();
    let mut room = ALL_BYTES_MAX;
    let mut is_cut = false;
    for (number, pending) in pending.iter().enumerate() {
        let (name, text, most) = match &pending.subject {
            Subject::Call { server, tool, arguments } => {
                let name = format!("{}.{}", one_line(server), one_line(tool));
                // Written as JSON, there is no control character left in it.
                (Some(name), serde_json::to_string_pretty(arguments).unwrap_or_default(), ONE_BYTES_MAX)
            }
            Subject::Code { code, .. } => (None, code.replace("\r\n", "\n").replace('\r', "\\r"), ALL_BYTES_MAX),
        };
        let text = clean::reveal(&text);
        let shown = &text[..text.floor_char_boundary(most.min(room))];
        room -= shown.len();
        // Writing to a String cannot fail.
        let _ = match name {
            Some(name) if count > 1 => write!(message, "\n{}. {name}\n{shown}", number + 1),
            Some(name) => write!(message, "\n{name}\n{shown}"),
            None => write!(message, "\n{shown}"),
        };
        let left_out = text.len() - shown.len();
        if left_out > 0 {
            is_cut = true;
            let _ = write!(message, "\n[CUT: {left_out} more bytes of this are not shown]");
        }
        message.push('\n');
    }
    if is_cut {
        message
            .push_str("\nNot all of it is shown above. Approve only if you would approve whatever the rest may be.\n");
    }
    message
}

/// Names come from servers and programs.
fn one_line(name: &str) -> String {
    shorten_text(&clean::reveal(name), NAME_BYTES_MAX).replace(['\n', '\r'], " ")
}

/// What was decided on each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Decision {
    pub(super) verdict: Verdict,
    /// Those for which that holds.
    pub(super) ids: Vec<u64>,
    pub(super) denied: Vec<u64>,
}

impl Decision {
    pub(super) fn deny(asked: &[u64]) -> Decision {
        Decision { verdict: Verdict::Deny, ids: Vec::new(), denied: asked.to_vec() }
    }

    /// What a person answered to a form for `asked`. Whatever is no clear approval denies all of it.
    pub(super) fn of(answer: &ElicitResult, asked: &[u64]) -> Decision {
        Decision::approval(answer, asked).unwrap_or_else(|| Decision::deny(asked))
    }

    fn approval(answer: &ElicitResult, asked: &[u64]) -> Option<Decision> {
        if answer.action != ElicitationAction::Accept {
            return None;
        }
        let content = answer.content.as_ref()?;
        let verdict = match content.get("decision")?.as_str()? {
            "approve" => Verdict::Once,
            "approve_run" => Verdict::Run,
            "approve_same" => Verdict::Same,
            _ => return None,
        };
        let except = match content.get("except") {
            None | Some(serde_json::Value::Null) => "",
            Some(except) => except.as_str()?,
        };
        let numbers = except.split([',', ' ', ';']).filter(|number| !number.is_empty());
        let excepted: Vec<usize> = numbers.map(|number| number.parse().ok()).collect::<Option<_>>()?;
        if excepted.iter().any(|number| !(1..=asked.len()).contains(number)) {
            return None;
        }
        let (mut ids, mut denied) = (Vec::new(), Vec::new());
        for (index, id) in asked.iter().enumerate() {
            if excepted.contains(&(index + 1)) { denied.push(*id) } else { ids.push(*id) }
        }
        // Whoever takes one out has not approved its tool for what comes later.
        let verdict = if verdict == Verdict::Run && !denied.is_empty() { Verdict::Once } else { verdict };
        Some(Decision { verdict, ids, denied })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn call(id: u64, arguments: Value) -> Pending {
        let arguments = arguments.as_object().cloned().unwrap();
        Pending { id, subject: Subject::Call { server: "github".into(), tool: "create_issue".into(), arguments } }
    }

    fn written(pending: &[Pending], titles: Titles) -> Value {
        serde_json::to_value(form(pending, titles)).unwrap()
    }

    #[test]
    fn a_form_shows_the_very_call() {
        let form = written(&[call(7, json!({"title": "a\u{202e}b\u{1b}[2K\nc"}))], Titles::OfChoices);
        let message = form["message"].as_str().unwrap();
        let shown = "\ngithub.create_issue\n{\n  \"title\": \"a\\u{202e}b\\u001b[2K\\nc\"\n}";
        assert!(message.contains(shown), "{message}");
        assert!(!message.contains("CUT") && form["mode"] == "form");
        let decision = &form["requestedSchema"]["properties"]["decision"];
        assert_eq!(decision["oneOf"][0], json!({"const": "approve", "title": "Approve this call"}), "{form}");
        assert_eq!(form["requestedSchema"]["properties"]["except"], Value::Null);
        assert_eq!(form["requestedSchema"]["required"], json!(["decision"]));
        let older = written(&[call(7, json!({}))], Titles::BesideNames);
        let decision = &older["requestedSchema"]["properties"]["decision"];
        assert_eq!(decision["enum"], json!(["approve", "approve_run", "approve_same", "deny"]));
        assert_eq!(decision["enumNames"][3], "Deny");
    }

    #[test]
    fn several_calls_are_numbered_and_what_is_cut_is_said() {
        let long = json!({"body": "x".repeat(5000)});
        let pending: Vec<Pending> = (0..6).map(|id| call(id, long.clone())).collect();
        let form = written(&pending, Titles::OfChoices);
        let message = form["message"].as_str().unwrap();
        assert!(message.contains("these 6 calls") && message.contains("\n6. github.create_issue\n"), "{message}");
        assert_eq!(message.matches("[CUT: ").count(), 6);
        assert!(message.contains("Not all of it is shown") && message.len() < ALL_BYTES_MAX + 2000);
        assert_eq!(form["requestedSchema"]["properties"]["except"]["type"], "string");
    }

    #[test]
    fn a_program_is_shown_as_it_is() {
        let code = "print(1)\r\nx = 2\rhidden".to_owned();
        let form = written(
            &[Pending { id: 0, subject: Subject::Code { language: "python".into(), code } }],
            Titles::OfChoices,
        );
        let message = form["message"].as_str().unwrap();
        assert!(message.contains("print(1)\nx = 2\\rhidden"), "{message}");
        assert_eq!(form["requestedSchema"]["properties"]["decision"]["oneOf"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn only_a_clear_approval_approves() {
        let said = |action, content: Value| {
            let answer = ElicitResult::new(action).with_content(content);
            Decision::of(&answer, &[10, 11, 12])
        };
        let accept = |content| said(ElicitationAction::Accept, content);
        let approved = accept(json!({"decision": "approve_run", "except": "2, 3"}));
        assert_eq!(approved, Decision { verdict: Verdict::Once, ids: vec![10], denied: vec![11, 12] });
        assert_eq!(accept(json!({"decision": "approve_run"})).verdict, Verdict::Run);
        assert_eq!(accept(json!({"decision": "approve"})).ids, [10, 11, 12]);
        assert_eq!(accept(json!({"decision": "approve_same", "except": ""})).verdict, Verdict::Same);
        let denied = Decision::deny(&[10, 11, 12]);
        for content in [
            json!({"decision": "deny"}),
            json!({"decision": "APPROVE"}),
            json!({"decision": true}),
            json!({}),
            json!(null),
            json!({"decision": "approve", "except": "4"}),
            json!({"decision": "approve", "except": "0"}),
            json!({"decision": "approve", "except": "two"}),
            json!({"decision": "approve", "except": [1]}),
        ] {
            assert_eq!(accept(content.clone()), denied, "{content}");
        }
        for action in [ElicitationAction::Decline, ElicitationAction::Cancel] {
            assert_eq!(said(action, json!({"decision": "approve"})), denied);
        }
    }
}
