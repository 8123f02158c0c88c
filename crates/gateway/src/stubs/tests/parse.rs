//! Whatever a schema says, its stubs can be read: by CPython's own compiler, and by a parser of TypeScript.

use std::io::Write;
use std::process::{Command, Stdio};

use oxc_allocator::Allocator;
use oxc_parser::Parser;
use oxc_span::SourceType;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

use super::*;

/// Words that break out of strings, comments and docstrings where they are not written with care.
const HOSTILE: &[&str] = &[
    "a",
    "owner",
    "class",
    "None",
    "__debug__",
    "__proto__",
    "def",
    "lambda_",
    "lambda",
    "a-b",
    "a b",
    "",
    "\"",
    "'",
    "\"\"\"",
    "\\",
    "\\\"\"\"",
    "*/",
    "/*",
    "*/ export const x = 1; /*",
    "\"\"\"\nimport os\n\"\"\"",
    "\n",
    "\r\n",
    "\t",
    "\0",
    "\u{1b}[31m",
    "${x}",
    "`",
    "#",
    "// x",
    "\u{2028}",
    "\u{202e}",
    "\u{e0041}",
    "\u{10ffff}",
    "Ünï",
    "ﬁ",
    "世界",
    "🎉",
    "1",
    "1a",
    "$ref",
    "others",
    "others_",
    "self",
    "cls",
    "args",
    "\\u0022",
    "\\N{DASH}",
    "\\x",
    "...",
    "%s",
    "{}",
    "type",
    "String",
    "Any",
    "TypedDict",
    "\"\"",
    "ends with \"",
    "ends with \\",
    "a:\n\n\n  b",
    "</script>",
    "<!--",
    "-->",
    "import os; os.system('x')",
    "unknown",
    "constructor",
];

fn word() -> impl Strategy<Value = String> {
    prop_oneof![4 => prop::sample::select(HOSTILE).prop_map(str::to_owned), 1 => any::<String>()]
}

fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        word().prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec((word(), inner), 0..3).prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

fn reference() -> impl Strategy<Value = String> {
    let names = word().prop_map(|name| format!("#/$defs/{}", name.replace('~', "~0").replace('/', "~1")));
    const FIXED: &[&str] = &[
        "#",
        "#/properties/a",
        "#/$defs/a",
        "#/$defs/owner",
        "#/$defs/class",
        "http://x/y",
        "#/allOf/0",
        "nowhere",
        "#x",
    ];
    prop_oneof![3 => prop::sample::select(FIXED).prop_map(str::to_owned), 1 => names]
}

fn schema() -> impl Strategy<Value = Value> {
    const KINDS: &[&str] = &["string", "integer", "number", "boolean", "null", "array", "object", "nonsense"];
    let leaf = prop_oneof![
        any::<bool>().prop_map(Value::from),
        (prop::sample::select(KINDS), word())
            .prop_map(|(kind, text)| json!({ "type": kind, "description": text, "format": text })),
        prop::collection::vec(value(), 0..5).prop_map(|values| json!({ "enum": values })),
        prop::collection::vec(word(), 31..40).prop_map(|values| json!({ "enum": values })),
        value().prop_map(|value| json!({ "const": value, "default": value, "examples": [value] })),
        (value(), word()).prop_map(|(value, text)| json!({ "type": "string", "default": value, "pattern": text })),
        reference().prop_map(|reference| json!({ "$ref": reference })),
        (prop::sample::select(KINDS), prop::sample::select(KINDS))
            .prop_map(|(one, other)| json!({ "type": [one, other] })),
        value(),
    ];
    leaf.prop_recursive(5, 60, 5, |inner| {
        let map = || prop::collection::vec((word(), inner.clone()), 0..5).prop_map(|fields| fields.into_iter().collect::<Map<String, Value>>());
        let list = || prop::collection::vec(inner.clone(), 0..4);
        prop_oneof![
            4 => (map(), prop::collection::vec(word(), 0..3), prop::option::of(inner.clone()), map(), word()).prop_map(object),
            1 => (map(), reference()).prop_map(|(defs, reference)| json!({ "$defs": defs, "$ref": reference })),
            1 => inner.clone().prop_map(|items| json!({ "type": "array", "items": items })),
            1 => (list(), inner.clone()).prop_map(|(first, rest)| json!({ "type": "array", "prefixItems": first, "items": rest })),
            1 => list().prop_map(|first| json!({ "type": "array", "items": first, "additionalItems": false })),
            1 => (list(), map()).prop_map(|(all, properties)| json!({ "allOf": all, "properties": properties })),
            1 => list().prop_map(|any| json!({ "anyOf": any, "nullable": true })),
            1 => (list(), list()).prop_map(|(one, any)| json!({ "oneOf": one, "anyOf": any, "type": "object" })),
            1 => inner.clone().prop_map(|values| json!({ "type": "object", "additionalProperties": values })),
            1 => map().prop_map(|patterns| json!({ "type": "object", "patternProperties": patterns })),
        ]
    })
}

type Parts = (Map<String, Value>, Vec<String>, Option<Value>, Map<String, Value>, String);

