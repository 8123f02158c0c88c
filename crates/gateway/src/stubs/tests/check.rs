use std::time::{Duration, Instant};

use super::*;

fn found(schema: Value, arguments: Value) -> Vec<String> {
    let Value::Object(arguments) = arguments else { panic!("arguments are an object") };
    problems(&with_schema(schema), &arguments)
}

fn issues() -> Value {
    json!({
        "type": "object",
        "properties": {
            "owner": { "type": "string" },
            "repo": { "type": "string" },
            "state": { "enum": ["OPEN", "CLOSED"] },
            "perPage": { "type": "integer", "minimum": 1, "maximum": 100 },
            "labels": { "type": ["array", "null"], "items": { "type": "string" } },
            "edits": { "type": "array", "items": { "type": "object", "properties": { "oldText": { "type": "string" } }, "required": ["oldText"] } },
            "since": { "anyOf": [{ "type": "string" }, { "type": "null" }], "format": "date-time" },
        },
        "required": ["owner", "repo"],
    })
}

#[test]
fn problems_in_words() {
    let table = [
        (json!({ "owner": "o", "repo": "r" }), vec![]),
        (json!({ "owner": "o", "repo": "r", "extra": 1 }), vec![]),
        (json!({ "owner": "o", "repo": "r", "since": "no date" }), vec![]),
        (json!({ "owner": "o" }), vec!["missing required argument \"repo\""]),
        (
            json!({ "onwer": "o", "repo": "r" }),
            vec!["missing required argument \"owner\"", "unknown argument \"onwer\"; did you mean \"owner\"?"],
        ),
        (
            json!({ "owner": "o", "repo": "r", "state": "open" }),
            vec!["\"state\" must be one of OPEN, CLOSED, got \"open\""],
        ),
        (json!({ "owner": 5, "repo": "r" }), vec!["\"owner\" must be string, got 5"]),
        (json!({ "owner": "o", "repo": "r", "perPage": 0 }), vec!["\"perPage\" must be at least 1, got 0"]),
        (json!({ "owner": "o", "repo": "r", "labels": "bug" }), vec!["\"labels\" must be array or null, got \"bug\""]),
        (json!({ "owner": "o", "repo": "r", "labels": [1] }), vec!["\"labels[0]\" must be string, got 1"]),
        (
            json!({ "owner": "o", "repo": "r", "edits": [{}] }),
            vec!["\"edits[0]\" lacks the required property \"oldText\""],
        ),
        (json!({ "owner": "o", "repo": "r", "since": 4 }), vec!["\"since\" must be string or null, got 4"]),
    ];
    for (arguments, expected) in table {
        assert_eq!(found(issues(), arguments.clone()), expected, "{arguments}");
    }
}

#[test]
fn unknown_arguments_where_none_are_allowed() {
    let mut schema = issues();
    schema["additionalProperties"] = json!(false);
    let problems = found(schema, json!({ "owner": "o", "repo": "r", "per_page": 3, "zzz": 1 }));
    assert_eq!(problems, ["unknown argument \"per_page\"; did you mean \"perPage\"?", "unknown argument \"zzz\""]);
}

#[test]
fn the_nearest_form_is_explained() {
    let form = |kind: &str, field: &str| {
        json!({
            "type": "object",
            "properties": { "kind": { "const": kind }, field: { "type": "string" } },
            "required": ["kind", field],
        })
    };
    let schema =
        json!({ "type": "object", "properties": { "to": { "anyOf": [form("mail", "address"), { "type": "null" }] } } });
    assert_eq!(found(schema, json!({ "to": { "kind": "mail" } })), ["\"to\" lacks the required property \"address\""]);
}

#[test]
fn problems_are_few_and_short() {
    let properties: Map<String, Value> =
        (0..50).map(|number| (format!("p{number}"), json!({ "type": "integer" }))).collect();
    let arguments: Map<String, Value> =
        (0..50).map(|number| (format!("p{number}"), json!("x".repeat(10_000)))).collect();
    let problems = found(json!({ "properties": properties }), Value::Object(arguments));
    assert_eq!(problems.len(), 10);
    assert!(problems.iter().all(|problem| problem.chars().count() <= 130), "{problems:?}");
}

