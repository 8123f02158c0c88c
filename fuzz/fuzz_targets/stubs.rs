//! Definitions of tools as any server may send them: what is written of one can be read as what it should be, and nothing of
//! the server's is in it but in strings, in comments and as names.
#![no_main]

#[path = "stubs/code.rs"]
mod code;

use belljar_gateway::stubs::Validator;
use belljar_gateway::stubs::{Dialect, catalogue, example, files, signature, stub, summary};
use belljar_gateway::upstream::Listed;
use libfuzzer_sys::fuzz_target;
use serde_json::{Map, Value};

fuzz_target!(|bytes: &[u8]| {
    let Ok(definition) = serde_json::from_slice::<Value>(bytes) else { return };
    let tools = match definition {
        Value::Array(tools) => tools,
        one => vec![one],
    };
    let listed = Listed { instructions: tools.first().map(Value::to_string), tools };
    let catalogue = catalogue(vec![("demo".to_owned(), Ok(listed))]);
    for tool in catalogue.tools() {
        for (dialect, check) in [
            (Dialect::Python, code::python as fn(&str, &str) -> Result<(), String>),
            (Dialect::TypeScript, code::typescript),
        ] {
            let text = stub(tool, dialect);
            assert!(text.len() <= 64 * 1024);
            if let Err(why) = check(&text, &tool.ident) {
                panic!("{why}\n{text}");
            }
            let line = signature(tool, dialect);
            assert!(line.chars().count() <= 300 && !line.contains('\n'), "{line}");
            assert!(!example(tool, dialect).contains('\n'));
        }
        assert!(summary(tool).chars().count() <= 120);
        let problems = Validator::new(tool).problems(&Map::new());
        assert!(problems.len() <= 10);
    }
    for path in files(&catalogue).keys() {
        let plain = |part: &str| !part.is_empty() && !part.starts_with('.') && !part.contains(['\\', '\0']);
        assert!(path.split('/').count() <= 2 && path.split('/').all(plain), "{path:?}");
    }
});
