//! Each format: what is not ours stays, byte for byte.

use serde_json::json;

use super::*;

const SERVERS: &str = "servers";

fn slot(name: &'static str) -> Slot<'static> {
    Slot { servers: SERVERS, name }
}

fn entry() -> Value {
    json!({ "type": "stdio", "command": "/opt/bell jar/belljar", "args": ["serve", "--profile", "a\"b\\c"] })
}

fn want(format: Format, wanted: &Wanted, now: Option<&str>, backup: Option<&str>) -> Result<Change, Trouble> {
    change(format, slot("belljar"), wanted, "command", now, backup)
}

#[track_caller]
fn add(format: Format, text: &str) -> String {
    let change =
        want(format, &Wanted::Present(entry()), Some(text), None).unwrap_or_else(|t| panic!("{t:?}: {text:?}"));
    assert_eq!((change.did, change.entry), (Did::Added, Some(entry())), "{text:?}");
    change.after.unwrap()
}

#[track_caller]
fn remove(format: Format, text: &str, backup: Option<&str>) -> Option<String> {
    let change = want(format, &Wanted::Absent, Some(text), backup).unwrap_or_else(|t| panic!("{t:?}: {text:?}"));
    assert_eq!(change.did, Did::Removed, "{text:?}");
    change.after
}

/// In, a second time in, and out again.
#[track_caller]
fn there_and_back(format: Format, text: &str) -> String {
    let with = add(format, text);
    let again = want(format, &Wanted::Present(entry()), Some(&with), Some(text)).unwrap();
    assert_eq!((again.did, again.after.as_deref()), (Did::Unchanged, Some(with.as_str())));
    assert_eq!(remove(format, &with, Some(text)).as_deref(), Some(text), "from {with:?}");
    assert_eq!(with.starts_with(BOM), text.starts_with(BOM));
    if text.contains("\r\n") {
        assert_eq!(with.matches('\n').count(), with.matches("\r\n").count(), "{with:?}");
    }
    with
}

#[test]
fn json_looks_like_its_surroundings() {
    for (text, expected) in [
        (
            "{\n  \"servers\": {\n    \"a\": {\"command\": \"x\"} // mine\n  }\n}\n",
            "{\n  \"servers\": {\n    \"a\": {\"command\": \"x\"}, \
             // mine\n    \"belljar\": {\n      \"type\": \"stdio\",\n      \
             \"command\": \"/opt/bell jar/belljar\",\n      \"args\": [\"serve\", \"--profile\", \
             \"a\\\"b\\\\c\"]\n    }\n  }\n}\n",
        ),
        (
            "{\n\t\"servers\": {\n\t\t\"a\": {},\n\t\t/* end */\n\t},\n}",
            "{\n\t\"servers\": {\n\t\t\"a\": {},\n\t\t\"belljar\": {\n\t\t\t\"type\": \"stdio\",\n\t\t\t\"command\": \
             \"/opt/bell jar/belljar\",\n\t\t\t\"args\": [\"serve\", \"--profile\", \"a\\\"b\\\\c\"]\n\t\t},\n\
             \t\t/* end */\n\t},\n}",
        ),
        (
            "{\"a\":1,\"servers\":{\"b\":{}}}",
            "{\"a\":1,\"servers\":{\"b\":{},\"belljar\":{\"type\":\"stdio\",\"command\":\"/opt/bell jar/belljar\",\
             \"args\":[\"serve\",\"--profile\",\"a\\\"b\\\\c\"]}}}",
        ),
    ] {
        assert_eq!(there_and_back(Format::Json, text), expected);
    }
}

#[test]
fn json_of_every_kind() {
    for text in [
        "{}",
        "{}\n",
        "{ }",
        "{\n}\n",
        "{ // nothing\n}\n",
        "{ /* nothing */ }",
        "\u{feff}{}\r\n",
        "",
        "\n",
        "// only this\n",
        "{\"servers\": {}}",
        "{\"servers\": { }}",
        "{\"servers\": {\n}}",
        "{\n  \"servers\": {\n    // none yet\n  }\n}\n",
        "{\"servers\": {\"a\": 1}}",
        "{\"servers\": {\"a\": 1,}}",
        "{\"servers\": {\"a\": 1 /* x */ , /* y */}}",
        "{\r\n    \"x\": [1, 2],\r\n    \"servers\": {\r\n        \"a\": {}\r\n    }\r\n}\r\n",
        "{\"servers\": {\"a\": 1 // x\n}}",
        "{\"servers\": {\"a\": 1, // x\n\"b\": 2 }}",
        "{\"a\": 1 /* x\n */ }",
        "{ \"a\": \"// no /* comment\", \"servers\": {\"a\": 1 /*/ x */\n} }",
        "{\"a\": 1}\n// end",
        "\n\n  {\n    \"a\": 1\n  }\n\n",
        "{\"a\": 1,\n\n\n}",
        "{\"a\":\t1e999999}",
        "{\"é\": \"\\ud83d\\ude00\", \"servers\": {\"ü\": 1}}",
    ] {
        there_and_back(Format::Json, text);
    }
}

#[test]
fn toml_of_every_kind() {
    for text in [
        "",
        "\n",
        "# only\n",
        "a = 1",
        "a = 1\n",
        "a = 1\n\n",
        "\u{feff}a = 1\r\n[b]\r\nc = 2\r\n",
        "a = 1\r\nb = 2",
        "[servers.a]\ncommand = 'x' # mine\n\n[servers.a.env]\nA = '1'\n\n[other]\nb = 1\n",
        "[servers]\n",
        "[servers]\na = { command = 'x' }\n",
        "servers.a.command = 'x'\n",
        "a = [\n  1,\n]\n# end",
        "[[list]]\na = 1\n[[list]]\na = 2\n",
        "a = '''\n[servers.no]\n'''\n",
    ] {
        let with = there_and_back(Format::Toml, text);
        assert!(with.starts_with(text), "{with:?}");
    }
    let after = "[servers.x]\ncommand = 'x'\n";
    let with = format!(
        "a = 1\n\n[servers.belljar] # ours\ncommand = 'b' # c\nargs = [\n  'serve', # x\n]\n\n[servers.belljar.env]\n\
         A = '1'\n{after}"
    );
    assert_eq!(remove(Format::Toml, &with, None).unwrap(), format!("a = 1\n{after}"));
    let with = "[servers]\na = { command = 'x' }\nbelljar = { command = 'y' } # ours\n# end\n";
    assert_eq!(remove(Format::Toml, with, None).unwrap(), "[servers]\na = { command = 'x' }\n# end\n");
}

#[test]
fn yaml_of_every_kind() {
    for text in [
        "",
        "\n",
        "# only\n",
        "---\n",
        "a: 1",
        "a: 1\n",
        "---\na: 1\n\n# end\n",
        "\u{feff}a: \"é\"\r\nservers:\r\n  b:\r\n    cmd: x\r\n",
        "servers:\n  a: {cmd: x}\n",
        "servers:\n    # first\n    a:\n        cmd: |\n            text\n\n            more\n\nb: |+\n  keep\n\n",
        "servers:\n",
        "servers: # none\n",
        "servers: {}\n",
        "servers: {} # none\n",
        "servers: ~\nb: 1\n",
        "servers: null",
        "servers:",
        "\"servers\":\n  a: 1\n",
        "  servers:\n   a: 1\n  b: 2\n",
        "a: [1,\n 2]\n",
        "a: 'x\n  y'\nservers:\n  b:",
        "servers:\n  a:\n    args:\n    - x\n    - y # z\n  b: 1\n",
    ] {
        there_and_back(Format::Yaml, text);
    }
    let with = "servers:\n  belljar:\n    command: b\n    args:\n    - serve\n    # inside\n    note: |\n      text\n\
     \n  # of a\n  a: 1\n";
    assert_eq!(remove(Format::Yaml, with, None).unwrap(), "servers:\n\n  # of a\n  a: 1\n");
    let with = "x: 1\nservers: # all\n  belljar:\n    command: b\ny: 2\n";
    assert_eq!(remove(Format::Yaml, with, Some("x: 1\nservers: {}\n")).unwrap(), "x: 1\nservers: {} # all\ny: 2\n");
    assert_eq!(remove(Format::Yaml, with, Some("x: 1\n")).unwrap(), "x: 1\ny: 2\n");
}

#[test]
fn a_file_that_was_ours_alone_goes() {
    for format in [Format::Json, Format::Toml, Format::Yaml] {
        let made = want(format, &Wanted::Present(entry()), None, None).unwrap().after.unwrap();
        assert!(made.ends_with('\n') && format.read(&made, slot("belljar")).unwrap() == Some(entry()), "{made}");
        assert_eq!(remove(format, &made, None), None);
        // Not if there was one, though an empty one.
        assert_eq!(remove(format, &made, Some("")).as_deref(), Some(""));
        assert_eq!(want(format, &Wanted::Absent, None, None).unwrap().did, Did::Missing);
    }
}

#[test]
fn an_entry_that_is_there_is_changed_in_place() {
    for (format, text, expected) in [
        (
            Format::Json,
            "{\"servers\": {\"belljar\": { // ours\n  \"command\": \"old\", // c\n  \"env\": {\"A\": \"1\"}\n\
             }, \"z\": 1}}",
            "{\"servers\": {\"belljar\": { // ours\n  \"command\": \"new\", \
             // c\n  \"env\": {\"A\": \"1\"},\n  \"args\": [\"serve\"]\n}, \"z\": 1}}",
        ),
        (
            Format::Toml,
            "[servers.belljar] # ours\ncommand = 'old' # c\nstartup_timeout_sec = 5\n[z]\n",
            "[servers.belljar] # ours\nargs = [\"serve\"]\ncommand = \"new\" # c\nstartup_timeout_sec = 5\n[z]\n",
        ),
        (
            Format::Yaml,
            "servers:\n  belljar: # ours\n    command: old\n    args:\n    - a\n    - b\n    timeout: 5\nz: 1\n",
            "servers:\n  belljar: # ours\n    command: new\n    args: [\"serve\"]\n    timeout: 5\nz: 1\n",
        ),
    ] {
        let wanted = Wanted::Present(json!({ "command": "new", "args": ["serve"] }));
        let change = want(format, &wanted, Some(text), None).unwrap();
        assert_eq!((change.did, change.after.as_deref()), (Did::Updated, Some(expected)));
        assert_eq!(change.before.unwrap()["command"], "old");
        let entry = change.entry.unwrap();
        assert_eq!((&entry["command"], &entry["args"]), (&json!("new"), &json!(["serve"])));
        assert_eq!(want(format, &wanted, Some(expected), None).unwrap().did, Did::Unchanged);
    }
}

#[test]
fn an_entry_that_is_no_command_is_replaced() {
    for (format, text) in [
        (Format::Json, "{\"servers\": {\"belljar\": {\"type\": \"http\", \"url\": \"http://x\"}, \"z\": 1}}"),
        (Format::Json, "{\"servers\": {\"belljar\": 5}}"),
        (Format::Toml, "[servers.belljar]\nurl = 'http://x'\n[servers.belljar.http_headers]\nA = 'b'\n[z]\n"),
        (Format::Yaml, "servers:\n  belljar:\n    uri: http://x\n  z: 1\n"),
    ] {
        let change = want(format, &Wanted::Present(entry()), Some(text), None).unwrap();
        assert_eq!((change.did, change.entry), (Did::Updated, Some(entry())), "{text}");
    }
}

#[test]
fn what_is_not_understood_is_left_alone() {
    for (format, text, line, column) in [
        (Format::Json, "{\n  \"a\": }", 2, 8),
        (Format::Json, "{\"a\": 1} x", 1, 10),
        (Format::Json, "{'a': 1}", 1, 2),
        (Format::Json, "{\"a\": 1 \"b\": 2}", 1, 8),
        (Format::Json, "{\"a\": 1", 1, 1),
        (Format::Json, "\u{feff}{\"a\": +1}", 1, 7),
        (Format::Toml, "a = 1\nb = \n", 2, 5),
        (Format::Toml, "a = 1\na = 2\n", 2, 1),
        (Format::Yaml, "a: 1\n\tb: 2\n", 1, 4),
        (Format::Yaml, "a: [1\nb: 2\n", 2, 2),
    ] {
        for wanted in [Wanted::Present(entry()), Wanted::Absent] {
            match want(format, &wanted, Some(text), None) {
                Err(Trouble::NotParsed { line: l, column: c, why }) => {
                    assert_eq!((l, c), (line, column), "{text:?}: {why}");
                    assert!(!why.is_empty() && !why.contains('\n'), "{why:?}");
                }
                other => panic!("{text:?}: {other:?}"),
            }
        }
    }
    for (format, text) in [
        (Format::Json, "[]"),
        (Format::Json, "null"),
        (Format::Json, "{\"servers\": []}"),
        (Format::Json, "{\"servers\": null}"),
        (Format::Json, "{\"servers\": {}, \"servers\": {}}"),
        (Format::Json, "{\"servers\": {\"belljar\": 1, \"b\\u0065lljar\": 2}}"),
        (Format::Toml, "servers = 1\n"),
        (Format::Toml, "[[servers]]\na = 1\n"),
        (Format::Yaml, "- a\n"),
        (Format::Yaml, "servers: 1\n"),
        (Format::Yaml, "servers:\n- a\n"),
        (Format::Yaml, "servers: {}\nservers: {}\n"),
    ] {
        let refused = want(format, &Wanted::Present(entry()), Some(text), None);
        assert!(matches!(refused, Err(Trouble::Unexpected { .. })), "{text}: {refused:?}");
    }
    for (format, text) in [
        (Format::Toml, "servers = { a = { command = 'x' } }\n"),
        (Format::Yaml, "{servers: {a: 1}}\n"),
        (Format::Yaml, "servers: {a: 1}\n"),
        (Format::Yaml, "a: 1\n---\nb: 2\n"),
        (Format::Yaml, "? servers\n: a: 1\n"),
        (Format::Yaml, "a: 1\n...\n"),
        (Format::Yaml, "servers: &x\n  a: 1\nb: *x\n"),
    ] {
        let refused = want(format, &Wanted::Present(entry()), Some(text), None);
        assert!(matches!(refused, Err(Trouble::Unsupported { .. })), "{text}: {refused:?}");
    }
}

/// However deep, wide or long: an answer, and soon.
#[test]
fn hostile_texts_end() {
    let many = |text: &str, times: usize| text.repeat(times);
    for text in [
        many("[", 1 << 20),
        many("{\"a\":", 1 << 18),
        many("/*", 1 << 20),
        many("\"", 1001),
        format!("{{\"servers\":{}}}", many("[", 600)),
        many("a.", 1 << 17),
        format!("a = {}", many("[", 1 << 18)),
        format!("[{}]", many("a.", 1 << 14)),
        many("- ", 1 << 14),
        many("a:\n ", 3000),
        (0..2000).map(|depth| many(" ", depth) + "a:\n").collect(),
        many("&a [*a, ", 300),
        many("? ", 5000),
        many("\0", 5000),
        many("{", 1 << 16),
        format!("a: &a [x]\nb: &b {}\n", many("*a ", 3)),
    ] {
        for format in [Format::Json, Format::Toml, Format::Yaml] {
            for wanted in [Wanted::Present(entry()), Wanted::Absent] {
                let _ = want(format, &wanted, Some(&text), Some(&text));
            }
        }
    }
}

/// Numbers that look like chance and are the same each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }
}