#[test]
fn schemas_that_cannot_be_checked_let_pass() {
    let table = [
        json!({ "properties": { "a": { "$ref": "http://127.0.0.1:9/schema.json" } } }),
        json!({ "properties": { "a": { "$ref": "file:///etc/passwd" } } }),
        json!({ "properties": { "a": { "$ref": "#/nowhere" } } }),
        json!({ "properties": { "a": { "$ref": "other.json#/x" } }, "$id": "http://127.0.0.1:9/" }),
        json!({ "$schema": "http://127.0.0.1:9/meta", "type": "object" }),
        json!({ "properties": { "a": { "pattern": "(?<=a)(?!b)\\1" } } }),
        json!({ "properties": { "a": { "pattern": "((a{0,1000}){0,1000}){0,1000}" } } }),
        json!({ "properties": { "a": { "not": { "pattern": "(?=x)" } } } }),
        json!({ "patternProperties": { "(?=a)": { "type": "string" } }, "additionalProperties": false }),
        json!({ "type": "nonsense" }),
        json!({ "properties": [] }),
        json!({ "$ref": "#" }),
        json!({ "allOf": [{ "$ref": "#" }, { "$ref": "#" }] }),
        json!({ "$defs": { "a": { "$ref": "#/$defs/b" }, "b": { "$ref": "#/$defs/a" } }, "$ref": "#/$defs/a" }),
        json!({ "properties": { "a": { "type": "string", "required": true } } }),
        json!({ "properties": { "a": { "type": "string", "format": "email" } } }),
    ];
    for schema in table {
        assert_eq!(found(schema.clone(), json!({ "a": "text" })), Vec::<String>::new(), "{schema}");
    }
}

#[test]
fn the_rest_is_checked_where_a_part_cannot_be() {
    let schema = json!({
        "properties": { "a": { "$ref": "http://127.0.0.1:9/x" }, "b": { "type": "string", "pattern": "(?=x)" } },
        "required": ["c"],
    });
    let problems = found(schema, json!({ "a": 1, "b": 2 }));
    assert_eq!(problems.len(), 2, "{problems:?}");
}

#[test]
fn old_drafts_are_understood() {
    let tuple = json!({ "properties": { "t": { "items": [{ "type": "string" }, { "type": "integer" }] } } });
    assert_eq!(found(tuple.clone(), json!({ "t": ["a", 1] })), Vec::<String>::new());
    assert_eq!(found(tuple, json!({ "t": [1, 1] })), ["\"t[0]\" must be string, got 1"]);
    let old = json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "id": "http://example.com/x",
        "properties": { "n": { "minimum": 0, "exclusiveMinimum": true } },
    });
    assert_eq!(found(old, json!({ "n": 0 })), ["\"n\" must be more than 0, got 0"]);
}

