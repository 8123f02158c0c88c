//! How each surface answers: the texts and JSON that its users read, from what came of the action.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use belljar_core::{Content, Language};
use serde_json::{Map, Value, json};

use super::act::{Outcome, Ran};
use super::fault::Fault;
use super::files::FileRef;
use super::reply::{Body, Image, Reply, Verdict};
use super::table::{Action, Style};
use super::{ending, reply, rich, wrap};
use crate::answer::shorten_text;
use crate::{clean, mime};

/// Of a file's picture within text.
const INLINE_CHARS_MAX: usize = 6_000;

pub(super) fn answer(style: Style, outcome: Outcome) -> Reply {
    match outcome {
        Outcome::Ran(ran) => ran_as(style, *ran),
        Outcome::Created { sandbox, reused, note } => {
            let mut reply = match (style, reused) {
                (Style::Morph, _) => Reply::text(sandbox),
                (_, true) => Reply::text(format!("Reusing existing sandbox {sandbox}")),
                (_, false) => Reply::text(format!("Created new sandbox {sandbox}")),
            };
            reply.notes.extend(note);
            reply
        }
        Outcome::Destroyed { .. } if style == Style::Morph => object(json!({"success": true})),
        Outcome::Destroyed { sandbox } => Reply::text(format!("Destroyed sandbox with ID {}", clean::reveal(&sandbox))),
        Outcome::Wrote { .. } if style == Style::Morph => object(json!({"success": true})),
        Outcome::Wrote { path } => Reply::text(format!("File uploaded successfully: {}", clean::reveal(&path))),
        Outcome::Read { content, .. } if style == Style::Morph => read_morph(content),
        Outcome::Read { path, content } => read_daytona(&path, content),
        Outcome::Listed { files, more } => {
            let mut reply = Reply::new(Body::Json(json!(files)), Verdict::Good);
            if more {
                reply.notes.push("[there are more files than these]".into());
            }
            reply
        }
        Outcome::Info(info) => Reply::new(Body::Json(json!(info)), Verdict::Good),
        Outcome::Done(sentence) => Reply::text(clean::reveal(&sentence)),
        Outcome::SessionFiles { session, files } => object(json!({"session_id": session, "files": files})),
        Outcome::Cleared { session } => {
            object(json!({"success": true, "message": format!("Session {session} cleared and all files deleted")}))
        }
    }
}

fn object(value: Value) -> Reply {
    Reply::new(Body::Object(value), Verdict::Good)
}

fn ran_as(style: Style, ran: Ran) -> Reply {
    let mut reply = match style {
        Style::E2b => e2b(&ran),
        Style::CodeSandbox => code_sandbox(&ran),
        Style::RunPython => wrap::answer(&ran.run, ran.wall),
        Style::Interpreter => interpreter(&ran),
        Style::Daytona | Style::AgentExec | Style::Morph => streams(style, &ran),
    };
    reply.images = rich::images(&ran.run);
    reply.notes.splice(0..0, ran.notes);
    reply.whole = ran.whole;
    reply
}

fn e2b(ran: &Ran) -> Reply {
    let lines = |bytes: &[u8]| -> Vec<String> {
        let text = reply::stream(bytes);
        if text.is_empty() { Vec::new() } else { vec![text] }
    };
    let (results, notes) = rich::results(&ran.run);
    let error = ending::error(&ran.run, ran.wall);
    let mut value = json!({
        "results": results,
        "logs": {"stdout": lines(&ran.run.report.stdout), "stderr": lines(&ran.run.report.stderr)},
    });
    if let Some(error) = &error {
        value["error"] = json!({"name": error.name, "value": error.value, "traceback": error.traceback});
    }
    let mut reply = Reply::new(Body::Json(value), Verdict::of(error.is_none()));
    reply.notes = notes;
    reply
}

/// Plain output when all went well, and JSON when not.
fn code_sandbox(ran: &Ran) -> Reply {
    let (stdout, stderr) = (reply::stream(&ran.run.report.stdout), ending::stderr(&ran.run, ran.wall));
    let failed = |exit_code: i32, stderr: &str| {
        Reply::new(
            Body::Json(json!({"exit_code": exit_code, "stderr": stderr, "stdout": stdout.trim_end()})),
            Verdict::Bad,
        )
    };
    if ending::error(&ran.run, ran.wall).is_some() {
        return failed(ran.run.report.ending.exit_code().max(1), stderr.trim_end());
    }
    if stdout.trim().is_empty() && rich::images(&ran.run).is_empty() {
        let hint = match ran.language {
            Some(Language::JavaScript) => "No output, forgot console.logs?",
            _ => "No output, forgot print()?",
        };
        let said = if stderr.trim().is_empty() { hint.into() } else { format!("{hint}\n{}", stderr.trim_end()) };
        return failed(1, &said);
    }
    let mut reply = Reply::text(stdout.trim_end());
    if !stderr.trim().is_empty() {
        reply.notes.push(format!("[stderr]\n{}", stderr.trim_end()));
    }
    reply
}