/// A JSON text with comments, commas and spaces where there may be some.
fn some_json(chance: &mut Chance) -> (String, bool) {
    fn gap(chance: &mut Chance, newline: &str) -> String {
        let some = [
            "",
            "",
            " ",
            "\t",
            "  ",
            "NL",
            "NL  ",
            "NL\t\t",
            " // one \"NL",
            "/* two */",
            " /* 3\t*/ ",
            "/*NL*/",
            "//NL",
            "NLNL",
        ];
        chance.one(&some).replace("NL", newline)
    }
    fn object(chance: &mut Chance, newline: &str, depth: usize, names: &[String]) -> String {
        let mut text = "{".to_owned();
        for (number, name) in names.iter().enumerate() {
            let value = match chance.below(6) {
                0 => "\"te\\\"xt // \\u00e9 /* {\"".to_owned(),
                1 => "-1.50e3".to_owned(),
                2 => format!("[1,{} null,[]]", gap(chance, newline)),
                _ if depth > 0 => {
                    let inner: Vec<String> = (0..chance.below(3)).map(|at| format!("k{at}")).collect();
                    object(chance, newline, depth - 1, &inner)
                }
                _ => "true".to_owned(),
            };
            let last = number + 1 == names.len();
            let comma = if !last || chance.below(4) == 0 { "," } else { "" };
            let gaps: Vec<String> = (0..5).map(|_| gap(chance, newline)).collect();
            let value = if name == SERVERS {
                let inner: Vec<String> = (0..chance.below(4)).map(|at| format!("s{at}")).collect();
                object(chance, newline, 1, &inner)
            } else {
                value
            };
            text += &format!("{}\"{name}\"{}:{}{value}{}{comma}{}", gaps[0], gaps[1], gaps[2], gaps[3], gaps[4]);
        }
        text + &gap(chance, newline) + "}"
    }
    let newline = chance.one(&["\n", "\r\n"]);
    let mut names: Vec<String> = (0..chance.below(4)).map(|at| format!("k{at}")).collect();
    if chance.below(3) > 0 {
        names.insert(chance.below(names.len() + 1), SERVERS.to_owned());
    }
    let bom = chance.one(&["", "", "\u{feff}"]);
    let text = format!("{bom}{}{}{}", gap(chance, newline), object(chance, newline, 2, &names), gap(chance, newline));
    let rest = json::rest(text.trim_start_matches(BOM), slot("belljar")).unwrap();
    let others = rest.get(SERVERS).is_some();
    (text, others)
}

