//! The walk over the tree that collects the edits. What is written anew is in `declare` and `import`.

use std::collections::{HashMap, HashSet};

use oxc_ast::ast::*;
use oxc_ast_visit::{Visit, walk};
use oxc_span::{GetSpan, Span};
use oxc_syntax::scope::ScopeFlags;

use crate::edits::{Edits, is_line_end};
use crate::names;
use crate::scan;
use crate::transpile::{IMPORTER, Language, Options};

const MODIFIERS: [&str; 7] = ["public", "private", "protected", "readonly", "declare", "override", "abstract"];

#[derive(Debug)]
pub(crate) struct Blank<'s> {
    pub(crate) source: &'s str,
    pub(crate) options: &'s Options,
    pub(crate) edits: Edits,
    /// The first thing that cannot be done.
    wrong: Option<(u32, String)>,
    /// Where statements end for which the end of the line stands in for a semicolon.
    open_ends: HashSet<u32>,
    /// Names read as values. Only for [`Language::Module`], where imports of types alone must go.
    pub(crate) used: HashSet<String>,
    /// Top-level `const` names of a live cell that nothing else in the cell binds.
    constants: HashSet<String>,
    /// How deep in blocks and functions the walk is: 0 is the top level of the cell.
    pub(crate) depth: usize,
}

impl<'s> Blank<'s> {
    pub(crate) fn new(source: &'s str, options: &'s Options) -> Self {
        Self {
            source,
            options,
            edits: Edits::default(),
            wrong: None,
            open_ends: HashSet::new(),
            used: HashSet::new(),
            constants: HashSet::new(),
            depth: 0,
        }
    }

    /// Looks at the whole before the walk: what is bound, and what is used.
    pub(crate) fn prepare(&mut self, program: &Program<'_>) {
        if self.options.language == Language::Module || self.options.live {
            let mut uses = Uses::default();
            uses.visit_program(program);
            self.used = uses.read;
            if self.options.live {
                self.constants = top_constants(program);
                self.constants.retain(|name| uses.bound.get(name) == Some(&1));
            }
        }
    }

    pub(crate) fn finish(self) -> (Edits, Option<(u32, String)>) {
        (self.edits, self.wrong)
    }

    pub(crate) fn refuse(&mut self, at: u32, message: &str) {
        if self.wrong.as_ref().is_none_or(|(first, _)| at < *first) {
            self.wrong = Some((at, message.to_owned()));
        }
    }

    /// Keeps imports and exports: Node's own loader takes them.
    pub(crate) fn is_module(&self) -> bool {
        self.options.language == Language::Module
    }

    /// Takes a whole statement or class element away. The semicolon ends what stands before it without one.
    pub(crate) fn remove(&mut self, span: Span) {
        self.edits.replace(span.start, span.start + 1, ";");
        self.edits.blank(span.start + 1, span.end);
    }

    /// Blanks the tail of an expression; where the end of the line ended the statement, that must stay so.
    fn blank_tail(&mut self, start: u32, end: u32) {
        if self.open_ends.contains(&end) {
            self.edits.replace(start, start + 1, ";");
            self.edits.blank(start + 1, end);
        } else {
            self.edits.blank(start, end);
        }
    }

    fn note_end(&mut self, span: Span) {
        let text = self.source.get(span.start as usize..span.end as usize).unwrap_or_default();
        if !text.ends_with([';', '}']) {
            self.open_ends.insert(span.end);
        }
    }

    /// Blanks the words of `MODIFIERS` in front of a name.
    fn blank_modifiers(&mut self, start: u32, end: u32) -> bool {
        let words = scan::tokens(self.source, start, end).filter(|token| MODIFIERS.contains(&token.text));
        let spans = words.map(|token| (token.start, token.end())).collect::<Vec<_>>();
        spans.iter().for_each(|&(from, to)| self.edits.blank(from, to));
        !spans.is_empty()
    }

    /// Blanks the `?` or `!` behind a name.
    fn blank_mark(&mut self, mark: &str, start: u32, end: u32) {
        if let Some(at) = scan::find(self.source, mark, start, end) {
            self.edits.blank(at, at + 1);
        }
    }

