//! The tools of public servers as they sent them; `scripts/record-catalogue` makes the files anew.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One server's tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    pub server: String,
    pub package: String,
    pub version: String,
    pub licence: String,
    /// In the server's own words and order.
    pub tools: Vec<Value>,
}

/// The files. Part of the program, so that the benchmark needs nothing but itself.
const FILES: &[&str] = &[
    include_str!("../../catalogue/airtable.json"),
    include_str!("../../catalogue/arxiv.json"),
    include_str!("../../catalogue/atlassian.json"),
    include_str!("../../catalogue/aws_docs.json"),
    include_str!("../../catalogue/brave_search.json"),
    include_str!("../../catalogue/chrome_devtools.json"),
    include_str!("../../catalogue/circleci.json"),
    include_str!("../../catalogue/context7.json"),
    include_str!("../../catalogue/duckduckgo.json"),
    include_str!("../../catalogue/everart.json"),
    include_str!("../../catalogue/everything.json"),
    include_str!("../../catalogue/exa.json"),
    include_str!("../../catalogue/excel.json"),
    include_str!("../../catalogue/fetch.json"),
    include_str!("../../catalogue/figma.json"),
    include_str!("../../catalogue/filesystem.json"),
    include_str!("../../catalogue/firecrawl.json"),
    include_str!("../../catalogue/git.json"),
    include_str!("../../catalogue/github.json"),
    include_str!("../../catalogue/gitlab.json"),
    include_str!("../../catalogue/gmail.json"),
    include_str!("../../catalogue/google_calendar.json"),
    include_str!("../../catalogue/google_maps.json"),
    include_str!("../../catalogue/hubspot.json"),
    include_str!("../../catalogue/kubernetes.json"),
    include_str!("../../catalogue/linear.json"),
    include_str!("../../catalogue/markitdown.json"),
    include_str!("../../catalogue/memory.json"),
    include_str!("../../catalogue/mongodb.json"),
    include_str!("../../catalogue/notion.json"),
    include_str!("../../catalogue/playwright.json"),
    include_str!("../../catalogue/postgres.json"),
    include_str!("../../catalogue/puppeteer.json"),
    include_str!("../../catalogue/shopify_dev.json"),
    include_str!("../../catalogue/slack.json"),
    include_str!("../../catalogue/stripe.json"),
    include_str!("../../catalogue/tavily.json"),
    include_str!("../../catalogue/thinking.json"),
    include_str!("../../catalogue/time.json"),
];

impl Recorded {
    /// All that were recorded, by name. An error says which file is no record: it cannot be, once the tests have passed.
    pub fn all() -> Result<Vec<Recorded>, serde_json::Error> {
        FILES.iter().map(|text| serde_json::from_str(text)).collect()
    }

    pub fn tool(&self, name: &str) -> Option<&Value> {
        self.tools.iter().find(|tool| tool["name"] == name)
    }
}

/// So many tools of all: those that are needed (`server`, `tool`), then one of each server in turn. More than `size` where more
/// are needed, fewer where there are no more; each server's in its own order; always the same.
pub fn select(all: &[Recorded], needed: &[(&str, &str)], size: usize) -> Vec<Recorded> {
    let is_needed = |server: &Recorded, tool: &Value| {
        needed.iter().any(|(name, wanted)| *name == server.server && tool["name"] == **wanted)
    };
    let mut chosen: Vec<Vec<bool>> =
        all.iter().map(|server| server.tools.iter().map(|tool| is_needed(server, tool)).collect()).collect();
    let mut left = size.saturating_sub(chosen.iter().flatten().filter(|chosen| **chosen).count());
    let most = all.iter().map(|server| server.tools.len()).max().unwrap_or(0);
    for round in 0..most {
        for server in &mut chosen {
            if left > 0 && server.get(round) == Some(&false) {
                server[round] = true;
                left -= 1;
            }
        }
    }
    let kept = all.iter().zip(chosen).map(|(server, chosen)| {
        let tools = server.tools.iter().zip(chosen).filter(|(_, chosen)| *chosen).map(|(tool, _)| tool.clone());
        Recorded { tools: tools.collect(), ..server.clone() }
    });
    kept.filter(|server| !server.tools.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(servers: &[Recorded]) -> usize {
        servers.iter().map(|server| server.tools.len()).sum()
    }

    #[test]
    fn every_file_is_listed_and_is_a_record() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/catalogue");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        assert_eq!(files.filter(|path| path.extension().is_some_and(|end| end == "json")).count(), FILES.len());
        let all = Recorded::all().unwrap();
        assert!(all.len() >= 15 && number(&all) >= 150);
        for server in &all {
            assert!(!server.tools.is_empty() && !server.version.is_empty(), "{}", server.server);
            assert!(server.tools.iter().all(|tool| tool["name"].is_string() && tool["inputSchema"].is_object()));
            let known = ["MIT", "Apache-2.0", "ISC", "BSD-3-Clause", "BSD-2-Clause"];
            assert!(
                server.licence.split(" AND ").all(|part| known.contains(&part)),
                "{}: {}",
                server.server,
                server.licence
            );
        }
        assert!(FILES.iter().map(|file| file.len()).sum::<usize>() < 1_500_000);
    }

    #[test]
    fn a_selection_has_what_is_needed_and_the_size_that_was_asked_for() {
        let all = Recorded::all().unwrap();
        let needed = [("slack", "slack_post_message"), ("github", "get_pull_request_reviews")];
        for size in [2, 30, 96, 251, 508] {
            let chosen = select(&all, &needed, size);
            assert_eq!(number(&chosen), size);
            for (server, tool) in needed {
                assert!(
                    chosen.iter().any(|chosen| chosen.server == server && chosen.tool(tool).is_some()),
                    "{size} {tool}"
                );
            }
            assert_eq!(chosen, select(&all, &needed, size));
        }
        assert_eq!(number(&select(&all, &needed, 1)), 2);
        assert_eq!(number(&select(&all, &needed, 1_000_000)), number(&all));
    }
}
