//! The workflows of the token benchmark: what is asked, what a model would call, and the program that it would write.
//!
//! Nothing here is a result. What direct calls are made after others follows from what those gave, and so does the answer;
//! the program has to come to the same one.

use serde_json::{Map, Value, json};

/// One piece of work, for every arm.
#[derive(Debug, Clone, Copy)]
pub struct Workflow {
    /// In tables and options. Never changes.
    pub name: &'static str,
    /// In one line, for people.
    pub about: &'static str,
    /// What the user says.
    pub request: &'static str,
    /// What a model would look for, all at once.
    pub searches: &'static [&'static str],
    /// The tools that it takes: `server`, `tool`, in the upstream's spelling.
    pub needed: &'static [(&'static str, &'static str)],
    /// The direct calls that follow what is known by now: none when all is known.
    pub next: fn(&Results) -> Option<Vec<Call>>,
    /// What the user is told, from the results of all direct calls.
    pub answer: fn(&Results) -> Option<String>,
    /// In Python.
    pub program: &'static str,
    /// How many tools there are.
    pub sizes: &'static [usize],
}

#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    pub server: &'static str,
    pub tool: &'static str,
    pub arguments: Map<String, Value>,
}

/// What the direct calls gave: for each step, the text of each call of it.
#[derive(Debug, Clone, Default)]
pub struct Results(pub Vec<Vec<String>>);

impl Results {
    fn text(&self, step: usize) -> Option<&str> {
        Some(self.0.get(step)?.first()?)
    }

    fn json(&self, step: usize) -> Option<Value> {
        serde_json::from_str(self.text(step)?).ok()
    }

    fn steps(&self) -> usize {
        self.0.len()
    }
}

fn call(server: &'static str, tool: &'static str, arguments: Value) -> Option<Vec<Call>> {
    Some(vec![Call { server, tool, arguments: arguments.as_object()?.clone() }])
}

const NOTHING: Option<Vec<Call>> = Some(Vec::new());