    fn element_head(&mut self, element: Span, decorators: &[Decorator<'_>], key: &PropertyKey<'_>, computed: bool) {
        let start = decorators.last().map_or(element.start, |decorator| decorator.span.end);
        let end = key.span().start;
        let first = scan::tokens(self.source, start, end).next();
        let begins_so = first.filter(|token| MODIFIERS.contains(&token.text));
        let generator = scan::find(self.source, "*", start, end).is_some();
        match begins_so {
            // `x = 1` and then `readonly ["y"] = 2`: without the word the bracket would belong to the line before.
            Some(token) if computed || generator => {
                self.edits.replace(token.start, token.start + 1, ";");
                self.edits.blank(token.start + 1, token.end());
                self.blank_modifiers(token.end(), end);
            }
            _ => {
                self.blank_modifiers(start, end);
            }
        }
    }

    fn after_key(&self, key: &PropertyKey<'_>, computed: bool, end: u32) -> u32 {
        let after = key.span().end;
        if computed { scan::find(self.source, "]", after, end).map_or(after, |at| at + 1) } else { after }
    }

    fn contains_line_end(&self, start: u32, end: u32) -> bool {
        self.source.get(start as usize..end as usize).is_some_and(|text| text.contains(is_line_end))
    }
}

fn top_constants(program: &Program<'_>) -> HashSet<String> {
    let mut found = Vec::new();
    for statement in &program.body {
        let variables = match statement {
            Statement::VariableDeclaration(variables) => variables,
            Statement::ExportDeclaration(export) => match &export.declaration {
                Declaration::VariableDeclaration(variables) => variables,
                _ => continue,
            },
            _ => continue,
        };
        if variables.kind == VariableDeclarationKind::Const {
            variables.declarations.iter().for_each(|one| names::bound(&one.id, &mut found));
        }
    }
    found.into_iter().map(str::to_owned).collect()
}

impl<'a> Visit<'a> for Blank<'_> {
    fn visit_program(&mut self, it: &Program<'a>) {
        self.statements(&it.body, &[]);
    }

    fn visit_statements(&mut self, it: &oxc_allocator::ArenaVec<'a, Statement<'a>>) {
        self.depth += 1;
        self.statements(it, &[]);
        self.depth -= 1;
    }

    fn visit_statement(&mut self, it: &Statement<'a>) {
        self.note_end(it.span());
        if !self.rewritten(it) {
            walk::walk_statement(self, it);
        }
    }

    // Types

    fn visit_ts_type_annotation(&mut self, it: &TSTypeAnnotation<'a>) {
        self.edits.blank(it.span.start, it.span.end);
    }

    fn visit_ts_type_parameter_declaration(&mut self, it: &TSTypeParameterDeclaration<'a>) {
        self.edits.blank(it.span.start, it.span.end);
    }

    fn visit_ts_type_parameter_instantiation(&mut self, it: &TSTypeParameterInstantiation<'a>) {
        self.edits.blank(it.span.start, it.span.end);
    }

    fn visit_ts_this_parameter(&mut self, it: &TSThisParameter<'a>) {
        let next = scan::tokens(self.source, it.span.end, u32::try_from(self.source.len()).unwrap_or(u32::MAX)).next();
        let end = next.filter(|token| token.text == ",").map_or(it.span.end, scan::Token::end);
        self.edits.blank(it.span.start, end);
    }

    fn visit_ts_class_implements_list(&mut self, _: &oxc_allocator::ArenaVec<'a, TSClassImplements<'a>>) {}

    fn visit_ts_as_expression(&mut self, it: &TSAsExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_tail(it.expression.span().end, it.span.end);
    }

    fn visit_ts_satisfies_expression(&mut self, it: &TSSatisfiesExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_tail(it.expression.span().end, it.span.end);
    }

    fn visit_ts_instantiation_expression(&mut self, it: &TSInstantiationExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_tail(it.expression.span().end, it.span.end);
    }

