use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::note::catalogue_note;
use super::render::{Detail, render, render_within, summary};
use super::*;
use crate::catalogue::{Annotations, Server};
use crate::stubs::{Dialect, signature};

fn tool(server: &str, name: &str, description: &str, parameters: &[&str]) -> Arc<Tool> {
    let properties: Map<String, Value> =
        parameters.iter().map(|name| ((*name).to_owned(), json!({"type": "string"}))).collect();
    let mut input_schema = Map::new();
    input_schema.insert("properties".to_owned(), Value::Object(properties));
    Arc::new(Tool {
        server: server.to_owned(),
        server_ident: server.replace('-', "_"),
        name: name.to_owned(),
        ident: name.replace('-', "_"),
        description: description.to_owned(),
        input_schema,
        output_schema: None,
        annotations: Annotations::default(),
        definition: Value::Null,
        digest: String::new(),
    })
}

fn server(name: &str, tools: Vec<Arc<Tool>>) -> Arc<Server> {
    Arc::new(Server {
        name: name.to_owned(),
        ident: name.replace('-', "_"),
        instructions: None,
        tools,
        refused: Vec::new(),
        trouble: None,
    })
}

fn few() -> Catalogue {
    let github = vec![
        tool("github", "create_issue", "Create a new issue in a GitHub repository", &["owner", "repo", "title"]),
        tool("github", "list_issues", "List issues in a GitHub repository", &["owner", "repo", "state"]),
        tool("github", "create_pull_request", "Create a new pull request", &["owner", "repo"]),
    ];
    let gitlab = vec![
        tool("gitlab", "create_issue", "Create a new issue in a GitLab project", &["project_id"]),
        tool("gitlab", "create_merge_request", "Create a new merge request in a GitLab project", &["project_id"]),
    ];
    let files = vec![
        tool("file-system", "readTextFile", "Read the complete contents of a file.", &["path"]),
        tool("file-system", "list_directory", "Get a listing of all entries in a path.", &["path"]),
        tool("file-system", "get_info", "Size and dates of one entry.", &["path"]),
    ];
    let time = vec![tool("time", "get_current_time", "Get current time in a specific timezone", &["timezone"])];
    Catalogue {
        servers: vec![
            server("github", github),
            server("gitlab", gitlab),
            server("file-system", files),
            server("time", time),
        ],
    }
}

fn first(query: &str) -> String {
    let hits = Index::new(&few()).search(query, None, 1);
    hits.first().map(|hit| hit.tool.path()).unwrap_or_default()
}

#[test]
fn other_words_forms_slips_and_beginnings_find_the_same() {
    assert_eq!(first("open a ticket on github"), "github.create_issue");
    assert_eq!(first("open a ticket on GitLab"), "gitlab.create_issue");
    assert_eq!(first("github PR"), "github.create_pull_request");
    assert_eq!(first("new pull request on gitlab"), "gitlab.create_merge_request");
    assert_eq!(first("listing issues"), "github.list_issues");
    assert_eq!(first("list isues"), "github.list_issues");
    assert_eq!(first("show me a folder"), "file_system.list_directory");
    assert_eq!(first("timezo"), "time.get_current_time");
}

#[test]
fn a_name_finds_itself_in_any_spelling() {
    for name in
        ["create_merge_request", "createMergeRequest", "gitlab.create-merge-request", "gitlab/create_merge_request"]
    {
        assert_eq!(first(name), "gitlab.create_merge_request", "{name}");
    }
    assert_eq!(first("file_system.get_info"), "file_system.get_info");
}

#[test]
fn an_empty_query_is_everything_in_order_and_a_server_narrows() {
    let index = Index::new(&few());
    let all: Vec<String> = index.search(" ?! ", None, 100).iter().map(|hit| hit.tool.path()).collect();
    assert_eq!(all, few().tools().map(|tool| tool.path()).collect::<Vec<_>>());
    for name in ["file-system", "file_system"] {
        let hits = index.search("list", Some(name), 100);
        assert!(!hits.is_empty() && hits.iter().all(|hit| hit.tool.server == "file-system"), "{name}");
    }
    assert!(index.search("list", Some("nowhere"), 100).is_empty());
    assert!(index.search("zzzzqqqq", None, 100).is_empty());
    assert_eq!(index.search("issue", None, 1).len(), 1);
}

