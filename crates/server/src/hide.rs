//! Personal data on its way to the model: in whatever text an answer has, tokens stand in its place. Pictures, sounds and
//! other bytes are left as they are.

use std::sync::Arc;

use belljar_engine::Principal;
use rmcp::ErrorData;
use rmcp::model::{
    CallToolResponse, CallToolResult, ContentBlock, GetPromptResult, ReadResourceResponse, ResourceContents,
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
            Ok(_) => {}
            Err(error) => self.error(error),
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
