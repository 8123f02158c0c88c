//! What a sandbox can begin with: one template for each language and each version that the host has, and the operator's.

use belljar_core::{Ground, Language};

use crate::Template;

/// The operator's own first: they may take the name of one of the host's.
pub(crate) fn all(interpreters: &[(Language, String)], own: &[Template]) -> Vec<Template> {
    let mut all = own.to_vec();
    let mut add = |name: String, interpreter: &str| {
        if !all.iter().any(|template| template.name == name) {
            all.push(Template { name, ground: Ground::of(&[interpreter.to_owned()]), ..Template::default() });
        }
    };
    for (_, interpreter) in interpreters {
        // The first of a language is its default, and goes by the bare name too: `python`, `node`, `go`.
        let bare = interpreter.split_once('-').map_or(interpreter.as_str(), |(bare, _)| bare);
        add(bare.to_owned(), interpreter);
        add(interpreter.clone(), interpreter);
    }
    all
}

/// The language whose kernel waits in a sandbox with these interpreters: what was named is what will be used, and where
/// nothing was, that is mostly Python. `found` and `languages` are what the host has.
pub(crate) fn kernel(ground: &Ground, found: &[(Language, String)], languages: &[Language]) -> Option<Language> {
    // By the whole name, or the first part of it.
    let is_it = |name: &str, found: &str| {
        found.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    };
    let language = |name: &String| found.iter().find(|(_, found)| is_it(name, found))?.0.kernel();
    let usual = || languages.contains(&Language::Python).then_some(Language::Python);
    ground.interpreters.iter().find_map(language).or_else(usual)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_version_and_each_language_has_one() {
        let found = [
            (Language::Python, "python-3.11".to_owned()),
            (Language::Python, "python-3.8".to_owned()),
            (Language::JavaScript, "node-20".to_owned()),
            (Language::TypeScript, "node-20".to_owned()),
        ];
        let own = Template { name: "node".into(), env: vec![("A".into(), "1".into())], ..Template::default() };
        let all = all(&found, std::slice::from_ref(&own));
        let names: Vec<&str> = all.iter().map(|template| template.name.as_str()).collect();
        assert_eq!(names, ["node", "python", "python-3.11", "python-3.8", "node-20"]);
        assert_eq!((&all[0], &all[1].ground.interpreters), (&own, &vec!["python-3.11".to_owned()]));
    }

    #[test]
    fn the_kernel_is_that_of_what_was_named() {
        let found = [
            (Language::Python, "python-3.11".to_owned()),
            (Language::JavaScript, "node-20".to_owned()),
            (Language::TypeScript, "node-20".to_owned()),
            (Language::Go, "go-1.22".to_owned()),
        ];
        let of = |names: &[&str], languages: &[Language]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            kernel(&Ground::of(&names), &found, languages)
        };
        let all = Language::ALL.as_slice();
        assert_eq!(of(&["node-20"], all), Some(Language::JavaScript));
        assert_eq!(of(&["go", "node"], all), Some(Language::JavaScript), "the first that has kernels");
        assert_eq!(of(&["go-1.22"], all), Some(Language::Python));
        assert_eq!(of(&["go-1.22"], &[Language::Go]), None);
        assert_eq!(of(&[], all), Some(Language::Python));
        assert_eq!(of(&["node-2", ""], &[Language::Go]), None, "a name is not cut within a number");
    }
}
