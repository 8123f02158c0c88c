//! `import` and `export ... from`: a cell asks the driver's importer, a module keeps what is no type.

use oxc_ast::ast::*;
use oxc_span::{GetSpan, Span};

use crate::blank::Blank;
use crate::names::quoted;
use crate::scan;
use crate::transpile::{IMPORTER, Language};

impl Blank<'_> {
    pub(crate) fn import(&mut self, it: &ImportDeclaration<'_>) {
        if it.import_kind.is_type() {
            return self.remove(it.span);
        }
        let Some(specifiers) = &it.specifiers else {
            if !self.is_module() {
                self.replace_import(it, "void await ", None, "");
            }
            return;
        };
        if self.is_module() {
            return self.import_in_module(it, specifiers);
        }
        let mut fields = Vec::new();
        let mut wanted = Vec::new();
        let mut space = None;
        let mut locals = Vec::new();
        for specifier in specifiers {
            match specifier {
                ImportDeclarationSpecifier::ImportDefaultSpecifier(one) => {
                    fields.push(format!("default: {}", one.local.name));
                    wanted.push(quoted("default"));
                }
                ImportDeclarationSpecifier::ImportNamespaceSpecifier(one) => space = Some(one.local.name.as_str()),
                ImportDeclarationSpecifier::ImportSpecifier(one) if one.import_kind.is_type() => continue,
                ImportDeclarationSpecifier::ImportSpecifier(one) => {
                    let name = quoted(one.imported.name().as_str());
                    fields.push(format!("{name}: {}", one.local.name));
                    wanted.push(name);
                }
            }
            locals.push(specifier.local().name.as_str());
        }
        if fields.is_empty() && space.is_none() {
            // `import {} from "x"` runs the module; `import { type T } from "x"` names nothing that is there.
            if specifiers.is_empty() {
                self.replace_import(it, "void await ", None, "")
            } else {
                self.remove(it.span)
            }
            return;
        }
        let keyword = if locals.iter().any(|name| self.options.var.contains(*name)) {
            "var"
        } else if self.options.live || locals.iter().any(|name| self.options.lexical.contains(*name)) {
            "let"
        } else {
            "const"
        };
        let pattern = format!("{{ {} }}", fields.join(", "));
        match space {
            None => self.replace_import(it, &format!("{keyword} {pattern} = await "), Some(&wanted), ""),
            Some(space) if fields.is_empty() => {
                self.replace_import(it, &format!("{keyword} {space} = await "), None, "")
            }
            Some(space) => {
                let after = format!(", {pattern} = {space}");
                self.replace_import(it, &format!("{keyword} {space} = await "), None, &after);
            }
        }
    }

    fn replace_import(&mut self, it: &ImportDeclaration<'_>, before: &str, wanted: Option<&[String]>, after: &str) {
        let call = self.call(&it.source, it.with_clause.as_deref(), wanted);
        self.edits.replace(it.span.start, it.span.end, format!("{before}{call}{after};"));
    }

    fn call(&self, source: &StringLiteral<'_>, with: Option<&WithClause<'_>>, wanted: Option<&[String]>) -> String {
        let mut text = format!("{IMPORTER}({}", quoted(source.value.as_str()));
        let attributes = with.map(|with| {
            let pairs = with.with_entries.iter().map(|entry| {
                let key = match &entry.key {
                    ImportAttributeKey::Identifier(id) => id.name.as_str(),
                    ImportAttributeKey::StringLiteral(text) => text.value.as_str(),
                };
                format!("{}: {}", quoted(key), quoted(entry.value.value.as_str()))
            });
            format!("{{ with: {{ {} }} }}", pairs.collect::<Vec<_>>().join(", "))
        });
        match (attributes, wanted) {
            (None, None) => {}
            (Some(attributes), None) => text += &format!(", {attributes}"),
            (attributes, Some(wanted)) => {
                text += &format!(", {}, [{}]", attributes.unwrap_or_else(|| "undefined".to_owned()), wanted.join(", "));
                if self.options.language == Language::TypeScript {
                    // The name may be that of a type, which is nowhere at run time.
                    text += ", true";
                }
            }
        }
        text + ")"
    }

    pub(crate) fn reexport(
        &mut self,
        span: Span,
        source: &StringLiteral<'_>,
        with: Option<&WithClause<'_>>,
        types: bool,
    ) {
        if types {
            self.remove(span);
        } else if !self.is_module() {
            let call = self.call(source, with, None);
            self.edits.replace(span.start, span.end, format!("void await {call};"));
        }
    }

    /// Blanks `type T` in a list of exports that stays.
    pub(crate) fn blank_type_specifiers(&mut self, specifiers: &[ExportSpecifier<'_>]) {
        if self.is_module() {
            let spans =
                specifiers.iter().filter(|one| one.export_kind.is_type()).map(|one| one.span).collect::<Vec<_>>();
            spans.into_iter().for_each(|span| self.blank_with_comma(span));
        }
    }

    fn blank_with_comma(&mut self, span: Span) {
        let end = u32::try_from(self.source.len()).unwrap_or(u32::MAX);
        let comma = scan::tokens(self.source, span.end, end).next().filter(|token| token.text == ",");
        self.edits.blank(span.start, comma.map_or(span.end, scan::Token::end));
    }

    /// Of what a module imports, only that which it uses as a value is sure to be there.
    fn import_in_module(&mut self, it: &ImportDeclaration<'_>, specifiers: &[ImportDeclarationSpecifier<'_>]) {
        let unused = |one: &ImportDeclarationSpecifier<'_>| {
            let is_type = matches!(one, ImportDeclarationSpecifier::ImportSpecifier(one) if one.import_kind.is_type());
            is_type || !self.used.contains(one.local().name.as_str())
        };
        if specifiers.is_empty() {
            return;
        }
        if specifiers.iter().all(unused) {
            return self.remove(it.span);
        }
        let spans = specifiers.iter().filter(|one| unused(one)).map(GetSpan::span).collect::<Vec<_>>();
        spans.into_iter().for_each(|span| self.blank_with_comma(span));
    }
}