/// The schemas of the battery's case cm-019, and others that would take for ever.
#[test]
fn traps_end_soon() {
    let started = Instant::now();
    let bomb = json!({ "properties": { "a": { "type": "string", "pattern": "^(a+)+$" } } });
    assert_eq!(found(bomb.clone(), json!({ "a": "a".repeat(100_000) })), Vec::<String>::new());
    assert_eq!(found(bomb, json!({ "a": format!("{}!", "a".repeat(100_000)) })).len(), 1);

    let double = |key: &str, next: usize| json!({ key: [{ "$ref": format!("#/$defs/d{next}") }, { "$ref": format!("#/$defs/d{next}") }] });
    for key in ["allOf", "anyOf", "oneOf", "prefixItems"] {
        let mut defs: Map<String, Value> =
            (0..60).map(|number| (format!("d{number}"), double(key, number + 1))).collect();
        defs.insert("d60".to_owned(), json!({ "type": "string" }));
        let schema = json!({ "$defs": defs, "properties": { "a": { "$ref": "#/$defs/d0" } } });
        found(schema.clone(), json!({ "a": 1 }));
        for dialect in [Dialect::Python, Dialect::TypeScript] {
            assert!(stub(&with_schema(schema.clone()), dialect).len() <= 64 * 1024);
            signature(&with_schema(schema.clone()), dialect);
        }
    }
    let both = |next: usize| json!({ "properties": { "x": { "$ref": format!("#/$defs/d{next}") }, "y": { "$ref": format!("#/$defs/d{next}") } } });
    let mut defs: Map<String, Value> = (0..60).map(|number| (format!("d{number}"), both(number + 1))).collect();
    defs.insert("d60".to_owned(), json!({ "type": "string" }));
    let schema = json!({ "$defs": defs, "$ref": "#/$defs/d0" });
    assert_eq!(found(schema, json!({ "x": { "y": 1 } })), Vec::<String>::new());

    // Two forms that both go on with the same property: each level of the value doubles the work.
    let form = json!({ "properties": { "x": { "$ref": "#" } }, "required": ["x"] });
    let mut value = json!(1);
    for _ in 0..100 {
        value = json!({ "x": value });
    }
    found(json!({ "oneOf": [form, form] }), value.clone());
    let depth = json!({ "properties": { "x": { "$ref": "#" } } });
    found(depth, value);

    let mut deep = json!({ "type": "string" });
    for _ in 0..100 {
        deep = json!({ "properties": { "x": deep } });
    }
    found(deep, json!({ "x": 1 }));
    let mut chain: Map<String, Value> = (0..490)
        .map(|number| {
            (format!("c{number}"), json!({ "properties": { "x": { "$ref": format!("#/$defs/c{}", number + 1) } } }))
        })
        .collect();
    chain.insert("c490".to_owned(), json!({ "type": "string" }));
    found(json!({ "$defs": chain, "properties": { "a": { "$ref": "#/$defs/c0" } } }), json!({ "a": { "x": {} } }));
    for key in ["allOf", "anyOf"] {
        let next = |number: usize| json!({ key: [{ "$ref": format!("#/$defs/c{}", number + 1) }] });
        let mut chain: Map<String, Value> = (0..120).map(|number| (format!("c{number}"), next(number))).collect();
        chain.insert("c120".to_owned(), json!({ "type": "string" }));
        let schema = json!({ "$defs": chain, "properties": { "a": { "$ref": "#/$defs/c0" } } });
        assert_eq!(found(schema, json!({ "a": 1 })).len(), 1);
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}

#[test]
fn many_patterns_take_little() {
    let properties: Map<String, Value> = (0..2000)
        .map(|number| {
            (format!("p{number}"), json!({ "type": "string", "pattern": format!("^\\w{{1,{}}}$", number % 90 + 1) }))
        })
        .collect();
    let schema = json!({ "properties": properties });
    assert_eq!(found(schema.clone(), json!({ "p3": "abcde" })).len(), 1);
    assert_eq!(found(schema, json!({ "p1999": "!" })), Vec::<String>::new());
}

#[test]
fn recursive_schemas_are_checked() {
    let schema = json!({
        "$defs": { "node": { "type": "object", "properties": { "name": { "type": "string" }, "children": { "type": "array", "items": { "$ref": "#/$defs/node" } } }, "required": ["name"] } },
        "type": "object",
        "properties": { "root": { "$ref": "#/$defs/node" } },
    });
    let good = json!({ "root": { "name": "a", "children": [{ "name": "b", "children": [] }] } });
    assert_eq!(found(schema.clone(), good), Vec::<String>::new());
    let bad = json!({ "root": { "name": "a", "children": [{ "name": "b", "children": [{}] }] } });
    assert_eq!(found(schema, bad), ["\"root.children[0].children[0]\" lacks the required property \"name\""]);
}

#[test]
fn a_validator_is_kept() {
    let validator = Validator::new(&with_schema(issues()));
    for _ in 0..3 {
        assert_eq!(validator.problems(&Map::new()).len(), 2);
    }
}

#[test]
fn a_validator_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<Validator>();
}

/// Each of these is within the size of a definition, and takes no more than its time.
#[test]
fn large_schemas_end_soon() {
    let started = Instant::now();
    let text = json!({ "type": "string" });
    let many: Map<String, Value> = (0..9000).map(|number| (format!("p{number}"), json!({}))).collect();
    let names: Vec<&String> = many.keys().collect();
    let wide = json!({ "properties": many, "required": names });
    let objects: Vec<Value> = (0..900)
        .map(|number| json!({ "properties": { format!("q{number}"): text, "x": { "anyOf": [text, {}] } } }))
        .collect();
    let below: Map<String, Value> = (0..5000).map(|number| (format!("p{number}"), json!({}))).collect();
    let long = json!({ "properties": { "n".repeat(100_000): { "properties": below } } });
    let mut nested = text.clone();
    for _ in 0..20 {
        nested = json!({ "properties": { "a": nested }, "anyOf": [{ "required": ["a"] }, { "required": ["b"] }, { "properties": { "c": text } }] });
    }
    let table = [
        wide,
        json!({ "allOf": objects }),
        json!({ "anyOf": objects }),
        json!({ "properties": { "o": { "oneOf": objects } } }),
        long,
        nested,
    ];
    for schema in table {
        let tool = with_schema(schema);
        for dialect in [Dialect::Python, Dialect::TypeScript] {
            assert!(stub(&tool, dialect).len() <= STUB_BYTES_MAX);
            assert!(signature(&tool, dialect).len() <= 1000);
        }
        problems(&tool, &Map::new());
    }
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
}