/// Standard output, standard error and the exit code, under the names that each has for them.
fn streams(style: Style, ran: &Ran) -> Reply {
    let report = &ran.run.report;
    let (stdout, stderr) = (reply::stream(&report.stdout), ending::stderr(&ran.run, ran.wall));
    let code = report.ending.exit_code();
    let verdict = Verdict::of(report.ending.is_success());
    match style {
        Style::Daytona => {
            let mut value = json!({"stdout": stdout, "stderr": stderr, "exitCode": code});
            if let Some(error) = ending::error(&ran.run, ran.wall).filter(|error| error.name != "SystemExit") {
                value["errorType"] = json!(error.name);
            }
            Reply::new(Body::Json(value), verdict)
        }
        Style::AgentExec => {
            let value = json!({
                "stdout": stdout,
                "stderr": stderr,
                "exit_code": code,
                "duration": (report.duration.as_secs_f64() * 1000.0).round() / 1000.0,
                "success": report.ending.is_success(),
            });
            Reply::new(Body::Object(value), verdict)
        }
        _ => Reply::new(Body::Object(json!({"stdout": stdout, "stderr": stderr, "exit_code": code})), verdict),
    }
}

fn interpreter(ran: &Ran) -> Reply {
    let run = &ran.run;
    let error = ending::error(run, ran.wall);
    let mut output: Vec<String> =
        [&run.report.stdout, &run.report.stderr].map(|bytes| reply::stream(bytes)).into_iter().collect();
    output.extend(run.rich.shown.iter().filter_map(rich::text));
    let created = |file: &FileRef| format!("File created: {} ({}, {} bytes)", file.name, file.mime_type, file.size);
    output.extend(ran.files.iter().map(created));
    output.retain(|text| !text.is_empty());
    let session = ran.session.as_ref().filter(|session| session.is_new).map(|session| {
        let minutes = session.idle.as_secs().div_ceil(60);
        let instructions = format!(
            "Use this `session_id` in subsequent requests to maintain state. \
             Session will expire after {minutes} minutes of inactivity."
        );
        json!({"session_id": session.id, "instructions": instructions})
    });
    let traceback = error.iter().flat_map(|error| error.traceback.lines());
    Reply::new(
        Body::Object(json!({
            "success": error.is_none(),
            "output": output,
            "result": run.rich.result.as_ref().and_then(rich::text),
            "error": error.as_ref().map(|error| format!("{}: {}", error.name, error.value)),
            "traceback": traceback.collect::<Vec<_>>(),
            "files": ran.files,
            "session_info": session,
        })),
        Verdict::of(error.is_none()),
    )
}

fn text_of(content: &Content) -> Option<String> {
    let text = std::str::from_utf8(&content.bytes).ok().filter(|text| !text.contains('\0'));
    // The end of a part may be half a character.
    let text = text.or_else(|| match std::str::from_utf8(&content.bytes) {
        Err(error) if error.error_len().is_none() && content.size > content.bytes.len() as u64 => {
            std::str::from_utf8(&content.bytes[..error.valid_up_to()]).ok()
        }
        _ => None,
    });
    text.map(|text| clean::reveal(text).into_owned())
}

/// `[{type: "text", text}]`, or `[{type: "image", data}]` with the picture as an image block too.
fn read_daytona(path: &str, content: Content) -> Reply {
    let is_whole = content.size == content.bytes.len() as u64;
    let picture = mime::image(&content.bytes).filter(|_| is_whole);
    let embedded = embedded_picture(path, &content);
    if let Some(image) =
        picture.map(|mime_type| Image { data: STANDARD.encode(&content.bytes), mime_type }).or(embedded)
    {
        let is_small = image.data.len() <= INLINE_CHARS_MAX;
        let data = if is_small { json!(image.data) } else { json!("") };
        let mut reply = Reply::new(Body::Json(json!([{"type": "image", "data": data}])), Verdict::Good);
        if !is_small {
            reply.notes.push(format!("[{}, {} bytes: in the image block]", image.mime_type, content.size));
        }
        reply.images.push(image);
        return reply;
    }
    let mut reply = match text_of(&content) {
        Some(text) => Reply::new(Body::Json(json!([{"type": "text", "text": text}])), Verdict::Good),
        None => {
            let text = base64_part(&content.bytes);
            let mut reply = Reply::new(Body::Json(json!([{"type": "text", "text": text}])), Verdict::Good);
            reply.notes.push(format!("[not text: {} bytes, in base64]", content.size));
            reply
        }
    };
    if !is_whole {
        reply.notes.push(format!("[the file has {} bytes; only its beginning was read]", content.size));
    }
    reply
}

