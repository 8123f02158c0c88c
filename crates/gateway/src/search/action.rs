//! What a tool does to a thing, and what somebody wants done: `delete_issue` is no answer to "show me the issue", however
//! much of it they share.

use super::words::stem;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Make,
    Change,
    Remove,
    Look,
}

/// Only words that leave little doubt. Questions are there because whoever asks wants to know.
const WORDS: &[(Action, &[&str])] = &[
    (Action::Make, &["create", "add", "make", "new", "insert", "append", "write", "generate", "draft"]),
    (Action::Change, &["update", "edit", "modify", "change", "rename", "set", "patch", "move", "replace"]),
    (Action::Remove, &["delete", "remove", "erase", "drop", "clear", "uninstall", "unwatch", "forget"]),
    (
        Action::Look,
        &[
            "get", "list", "show", "read", "find", "search", "fetch", "view", "query", "retrieve", "lookup", "look",
            "see", "describe", "check", "what", "which", "who", "where", "how", "is", "are", "did", "does",
        ],
    ),
];

/// By the first word that says it.
pub(super) fn of<'a>(words: impl Iterator<Item = &'a str>) -> Option<Action> {
    let mut words = words;
    words.find_map(|word| {
        let known = |list: &[&str]| list.iter().any(|known| *known == word || stem(known) == word);
        WORDS.iter().find(|(_, list)| known(list)).map(|(action, _)| *action)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_that_says_it_counts() {
        let action = |text: &str| of(text.split(' '));
        assert_eq!(action("please delete the new issue"), Some(Action::Remove));
        assert_eq!(action("which issues"), Some(Action::Look));
        assert_eq!(action("slack reactions"), None);
        assert_eq!(action(&stem("creating")), Some(Action::Make));
    }
}
