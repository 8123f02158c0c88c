//! What people call things, beside what tools call them.

use std::collections::HashMap;
use std::sync::LazyLock;

use super::words::stem;

/// Words that may stand for each other, and how far. An entry of two words is looked for as one, in tools and in queries.
const GROUPS: &[(f32, &[&str])] = &[
    // What is done.
    (0.8, &["create", "add", "new", "make", "insert"]),
    (0.6, &["create", "open", "start", "file", "raise", "set up", "register", "build", "draft"]),
    (0.6, &["write", "save", "store", "put", "create", "record", "note down"]),
    (0.6, &["add", "append", "attach", "insert", "put"]),
    (0.8, &["delete", "remove", "erase", "drop", "get rid", "clear", "destroy", "throw away", "trash", "purge"]),
    (0.8, &["list", "show", "get all", "enumerate", "see all", "browse", "overview"]),
    (0.7, &["get", "read", "fetch", "retrieve", "load", "show", "view", "display", "pull", "look at", "see", "obtain"]),
    (0.5, &["get", "list", "check", "inspect", "tell", "give"]),
    (0.5, &["details", "info", "information", "metadata", "about", "describe", "properties"]),
    (0.8, &["find", "search", "query", "look up", "lookup", "locate", "look for", "discover", "seek"]),
    (0.4, &["find", "get", "resolve"]),
    (0.8, &["edit", "update", "modify", "change", "alter", "set", "adjust", "patch", "revise", "correct"]),
    (0.6, &["replace", "substitute", "swap", "edit", "change"]),
    (0.7, &["rename", "move", "change name"]),
    (0.7, &["move", "transfer", "relocate", "drag"]),
    (0.7, &["send", "post", "message", "write", "publish", "tell"]),
    (0.7, &["message", "chat", "conversation", "dm", "text"]),
    (0.7, &["reply", "respond", "answer"]),
    (0.7, &["comment", "note", "remark", "feedback"]),
    (0.6, &["comment", "reply", "respond"]),
    (0.8, &["run", "execute", "invoke", "perform", "launch", "start", "trigger"]),
    (0.7, &["stop", "kill", "terminate", "end", "cancel", "abort", "shut down", "force"]),
    (0.7, &["close", "finish", "complete", "resolve", "done", "tick off"]),
    (0.6, &["copy", "duplicate", "clone", "fork"]),
    (0.7, &["merge", "combine", "join"]),
    (0.7, &["compare", "difference", "diff", "differ", "changes"]),
    (0.7, &["convert", "transform", "turn into", "translate"]),
    (0.7, &["download", "save", "fetch", "export"]),
    (0.7, &["upload", "attach", "import", "send"]),
    (0.6, &["analyze", "analyse", "inspect", "examine", "investigate", "audit", "check"]),
    (0.7, &["wait", "pause", "sleep", "until"]),
    (0.7, &["click", "press", "tap", "push"]),
    (0.7, &["type", "enter", "fill", "input", "fill in", "key"]),
    (0.7, &["select", "choose", "pick", "dropdown"]),
    (0.7, &["navigate", "go to", "visit", "open", "browse"]),
    (0.6, &["assign", "owner", "responsible", "assignee"]),
    (0.6, &["undo", "revert", "roll back", "rollback", "reset"]),
    (0.6, &["install", "set up", "deploy"]),
    (0.7, &["schedule", "plan", "book"]),
    (0.7, &["monitor", "watch", "notify", "alert", "follow", "track", "observe"]),
    (0.7, &["restrict", "validate", "validation", "allow only", "constrain", "forbid"]),
    (0.6, &["forward", "tunnel", "reach", "expose"]),
    (0.6, &["crawl", "scrape", "extract", "spider"]),
    (0.7, &["summarize", "summary", "overview", "digest"]),
    // What it is done to.
    (0.8, &["issue", "ticket", "bug", "problem", "defect", "bug report", "story"]),
    (0.6, &["task", "todo", "to do", "issue", "reminder", "chore"]),
    (0.9, &["pull request", "pr", "merge request", "mr", "code review"]),
    (0.8, &["repository", "repo", "project", "codebase"]),
    (0.8, &["directory", "folder", "dir", "path"]),
    (0.7, &["file", "document", "doc", "text", "contents"]),
    (0.7, &["documentation", "doc", "manual", "guide", "reference"]),
    (0.7, &["url", "web page", "webpage", "site", "website", "link", "page", "address", "web"]),
    (0.7, &["internet", "web", "online", "web search"]),
    (0.8, &["picture", "image", "screenshot", "screen shot", "photo", "snapshot", "capture", "visual", "drawing"]),
    (0.7, &["database", "db", "sql", "schema"]),
    (0.7, &["table", "sheet", "spreadsheet", "database"]),
    (0.8, &["spreadsheet", "excel", "workbook", "xlsx", "worksheet", "sheet"]),
    (0.7, &["row", "record", "entry", "tuple", "line"]),
    (0.7, &["column", "field", "property", "attribute"]),
    (0.6, &["formula", "calculate", "compute", "sum"]),
    (0.5, &["sum", "add", "plus", "total"]),
    (0.6, &["drive", "travel", "trip", "duration"]),
    (0.7, &["chart", "graph", "plot", "diagram"]),
    (
        0.8,
        &["user", "person", "people", "member", "colleague", "teammate", "account", "profile", "somebody", "someone"],
    ),
    (0.7, &["customer", "client", "buyer", "shopper"]),
    (0.6, &["company", "organization", "organisation", "team", "workspace"]),
    (0.8, &["email", "mail", "e mail", "inbox"]),
    (0.7, &["event", "appointment", "meeting", "calendar"]),
    (0.6, &["free", "available", "busy", "freebusy", "availability"]),
    (0.7, &["channel", "room", "group"]),
    (0.7, &["reaction", "emoji", "thumbs", "smiley"]),
    (0.7, &["thread", "conversation", "discussion", "replies"]),
    (0.7, &["tag", "label", "category"]),
    (0.6, &["release", "version", "tag"]),
    (0.7, &["history", "log", "commits", "past"]),
    (0.6, &["log", "output", "message", "trace"]),
    (0.7, &["error", "failure", "failed", "exception", "crash", "broken", "wrong"]),
    (0.7, &["pipeline", "build", "ci", "workflow", "job"]),
    (0.6, &["test", "tests", "spec", "flaky"]),
    (0.7, &["cell", "range", "cells"]),
    (0.7, &["place", "location", "restaurant", "cafe", "shop", "nearby", "venue"]),
    (0.7, &["directions", "route", "way", "drive", "walk", "navigate"]),
    (0.7, &["distance", "far", "travel time"]),
    (0.7, &["coordinates", "latitude", "longitude", "geocode"]),
    (0.7, &["elevation", "altitude", "height", "high"]),
    (0.7, &["time", "clock", "hour", "date"]),
    (0.7, &["timezone", "time zone", "zone"]),
    (0.7, &["price", "cost", "amount", "pricing"]),
    (0.7, &["payment", "charge", "pay", "money", "transaction"]),
    (0.7, &["invoice", "bill"]),
    (0.7, &["refund", "give back", "reimburse", "money back"]),
    (0.7, &["discount", "coupon", "voucher", "promo"]),
    (0.7, &["subscription", "plan", "recurring"]),
    (0.7, &["paper", "article", "publication", "study", "preprint"]),
    (0.7, &["news", "article", "headline"]),
    (0.7, &["library", "package", "framework", "dependency", "module", "sdk"]),
    (0.7, &["program", "process", "command", "application", "app"]),
    (0.7, &["command", "shell", "terminal", "bash", "console"]),
    (0.7, &["script", "code", "javascript", "js", "program"]),
    (0.7, &["kubernetes", "k8s", "kubectl", "cluster", "pod"]),
    (0.7, &["container", "pod", "docker"]),
    (0.7, &["environment", "env", "variable", "setting"]),
    (0.7, &["configuration", "config", "setting", "option", "preference"]),
    (0.6, &["tab", "window", "page"]),
    (0.6, &["button", "element", "link"]),
    (0.6, &["form", "field", "fill"]),
    (0.6, &["dialog", "alert", "popup", "prompt", "confirm"]),
    (0.6, &["network", "request", "http", "traffic", "xhr"]),
    (0.6, &["performance", "speed", "slow", "fast", "lighthouse"]),
    (0.7, &["memory", "remember", "knowledge", "know", "recall", "fact"]),
    (0.7, &["entity", "node", "thing", "object"]),
    (0.7, &["relation", "relationship", "edge", "connection", "link", "between"]),
    (0.6, &["permission", "access", "right", "allowed"]),
    (0.6, &["sprint", "iteration", "cycle", "milestone"]),
    (0.6, &["board", "kanban", "backlog"]),
    (0.6, &["status", "state", "transition", "progress", "done"]),
    (0.8, &["worklog", "log work", "time spent", "timesheet", "hours"]),
    (0.7, &["format", "style", "bold", "color", "colour", "font", "background"]),
    (0.7, &["calendar", "schedule", "agenda", "events"]),
    (0.7, &["workflow", "automation", "flow"]),
    (0.6, &["research", "report", "thorough", "study", "deep"]),
    (0.6, &["local", "localhost"]),
    (0.6, &["wiki", "confluence", "page"]),
    (0.7, &["key", "cache", "redis"]),
    (0.6, &["collection", "table"]),
    (0.6, &["index", "indexes", "indices"]),
    (0.6, &["design", "figma", "mockup", "layout"]),
    (0.7, &["markdown", "md"]),
    (0.6, &["size", "big", "large", "resize", "width"]),
    (0.6, &["previous", "back", "last", "return"]),
    (0.6, &["recent", "latest", "newest", "last"]),
    (0.6, &["similar", "related", "alike", "recommend"]),
    (0.6, &["think", "reason", "step", "ponder", "reasoning"]),
    (0.5, &["structure", "tree", "hierarchy", "recursive"]),
];