fn some_toml(chance: &mut Chance) -> (String, bool) {
    let newline = chance.one(&["\n", "\r\n"]);
    let mut text = chance.one(&["", "", "\u{feff}"]).to_owned();
    let mut others = false;
    let value = |chance: &mut Chance| {
        let some = [
            "1",
            "'a # b'",
            "\"\\u00e9\"",
            "[ 1,NL  2, # xNL]",
            "{ a = 1, b.c = 2 }",
            "\"\"\"NL[servers.no]NL\"\"\"",
            "1979-05-27",
        ];
        chance.one(&some).replace("NL", newline)
    };
    let rest = |chance: &mut Chance| chance.one(&["", " # c", "NL", "NLNL# dNL", "NL  "]).replace("NL", newline);
    for at in 0..chance.below(3) {
        text += &format!("k{at} = {}{}{newline}", value(chance), rest(chance));
    }
    for at in 0..chance.below(5) {
        let name = chance.one(&["[t", "[servers.s", "[[l", "[servers.x.s"]);
        let close = if name.starts_with("[[") { "]]" } else { "]" };
        let number = if name.starts_with("[[") { String::new() } else { at.to_string() };
        others |= name.starts_with("[servers");
        text += &format!("{name}{number}{close}{}{newline}", rest(chance));
        for at in 0..chance.below(3) {
            text += &format!("  k{at} = {}{}{newline}", value(chance), rest(chance));
        }
    }
    if chance.below(3) == 0 {
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
    }
    (text, others)
}