pub const ALL: &[Workflow] = &[
    Workflow {
        name: "documents",
        about: "a long transcript goes from one service into another",
        request: "Take the transcript of the quarterly planning call from Notion (page 3f1c9a52-7d0e-4b8a-9c57-2e6b1d4f8a90) and \
                  attach it as a note to deal 90210 in HubSpot; I am owner 4711.",
        searches: &["read the content of a notion page as markdown", "create a note in hubspot"],
        needed: &[("notion", "API-retrieve-page-markdown"), ("hubspot", "hubspot-create-engagement")],
        next: documents,
        answer: |results| Some(format!("Attached as note {}.", results.json(1)?["engagement"]["id"])),
        program: include_str!("programs/documents.py"),
        sizes: &[30, 96, 251, 508],
    },
    Workflow {
        name: "chain",
        about: "nine calls, each after the other, with small results",
        request: "In acme/billing, take the open bug with the most comments (of the first ten), see which files the first open pull \
                  request (of five) touches and whether its checks pass, file a bug in Jira project OPS for it with its text, comment \
                  there on the pull request, link the ticket on the issue and tell channel C024BE91L.",
        searches: &[
            "github list issues, get issue, comment on an issue",
            "github pull requests: list, files, status",
            "jira create issue and add comment",
            "slack post message",
        ],
        needed: &[
            ("github", "list_issues"),
            ("github", "get_issue"),
            ("github", "list_pull_requests"),
            ("github", "get_pull_request_files"),
            ("github", "get_pull_request_status"),
            ("github", "add_issue_comment"),
            ("atlassian", "jira_create_issue"),
            ("atlassian", "jira_add_comment"),
            ("slack", "slack_post_message"),
        ],
        next: chain,
        answer: |results| {
            let (issue, pull, status) = (results.json(1)?, results.json(2)?, results.json(4)?);
            let key = results.json(5)?["issue"]["key"].as_str()?.to_owned();
            let (number, pull, state) = (&issue["number"], &pull[0]["number"], status["state"].as_str()?);
            Some(format!("{key} for issue {number}; pull request {pull} is {state}."))
        },
        program: include_str!("programs/chain.py"),
        sizes: &[30, 96, 251, 508],
    },
    Workflow {
        name: "lookups-sequential",
        about: "twenty lookups, one after the other",
        next: |results| if results.steps() < ADDRESSES { Some(vec![geocode(results.steps())]) } else { NOTHING },
        ..LOOKUPS
    },
    LOOKUPS,
    Workflow {
        name: "rows",
        about: "ten thousand rows are filtered",
        request: "In Airtable base appShop2026, table tblOrders: how many of the first 10,000 orders are pending, from Lagos and over \
                  900, and what is their sum?",
        searches: &["list records of an airtable table"],
        needed: &[("airtable", "list_records")],
        next: |results| match results.steps() {
            0 => {
                let arguments = json!({"baseId": "appShop2026", "tableId": "tblOrders", "maxRecords": 10000});
                call("airtable", "list_records", arguments)
            }
            _ => NOTHING,
        },
        answer: |results| {
            let rows = results.json(0)?;
            let fields = rows["records"].as_array()?.iter().map(|row| &row["fields"]);
            let late = fields.filter(|row| row["Status"] == "pending" && row["City"] == "Lagos");
            let amounts: Vec<f64> =
                late.filter_map(|row| row["Amount"].as_f64()).filter(|amount| *amount > 900.0).collect();
            let sum = (amounts.iter().sum::<f64>() * 100.0).round() / 100.0;
            Some(format!("{} orders, {sum} in all.", amounts.len()))
        },
        program: include_str!("programs/rows.py"),
        sizes: &[30, 508],
    },
    Workflow {
        name: "single",
        about: "one call with a small result: what code mode is not for",
        request: "What time is it in Tokyo?",
        searches: &["current time in a timezone"],
        needed: &[("time", "get_current_time")],
        next: |results| match results.steps() {
            0 => call("time", "get_current_time", json!({"timezone": "Asia/Tokyo"})),
            _ => NOTHING,
        },
        answer: |results| Some(results.json(0)?["datetime"].as_str()?.to_owned()),
        program: include_str!("programs/single.py"),
        sizes: &[2, 10, 30, 508],
    },
    Workflow {
        name: "shown",
        about: "a large result that the user wants to see in full",
        request: "Show me https://example.com/minutes, all of it.",
        searches: &["fetch a web page"],
        needed: &[("fetch", "fetch")],
        next: |results| match results.steps() {
            0 => call("fetch", "fetch", json!({"url": "https://example.com/minutes", "max_length": 100_000})),
            _ => NOTHING,
        },
        answer: |results| Some(results.text(0)?.to_owned()),
        program: include_str!("programs/shown.py"),
        sizes: &[2, 10, 30, 508],
    },
    Workflow {
        name: "retry",
        about: "a call that fails, and is made again with what was missing",
        request: "Move OPS-7 to Done in Jira; I think the transition is 5.",
        searches: &["jira transition issue to another status, and which transitions there are"],
        needed: &[("atlassian", "jira_transition_issue"), ("atlassian", "jira_get_transitions")],
        next: |results| {
            let transition = |id: &str| {
                call("atlassian", "jira_transition_issue", json!({"issue_key": "OPS-7", "transition_id": id}))
            };
            match results.steps() {
                0 => transition("5"),
                1 => call("atlassian", "jira_get_transitions", json!({"issue_key": "OPS-7"})),
                2 => transition(results.json(1)?.as_array()?.iter().find(|way| way["name"] == "Done")?["id"].as_str()?),
                _ => NOTHING,
            }
        },
        answer: |results| Some(results.json(2)?["message"].as_str()?.to_owned()),
        program: include_str!("programs/retry.py"),
        sizes: &[30, 508],
    },
];

const ADDRESSES: usize = 20;

