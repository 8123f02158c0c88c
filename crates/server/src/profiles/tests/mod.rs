mod daytona;
mod hostile;
mod interpreter;
mod morph;
mod runs;
mod schemas;

use belljar_engine::Settings;
use belljar_testkit::fake::{Fake, Manners};
use rmcp::model::CallToolResult;

use super::*;
use crate::progress::Progress;

/// A picture of one pixel.
pub(super) const PNG: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Callers of a server with one profile.
pub(super) struct Agent {
    pub(super) fake: Arc<Fake>,
    pub(super) engine: Engine,
    pub(super) who: Principal,
    pub(super) profile: &'static Profile,
    pub(super) memory: Arc<Memory>,
}

impl Agent {
    pub(super) fn new(profile: &str) -> Agent {
        Agent::with(profile, Manners::default())
    }

    pub(super) fn with(profile: &str, manners: Manners) -> Agent {
        let fake = Fake::new(manners);
        let engine = Engine::new(fake.clone(), Settings::default());
        let profile = find(profile).expect("a profile");
        Agent { fake, engine, who: Principal::local(), profile, memory: Arc::default() }
    }

    /// Someone else at the same server.
    pub(super) fn other(&self, name: &str) -> Agent {
        Agent {
            fake: self.fake.clone(),
            engine: self.engine.clone(),
            who: Principal::new(name),
            profile: self.profile,
            memory: self.memory.clone(),
        }
    }

    pub(super) async fn call(&self, tool: &str, arguments: Value) -> CallToolResult {
        let arguments = arguments.as_object().cloned();
        let call = self.calling(arguments);
        let answer = self.profile.call(tool, call, &self.memory).await.expect("the tool exists");
        let CallToolResponse::Complete(result) = answer else { panic!("{answer:?}") };
        let text: usize =
            result.content.iter().filter_map(|block| block.as_text()).map(|t| t.text.chars().count()).sum();
        assert!(text <= 20_000, "{tool} answered with {text} characters");
        result
    }

    fn calling(&self, arguments: Option<rmcp::model::JsonObject>) -> Call<'_> {
        Call {
            engine: &self.engine,
            who: &self.who,
            progress: Progress::unwanted(),
            arguments,
            patience: std::time::Duration::from_secs(45),
            departure: belljar_engine::Departure::default(),
            asking: None,
            log: crate::logging::Log::unwanted(),
            tasks: None,
        }
    }

    pub(super) async fn text(&self, tool: &str, arguments: Value) -> String {
        text(&self.call(tool, arguments).await)
    }

    /// The first text as JSON.
    pub(super) async fn json(&self, tool: &str, arguments: Value) -> Value {
        parse(&self.call(tool, arguments).await)
    }

    /// A call that must fail, and its first text.
    pub(super) async fn fails(&self, tool: &str, arguments: Value) -> String {
        let result = self.call(tool, arguments.clone()).await;
        assert_eq!(result.is_error, Some(true), "{tool} {arguments}: {result:?}");
        text(&result)
    }
}

pub(super) fn text(result: &CallToolResult) -> String {
    result.content[0].as_text().unwrap().text.clone()
}

pub(super) fn parse(result: &CallToolResult) -> Value {
    let text = text(result);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// The texts after the first: what the other system had no place for.
pub(super) fn notes(result: &CallToolResult) -> String {
    result.content[1..].iter().filter_map(|block| block.as_text()).map(|text| text.text.clone()).collect()
}

pub(super) fn images(result: &CallToolResult) -> Vec<String> {
    result.content.iter().filter_map(|block| block.as_image()).map(|image| image.mime_type.clone()).collect()
}

/// A script of the fake's that raises, as a kernel tells it.
pub(super) const RAISES: &str = r#"
    print before
    record {"error": {"name": "ValueError", "value": "no", "traceback": "Traceback\n  line 1\nValueError: no"}}
    exit 1"#;

pub(super) fn shows_picture() -> String {
    format!("record {{\"show\": {{\"data\": {{\"image/png\": \"{PNG}\", \"text/plain\": \"<Figure>\"}}}}}}")
}

#[test]
fn every_name_has_its_profile_and_nothing_else_has() {
    let names: Vec<&str> = table::ALL.iter().map(|profile| profile.name()).collect();
    assert_eq!(names, NAMES);
    for name in NAMES {
        let profile = find(name).unwrap();
        assert!(!profile.instructions().is_empty() && !profile.tools(&Language::ALL).is_empty());
    }
    assert!(find("").is_none() && find("E2B").is_none() && find("default").is_none());
}

#[test]
fn a_tool_without_its_language_is_not_offered() {
    let names = |profile: &str, languages: &[Language]| -> Vec<String> {
        find(profile).unwrap().tools(languages).into_iter().map(|tool| tool.name.into_owned()).collect()
    };
    assert_eq!(names("code-sandbox", &[Language::Python]), ["run_python_code"]);
    assert_eq!(names("code-sandbox", &[Language::Python, Language::JavaScript]).len(), 2);
    assert_eq!(names("daytona", &[]).len(), 12);
}

#[tokio::test]
async fn an_unknown_tool_is_nobodys() {
    for name in NAMES {
        let agent = Agent::new(name);
        let call = agent.calling(None);
        assert!(agent.profile.call("no_such_tool", call, &agent.memory).await.is_none());
        let unknown = agent.profile.read_resource(&agent.engine, &agent.who, &agent.memory, "belljar://x/y").await;
        assert!(unknown.is_none(), "{name}");
    }
}