/// A plot that was saved as JSON with its picture in base64 under `data`.
fn embedded_picture(path: &str, content: &Content) -> Option<Image> {
    if !path.ends_with(".json") {
        return None;
    }
    let value: Map<String, Value> = serde_json::from_slice(&content.bytes).ok()?;
    let data = value.get("data")?.as_str()?;
    let mime_type = mime::image(&STANDARD.decode(data).ok()?)?;
    Some(Image { data: data.to_owned(), mime_type })
}

/// As much base64 as an answer holds; whole groups, so that what is there can be decoded.
fn base64_part(bytes: &[u8]) -> String {
    STANDARD.encode(&bytes[..bytes.len().min(12_000)])
}

fn read_morph(content: Content) -> Reply {
    let picture = mime::image(&content.bytes).filter(|_| content.size == content.bytes.len() as u64);
    let mut value = match text_of(&content) {
        Some(text) => json!({"content": text}),
        None => json!({"content": base64_part(&content.bytes), "encoding": "base64"}),
    };
    if let Some(mime_type) = picture {
        let image = Image { data: STANDARD.encode(&content.bytes), mime_type };
        if image.data.len() > INLINE_CHARS_MAX {
            value["content"] = json!("");
        }
        let mut reply = object(value);
        reply.notes.push(format!("[{mime_type}, {} bytes: in the image block]", content.size));
        reply.images.push(image);
        return reply;
    }
    let mut reply = object(value);
    if content.size > content.bytes.len() as u64 {
        reply.notes.push(format!("[the file has {} bytes; only its beginning was read]", content.size));
    }
    reply
}

/// What failed, where the surface's users look for it.
pub(super) fn refused(style: Style, action: Action, fault: &Fault, args_session: Option<&str>) -> Reply {
    let sentence = shorten_text(&clean::reveal(&fault.told(style)), 3_000);
    let body = match (style, action) {
        (Style::E2b, _) => Body::Json(json!({
            "results": [],
            "logs": {"stdout": [], "stderr": []},
            "error": {"name": fault.kind(), "value": sentence, "traceback": ""},
        })),
        (Style::CodeSandbox, _) => Body::Json(json!({"exit_code": 1, "stderr": sentence, "stdout": ""})),
        (Style::RunPython, _) => Body::Text(format!("<status>run-error</status>\n<error>\n{sentence}\n</error>")),
        (Style::AgentExec, _) => {
            Body::Object(json!({"stdout": "", "stderr": sentence, "exit_code": -1, "duration": 0.0, "success": false}))
        }
        (Style::Daytona, Action::Run { .. }) => {
            Body::Json(json!({"stdout": "", "stderr": sentence, "exitCode": -1, "errorType": fault.kind()}))
        }
        (Style::Morph, Action::Run { .. }) => Body::Object(json!({"stdout": "", "stderr": sentence, "exit_code": -1})),
        (Style::Morph, Action::Write | Action::Destroy) => Body::Object(json!({"success": false, "error": sentence})),
        (Style::Interpreter, Action::Run { .. }) => {
            let name = match fault {
                Fault::Refused(sentence) if sentence.starts_with("Session ") => "SessionExpiredError",
                Fault::Argument(_) => "ValueError",
                _ => "ServerError",
            };
            Body::Object(json!({
                "success": false,
                "output": [],
                "result": null,
                "error": format!("{name}: {sentence}"),
                "traceback": [],
                "files": [],
                "session_info": null,
            }))
        }
        (Style::Interpreter, Action::SessionFiles) => {
            let session =
                clean::reveal(&args_session.unwrap_or_default().chars().take(40).collect::<String>()).into_owned();
            Body::Object(json!({"session_id": session, "files": [], "error": sentence}))
        }
        (Style::Interpreter, _) => Body::Object(json!({"success": false, "message": sentence})),
        (Style::Daytona | Style::Morph, _) => Body::Text(format!("error: {sentence}")),
    };
    Reply::new(body, Verdict::Bad)
}