fn object((properties, mut required, others, defs, text): Parts) -> Value {
    required.extend(properties.keys().take(2).cloned());
    let mut schema =
        json!({ "type": "object", "properties": properties, "required": required, "$defs": defs, "description": text });
    if let Some(others) = others {
        schema["additionalProperties"] = others;
    }
    schema
}

fn hostile_tool() -> impl Strategy<Value = Tool> {
    let output = prop::option::of((schema(), any::<bool>()));
    (word(), word(), schema(), output).prop_filter_map("a tool that is refused", |(name, description, input, output)| {
        let mut definition = json!({ "name": name, "description": description, "inputSchema": input });
        match output {
            Some((output, true)) => {
                let wrapped = json!({ "type": "object", "properties": { "result": output }, "required": ["result"], "x-fastmcp-wrap-result": true });
                definition["outputSchema"] = wrapped;
            }
            Some((output, false)) => definition["outputSchema"] = output,
            None => {}
        }
        let catalogue = listed("demo", vec![definition]);
        only(&catalogue).tools.first().map(|tool| Tool::clone(tool))
    })
}

fn typescript_errors(source: &str, kind: SourceType) -> Vec<String> {
    let allocator = Allocator::default();
    let parsed = Parser::new(&allocator, source, kind).parse();
    parsed.diagnostics.iter().map(|error| format!("{error:?}")).collect()
}

/// Compiles every source in one process. What is wrong, if anything is.
fn python_errors(sources: &[String]) -> String {
    const PROGRAM: &str = "
import json, sys
for source in json.load(sys.stdin):
    try:
        compile(source, 'stub', 'exec')
    except Exception as error:
        print(repr(error), source, sep='\\n')
";
    let mut command = Command::new("python3");
    let command = command.args(["-I", "-W", "error::SyntaxWarning", "-c", PROGRAM]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 starts");
    let input = serde_json::to_vec(sources).expect("strings can be written");
    child.stdin.take().expect("a pipe").write_all(&input).expect("python3 reads");
    let output = child.wait_with_output().expect("python3 ends");
    assert!(output.status.success(), "{:?}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

proptest! {
    #![proptest_config(Config { cases: 200, failure_persistence: None, ..Config::default() })]

    #[test]
    fn typescript_is_valid_for_any_schema(tool in hostile_tool()) {
        let source = stub(&tool, Dialect::TypeScript);
        prop_assert!(source.len() <= STUB_BYTES_MAX);
        let errors = typescript_errors(&source, SourceType::d_ts());
        prop_assert!(errors.is_empty(), "{errors:?}\n{source}");
        let call = example(&tool, Dialect::TypeScript).replace("...", "_");
        let errors = typescript_errors(&call, SourceType::ts().with_module(true));
        prop_assert!(errors.is_empty(), "{errors:?}\n{call}");
    }

    #[test]
    fn signatures_are_one_short_line(tool in hostile_tool()) {
        for dialect in [Dialect::Python, Dialect::TypeScript] {
            let line = signature(&tool, dialect);
            prop_assert!(line.chars().count() <= 300, "{line}");
            prop_assert!(!line.chars().any(|c| c == '\n' || text::is_hidden(c)), "{line:?}");
        }
        prop_assert!(summary(&tool).chars().count() <= 120);
    }

    #[test]
    fn arguments_of_any_kind_are_checked_by_any_schema(tool in hostile_tool(), arguments in value()) {
        let arguments = arguments.as_object().cloned().unwrap_or_default();
        let problems = problems(&tool, &arguments);
        prop_assert!(problems.len() <= 10);
        prop_assert!(problems.iter().all(|problem| problem.chars().count() <= 400 && !problem.contains('\n')));
    }
}

#[test]
fn python_is_valid_for_any_schema() {
    let mut runner = TestRunner::new(Config { failure_persistence: None, ..Config::default() });
    let strategy = hostile_tool();
    let mut sources = Vec::new();
    for _ in 0..400 {
        let tool = strategy.new_tree(&mut runner).expect("a tool").current();
        let source = stub(&tool, Dialect::Python);
        assert!(source.len() <= STUB_BYTES_MAX);
        sources.push(source);
        sources
            .push(format!("demo = None\ndef f():\n    {}\n", example(&tool, Dialect::Python).replace(", ...)", ")")));
    }
    assert_eq!(python_errors(&sources), "");
}

/// The tests above see what is wrong.
#[test]
fn the_judges_refuse_what_is_not_valid() {
    assert_ne!(python_errors(&["def f(*) -> Any: ...".to_owned()]), "");
    assert!(!typescript_errors("export declare function f(a b): void", SourceType::d_ts()).is_empty());
}

#[test]
fn the_smallest_stub_is_valid_too() {
    let properties: Map<String, Value> = (0..1000)
        .map(|number| (format!("parameter_{number}_{}", "x".repeat(90)), json!({ "type": "string" })))
        .collect();
    let tool = with_schema(json!({ "type": "object", "properties": properties }));
    let python = stub(&tool, Dialect::Python);
    assert!(python.contains("Too large for a stub"), "{}", python.len());
    assert_eq!(python_errors(&[python]), "");
    let script = stub(&tool, Dialect::TypeScript);
    assert_eq!(typescript_errors(&script, SourceType::d_ts()), Vec::<String>::new());
}
