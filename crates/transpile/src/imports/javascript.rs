//! `import`, `export ... from`, `import()` and `require()` of packages: not of files, URLs, or what Node has itself.

use oxc_allocator::Allocator;
use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_parser::Parser;
use oxc_span::SourceType;

use super::{Found, Imports};

#[derive(Debug, Clone, Copy)]
pub(super) enum Dialect {
    JavaScript,
    TypeScript,
}

pub(super) fn imports(source: &str, dialect: Dialect) -> Option<Imports> {
    let allocator = Allocator::default();
    let module = match dialect {
        Dialect::JavaScript => SourceType::mjs(),
        Dialect::TypeScript => SourceType::ts().with_module(true),
    };
    for kind in [module, module.with_script(true)] {
        let parsed = Parser::new(&allocator, source, kind).parse();
        if !parsed.panicked && !parsed.diagnostics.has_errors() {
            let mut look = Look { found: Found::default(), attempts: 0 };
            look.visit_program(&parsed.program);
            return Some(look.found.finish());
        }
    }
    None
}

struct Look {
    found: Found,
    /// How many `try` with a `catch` are around.
    attempts: u32,
}

impl Look {
    fn add(&mut self, specifier: &str) {
        let (name, version) = match specifier.strip_prefix("npm:") {
            Some(rest) => match split_version(rest.trim_start_matches('/')) {
                Some(parts) => parts,
                None => return,
            },
            // A file, a URL, something of Node's own, or an import map's.
            None if specifier.starts_with(['.', '/', '#']) || specifier.contains(':') || specifier.is_empty() => return,
            None => (specifier, None),
        };
        self.found.add(name, version, self.attempts > 0);
    }
}

/// `name@1.2/part` and `@scope/name@1.2/part`, as name and version; without one it is the latest.
fn split_version(text: &str) -> Option<(&str, Option<&str>)> {
    let at = text.char_indices().skip(1).find(|(_, c)| *c == '@').map(|(at, _)| at);
    let (name, version) = match at {
        Some(at) => (text.get(..at)?, text.get(at + 1..)?.split('/').next()?),
        None => (text, ""),
    };
    (!name.is_empty()).then_some((name, Some(if version.is_empty() { "latest" } else { version })))
}

impl<'a> Visit<'a> for Look {
    fn visit_import_declaration(&mut self, it: &ImportDeclaration<'a>) {
        if !it.import_kind.is_type() {
            self.add(&it.source.value);
        }
    }

    fn visit_export_from_declaration(&mut self, it: &ExportFromDeclaration<'a>) {
        if !it.export_kind.is_type() {
            self.add(&it.source.value);
        }
    }

    fn visit_export_all_declaration(&mut self, it: &ExportAllDeclaration<'a>) {
        if !it.export_kind.is_type() {
            self.add(&it.source.value);
        }
    }

    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        if let Some(text) = literal(&it.source) {
            self.add(text);
        }
        walk::walk_import_expression(self, it);
    }

    fn visit_call_expression(&mut self, it: &CallExpression<'a>) {
        let is_require = match &it.callee {
            Expression::Identifier(name) => name.name == "require",
            Expression::StaticMemberExpression(member) => {
                member.property.name == "resolve"
                    && matches!(&member.object, Expression::Identifier(name) if name.name == "require")
            }
            _ => false,
        };
        if let (true, [argument]) = (is_require, it.arguments.as_slice())
            && let Some(text) = argument.as_expression().and_then(literal)
        {
            self.add(text);
        }
        walk::walk_call_expression(self, it);
    }

    fn visit_ts_external_module_reference(&mut self, it: &TSExternalModuleReference<'a>) {
        self.add(&it.expression.value);
    }

    fn visit_try_statement(&mut self, it: &TryStatement<'a>) {
        let caught = u32::from(it.handler.is_some());
        self.attempts += caught;
        self.visit_block_statement(&it.block);
        self.attempts -= caught;
        if let Some(handler) = &it.handler {
            self.visit_catch_clause(handler);
        }
        if let Some(last) = &it.finalizer {
            self.visit_block_statement(last);
        }
    }
}

fn literal<'a>(expression: &'a Expression<'_>) -> Option<&'a str> {
    match expression {
        Expression::StringLiteral(text) => Some(text.value.as_str()),
        Expression::TemplateLiteral(text) if text.expressions.is_empty() => {
            text.quasis.first().and_then(|part| part.value.cooked.as_ref()).map(|text| text.as_str())
        }
        _ => None,
    }
}