fn some_yaml(chance: &mut Chance) -> (String, bool) {
    fn value(chance: &mut Chance, indent: &str, newline: &str) -> String {
        let some = [
            " 1",
            " text # c",
            " 'a: b'",
            " \"x\\ty\"",
            " [a, b]",
            " {a: 1}",
            "",
            " |NLI  lineNLNLI  moreNL",
            " >-NLI  foldedNLI  textNL",
            " |+NLI  xNLNL",
            "NLI- 1NLI- b: 2NLI  c: 3",
            " &a{} anchored",
            " !!str 5",
            " aNLI  b",
        ];
        let fresh = chance.below(1_000_000);
        let text = chance.one(&some).replace("{}", &fresh.to_string()).replace("&a", &format!("&a{fresh}x"));
        let text = text.replace("NLI", &format!("{newline}{indent}")).replace("NL", newline);
        let ended = text.ends_with('\n');
        let more = chance.one(&["", "", "NL", "NL# cNL", "NLNL      # deepNL"]).replace("NL", newline);
        text + if ended { "" } else { newline } + if ended { "" } else { &more }
    }
    let newline = chance.one(&["\n", "\r\n"]);
    let mut text = chance.one(&["", "", "\u{feff}", "# headNL", "---NL", "NL"]).replace("NL", newline);
    let count = chance.below(4);
    let at = chance.below(2 * count + 2);
    let mut others = false;
    for number in 0..=count {
        if number == at {
            let inner = chance.below(4);
            let indent = chance.one(&["  ", "    ", " "]);
            let empty = chance.one(&["", " {}", " ~", " # c", " {} # c"]);
            text += &format!("servers:{}{newline}", if inner == 0 { empty } else { chance.one(&["", " # c"]) });
            others = inner > 0;
            for number in 0..inner {
                text += &chance.one(&["", "", "# cNL", "I# cNL", "NL"]).replace('I', indent).replace("NL", newline);
                text += &format!("{indent}s{number}:{}", value(chance, indent, newline));
            }
        } else if number < count {
            text += &format!("k{number}:{}", value(chance, "", newline));
        }
    }
    if chance.below(4) == 0 {
        text.truncate(text.trim_end_matches(['\r', '\n']).len());
    }
    (text, others)
}

