//! Python's `import`, `from`, `importlib.import_module` and `__import__`, wherever they stand.

use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{ExceptHandler, Expr, Mod, Stmt, StmtImport, StmtImportFrom, StmtTry};
use ruff_python_parser::{Mode, ParseOptions};

use super::{Found, Imports};

/// Packages that many distributions share: of these `from a import b` has to be told as `a.b`.
const SHARED: [&str; 12] = [
    "azure",
    "backports",
    "google",
    "google.cloud",
    "jaraco",
    "mpl_toolkits",
    "opentelemetry",
    "opentelemetry.exporter",
    "opentelemetry.instrumentation",
    "ruamel",
    "sphinxcontrib",
    "zope",
];

pub(super) fn imports(source: &str) -> Option<Imports> {
    // As cells have it: `!command` and `%magic` are statements.
    let parsed = ruff_python_parser::parse(source, ParseOptions::from(Mode::Ipython)).ok()?;
    let Mod::Module(module) = parsed.into_syntax() else { return None };
    let mut look = Look { found: Found::default(), optional: false };
    look.visit_body(&module.body);
    Some(look.found.finish())
}

struct Look {
    found: Found,
    /// Within something that goes on where an import fails, or that no run ever comes to.
    optional: bool,
}

impl Look {
    fn add(&mut self, name: &str) {
        if !name.is_empty() && !name.starts_with('.') {
            self.found.add(name, None, self.optional);
        }
    }

    fn import(&mut self, it: &StmtImport) {
        for alias in &it.names {
            self.add(alias.name.as_str());
        }
    }

    fn import_from(&mut self, it: &StmtImportFrom) {
        let Some(module) = it.module.as_ref().filter(|_| it.level == 0) else { return };
        let module = module.as_str();
        if !SHARED.contains(&module) {
            return self.add(module);
        }
        for alias in &it.names {
            self.add(&format!("{module}.{}", alias.name.as_str()));
        }
    }

    fn call(&mut self, function: &Expr, arguments: &[Expr]) {
        let is_import = match function {
            Expr::Name(name) => matches!(name.id.as_str(), "__import__" | "import_module"),
            Expr::Attribute(it) => {
                it.attr.as_str() == "import_module"
                    && matches!(it.value.as_ref(), Expr::Name(name) if name.id.as_str() == "importlib")
            }
            _ => false,
        };
        // With a package beside it the name may be relative.
        if let ([Expr::StringLiteral(name)], true) = (arguments, is_import) {
            self.add(name.value.to_str());
        }
    }

    fn within(&mut self, optional: bool, body: &[Stmt]) {
        let before = self.optional;
        self.optional |= optional;
        self.visit_body(body);
        self.optional = before;
    }

    fn attempt(&mut self, it: &StmtTry) {
        let caught = it
            .handlers
            .iter()
            .any(|ExceptHandler::ExceptHandler(handler)| handler.type_.as_deref().is_none_or(catches_import_error));
        self.within(caught, &it.body);
        // What stands in for a module that is not there is itself something to do without: `except: import b as a`
        // is asked for only where `a` is missing, and `a` will not be.
        for ExceptHandler::ExceptHandler(handler) in &it.handlers {
            self.within(caught, &handler.body);
        }
        self.visit_body(&it.orelse);
        self.visit_body(&it.finalbody);
    }
}

impl<'a> Visitor<'a> for Look {
    fn visit_stmt(&mut self, statement: &'a Stmt) {
        match statement {
            Stmt::Import(it) => self.import(it),
            Stmt::ImportFrom(it) => self.import_from(it),
            Stmt::Try(it) => self.attempt(it),
            Stmt::If(it) if is_type_checking(&it.test) => {
                self.within(true, &it.body);
                it.elif_else_clauses.iter().for_each(|clause| self.visit_body(&clause.body));
            }
            _ => visitor::walk_stmt(self, statement),
        }
    }

    fn visit_expr(&mut self, expression: &'a Expr) {
        if let Expr::Call(it) = expression {
            self.call(&it.func, &it.arguments.args);
        }
        visitor::walk_expr(self, expression);
    }
}

fn catches_import_error(class: &Expr) -> bool {
    match class {
        Expr::Name(name) => {
            matches!(name.id.as_str(), "ImportError" | "ModuleNotFoundError" | "Exception" | "BaseException")
        }
        Expr::Tuple(classes) => classes.elts.iter().any(catches_import_error),
        _ => false,
    }
}

fn is_type_checking(test: &Expr) -> bool {
    match test {
        Expr::Name(name) => name.id.as_str() == "TYPE_CHECKING",
        Expr::Attribute(it) => it.attr.as_str() == "TYPE_CHECKING",
        _ => false,
    }
}
