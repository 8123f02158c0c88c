//! What a sandbox can begin with: one template for each language and each version that the host has, and the operator's.

use belljar_core::Language;

use crate::Template;

/// The operator's own first: they may take the name of one of the host's.
pub(crate) fn all(interpreters: &[(Language, String)], own: &[Template]) -> Vec<Template> {
    let mut all = own.to_vec();
    let mut add = |name: String, interpreter: &str| {
        if !all.iter().any(|template| template.name == name) {
            all.push(Template { name, interpreters: vec![interpreter.to_owned()], ..Template::default() });
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
        assert_eq!((&all[0], &all[1].interpreters), (&own, &vec!["python-3.11".to_owned()]));
    }
}
