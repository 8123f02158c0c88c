//! Statements and declarations that become other ones: enums, namespaces, parameter properties, exports, and names
//! that an earlier cell declared in another way.

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};

use crate::blank::Blank;
use crate::names::{self, quoted};
use crate::scan;

impl Blank<'_> {
    /// The statements of one block. `exported`: names of its enums and namespaces that belong to the namespace named
    /// first in each pair.
    pub(crate) fn statements(&mut self, statements: &[Statement<'_>], exported: &[(&str, &str)]) {
        let mut seen: Vec<&str> = Vec::new();
        for statement in statements {
            let declaration = match statement {
                Statement::ExportDeclaration(export) => Some(&export.declaration),
                other => other.as_declaration(),
            };
            match declaration {
                Some(Declaration::TSEnumDeclaration(one)) if !one.declare => {
                    self.unexport(statement);
                    let head = self.head(&one.id.name, &seen, exported);
                    self.enumeration(one, &head);
                }
                Some(Declaration::TSNamespaceDeclaration(one)) if names::has_values(one) => {
                    self.unexport(statement);
                    let head = self.head(&one.id.name, &seen, exported);
                    self.namespace(one, &head);
                }
                _ => self.visit_statement(statement),
            }
            if let Some(declaration) = declaration {
                seen.extend(names::declared(declaration));
            }
        }
    }

    fn unexport(&mut self, statement: &Statement<'_>) {
        if let Statement::ExportDeclaration(export) = statement
            && !(self.is_module() && self.depth == 0)
        {
            self.edits.blank(export.span.start, export.declaration.span().start);
        }
    }

    /// What goes before and after the function that fills an enum or a namespace.
    fn head(&self, name: &str, seen: &[&str], exported: &[(&str, &str)]) -> Head {
        let owner = exported.iter().find(|(_, one)| *one == name).map(|(owner, _)| *owner);
        let keyword = if self.depth > 0 || self.options.lexical.contains(name) { "let" } else { "var" };
        match owner {
            _ if seen.contains(&name) => Head { before: String::new(), after: format!("({name});") },
            Some(owner) => {
                Head { before: format!("let {name} = {owner}.{name} = "), after: format!("({owner}.{name} || {{}});") }
            }
            None => Head { before: format!("{keyword} {name} = "), after: "({});".to_owned() },
        }
    }

    /// `enum A { X, Y = 5 }` becomes `var A = ((A) => { let __v = -1; const X = ...; return A; })({});`. Each member is
    /// a constant too, for those after it that name it.
    fn enumeration(&mut self, it: &TSEnumDeclaration<'_>, head: &Head) {
        let name = it.id.name.as_str();
        let open = format!("{}(({name}) => {{ let __v = -1; ", head.before);
        self.edits.replace(it.span.start, it.body.span.start + 1, open);
        for member in &it.body.members {
            let key = match &member.id {
                TSEnumMemberName::Identifier(id) => id.name.to_string(),
                TSEnumMemberName::String(text) | TSEnumMemberName::ComputedString(text) => text.value.to_string(),
                TSEnumMemberName::ComputedTemplateString(text) => text
                    .quasis
                    .first()
                    .and_then(|quasi| quasi.value.cooked)
                    .map(|text| text.to_string())
                    .unwrap_or_default(),
            };
            let quoted_key = quoted(&key);
            let constant = if names::is_identifier(&key) && key != name && key != "__v" {
                format!("const {key} = ")
            } else {
                String::new()
            };
            let reverse = format!("typeof __v === \"number\" && ({name}[__v] = {quoted_key});");
            match &member.initializer {
                None => {
                    let text = format!("{constant}{name}[{quoted_key}] = ++__v; {reverse}");
                    self.edits.replace(member.span.start, member.span.end, text);
                }
                Some(value) => {
                    let text = format!("{constant}{name}[{quoted_key}] = __v = (");
                    self.edits.replace(member.span.start, value.span().start, text);
                    self.depth += 1;
                    self.visit_expression(value);
                    self.depth -= 1;
                    self.edits.insert(value.span().end, format!("); {reverse}"));
                }
            }
            if let Some(at) =
                scan::tokens(self.source, member.span.end, it.body.span.end).next().filter(|t| t.text == ",")
            {
                self.edits.blank(at.start, at.end());
            }
        }
        self.edits.replace(it.body.span.end - 1, it.body.span.end, format!("return {name}; }}){}", head.after));
    }

    fn namespace(&mut self, it: &TSNamespaceDeclaration<'_>, head: &Head) {
        let name = it.id.name.as_str();
        let open = format!("{}(({name}) => {{ ", head.before);
        let close = format!("; return {name}; }}){}", head.after);
        self.depth += 1;
        match &it.body {
            TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) => {
                self.edits.replace(it.span.start, inner.span.start, open);
                let owned = inner.id.name.as_str();
                let head = self.head(owned, &[], &[(name, owned)]);
                self.namespace(inner, &head);
                self.edits.insert(it.span.end, close);
            }
            TSNamespaceDeclarationBody::TSModuleBlock(block) => {
                let mut links = String::new();
                let mut owned = Vec::new();
                for statement in &block.body {
                    match statement {
                        Statement::ExportDeclaration(export) => match &export.declaration {
                            Declaration::TSEnumDeclaration(one) if !one.declare => {
                                owned.push((name, one.id.name.as_str()))
                            }
                            Declaration::TSNamespaceDeclaration(one) => owned.push((name, one.id.name.as_str())),
                            other => names::declared(other).iter().for_each(|one| links += &link(name, one, one)),
                        },
                        Statement::ExportNamedDeclaration(export) if export.export_kind.is_value() => {
                            for one in &export.specifiers {
                                links += &link(name, one.local.name().as_str(), one.exported.name().as_str());
                            }
                        }
                        _ => {}
                    }
                }
                self.edits.replace(it.span.start, block.span.start + 1, open + &links);
                self.statements(&block.body, &owned);
                self.edits.replace(block.span.end - 1, block.span.end, close);
            }
        }
        self.depth -= 1;
    }

    /// `constructor(private x)` also means `this.x = x`.
    pub(crate) fn parameter_properties(&mut self, constructor: &Function<'_>) {
        let mut text = String::new();
        for parameter in &constructor.params.items {
            if parameter.accessibility.is_none() && !parameter.readonly && !parameter.r#override {
                continue;
            }
            if let BindingPattern::BindingIdentifier(id) = &parameter.pattern {
                text += &format!("this.{0} = {0}; ", id.name);
            }
        }
        let Some(body) = &constructor.body else { return };
        if text.is_empty() {
            return;
        }
        let after_super = body.statements.iter().find_map(|statement| match statement {
            Statement::ExpressionStatement(one) if names::is_super_call(&one.expression) => Some(one.span.end),
            _ => None,
        });
        match after_super {
            Some(at) => self.edits.insert(at, format!("; {text}")),
            None => {
                let at = body.directives.last().map_or(body.span.start + 1, |directive| directive.span.end);
                self.edits.insert(at, format!(" {text}"));
            }
        }
    }

    /// Handles a statement that is not left as it is; `false` if the walk should go on into it.
    pub(crate) fn rewritten(&mut self, statement: &Statement<'_>) -> bool {
        match statement {
            Statement::ImportDeclaration(it) => self.import(it),
            Statement::ExportFromDeclaration(it) => {
                let types = it.export_kind.is_type()
                    || (!it.specifiers.is_empty() && it.specifiers.iter().all(|one| one.export_kind.is_type()));
                self.reexport(it.span, &it.source, it.with_clause.as_deref(), types);
                self.blank_type_specifiers(&it.specifiers);
            }
            Statement::ExportAllDeclaration(it) => {
                self.reexport(it.span, &it.source, it.with_clause.as_deref(), it.export_kind.is_type());
            }
            Statement::ExportNamedDeclaration(it) => {
                if !self.is_module() || it.export_kind.is_type() || self.depth > 0 {
                    self.remove(it.span);
                } else {
                    self.blank_type_specifiers(&it.specifiers);
                }
            }
            Statement::ExportDefaultDeclaration(it) => self.export_default(it),
            Statement::ExportDeclaration(it) => {
                if is_type_only(&it.declaration) {
                    self.remove(it.span);
                } else {
                    self.unexport(statement);
                    self.declaration(&it.declaration);
                }
            }
            Statement::TSExportAssignment(it) => {
                self.edits.replace(it.span.start, it.expression.span().start, "module.exports = ");
                self.visit_expression(&it.expression);
            }
            Statement::TSNamespaceExportDeclaration(it) => self.remove(it.span),
            other => match other.as_declaration() {
                Some(declaration) if is_type_only(declaration) => self.remove(declaration.span()),
                Some(declaration) => self.declaration(declaration),
                None => return false,
            },
        }
        true
    }

    fn declaration(&mut self, declaration: &Declaration<'_>) {
        if let Declaration::TSImportEqualsDeclaration(it) = declaration {
            // `import a = require("b")` and `import a = b.c`.
            if let Some(at) = scan::find(self.source, "import", it.span.start, it.span.end) {
                self.edits.replace(at, at + 6, if self.options.live { "let" } else { "const" });
            }
            return;
        }
        if self.depth == 0 {
            self.redeclare(declaration);
        }
        walk::walk_declaration(self, declaration);
    }

    /// Takes care of names that an earlier cell declared in another way.
    fn redeclare(&mut self, declaration: &Declaration<'_>) {
        let span = declaration.span();
        let names = names::declared(declaration);
        let as_var = names.iter().any(|name| self.options.var.contains(*name));
        let as_let = names.iter().any(|name| self.options.lexical.contains(*name));
        match declaration {
            Declaration::VariableDeclaration(it) => {
                let (word, length) = match it.kind {
                    VariableDeclarationKind::Const => ("const", 5),
                    VariableDeclarationKind::Let => ("let", 3),
                    VariableDeclarationKind::Var => ("var", 3),
                    VariableDeclarationKind::Using | VariableDeclarationKind::AwaitUsing => return,
                };
                let new = match word {
                    "const" | "let" if as_var => "var",
                    "const" if self.options.live || as_let => "let",
                    "var" if as_let => "let",
                    _ => return,
                };
                self.edits.replace(it.span.start, it.span.start + length, new);
            }
            Declaration::ClassDeclaration(_) if as_var => self.assigned("var", &names, span),
            Declaration::FunctionDeclaration(_) if as_let => self.assigned("let", &names, span),
            _ => {}
        }
    }

    fn assigned(&mut self, keyword: &str, names: &[&str], span: Span) {
        if let Some(name) = names.first() {
            self.edits.insert(span.start, format!("{keyword} {name} = "));
            self.edits.insert(span.end, ";");
        }
    }

    fn export_default(&mut self, it: &ExportDefaultDeclaration<'_>) {
        let inner = it.declaration.span();
        let named = match &it.declaration {
            ExportDefaultDeclarationKind::TSInterfaceDeclaration(_) => return self.remove(it.span),
            ExportDefaultDeclarationKind::FunctionDeclaration(function) if function.body.is_none() => {
                return self.remove(it.span);
            }
            ExportDefaultDeclarationKind::FunctionDeclaration(function) => function.id.is_some(),
            ExportDefaultDeclarationKind::ClassDeclaration(class) => class.id.is_some(),
            _ => false,
        };
        if !self.is_module() {
            if named {
                self.edits.blank(it.span.start, inner.start);
            } else {
                // The value of the cell, if nothing comes after it.
                self.edits.replace(it.span.start, inner.start, ";(");
                self.edits.insert(inner.end, ");");
            }
        }
        walk::walk_export_default_declaration_kind(self, &it.declaration);
    }
}

#[derive(Debug)]
struct Head {
    before: String,
    after: String,
}

/// Makes a namespace's name show the variable as it is now.
fn link(owner: &str, local: &str, exported: &str) -> String {
    let key = quoted(exported);
    let access = format!("get: () => {local}, set: (__v) => {{ {local} = __v; }}");
    format!("Object.defineProperty({owner}, {key}, {{ enumerable: true, configurable: true, {access} }}); ")
}

fn is_type_only(declaration: &Declaration<'_>) -> bool {
    match declaration {
        Declaration::TSTypeAliasDeclaration(_)
        | Declaration::TSInterfaceDeclaration(_)
        | Declaration::TSGlobalDeclaration(_)
        | Declaration::TSExternalModuleDeclaration(_) => true,
        Declaration::VariableDeclaration(it) => it.declare,
        Declaration::FunctionDeclaration(it) => it.declare || it.body.is_none(),
        Declaration::ClassDeclaration(it) => it.declare,
        Declaration::TSEnumDeclaration(it) => it.declare,
        Declaration::TSNamespaceDeclaration(it) => !names::has_values(it),
        Declaration::TSImportEqualsDeclaration(it) => it.import_kind.is_type(),
    }
}
