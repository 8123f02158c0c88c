//! What goes on, in figures and in spans: `Meters` counts, `Tracer` tells how one thing came of another.
//!
//! Nothing here serves or sends anything, and nothing here waits. What a caller could choose freely (a name, an id, a
//! text) is never a label: every set of labels is known before the first request.

#![forbid(unsafe_code)]

pub mod exposition;
mod figures;
mod labels;
mod process;
mod trace;
mod tracer;

pub use figures::{Levels, Meters};
pub use labels::{Method, Refused};
pub use trace::{SpanContext, SpanId, TraceId};
pub use tracer::{Attribute, Kind, Span, Spans, Status, Tracer, carried, current};
