//! Holds a case's expectations against what was answered and against the host.

use std::time::Duration;

use super::action::Action;
use super::audit;
use super::case::Body;
use super::check::Check;
use super::client::{Answer, Halt, Link, Lost};
use super::expect;
use super::host::random_hex;
use super::scene::{Saved, Scene, Unnamed, clip, seconds};

impl Scene<'_> {
    pub(crate) fn judge(&mut self) -> Result<(), Halt> {
        let mut reasons = Vec::new();
        for saved in &self.saved {
            reasons.extend(self.judge_answer(saved).into_iter().map(|reason| match self.case.body {
                Body::Program { .. } => reason,
                Body::Steps(_) => format!("{}: {reason}", saved.name),
            }));
        }
        if let (Body::Program { .. }, [saved]) = (&self.case.body, &self.saved[..]) {
            reasons.extend(self.judge_program(&saved.answer));
        }
        reasons.extend(self.judge_lists());
        reasons.extend(self.judge_http());
        reasons.extend(self.judge_absent_results());
        reasons.extend(self.judge_upstream()?);
        reasons.extend(self.judge_audit());
        reasons.into_iter().for_each(|reason| self.note(reason));
        self.judge_strange_handles()?;
        self.judge_stream();
        let case = self.case;
        for text in &case.expect.host {
            match Check::parse(text) {
                Some(check) => self.check_and_note(&check)?,
                None => return Err(Halt::Skip(format!("driver does not know host check {text}"))),
            }
        }
        Ok(())
    }

    /// What holds for the answer of any step.
    fn judge_answer(&self, saved: &Saved) -> Vec<String> {
        let expect = &self.case.expect;
        let Saved { answer, step, within, .. } = saved;
        let text = answer.text();
        let mut reasons = Vec::new();
        match answer.lost {
            Some(Lost::Timeout) => reasons.push("no answer".to_owned()),
            Some(Lost::Closed) if !step.allow_error => reasons.push("the server hung up".to_owned()),
            _ if !step.allow_error && !was_carried_out(saved) => {
                reasons.push(format!("was not carried out: {}", clip(&text)));
            }
            _ => {}
        }
        let most = expect.each_within_s.map_or(*within, |each| seconds(each).min(*within));
        if answer.lost.is_none() && answer.took > most {
            reasons.push(format!("{} took {:.1}s, {:.1}s allowed", step.op, secs(answer.took), secs(most)));
        }
        reasons.extend(expect::contains(&text, &[], &self.with_ids(&expect.must_not_contain)));
        for (_, rule) in expect.results.iter().filter(|(pattern, _)| expect::name_matches(&saved.name, pattern)) {
            let must_not = self.with_ids(&rule.must_not_contain);
            reasons.extend(expect::contains(&text, &rule.must_contain, &must_not));
            reasons.extend(expect::matches(&text, &rule.must_not_match));
            if rule.max_bytes.is_some_and(|most| answer.bytes > most) {
                reasons.push(format!("an answer of {} bytes", answer.bytes));
            }
        }
        reasons.dedup();
        reasons
    }

    /// What a case says about its one program.
    fn judge_program(&self, answer: &Answer) -> Vec<String> {
        let expect = &self.case.expect;
        let text = answer.text();
        let mut reasons = expect::contains(&text, &expect.must_contain, &[]);
        reasons.extend(expect::matches(&text, &expect.must_not_match));
        if !answer.ran() {
            reasons.push(format!("the program did not run: {}", clip(&text)));
        }
        let status = expect::status(answer);
        if !expect.status_any_of.is_empty() && !expect.status_any_of.iter().any(|allowed| allowed == status) {
            reasons.push(format!("ended with {status}, not {}", expect.status_any_of.join(", ")));
        }
        for wanted in [expect.exit, expect.structured_exit_code].into_iter().flatten() {
            let code = expect::exit_code(answer);
            if code != Some(wanted) {
                reasons.push(format!("exit code {code:?}, not {wanted}"));
            }
        }
        if expect.truncated.is_some_and(|wanted| wanted != expect::is_truncated(answer)) {
            reasons.push(format!("truncated is {}", expect::is_truncated(answer)));
        }
        if expect.max_output_bytes.is_some_and(|most| !expect::output_fits(answer.bytes, most)) {
            reasons.push(format!("an answer of {} bytes", answer.bytes));
        }
        let wants_sound_text = expect.valid_json == Some(true) || expect.valid_utf8 == Some(true);
        if wants_sound_text && (answer.message.is_null() || !self.server.bad_lines().is_empty()) {
            reasons.push("the answer is not JSON in UTF-8".to_owned());
        }
        reasons.dedup();
        reasons
    }

    fn judge_lists(&self) -> Vec<String> {
        let expect = &self.case.expect;
        let mut reasons = Vec::new();
        for answers in &self.lists {
            if let Some(rule) = &expect.each_result {
                let least = expect.min_ok_fraction.unwrap_or(0.0);
                reasons.extend(expect::each_result(rule, answers, least));
            }
            let forbidden = self.with_ids(&expect.must_not_contain);
            let found = answers.iter().find_map(|answer| expect::contains(&answer.text(), &[], &forbidden).pop());
            reasons.extend(found);
        }
        if let Some(rule) = &expect.ids {
            reasons.extend(expect::ids(rule, &self.made));
        }
        if expect.quota_error_seen {
            self.lists.iter().for_each(|answers| reasons.extend(expect::bounded(answers)));
            if self.creations_refused == 0 && self.lists.is_empty() {
                reasons.push("no quota error seen".to_owned());
            }
        }
        reasons
    }

    /// What was written down of the programs of the case.
    fn judge_audit(&self) -> Vec<String> {
        let Some(rule) = &self.case.expect.audit else { return Vec::new() };
        let ran = self.saved.iter().filter(|saved| saved.answer.ran()).filter_map(|saved| {
            let (session, code) = match &saved.step.action {
                Action::Exec { session, code, .. } => (session.as_deref(), code.as_str()),
                Action::Call { args, .. } => (None, args.get("code")?.as_str()?),
                _ => return None,
            };
            let session = session.unwrap_or("default");
            let sandbox = &self.sessions.get(session.strip_prefix("new:").unwrap_or(session))?.id;
            Some(audit::Ran { code, sandbox })
        });
        let ran: Vec<audit::Ran<'_>> = ran.collect();
        let read = self.saved.iter().filter(|saved| matches!(saved.step.action, Action::ReadAuditLog {}));
        let mut reasons: Vec<String> =
            read.clone().flat_map(|log| audit::judge(&log.answer.text(), rule, &ran)).collect();
        if read.count() == 0 {
            reasons.push("the audit was not read".to_owned());
        }
        reasons
    }

    fn judge_http(&self) -> Vec<String> {
        let expect = &self.case.expect;
        let mut reasons = Vec::new();
        for Saved { name, answer, .. } in &self.saved {
            let Some(reply) = &answer.http else { continue };
            for (_, pattern) in expect.http.iter().filter(|(key, _)| expect::name_matches(name, key)) {
                match expect::status_matches(reply.status, pattern) {
                    Ok(true) => {}
                    Ok(false) => reasons.push(format!("{name}: status {}, not {pattern}", reply.status)),
                    Err(reason) => reasons.push(reason),
                }
            }
            for (header, wanted) in expect.http_headers.get(name).into_iter().flatten() {
                let value = reply.header(header).unwrap_or_default();
                if !value.contains(wanted.as_str()) {
                    reasons.push(format!("{name}: {header} is {value:?}, not {wanted}"));
                }
            }
            if let Some(wanted) = expect.rpc_error.get(name) {
                let code = answer.message.pointer("/error/code").and_then(|code| code.as_i64());
                if code != Some(*wanted) {
                    reasons.push(format!("{name}: error {code:?}, not {wanted}"));
                }
            }
        }
        reasons
    }

    /// An expectation about a result that never came would otherwise hold by itself.
    fn judge_absent_results(&self) -> Vec<String> {
        let expect = &self.case.expect;
        let named = expect.results.keys().chain(expect.http.keys()).chain(expect.http_headers.keys());
        let named = named.chain(expect.rpc_error.keys()).chain(&expect.same_error_as_unknown_handle);
        let absent = named.filter(|key| !self.saved.iter().any(|saved| expect::name_matches(&saved.name, key)));
        absent.map(|key| format!("no result for {key}")).collect()
    }

    /// Asks again with a handle that never existed: the stranger must not be able to tell the two apart.
    fn judge_strange_handles(&mut self) -> Result<(), Halt> {
        let case = self.case;
        for name in &case.expect.same_error_as_unknown_handle {
            let Some(saved) = self.saved.iter().find(|saved| saved.name == *name) else {
                continue;
            };
            let (mut step, who, answer) = (saved.step.clone(), saved.who, saved.answer.clone());
            let (Action::Exec { session, .. } | Action::ReadFile { session, .. } | Action::Destroy { session }) =
                &mut step.action
            else {
                return Err(Halt::Skip(format!("driver cannot repeat op {} with another handle", step.op)));
            };
            let known = self.sessions.get(session.as_deref().unwrap_or("default"));
            let Some(known) = known.map(|session| session.id.clone()) else {
                continue;
            };
            let made_up = like(&known);
            *session = Some(format!("literal:{made_up}"));
            self.who = who;
            let unknown = self.invoke(&step, None, Unnamed::DefaultSandbox);
            self.who = super::client::Caller::Good;
            if let Err(reason) = expect::same_refusal((&answer, &known), (&unknown?, &made_up)) {
                self.note(format!("{name}: {}", clip(&reason)));
            }
        }
        Ok(())
    }

    fn judge_stream(&mut self) {
        let case = self.case;
        for rule in &case.expect.rpc {
            let wrong = match (rule.as_str(), &self.server.link) {
                ("stdout_every_line_is_valid_jsonrpc", _) => self.server.bad_lines(),
                ("no_unsolicited_messages", Link::Stdio(client)) => client.unsolicited(),
                ("exactly_one_response_per_id", Link::Stdio(client)) => client.answered_twice(),
                // Over HTTP an answer comes on its own connection; there is nothing to mix up.
                _ => Vec::new(),
            };
            if let Some(first) = wrong.first() {
                self.note(format!("{rule}: {}", clip(first)));
            }
        }
    }

    /// `$S` in an expectation stands for the id of session S.
    fn with_ids(&self, words: &[String]) -> Vec<String> {
        let id = |word: &String| {
            let session = word.strip_prefix('$').and_then(|name| self.sessions.get(name));
            session.map_or_else(|| word.clone(), |session| session.id.clone())
        };
        words.iter().map(id).collect()
    }
}

/// A program that fails was carried out; a refusal to run it was not.
fn was_carried_out(saved: &Saved) -> bool {
    match &saved.step.action {
        Action::Exec { .. } | Action::Await { .. } => saved.answer.ran(),
        // What a bare HTTP request gets is judged by its status.
        Action::Http(_) => true,
        _ => !saved.answer.is_error(),
    }
}

/// Another handle of the same shape.
fn like(id: &str) -> String {
    let mut random = random_hex(id.len()).into_bytes().into_iter();
    id.chars()
        .enumerate()
        .map(|(place, letter)| match random.next() {
            // Whatever comes first may be a label such as `sb_`.
            Some(digit) if place >= id.len() / 2 && letter.is_ascii_hexdigit() => digit as char,
            _ => letter,
        })
        .collect()
}

fn secs(duration: Duration) -> f64 {
    duration.as_secs_f64()
}
