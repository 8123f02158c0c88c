//! What a schema says, in terms that both languages have.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Type {
    Any,
    /// No value at all.
    Never,
    Null,
    Boolean,
    Integer,
    Number,
    String,
    /// One of these; none is an array or an object.
    Literal(Vec<Value>),
    Array(Box<Type>),
    Tuple(Vec<Type>, Option<Box<Type>>),
    /// An object of which only the values are known.
    Map(Box<Type>),
    Object(Object),
    Union(Vec<Type>),
    /// An index into [`Types::named`].
    Named(usize),
}

#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Object {
    pub(super) fields: Vec<Field>,
    /// What other properties may be, if the schema says so in words.
    pub(super) others: Option<Box<Type>>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Field {
    pub(super) name: String,
    pub(super) kind: Type,
    pub(super) required: bool,
    /// Its description, and what no type can say of it; cleaned.
    pub(super) doc: String,
}

/// A part of the schema that is referred to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Named {
    /// As the schema calls it; no identifier yet.
    pub(super) name: String,
    pub(super) kind: Type,
}

/// A type with all that it refers to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Types {
    pub(super) root: Type,
    pub(super) named: Vec<Named>,
}

impl Types {
    /// The type itself, where it is only called by a name.
    pub(super) fn open<'a>(&'a self, mut kind: &'a Type) -> &'a Type {
        // A name may stand for a name, but not for long: a circle of names says nothing.
        for _ in 0..8 {
            let Type::Named(index) = kind else { return kind };
            let Some(named) = self.named.get(*index) else { break };
            kind = &named.kind;
        }
        &Type::Any
    }

    /// Whether a name is not worth one: what it stands for is as short.
    pub(super) fn is_inline(&self, index: usize) -> bool {
        self.named.get(index).is_none_or(|named| is_short(&named.kind, 2))
    }

    /// What the root takes as arguments. Of several forms, all their fields, each required if it is in all of them.
    pub(super) fn arguments(&self) -> Object {
        let mut object = self.fields_of(&self.root, 4);
        object.fields.sort_by_key(|field| !field.required);
        object
    }

    fn fields_of(&self, kind: &Type, depth: usize) -> Object {
        match self.open(kind) {
            Type::Object(object) => object.clone(),
            Type::Union(members) if depth > 0 => {
                let forms: Vec<Object> = members.iter().map(|member| self.fields_of(member, depth - 1)).collect();
                let mut all = Object::default();
                for form in &forms {
                    for field in &form.fields {
                        match all.fields.iter_mut().find(|known| known.name == field.name) {
                            Some(known) => known.kind = union(vec![known.kind.clone(), field.kind.clone()]),
                            None => all.fields.push(field.clone()),
                        }
                    }
                    if all.others.is_none() {
                        all.others.clone_from(&form.others);
                    }
                }
                for field in &mut all.fields {
                    let needed =
                        |form: &Object| form.fields.iter().any(|other| other.name == field.name && other.required);
                    field.required = forms.iter().all(needed);
                }
                all
            }
            Type::Map(values) => Object { fields: Vec::new(), others: Some(values.clone()) },
            _ => Object { fields: Vec::new(), others: Some(Box::new(Type::Any)) },
        }
    }
}

fn is_short(kind: &Type, depth: usize) -> bool {
    match kind {
        Type::Array(items) | Type::Map(items) => depth > 0 && is_short(items, depth - 1),
        Type::Literal(values) => values.len() <= 4,
        Type::Union(members) => {
            depth > 0 && members.len() <= 3 && members.iter().all(|member| is_short(member, depth - 1))
        }
        Type::Object(_) | Type::Named(_) | Type::Tuple(..) => false,
        _ => true,
    }
}

/// A union of more says nothing that anybody would read, and parsers nest it as deep.
const UNION_MAX: usize = 40;

/// Any of these. Flat, each once, and nothing beside a type that takes everything.
pub(super) fn union(members: Vec<Type>) -> Type {
    let mut flat: Vec<Type> = Vec::new();
    let mut literals: Vec<Value> = Vec::new();
    let mut pending: Vec<Type> = members.into_iter().rev().collect();
    while let Some(member) = pending.pop() {
        match member {
            Type::Union(inner) => pending.extend(inner.into_iter().rev()),
            Type::Any => return Type::Any,
            Type::Never => {}
            Type::Literal(values) => {
                if literals.is_empty() && !flat.iter().any(|known| matches!(known, Type::Literal(_))) {
                    flat.push(Type::Literal(Vec::new()));
                }
                for value in values {
                    if !literals.contains(&value) {
                        literals.push(value);
                    }
                }
            }
            member if flat.contains(&member) => {}
            member => flat.push(member),
        }
    }
    for member in &mut flat {
        if let Type::Literal(values) = member {
            *values = std::mem::take(&mut literals);
        }
    }
    // `null` reads best at the end.
    flat.sort_by_key(|member| *member == Type::Null);
    match flat.len() {
        0 => Type::Never,
        1 => flat.remove(0),
        UNION_MAX.. => Type::Any,
        _ => Type::Union(flat),
    }
}
