//! The names that declarations bind.

use oxc_ast::ast::{
    BindingPattern, Declaration, Expression, Statement, TSNamespaceDeclaration, TSNamespaceDeclarationBody,
};

/// All names in a pattern.
pub(crate) fn bound<'b>(pattern: &'b BindingPattern<'_>, names: &mut Vec<&'b str>) {
    match pattern {
        BindingPattern::BindingIdentifier(identifier) => names.push(identifier.name.as_str()),
        BindingPattern::AssignmentPattern(assignment) => bound(&assignment.left, names),
        BindingPattern::ObjectPattern(object) => {
            object.properties.iter().for_each(|property| bound(&property.value, names));
            if let Some(rest) = &object.rest {
                bound(&rest.argument, names);
            }
        }
        BindingPattern::ArrayPattern(array) => {
            array.elements.iter().flatten().for_each(|element| bound(element, names));
            if let Some(rest) = &array.rest {
                bound(&rest.argument, names);
            }
        }
    }
}

/// The names of values that a declaration makes.
pub(crate) fn declared<'b>(declaration: &'b Declaration<'_>) -> Vec<&'b str> {
    let mut names = Vec::new();
    match declaration {
        Declaration::VariableDeclaration(variables) if !variables.declare => {
            variables.declarations.iter().for_each(|one| bound(&one.id, &mut names));
        }
        Declaration::FunctionDeclaration(function) if function.body.is_some() => {
            names.extend(function.id.as_ref().map(|id| id.name.as_str()));
        }
        Declaration::ClassDeclaration(class) if !class.declare => {
            names.extend(class.id.as_ref().map(|id| id.name.as_str()));
        }
        Declaration::TSEnumDeclaration(one) if !one.declare => names.push(one.id.name.as_str()),
        Declaration::TSNamespaceDeclaration(one) if has_values(one) => names.push(one.id.name.as_str()),
        Declaration::TSImportEqualsDeclaration(one) if one.import_kind.is_value() => names.push(one.id.name.as_str()),
        _ => {}
    }
    names
}

/// Whether anything of a namespace is there at run time.
pub(crate) fn has_values(namespace: &TSNamespaceDeclaration<'_>) -> bool {
    if namespace.declare {
        return false;
    }
    match &namespace.body {
        TSNamespaceDeclarationBody::TSNamespaceDeclaration(inner) => has_values(inner),
        TSNamespaceDeclarationBody::TSModuleBlock(block) => block.body.iter().any(|statement| match statement {
            Statement::TSInterfaceDeclaration(_) | Statement::TSTypeAliasDeclaration(_) => false,
            Statement::ExportDeclaration(export) => !declared(&export.declaration).is_empty(),
            Statement::TSNamespaceDeclaration(inner) => has_values(inner),
            Statement::TSEnumDeclaration(one) => !one.declare,
            _ => true,
        }),
    }
}

/// Whether `name` can be a variable's.
pub(crate) fn is_identifier(name: &str) -> bool {
    const RESERVED: [&str; 47] = [
        "arguments",
        "await",
        "break",
        "case",
        "catch",
        "class",
        "const",
        "continue",
        "debugger",
        "default",
        "delete",
        "do",
        "else",
        "enum",
        "eval",
        "export",
        "extends",
        "false",
        "finally",
        "for",
        "function",
        "if",
        "implements",
        "import",
        "in",
        "instanceof",
        "interface",
        "let",
        "new",
        "null",
        "package",
        "private",
        "protected",
        "public",
        "return",
        "static",
        "super",
        "switch",
        "this",
        "throw",
        "true",
        "try",
        "typeof",
        "var",
        "void",
        "while",
        "with",
    ];
    let mut letters = name.chars();
    letters.next().is_some_and(|c| c.is_alphabetic() || c == '_' || c == '$')
        && letters.all(|c| c.is_alphanumeric() || c == '_' || c == '$')
        && name != "yield"
        && !RESERVED.contains(&name)
}

/// `text` as a string of JavaScript.
pub(crate) fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            _ => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Whether an expression is a call of the parent class's constructor.
pub(crate) fn is_super_call(expression: &Expression<'_>) -> bool {
    matches!(expression, Expression::CallExpression(call) if matches!(call.callee, Expression::Super(_)))
}