    fn visit_ts_non_null_expression(&mut self, it: &TSNonNullExpression<'a>) {
        self.visit_expression(&it.expression);
        self.blank_tail(it.span.end - 1, it.span.end);
    }

    fn visit_ts_type_assertion(&mut self, it: &TSTypeAssertion<'a>) {
        // In parentheses, since a line may end within the type, as after `return`.
        self.edits.replace(it.span.start, it.span.start + 1, "(");
        self.edits.blank(it.span.start + 1, it.expression.span().start);
        let open = self.open_ends.remove(&it.span.end);
        self.visit_expression(&it.expression);
        self.edits.insert(it.span.end, if open { ");" } else { ")" });
    }

    // Functions, parameters and variables

    fn visit_arrow_function_expression(&mut self, it: &ArrowFunctionExpression<'a>) {
        if let Some(parameters) = &it.type_parameters {
            self.visit_ts_type_parameter_declaration(parameters);
        }
        self.visit_formal_parameters(&it.params);
        if let Some(result) = &it.return_type {
            if self.contains_line_end(it.params.span.end, result.span.end) {
                // No line may end between `)` and `=>`: the parenthesis moves to the end of the type.
                self.edits.blank(it.params.span.end - 1, result.span.end - 1);
                self.edits.replace(result.span.end - 1, result.span.end, ")");
            } else {
                self.visit_ts_type_annotation(result);
            }
        }
        self.depth += 1;
        self.visit_arrow_function_body(&it.body);
        self.depth -= 1;
    }

    fn visit_formal_parameter(&mut self, it: &FormalParameter<'a>) {
        if let Some(decorator) = it.decorators.first() {
            self.visit_decorator(decorator);
        }
        let pattern = it.pattern.span();
        self.blank_modifiers(it.span.start, pattern.start);
        let after = it.type_annotation.as_ref().map(|annotation| annotation.span.start);
        let value = it.initializer.as_ref().map(|initializer| initializer.span().start);
        if it.optional {
            self.blank_mark("?", pattern.end, after.or(value).unwrap_or(it.span.end.max(pattern.end + 1)));
        }
        walk::walk_formal_parameter(self, it);
    }

    fn visit_variable_declarator(&mut self, it: &VariableDeclarator<'a>) {
        if it.definite {
            let id = it.id.span();
            let end = it.type_annotation.as_ref().map_or(it.span.end, |annotation| annotation.span.start);
            self.blank_mark("!", id.end, end);
        }
        walk::walk_variable_declarator(self, it);
    }

    fn visit_function(&mut self, it: &Function<'a>, flags: ScopeFlags) {
        self.depth += 1;
        walk::walk_function(self, it, flags);
        self.depth -= 1;
    }

    // Classes

    fn visit_decorator(&mut self, it: &Decorator<'a>) {
        self.refuse(it.span.start, "decorators do not work here; call the decorator as a function instead");
    }

    fn visit_class(&mut self, it: &Class<'a>) {
        let start = it.decorators.last().map_or(it.span.start, |decorator| decorator.span.end);
        if it.r#abstract
            && let Some(at) = scan::find(self.source, "abstract", start, it.body.span.start)
        {
            self.edits.blank(at, at + 8);
        }
        if !it.implements.is_empty() {
            let id = it.id.as_ref().map(|id| id.span.end);
            let parameters = it.type_parameters.as_ref().map(|parameters| parameters.span.end);
            let parent = it.heritage.as_ref().map(|heritage| {
                heritage.type_arguments.as_ref().map_or(heritage.expression.span().end, |arguments| arguments.span.end)
            });
            let from = parent.or(parameters).or(id).unwrap_or(start);
            if let Some(at) = scan::find(self.source, "implements", from, it.body.span.start) {
                self.edits.blank(at, it.body.span.start);
            }
        }
        self.depth += 1;
        walk::walk_class(self, it);
        self.depth -= 1;
    }