/// Hundreds of files of each format: in and out gives the same bytes, whether or not the backup can be used.
#[test]
fn whatever_the_file_it_comes_back() {
    type Make = fn(&mut Chance) -> (String, bool);
    let makes: [(Format, Make); 3] = [(Format::Json, some_json), (Format::Toml, some_toml), (Format::Yaml, some_yaml)];
    for (format, make) in makes {
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
        for _ in 0..500 {
            let (text, others) = make(&mut chance);
            let with = there_and_back(format, &text);
            if others {
                // Among other servers it is taken out without a trace, whatever the backup says.
                assert_eq!(remove(format, &with, None).as_deref(), Some(text.as_str()), "from {with:?}");
            }
            // A second one, in and out, changes nothing for the first.
            let other =
                |wanted: &Wanted, now: &str| change(format, slot("other"), wanted, "command", Some(now), Some(&text));
            let both = other(&Wanted::Present(json!({ "command": "x" })), &with).unwrap().after.unwrap();
            let left = remove(format, &both, Some(&text)).unwrap();
            assert_eq!(
                format.read(left.trim_start_matches(BOM), slot("other")).unwrap(),
                Some(json!({ "command": "x" }))
            );
            assert_eq!(other(&Wanted::Absent, &both).unwrap().after.unwrap(), with, "from {both:?}");
        }
    }
}