/// The synonyms of each stem, and the two-word entries.
pub(super) struct Synonyms {
    of: HashMap<String, Vec<(String, f32)>>,
    pairs: Pairs,
}

/// By the first word: the second, and both as one.
type Pairs = HashMap<String, Vec<(String, String)>>;

static TABLE: LazyLock<Synonyms> = LazyLock::new(Synonyms::new);

pub(super) fn table() -> &'static Synonyms {
    &TABLE
}

impl Synonyms {
    fn new() -> Synonyms {
        let mut of: HashMap<String, Vec<(String, f32)>> = HashMap::new();
        let mut pairs = Pairs::new();
        for (weight, group) in GROUPS {
            let stems: Vec<String> = group.iter().map(|entry| joined(entry, &mut pairs)).collect();
            for one in &stems {
                let known = of.entry(one.clone()).or_default();
                for other in stems.iter().filter(|other| *other != one) {
                    match known.iter_mut().find(|(word, _)| word == other) {
                        Some((_, already)) => *already = already.max(*weight),
                        None => known.push((other.clone(), *weight)),
                    }
                }
            }
        }
        Synonyms { of, pairs }
    }

    /// Never more than the table has; empty for most words.
    pub(super) fn of(&self, stem: &str) -> &[(String, f32)] {
        self.of.get(stem).map_or(&[], Vec::as_slice)
    }