#[test]
fn what_is_hardly_a_hit_is_left_out_after_the_first_five() {
    let mut tools = vec![tool("s", "export_invoice", "Exports an invoice as a document", &[])];
    tools.extend(
        (0..20).map(|number| tool("s", &format!("other_{}", letters(number)), "Does something. See invoice.", &[])),
    );
    let index = Index::new(&Catalogue { servers: vec![server("s", tools)] });
    let hits = index.search("export the invoice", None, 100);
    assert_eq!(hits[0].tool.name, "export_invoice");
    assert_eq!(hits.len(), 5);
    assert_eq!(index.search("does something", None, 100).len(), 20, "as good as the first: all of them");
}

#[test]
fn queries_are_bounded_and_never_panic() {
    let index = Index::new(&few());
    let long = "issue ".repeat(100_000) + "é";
    assert_eq!(index.search(&long, None, 1)[0].tool.name, index.search("issue", None, 1)[0].tool.name);
    // The 33rd word is not read.
    let far = format!("{}timezone", "zzz ".repeat(32));
    assert!(index.search(&far, None, 5).is_empty());
    for text in ["é".repeat(2000), "\u{0}\u{202e}".to_owned(), "ǅ ß ﬀ İ".to_owned(), "a_".repeat(700), "A1".repeat(500)]
    {
        index.search(&text, None, 5);
        index.nearest(&text, 5);
    }
    assert!(Index::default().search("issue", None, 5).is_empty());
    assert!(Index::new(&Catalogue::default()).nearest("issue", 5).is_empty());
}

#[test]
fn equals_keep_the_catalogues_order_every_time() {
    let twins = (0..50).map(|number| tool("twins", &format!("same_{}", letters(number)), "The very same words", &[]));
    let catalogue = Catalogue { servers: vec![server("twins", twins.collect())] };
    let names = |index: &Index| -> Vec<String> {
        index.search("very same words", None, 50).iter().map(|hit| hit.tool.name.clone()).collect()
    };
    let expected: Vec<String> = catalogue.tools().map(|tool| tool.name.clone()).collect();
    for _ in 0..3 {
        assert_eq!(names(&Index::new(&catalogue)), expected);
    }
}

fn letters(number: usize) -> String {
    ["q", "w", "x", "z", "v"][number % 5].to_owned()
        + ["qq", "ww", "xx", "zz", "vv", "kk", "jj", "yy", "uu", "ii"][number / 5]
}

#[test]
fn nearest_names_are_suggested_and_far_ones_are_not() {
    let index = Index::new(&few());
    assert_eq!(index.nearest("github.create_isue", 3)[0], "github.create_issue");
    assert_eq!(index.nearest("github_create_issue", 3)[0], "github.create_issue");
    assert_eq!(index.nearest("gitlab.createIssue", 3)[0], "gitlab.create_issue");
    assert_eq!(index.nearest("file_system.read_file", 1), ["file_system.readTextFile"]);
    assert_eq!(index.nearest("issue_create", 1), ["github.create_issue"]);
    assert!(index.nearest("launch_rocket", 3).is_empty());
}

