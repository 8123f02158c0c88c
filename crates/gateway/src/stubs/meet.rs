//! What fits two types at once: `allOf`, and keywords that stand beside each other.

use serde_json::Value;

use super::read::{Reader, STEPS_MAX};
use super::types::{Object, Type, union};

impl Reader<'_> {
    /// Whatever fits both. Where no type says that, the more telling one.
    pub(super) fn both(&mut self, one: Type, other: Type, depth: usize) -> Type {
        self.steps += 1;
        if depth > self.depth_max || self.steps > STEPS_MAX {
            return one;
        }
        match (one, other) {
            (Type::Any, kind) | (kind, Type::Any) => kind,
            (Type::Never, _) | (_, Type::Never) => Type::Never,
            (one, other) if one == other => one,
            (Type::Named(index), other) | (other, Type::Named(index)) => {
                // A name that is still being read says nothing yet.
                let meant = self.named.get(index).map_or(Type::Any, |named| named.kind.clone());
                if meant == Type::Any || !self.affords(&meant, depth) {
                    return other;
                }
                self.both(meant, other, depth + 1)
            }
            (Type::Object(one), Type::Object(other)) => self.merged(one, other, depth),
            (Type::Object(object), Type::Map(_)) | (Type::Map(_), Type::Object(object)) => Type::Object(object),
            (Type::Array(one), Type::Array(other)) => Type::Array(Box::new(self.both(*one, *other, depth + 1))),
            (Type::Number, Type::Integer) | (Type::Integer, Type::Number) => Type::Integer,
            (Type::Union(members), other) | (other, Type::Union(members)) => self.either(other, members, depth + 1),
            (Type::Literal(values), other) | (other, Type::Literal(values)) => {
                let fitting: Vec<Value> = values.iter().filter(|value| fits(value, &other)).cloned().collect();
                if fitting.is_empty() { Type::Literal(values) } else { Type::Literal(fitting) }
            }
            (one, _) => one,
        }
    }

    /// Whether one more copy of this can be had. Copies of copies would grow without end, and their depth as well.
    fn affords(&mut self, kind: &Type, depth: usize) -> bool {
        let (weight, height) = measure(kind);
        self.steps = self.steps.saturating_add(weight);
        self.steps <= STEPS_MAX && depth + height <= self.depth_max
    }

    /// One of the members, and this as well.
    pub(super) fn either(&mut self, kind: Type, members: Vec<Type>, depth: usize) -> Type {
        if members.is_empty() {
            return kind;
        }
        if kind == Type::Any {
            return union(members);
        }
        let mut fitting = Vec::new();
        for member in members {
            if !self.affords(&kind, depth) {
                break;
            }
            if member == Type::Any {
                fitting.push(kind.clone());
            } else if is_scalar(&kind) && is_scalar(&member) && !overlap(&kind, &member) {
                // `type: string` beside `anyOf: [string, null]`: the second cannot be.
            } else {
                fitting.push(self.both(kind.clone(), member, depth + 1));
            }
        }
        if fitting.is_empty() { kind } else { union(fitting) }
    }

    fn merged(&mut self, mut one: Object, other: Object, depth: usize) -> Type {
        for field in other.fields {
            match one.fields.iter_mut().find(|known| known.name == field.name) {
                Some(known) => {
                    let kind = std::mem::replace(&mut known.kind, Type::Any);
                    known.kind = self.both(kind, field.kind, depth + 1);
                    known.required |= field.required;
                    if known.doc.is_empty() {
                        known.doc = field.doc;
                    }
                }
                None => one.fields.push(field),
            }
        }
        one.others = one.others.or(other.others);
        Type::Object(one)
    }
}

/// How many types are in it, and how deep.
fn measure(kind: &Type) -> (usize, usize) {
    let parts: Vec<&Type> = match kind {
        Type::Array(items) | Type::Map(items) => vec![items],
        Type::Tuple(first, rest) => first.iter().chain(rest.as_deref()).collect(),
        Type::Object(object) => object.fields.iter().map(|field| &field.kind).chain(object.others.as_deref()).collect(),
        Type::Union(members) => members.iter().collect(),
        _ => Vec::new(),
    };
    parts.into_iter().map(measure).fold((1, 1), |(weight, height), (more, high)| (weight + more, height.max(high + 1)))
}

fn is_scalar(kind: &Type) -> bool {
    matches!(kind, Type::Null | Type::Boolean | Type::Integer | Type::Number | Type::String)
}

fn overlap(one: &Type, other: &Type) -> bool {
    one == other || matches!((one, other), (Type::Integer, Type::Number) | (Type::Number, Type::Integer))
}

fn fits(value: &Value, kind: &Type) -> bool {
    match kind {
        Type::Null => value.is_null(),
        Type::Boolean => value.is_boolean(),
        Type::Integer => value.is_i64() || value.is_u64(),
        Type::Number => value.is_number(),
        Type::String => value.is_string(),
        Type::Literal(values) => values.contains(value),
        _ => true,
    }
}