    /// Whether some pair has it as its first word.
    pub(super) fn begins(&self, first: &str) -> bool {
        self.pairs.contains_key(first)
    }

    /// The one word that these two are, if they are one.
    pub(super) fn pair(&self, first: &str, second: &str) -> Option<&str> {
        let known = self.pairs.get(first)?.iter().find(|(word, _)| word == second)?;
        Some(&known.1)
    }
}

/// The stem of an entry; of two words, both with a blank between them, which no word of a text has.
fn joined(entry: &str, pairs: &mut Pairs) -> String {
    match entry.split_once(' ') {
        None => stem(entry),
        Some((first, second)) => {
            let (first, second) = (stem(first), stem(second));
            let whole = format!("{first} {second}");
            pairs.entry(first).or_default().push((second, whole.clone()));
            whole
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synonyms_go_both_ways_and_never_to_the_word_itself() {
        let table = table();
        for (stem, others) in &table.of {
            assert!(others.iter().all(|(other, _)| other != stem), "{stem}");
            for (other, weight) in others {
                assert!(table.of(other).iter().any(|(back, same)| back == stem && same == weight), "{stem} {other}");
            }
        }
        assert!(table.of("bug").iter().any(|(word, _)| *word == stem("issue")));
        assert!(table.of("pr").iter().any(|(word, _)| word == "pull request"));
        assert_eq!(table.pair("pull", "request"), Some("pull request"));
        assert_eq!(table.pair("request", "pull"), None);
    }
}