#[test]
fn ten_thousand_tools_are_no_trouble() {
    let verbs = ["create", "list", "delete", "update", "search"];
    let nouns = ["issue", "branch", "message", "invoice", "page", "cell", "event", "pod", "key", "paper"];
    let servers = (0..100).map(|place| {
        let name = format!("srv{place}");
        let tools = (0..100).map(|number| {
            let (verb, noun) = (verbs[number % 5], nouns[(number / 5) % 10]);
            let words = format!(
                "{verb} one {noun} of kind{} at place{place}. {}",
                number / 50,
                "Some more words on it. ".repeat(20)
            );
            tool(&name, &format!("{verb}_{noun}_{number}"), &words, &["owner", "name", "limit"])
        });
        server(&name, tools.collect())
    });
    let catalogue = Catalogue { servers: servers.collect() };
    let started = std::time::Instant::now();
    let index = Index::new(&catalogue);
    let built = started.elapsed();
    let ask = || {
        let started = std::time::Instant::now();
        let hits = index.search("please make me a new invioce at place42", None, 5);
        (started.elapsed(), hits)
    };
    let (asked, hits) = (0..5).map(|_| ask()).min_by_key(|(took, _)| *took).unwrap();
    println!("10,000 tools: indexed in {built:?}, asked in {asked:?}");
    assert!(hits[0].tool.path().starts_with("srv42.create_invoice"), "{}", hits[0].tool.path());
    // A machine that is busy, and code that is not optimised, are allowed for twentyfold.
    assert!(built.as_secs() < 20 && asked.as_millis() < 1000, "{built:?} {asked:?}");
}

#[test]
fn answers_are_lines_within_their_bound() {
    let catalogue = few();
    let index = Index::new(&catalogue);
    let hits = index.search("", None, 100);
    let names = render(&hits, Detail::Names, Dialect::Python, hits.len());
    assert_eq!(names.lines().count(), hits.len());
    assert!(names.starts_with("github.create_issue — Create a new issue in a GitHub repository\n"), "{names}");
    let signatures = render(&hits[..2], Detail::Signatures, Dialect::Python, 9);
    assert!(signatures.starts_with(&format!("{} — Create a new issue", signature(&hits[0].tool, Dialect::Python))));
    assert!(
        signatures.ends_with("2 of 9 tools; narrow the query, or ask for detail=\"full\" of fewer"),
        "{signatures}"
    );
    for bytes in [0, 200, 300, 400, 500] {
        for detail in [Detail::Names, Detail::Signatures, Detail::Full] {
            let text = render_within(&hits, detail, Dialect::TypeScript, hits.len(), bytes);
            assert!(text.len() <= bytes.max(160), "{bytes}: {}", text.len());
        }
    }
    assert!(render(&[], Detail::Names, Dialect::Python, 0).contains("No tool matches"));
}

#[test]
fn summaries_are_one_line() {
    assert_eq!(summary("Gets it. Then more."), "Gets it");
    assert_eq!(summary("  Gets\tit\nand more"), "Gets it");
    assert_eq!(summary("Purpose:\n  1. Lists all of it. Then more."), "Purpose: 1. Lists all of it");
    assert_eq!(summary("Purpose:"), "Purpose:");
    assert_eq!(summary(""), "");
    assert!(summary(&"word ".repeat(1000)).len() <= 170);
    assert!(!summary(&"\u{2028}x\r\n".repeat(10)).contains('\r'));
}

#[test]
fn the_note_names_every_server_and_stays_in_its_budget() {
    let note = catalogue_note(&few(), 600);
    assert!(note.starts_with("servers: github (3), gitlab (2), file_system (3), time (1)\n"), "{note}");
    assert!(note.ends_with("more: search_tools"));
    assert_eq!(note, catalogue_note(&few(), 600));
    assert_eq!(catalogue_note(&Catalogue::default(), 600), "");

    let many: Vec<Arc<Server>> = (0..400).map(|number| server(&format!("server_{number}"), vec![])).collect();
    for tokens in [20, 100, 600, 1000, 1400, 3000] {
        let note = catalogue_note(&Catalogue { servers: many.clone() }, tokens);
        assert!(note.len() <= (tokens as f32 * 3.4) as usize, "{tokens}: {}", note.len());
        match tokens {
            3000 => assert!(note.contains("server_399 (0)")),
            1400 => assert!(note.contains("server_399") && !note.contains("(0)")),
            _ => assert!(note.contains("more servers with 0 tools"), "{note}"),
        }
    }
}
