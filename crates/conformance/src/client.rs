//! The client that the official conformance suite starts: the gateway's own way to other servers, with nothing but the
//! suite's wishes around it. A person at a browser is played by following the login's address.

#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context as _, bail};
use belljar_gateway::error::{CallError, ErrorKind};
use belljar_gateway::upstream::{self, Face, Listed, Settings, Step, Upstreams, Word};
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, InputRequest, InputRequiredResult, InputResponses,
    ProtocolVersion, RequestMetaObject, ServerResult,
};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

const SERVER: &str = "suite";
const LIMIT: Duration = Duration::from_secs(20);
/// Logins one after the other, for a server that wants more each time.
const LOGINS_MAX: usize = 3;
const ROUNDS_MAX: usize = 5;

#[tokio::main]
#[expect(clippy::disallowed_methods, reason = "the suite tells its driver by the environment")]
async fn main() -> anyhow::Result<()> {
    let url = std::env::args().next_back().context("the suite's address is missing")?;
    let scenario = std::env::var("MCP_CONFORMANCE_SCENARIO").unwrap_or_default();
    let context = std::env::var("MCP_CONFORMANCE_CONTEXT").ok().and_then(|text| serde_json::from_str(&text).ok());
    let context: Value = context.unwrap_or_default();
    let mut entry = json!({"url": url, "trusted": true, "timeout": LIMIT.as_secs()});
    if let Some(id) = context["client_id"].as_str() {
        entry["oauth"] = json!({"client_id": id});
        if let Some(secret) = context["client_secret"].as_str() {
            entry["oauth"]["client_secret"] = secret.into();
        }
    }
    if scenario == "auth/basic-cimd" {
        // Where a client says who it is, as an operator would write it.
        entry["oauth"] = json!({"client_id": "https://conformance-test.local/client-metadata.json"});
    }
    let text = json!({"mcpServers": {SERVER: entry}}).to_string();
    let tokens = tempfile::tempdir()?;
    let settings = Settings { tokens: Some(tokens.path().to_owned()), login_limit: LIMIT, ..Settings::default() };
    let upstreams = Upstreams::new(upstream::parse(&text, &|_| None)?, settings);
    let done = tokio::time::timeout(LIMIT * 2, talk(&upstreams, &scenario, &context)).await;
    upstreams.end().await;
    done?
}

async fn talk(upstreams: &Upstreams, scenario: &str, context: &Value) -> anyhow::Result<()> {
    let mut logins = 0;
    let listed = with_logins(upstreams, &mut logins, async || upstreams.list_now(SERVER).await).await?;
    if scenario == "json-schema-ref-no-deref" {
        return Ok(());
    }
    match scenario {
        "sep-2322-client-request-state" => return answer_all(upstreams, &listed, ProtocolVersion::V_2026_07_28).await,
        "elicitation-sep1034-client-defaults" => {
            return answer_all(upstreams, &listed, ProtocolVersion::V_2025_11_25).await;
        }
        _ => {}
    }
    for (name, arguments) in calls(&listed, context) {
        let called = with_logins(upstreams, &mut logins, async || {
            upstreams.call(SERVER, &name, arguments.clone(), LIMIT, &CancellationToken::new()).await
        });
        called.await?;
    }
    Ok(())
}

/// What is refused for want of a login is tried again after one.
async fn with_logins<T>(
    upstreams: &Upstreams,
    logins: &mut usize,
    attempt: impl AsyncFn() -> Result<T, CallError>,
) -> anyhow::Result<T> {
    loop {
        match attempt().await {
            Err(error) if error.kind == ErrorKind::AuthRequired && *logins < LOGINS_MAX => {
                *logins += 1;
                upstreams.login(SERVER, |address| browse(address.to_owned())).await?;
            }
            done => return Ok(done?),
        }
    }
}

/// The suite's login agrees at once, and sends the browser back.
fn browse(address: String) {
    tokio::spawn(async move {
        let _ = reqwest::get(address).await;
    });
}

/// What the suite wants to be called, or else every tool with arguments that fit.
fn calls(listed: &Listed, context: &Value) -> Vec<(String, Map<String, Value>)> {
    if let Some(wanted) = context["toolCalls"].as_array() {
        let call = |call: &Value| {
            let arguments = call["arguments"].as_object().cloned().unwrap_or_default();
            (call["name"].as_str().unwrap_or_default().to_owned(), arguments)
        };
        return wanted.iter().map(call).collect();
    }
    let call = |tool: &Value| {
        let properties = tool["inputSchema"]["properties"].as_object();
        let value = |schema: &Value| match schema["type"].as_str() {
            Some("number" | "integer") => json!(2),
            Some("boolean") => json!(true),
            _ => json!("words"),
        };
        let arguments = properties.into_iter().flatten().map(|(name, schema)| (name.clone(), value(schema)));
        (tool["name"].as_str().unwrap_or_default().to_owned(), arguments.collect())
    };
    listed.tools.iter().map(call).collect()
}

/// Calls every tool on behalf of a client that can be asked, and answers what it is asked: in the middle of a call, or
/// after it.
async fn answer_all(upstreams: &Upstreams, listed: &Listed, version: ProtocolVersion) -> anyhow::Result<()> {
    let capabilities: ClientCapabilities = serde_json::from_value(json!({"elicitation": {"form": {}}}))?;
    let is_older = version.has_initialize();
    let bridge = upstreams.bridge(SERVER, Face { version, capabilities: capabilities.clone() }).await?;
    let mut meta = RequestMetaObject::new();
    if !is_older {
        meta.set_client_capabilities(capabilities);
    }
    for (name, arguments) in calls(listed, &Value::Null) {
        let mut params = CallToolRequestParams::new(name).with_arguments(arguments);
        for _ in 0..ROUNDS_MAX {
            let request = CallToolRequest::new(params.clone());
            let mut exchange = bridge.request(request.into(), meta.clone()).await?;
            let answer = loop {
                match exchange.next().await {
                    Step::Answer(answer) => break answer,
                    Step::Word(Word::Question(question, reply)) => {
                        let question = serde_json::to_value(&question)?;
                        let _ = reply.send(Ok(serde_json::from_value(filled_in(&question))?));
                    }
                    Step::Word(Word::Notice(_)) => {}
                }
            };
            match (*answer)? {
                Ok(ServerResult::InputRequiredResult(asked)) => {
                    params.input_responses = Some(answers(&asked));
                    params.request_state = asked.request_state;
                }
                Ok(_) => break,
                Err(error) => bail!("a call was refused: {}", error.message),
            }
        }
    }
    Ok(())
}

/// A form that somebody sends off as it is.
fn filled_in(question: &Value) -> Value {
    let properties = question["params"]["requestedSchema"]["properties"].as_object();
    let default = |(name, schema): (&String, &Value)| Some((name.clone(), schema.get("default")?.clone()));
    let content: Map<String, Value> = properties.into_iter().flatten().filter_map(default).collect();
    json!({"action": "accept", "content": content})
}

fn answers(asked: &InputRequiredResult) -> InputResponses {
    let questions = asked.input_requests.iter().flatten();
    let answer = |question: &InputRequest| match question {
        InputRequest::Elicitation(_) => json!({"action": "accept", "content": {"confirmed": true}}),
        _ => json!({"roots": []}),
    };
    questions.map(|(key, question)| (key.clone(), answer(question))).collect()
}