    fn visit_class_element(&mut self, it: &ClassElement<'a>) {
        match it {
            ClassElement::TSIndexSignature(signature) => self.remove(signature.span),
            ClassElement::MethodDefinition(method) => {
                if method.value.body.is_none() {
                    return self.remove(method.span);
                }
                method.decorators.iter().for_each(|decorator| self.visit_decorator(decorator));
                self.element_head(method.span, &method.decorators, &method.key, method.computed);
                if method.optional {
                    let end = method.value.span.start.max(method.value.params.span.start);
                    self.blank_mark("?", self.after_key(&method.key, method.computed, end), end);
                }
                if method.kind == MethodDefinitionKind::Constructor {
                    self.parameter_properties(&method.value);
                }
                walk::walk_class_element(self, it);
            }
            ClassElement::PropertyDefinition(property) => {
                if property.declare || property.r#type == PropertyDefinitionType::TSAbstractPropertyDefinition {
                    return self.remove(property.span);
                }
                self.note_end(property.span);
                self.element_head(property.span, &property.decorators, &property.key, property.computed);
                let from = self.after_key(&property.key, property.computed, property.span.end);
                let annotation = property.type_annotation.as_ref().map(|annotation| annotation.span.start);
                let value = property.value.as_ref().map(|value| value.span().start);
                let end = annotation.or(value).unwrap_or(property.span.end);
                if property.optional {
                    self.blank_mark("?", from, end);
                } else if property.definite {
                    self.blank_mark("!", from, end);
                }
                walk::walk_class_element(self, it);
            }
            ClassElement::AccessorProperty(accessor) => {
                if accessor.r#type == AccessorPropertyType::TSAbstractAccessorProperty {
                    return self.remove(accessor.span);
                }
                self.element_head(accessor.span, &accessor.decorators, &accessor.key, accessor.computed);
                walk::walk_class_element(self, it);
            }
            ClassElement::StaticBlock(_) => walk::walk_class_element(self, it),
        }
    }

    // Modules

    fn visit_import_expression(&mut self, it: &ImportExpression<'a>) {
        if !self.is_module() && it.phase.is_none() {
            self.edits.replace(it.span.start, it.span.start + 6, IMPORTER);
        }
        walk::walk_import_expression(self, it);
    }

    fn visit_import_meta(&mut self, it: &ImportMeta) {
        if !self.is_module() {
            self.edits.replace(it.span.start, it.span.start + 6, IMPORTER);
        }
    }

    fn visit_simple_assignment_target(&mut self, it: &SimpleAssignmentTarget<'a>) {
        if let SimpleAssignmentTarget::AssignmentTargetIdentifier(identifier) = it
            && self.constants.contains(identifier.name.as_str())
        {
            // The constant is declared with `let`: this is what refuses to change it.
            let text = format!("{IMPORTER}.constant.{}", identifier.name);
            self.edits.replace(identifier.span.start, identifier.span.end, text);
        } else {
            walk::walk_simple_assignment_target(self, it);
        }
    }
}

/// Names, without what only types say.
#[derive(Debug, Default)]
struct Uses {
    read: HashSet<String>,
    bound: HashMap<String, usize>,
}

impl<'a> Visit<'a> for Uses {
    fn visit_identifier_reference(&mut self, it: &IdentifierReference<'a>) {
        self.read.insert(it.name.to_string());
    }
    fn visit_binding_identifier(&mut self, it: &BindingIdentifier<'a>) {
        *self.bound.entry(it.name.to_string()).or_default() += 1;
    }
    fn visit_ts_type(&mut self, _: &TSType<'a>) {}
    fn visit_ts_type_annotation(&mut self, _: &TSTypeAnnotation<'a>) {}
    fn visit_ts_type_parameter_declaration(&mut self, _: &TSTypeParameterDeclaration<'a>) {}
    fn visit_ts_type_parameter_instantiation(&mut self, _: &TSTypeParameterInstantiation<'a>) {}
    fn visit_ts_type_alias_declaration(&mut self, _: &TSTypeAliasDeclaration<'a>) {}
    fn visit_ts_interface_declaration(&mut self, _: &TSInterfaceDeclaration<'a>) {}
    fn visit_ts_class_implements(&mut self, _: &TSClassImplements<'a>) {}
}
