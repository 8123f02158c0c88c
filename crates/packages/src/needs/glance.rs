//! A look at the text that spares a sandbox: most programs import what is there, or say what they import in plain lines.

use std::collections::BTreeSet;

use belljar_core::Language;

use super::reader::Module;
use crate::names;

/// Whether there is a word at all that imports.
pub(super) fn mentions(language: Language, code: &str) -> bool {
    match language {
        Language::Python => code.contains("import"),
        _ => ["import", "require", "export"].iter().any(|word| code.contains(word)),
    }
}

/// What Python code imports that is not known, where the text leaves no doubt; `None` where a parser has to say.
pub(super) fn modules(code: &str, known: &BTreeSet<String>, local: &[String]) -> Option<Vec<Module>> {
    let is_known = |module: &&str| {
        let top = module.split('.').next().unwrap_or_default();
        known.contains(top) && !names::is_shared(top) || local.iter().any(|one| one == top)
    };
    // Without these a line that begins with `import` is a statement, and none of a `try`.
    let lines_are_statements = !code.contains("\"\"\"")
        && !code.contains("'''")
        && !code.lines().any(|line| line.ends_with('\\') || line.starts_with("%%"));
    let mut found = Vec::new();
    for line in code.lines().filter(|line| line.contains("import")) {
        let modules = of_line(line.trim())?;
        let missing = modules.into_iter().filter(|module| !is_known(module)).collect::<Vec<_>>();
        if missing.is_empty() {
            // Wherever it stands, it brings nothing that is not there.
            continue;
        }
        let is_statement = lines_are_statements && line.starts_with(['i', 'f']);
        if !is_statement || missing.iter().any(|module| names::is_shared(module.split('.').next().unwrap_or_default()))
        {
            return None;
        }
        found.extend(missing.into_iter().map(|name| Module { name: name.to_owned(), version: None, optional: false }));
    }
    Some(found)
}

/// The modules of `import a, b as c` or `from a.b import ...`, with nothing beside it.
fn of_line(line: &str) -> Option<Vec<&str>> {
    if line.contains([';', '\\', ':', '`', '!', '\'', '"']) || line.matches("import").count() != 1 {
        return None;
    }
    let is_module = |text: &str| {
        let is_name = |part: &str| {
            part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
                && !part.starts_with(|c: char| c.is_ascii_digit())
        };
        text.split('.').all(|part| !part.is_empty() && is_name(part))
    };
    let modules = if let Some(modules) = line.strip_prefix("import ") {
        let mut names = Vec::new();
        for one in modules.split(',').map(str::trim) {
            match one.split_once(' ') {
                None => names.push(one),
                Some((module, rest)) if rest.trim_start().starts_with("as ") => names.push(module),
                Some(_) => return None,
            }
        }
        names
    } else {
        vec![line.strip_prefix("from ")?.split_once(" import ")?.0.trim()]
    };
    modules.iter().all(|module| is_module(module)).then_some(modules)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> Option<Vec<String>> {
        let known = ["os", "sys", "json", "numpy", "google"].map(str::to_owned).into();
        let modules = modules(code, &known, &["mine".to_owned()])?;
        Some(modules.into_iter().map(|module| module.name).collect())
    }

    #[test]
    fn plain_imports_of_known_modules_are_seen_through() {
        for code in [
            "print(1)",
            "import os, sys as s\nfrom json.x import (a,\n b)\n  import numpy as np\nprint(os)",
            "import mine",
            "try:\n    import os\nexcept: pass\n\"\"\"\nimport sys\n\"\"\"",
        ] {
            assert_eq!(found(code), Some(Vec::new()), "{code}");
        }
    }

    #[test]
    fn plain_lines_say_what_they_import() {
        let code = "import os\nimport pandas as pd, numpy\nfrom sklearn.svm import SVC\nprint('x')\n";
        assert_eq!(found(code).unwrap(), ["pandas", "sklearn.svm"]);
    }

    #[test]
    fn whatever_else_is_left_to_the_parser() {
        for code in [
            "import os; import pandas",
            "if 1: import pandas",
            "import os, \\\n pandas",
            "x = \\\nimport pandas",
            "__import__('pandas')",
            "importlib.import_module(x)",
            "from . import x",
            "from .x import y",
            "try:\n    import pandas\nexcept ImportError:\n    pass",
            "text = '''\nimport pandas\n'''",
            "%%writefile x.py\nimport pandas",
            "from google.cloud import storage",
            "import pandas # imported",
            "import pandas as",
            "import 3x",
        ] {
            assert_eq!(found(code), None, "{code}");
        }
    }
}
