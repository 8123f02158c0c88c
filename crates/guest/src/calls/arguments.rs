//! From the words after `tools call` to a call: which tool, and its arguments, by what its schema says of them.

use std::fs;
use std::io::Read;

use super::json::Json;
use super::talk::Failure;

const PLACE: &str = "/tools";
/// Of a schema, or of arguments on stdin.
const BYTES_MAX: u64 = 8 << 20;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) question: Json,
    pub(super) raw: bool,
}

pub(super) fn read(words: &[String]) -> Result<Call, Failure> {
    let named = words.iter().take_while(|word| !word.contains('=') && !word.starts_with("--")).count();
    let (names, rest) = words.split_at(named);
    let (mut call, schema) = match names {
        [name] => match name.split_once('.') {
            Some((server, tool)) => (vec![("name".to_owned(), Json::text(name))], schema_of(server, tool)),
            None => (vec![("name".to_owned(), Json::text(name))], None),
        },
        [server, tool] => {
            let names = [("server", server), ("tool", tool)];
            (names.map(|(key, value)| (key.to_owned(), Json::text(value))).to_vec(), schema_of(server, tool))
        }
        _ => {
            return Err(Failure::usage("tools call takes a server and a tool: tools call SERVER TOOL [KEY=VALUE ...]"));
        }
    };
    let (mut arguments, mut raw, mut words) = (Vec::new(), false, rest.iter());
    while let Some(word) = words.next() {
        let (option, here) = match word.split_once('=').filter(|_| word.starts_with("--")) {
            Some((option, value)) => (option, Some(value.to_owned())),
            None => (word.as_str(), None),
        };
        let mut value = || here.clone().or_else(|| words.next().cloned());
        match option {
            "--raw" => raw = true,
            "--json" => {
                let text = value().ok_or_else(|| Failure::usage("--json has no value"))?;
                put_all(&mut arguments, &if text == "-" { stdin()? } else { text })?;
            }
            "--timeout" => {
                let seconds = value().and_then(|text| Json::parse(&text).filter(|one| matches!(one, Json::Number(_))));
                call.push(("timeout".to_owned(), seconds.ok_or_else(|| Failure::usage("--timeout takes seconds"))?));
            }
            _ if option.starts_with("--") => {
                return Err(Failure::usage(format!(
                    "{option} is no option; see tools --help. An argument is KEY=VALUE"
                )));
            }
            _ => put(&mut arguments, word, schema.as_ref())?,
        }
    }
    call.push(("arguments".to_owned(), Json::Object(arguments)));
    if raw {
        call.push(("raw".to_owned(), Json::Bool(true)));
    }
    Ok(Call { question: Json::object([("call", Json::Object(call))]), raw })
}

fn stdin() -> Result<String, Failure> {
    let mut text = String::new();
    match std::io::stdin().take(BYTES_MAX).read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(error) => Err(Failure::usage(format!("the arguments on stdin cannot be read: {error}"))),
    }
}

fn put_all(arguments: &mut Vec<(String, Json)>, text: &str) -> Result<(), Failure> {
    match Json::parse(text) {
        Some(Json::Object(members)) => {
            members.into_iter().for_each(|(name, value)| set(arguments, name, value));
            Ok(())
        }
        _ => Err(Failure::usage("--json takes an object, as '{\"key\": \"value\"}'")),
    }
}

fn set(arguments: &mut Vec<(String, Json)>, name: String, value: Json) {
    match arguments.iter_mut().find(|(known, _)| *known == name) {
        Some(known) => known.1 = value,
        None => arguments.push((name, value)),
    }
}

/// `key=value`, which is a text unless the schema says otherwise, or `key:=json`.
fn put(arguments: &mut Vec<(String, Json)>, word: &str, schema: Option<&Json>) -> Result<(), Failure> {
    let Some((key, value)) = word.split_once('=').filter(|(key, _)| !matches!(*key, "" | ":")) else {
        return Err(Failure::usage(format!("{word:?} is no argument; write KEY=VALUE, or KEY:=JSON")));
    };
    let (key, value) = match key.strip_suffix(':') {
        Some(key) => {
            let read = Json::parse(value);
            (key, read.ok_or_else(|| Failure::usage(format!("{key}:= takes JSON, and {value:?} is none")))?)
        }
        None => {
            let kinds = schema.and_then(|schema| schema.get("properties")?.get(key)).map(kinds_of).unwrap_or_default();
            (key, typed(key, value, &kinds)?)
        }
    };
    set(arguments, key.to_owned(), value);
    Ok(())
}

fn typed(key: &str, text: &str, kinds: &[String]) -> Result<Json, Failure> {
    let takes = |kind: &str| kinds.iter().any(|one| one == kind);
    if kinds.is_empty() || takes("string") {
        return Ok(Json::text(text));
    }
    let fits = |value: &Json| match value {
        Json::Null => takes("null"),
        Json::Bool(_) => takes("boolean"),
        Json::Number(_) => takes("number") || takes("integer"),
        Json::List(_) => takes("array"),
        Json::Object(_) => takes("object"),
        Json::Text(_) => false,
    };
    Json::parse(text).filter(fits).ok_or_else(|| {
        Failure::usage(format!(
            "{key} is {}, and {text:?} is not; for other JSON write {key}:=JSON",
            kinds.join(" or ")
        ))
    })
}

