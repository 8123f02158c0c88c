//! Personal data on its way to the model: in whatever text an answer has, tokens stand in its place. Pictures, sounds and
//! other bytes are left as they are.

use std::sync::Arc;

use belljar_engine::Principal;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, GetPromptResult, GetTaskResult, JsonObject, ReadResourceResponse,
    ResourceContents, Task, TaskPayload,
};
use serde_json::{Map, Value};

use crate::gateway::CodeMode;

/// Names of ours, which the model has to give back as they are.
const IDS: [&str; 2] = ["sandbox_id", "job_id"];

/// Hides for one caller.
#[derive(Debug, Clone)]
pub(crate) struct Hider {
    pub(crate) code_mode: Arc<dyn CodeMode>,
    pub(crate) who: Principal,
}

impl Hider {
    pub(crate) fn text(&self, text: &mut String) {
        self.code_mode.hide(self.who.as_str(), text);
    }

    /// Whatever came of a call. A question is for the person, who may see everything.
    pub(crate) fn answer(&self, answer: &mut Result<CallToolResponse, ErrorData>) {
        match answer {
            Ok(CallToolResponse::Complete(result)) => self.result(result),
            Ok(CallToolResponse::Task(begun)) => self.standing(&mut begun.task),
            Ok(_) => {}
            Err(error) => self.error(error),
        }
    }

    /// How a task stands, whoever made it. What it asks is for the person, as above.
    pub(crate) fn task(&self, got: &mut Result<GetTaskResult, ErrorData>) {
        let got = match got {
            Ok(got) => got,
            Err(error) => return self.error(error),
        };
        if let Some(meta) = &mut got.meta {
            self.object(&mut meta.0);
        }
        self.standing(&mut got.task.task);
        match &mut got.task.payload {
            TaskPayload::Completed { result } => self.whole(result),
            TaskPayload::Failed { error } => self.object(error),
            _ => {}
        }
    }

    fn standing(&self, task: &mut Task) {
        if let Some(message) = &mut task.status_message {
            self.text(message);
        }
    }

    /// What a call came to, as JSON. Whatever is no result of a tool is nothing but text.
    fn whole(&self, object: &mut JsonObject) {
        let read = serde_json::from_value(Value::Object(object.clone()));
        let written = read.ok().and_then(|mut result: CallToolResult| {
            self.result(&mut result);
            serde_json::to_value(&result).ok()
        });
        match written {
            Some(Value::Object(hidden)) => *object = hidden,
            _ => self.object(object),
        }
    }

    pub(crate) fn prompt(&self, prompt: &mut GetPromptResult) {
        prompt.messages.iter_mut().for_each(|message| self.block(&mut message.content));
    }

    pub(crate) fn result(&self, result: &mut CallToolResult) {
        result.content.iter_mut().for_each(|block| self.block(block));
        if let Some(Value::Object(map)) = &mut result.structured_content {
            let ids = IDS.map(|name| map.remove(name).map(|id| (name.to_owned(), id)));
            self.object(map);
            map.extend(ids.into_iter().flatten());
        } else if let Some(value) = &mut result.structured_content {
            self.value(value);
        }
        if let Some(meta) = &mut result.meta {
            self.object(&mut meta.0);
        }
    }

    fn block(&self, block: &mut ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.text(&mut text.text),
            ContentBlock::Resource(embedded) => self.contents(&mut embedded.resource),
            ContentBlock::ResourceLink(link) => {
                self.text(&mut link.name);
                for text in [&mut link.title, &mut link.description].into_iter().flatten() {
                    self.text(text);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn read(&self, read: &mut Result<ReadResourceResponse, ErrorData>) {
        match read {
            Ok(ReadResourceResponse::Complete(read)) => {
                read.contents.iter_mut().for_each(|contents| self.contents(contents))
            }
            Ok(_) => {}
            Err(error) => self.error(error),
        }
    }

    fn contents(&self, contents: &mut ResourceContents) {
        if let ResourceContents::TextResourceContents { text, .. } = contents {
            self.text(text);
        }
    }

    pub(crate) fn error(&self, error: &mut ErrorData) {
        let mut message = error.message.to_string();
        self.text(&mut message);
        error.message = message.into();
        if let Some(data) = &mut error.data {
            self.value(data);
        }
    }

    fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(map) => self.object(map),
            // A card's number may be one.
            Value::Number(number) => {
                let plain = number.to_string();
                let mut text = plain.clone();
                self.text(&mut text);
                if text != plain {
                    *value = Value::String(text);
                }
            }
            Value::Null | Value::Bool(_) => {}
        }
    }

    /// Keys too: some answers have an address as one.
    fn object(&self, map: &mut Map<String, Value>) {
        for (mut key, mut value) in std::mem::take(map) {
            self.text(&mut key);
            self.value(&mut value);
            map.insert(key, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::gateway::fake::{FakeMode, SECRET, TOKEN};

    #[test]
    fn a_task_hides_what_it_came_to_and_shows_what_it_asks() {
        let hider = Hider { code_mode: Arc::new(FakeMode::default()), who: Principal::local() };
        let hidden = |more: Value| {
            let mut task = json!({"taskId": "t", "createdAt": "2026-07-28T00:00:00Z", "ttlMs": null,
                "lastUpdatedAt": "2026-07-28T00:00:00Z", "statusMessage": format!("for {SECRET}")});
            task.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
            let mut got = Ok(serde_json::from_value(task).unwrap());
            hider.task(&mut got);
            serde_json::to_value(got.unwrap()).unwrap()
        };
        let picture = json!({"type": "image", "data": "AAAA", "mimeType": "image/png"});
        let text = json!({"type": "text", "text": format!("mail {SECRET}")});
        let result = json!({"content": [text, picture], "structuredContent": {"to": SECRET, "job_id": "j"}});
        let completed = hidden(json!({"status": "completed", "result": result}));
        assert_eq!(completed["statusMessage"], format!("for {TOKEN}"));
        assert_eq!(completed["result"]["content"][0]["text"], format!("mail {TOKEN}"));
        assert_eq!(completed["result"]["content"][1], picture);
        assert_eq!(completed["result"]["structuredContent"], json!({"to": TOKEN, "job_id": "j"}));
        let odd = hidden(json!({"status": "completed", "result": {"rows": [SECRET]}}));
        assert_eq!(odd["result"], json!({"rows": [TOKEN]}));
        let failed =
            hidden(json!({"status": "failed", "error": {"code": -32603, "message": SECRET, "data": [SECRET]}}));
        assert_eq!(failed["error"], json!({"code": -32603, "message": TOKEN, "data": [TOKEN]}));
        let schema = json!({"type": "object", "properties": {}});
        let form = json!({"method": "elicitation/create", "params": {"message": SECRET, "requestedSchema": schema}});
        let asks = hidden(json!({"status": "input_required", "inputRequests": {"a": form}}));
        assert_eq!(asks["inputRequests"]["a"]["params"]["message"], SECRET, "a person may see everything");
        let mut refused = Err(ErrorData::internal_error(format!("no {SECRET}"), None));
        hider.task(&mut refused);
        assert_eq!(refused.unwrap_err().message, format!("no {TOKEN}"));
    }
}