const LOOKUPS: Workflow = Workflow {
    name: "lookups-parallel",
    about: "twenty lookups, all in one turn",
    request: "Which of the houses 1 to 20 of Lindenstrasse, Berlin is the northernmost?",
    searches: &["coordinates of an address"],
    needed: &[("google_maps", "maps_geocode")],
    next: |results| if results.steps() == 0 { Some((0..ADDRESSES).map(geocode).collect()) } else { NOTHING },
    answer: |results| {
        let mut best: Option<(String, Value)> = None;
        for (number, text) in results.0.iter().flatten().enumerate() {
            let place: Value = serde_json::from_str(text).ok()?;
            let north = place["location"]["lat"].clone();
            let known = best.as_ref().map_or(f64::NEG_INFINITY, |(_, known)| known.as_f64().unwrap_or(f64::INFINITY));
            if north.as_f64()? > known {
                best = Some((address(number), north));
            }
        }
        best.map(|(address, north)| format!("{address} at {north}."))
    },
    program: include_str!("programs/lookups.py"),
    sizes: &[30, 96, 508],
};

fn address(place: usize) -> String {
    format!("Lindenstrasse {}, Berlin", place + 1)
}

fn geocode(place: usize) -> Call {
    let arguments = Map::from_iter([("address".to_owned(), Value::String(address(place)))]);
    Call { server: "google_maps", tool: "maps_geocode", arguments }
}

fn documents(results: &Results) -> Option<Vec<Call>> {
    match results.steps() {
        0 => {
            let page = "3f1c9a52-7d0e-4b8a-9c57-2e6b1d4f8a90";
            call("notion", "API-retrieve-page-markdown", json!({"page_id": page, "include_transcript": true}))
        }
        1 => {
            // All of it, word by word: this is what a copy costs whoever has to write it.
            let metadata = json!({"body": results.json(0)?["markdown"].as_str()?});
            let associations = json!({"dealIds": [90210]});
            let arguments =
                json!({"type": "NOTE", "ownerId": 4711, "associations": associations, "metadata": metadata});
            call("hubspot", "hubspot-create-engagement", arguments)
        }
        _ => NOTHING,
    }
}

fn chain(results: &Results) -> Option<Vec<Call>> {
    let github = |tool, more: Value| {
        let mut arguments = json!({"owner": "acme", "repo": "billing"}).as_object()?.clone();
        arguments.extend(more.as_object()?.clone());
        call("github", tool, Value::Object(arguments))
    };
    let pull = || Some(json!({"pull_number": results.json(2)?[0]["number"]}));
    let key = || Some(results.json(5)?["issue"]["key"].as_str()?.to_owned());
    match results.steps() {
        0 => github("list_issues", json!({"state": "open", "labels": ["bug"], "per_page": 10})),
        1 => {
            let bugs = results.json(0)?;
            let mut worst = bugs.get(0)?;
            for bug in bugs.as_array()? {
                if bug["comments"].as_u64()? > worst["comments"].as_u64()? {
                    worst = bug;
                }
            }
            github("get_issue", json!({"issue_number": worst["number"]}))
        }
        2 => github("list_pull_requests", json!({"state": "open", "per_page": 5})),
        3 => github("get_pull_request_files", pull()?),
        4 => github("get_pull_request_status", pull()?),
        5 => {
            let issue = results.json(1)?;
            let (summary, description) = (&issue["title"], &issue["body"]);
            let arguments =
                json!({"project_key": "OPS", "summary": summary, "issue_type": "Bug", "description": description});
            call("atlassian", "jira_create_issue", arguments)
        }
        6 => {
            let files = results.json(3)?.as_array()?.len();
            let state = results.json(4)?["state"].as_str()?.to_owned();
            let number = results.json(2)?[0]["number"].clone();
            let body = format!("Pull request {number} ({state}) touches {files} files.");
            call("atlassian", "jira_add_comment", json!({"issue_key": key()?, "body": body}))
        }
        7 => {
            let number = results.json(1)?["number"].clone();
            github("add_issue_comment", json!({"issue_number": number, "body": format!("Tracked as {}.", key()?)}))
        }
        8 => {
            let title = results.json(1)?["title"].as_str()?.to_owned();
            let text = format!("{}: {title}", key()?);
            call("slack", "slack_post_message", json!({"channel_id": "C024BE91L", "text": text}))
        }
        _ => NOTHING,
    }
}