/// What a schema takes, as far as it says so plainly.
fn kinds_of(schema: &Json) -> Vec<String> {
    match schema.get("type") {
        Some(Json::Text(kind)) => vec![kind.clone()],
        Some(Json::List(kinds)) => kinds.iter().filter_map(Json::as_text).map(str::to_owned).collect(),
        _ => {
            let choices = ["anyOf", "oneOf"].iter().find_map(|name| schema.get(name)).map_or(&[][..], Json::items);
            // Only plain ones, since what is in them may be anything.
            choices.iter().filter_map(|one| one.get_text("type")).map(str::to_owned).collect()
        }
    }
}

/// The tool's schema of its arguments, if there is a file that says so.
fn schema_of(server: &str, tool: &str) -> Option<Json> {
    let index = read_json(&format!("{PLACE}/index.json"))?;
    let (server, entry) = pick(index.get("servers")?, server)?;
    let (tool, _) = pick(entry.get("tools")?, tool)?;
    // The index is the host's, and its names are plain; others are nobody's files.
    let is_plain = |name: &str| name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    if !is_plain(server) || !is_plain(tool) {
        return None;
    }
    read_json(&format!("{PLACE}/{server}/{tool}.json"))?.get("inputSchema").cloned()
}

fn read_json(path: &str) -> Option<Json> {
    let mut text = String::new();
    fs::File::open(path).ok()?.take(BYTES_MAX).read_to_string(&mut text).ok()?;
    Json::parse(&text)
}

/// By its identifier, its own name, or another spelling of either.
fn pick<'j>(members: &'j Json, name: &str) -> Option<(&'j str, &'j Json)> {
    let same =
        |text: &str| text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect::<String>();
    let by = |is_it: &dyn Fn(&str) -> bool| {
        let is_it = |(ident, entry): &&(String, Json)| is_it(ident) || entry.get_text("name").is_some_and(is_it);
        members.members().iter().find(is_it).map(|(ident, entry)| (ident.as_str(), entry))
    };
    by(&|one| one == name).or_else(|| by(&|one| same(one) == same(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(schema: &str, words: &[&str]) -> Result<String, String> {
        let schema = Json::parse(schema);
        let mut arguments = Vec::new();
        for word in words {
            put(&mut arguments, word, schema.as_ref()).map_err(|failure| failure.message)?;
        }
        Ok(Json::Object(arguments).compact())
    }

    #[test]
    fn the_schema_says_what_a_value_is() {
        let schema = r#"{"properties": {"n": {"type": "integer"}, "f": {"type": ["number", "null"]}, "s": {"type": "string"},
            "b": {"anyOf": [{"type": "boolean"}, {"type": "null"}]}, "l": {"type": "array"}, "u": {"type": ["string", "integer"]}}}"#;
        let words = ["n=5", "f=null", "s=5", "b=true", "l=[1,2]", "u=5", "x=5", "y:=5", "n=6", "e="];
        let told = r#"{"n":6,"f":null,"s":"5","b":true,"l":[1,2],"u":"5","x":"5","y":5,"e":""}"#;
        assert_eq!(arguments(schema, &words).as_deref(), Ok(told));
        assert!(arguments(schema, &["n=five"]).unwrap_err().contains("n is integer, and \"five\" is not"));
        assert!(arguments(schema, &["l={}"]).unwrap_err().contains("l is array"));
        for wrong in ["=1", ":=1", "plain", "a:=b"] {
            assert!(arguments("{}", &[wrong]).is_err(), "{wrong}");
        }
        assert_eq!(arguments("{}", &["a=b=c"]).as_deref(), Ok(r#"{"a":"b=c"}"#));
    }

    #[test]
    fn words_become_a_call() {
        let call = |line: &str| read(&line.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let told = |line| call(line).map(|call| call.question.compact()).map_err(|failure| failure.message);
        assert_eq!(told("s t a=1").as_deref(), Ok(r#"{"call":{"server":"s","tool":"t","arguments":{"a":"1"}}}"#));
        assert_eq!(
            told("s.t --json {\"a\":1,\"b\":2} b=3 --timeout 2.5 --raw").as_deref(),
            Ok(r#"{"call":{"name":"s.t","timeout":2.5,"arguments":{"a":1,"b":"3"},"raw":true}}"#)
        );
        assert_eq!(told("t").as_deref(), Ok(r#"{"call":{"name":"t","arguments":{}}}"#));
        for wrong in ["a b c", "--raw", "s t --json", "s t --json []", "s t --timeout soon", "s t --other"] {
            assert_eq!(call(wrong).map_err(|failure| failure.code()), Err(2), "{wrong}");
        }
    }
}
