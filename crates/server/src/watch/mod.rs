//! Who watches the server: figures, spans, and whether it is ready.

mod readiness;
mod watched;

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use belljar_meters::{Attribute, Kind, Levels, Meters, Method, Span, SpanContext, Status, Tracer};
use rmcp::model::{CallToolResponse, ErrorCode};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};

pub use self::readiness::Readiness;
pub(crate) use self::watched::Watched;

/// One for all transports of a server.
#[derive(Debug, Clone, Default)]
pub struct Watch {
    pub meters: Arc<Meters>,
    /// `None` where no request is part of a trace.
    pub tracer: Option<Tracer>,
    pub readiness: Readiness,
}

/// What a request is about, as far as that is told to those who watch: never an argument.
#[derive(Debug)]
struct About {
    method: Method,
    /// A tool that is offered here; another's name is the caller's own text.
    tool: Option<String>,
    version: Option<String>,
    transport: &'static str,
    parent: Option<SpanContext>,
}

impl About {
    fn new(method: &str, tool: Option<String>, context: &RequestContext<RoleServer>) -> About {
        About {
            method: Method::of(method),
            tool,
            version: context.protocol_version().map(|version| version.as_str().to_owned()),
            // Over HTTP a request has its head with it.
            transport: if context.extensions.get::<axum::http::request::Parts>().is_some() { "tcp" } else { "pipe" },
            parent: context.meta.get_traceparent().and_then(SpanContext::parse),
        }
    }
}

/// How a request came out, in the words of the conventions.
pub(crate) trait Outcome {
    /// `None` where all is well.
    fn error_type(&self) -> Option<String>;
}

impl<T: Well> Outcome for Result<T, ErrorData> {
    fn error_type(&self) -> Option<String> {
        match self {
            Ok(answer) if answer.is_well() => None,
            Ok(_) => Some("tool_error".to_owned()),
            Err(error) => Some(error.code.0.to_string()),
        }
    }
}

/// An answer that may tell of a failure all the same.
pub(crate) trait Well {
    fn is_well(&self) -> bool {
        true
    }
}

impl Well for CallToolResponse {
    fn is_well(&self) -> bool {
        !matches!(self, CallToolResponse::Complete(result) if result.is_error == Some(true))
    }
}

impl Watch {
    /// All figures, as they are now.
    pub fn text(&self, engine: &belljar_engine::Engine) -> String {
        self.meters.text(&Levels::of(engine))
    }

    /// Does the work of a request, and tells those who watch of it. A request that is given up is told as cancelled.
    async fn over<T, F>(&self, about: About, work: F) -> Result<T, ErrorData>
    where
        F: Future<Output = Result<T, ErrorData>>,
        Result<T, ErrorData>: Outcome,
    {
        let span = self.tracer.as_ref().and_then(|tracer| tracer.begin(about.parent.as_ref()));
        let mut telling = Telling {
            watch: self,
            about,
            span,
            begun: Instant::now(),
            at: SystemTime::now(),
            outcome: Some(Ended::Cancelled),
        };
        let answer = match (&self.tracer, span) {
            (Some(tracer), Some(span)) => tracer.within(span, work).await,
            _ => work.await,
        };
        telling.outcome = answer.error_type().map(|kind| match &answer {
            Err(error) if error.code == ErrorCode::INTERNAL_ERROR => Ended::Internal(kind),
            Err(_) => Ended::Error(kind),
            Ok(_) => Ended::ToolError,
        });
        answer
    }
}

#[derive(Debug)]
enum Ended {
    Cancelled,
    /// An answer of a tool that says what went wrong.
    ToolError,
    /// The caller asked for something that there is not.
    Error(String),
    Internal(String),
}

/// Told when it is dropped, whichever way that comes to be.
struct Telling<'a> {
    watch: &'a Watch,
    about: About,
    span: Option<SpanContext>,
    begun: Instant,
    at: SystemTime,
    /// `None` where all went well.
    outcome: Option<Ended>,
}

impl Drop for Telling<'_> {
    fn drop(&mut self) {
        let took = self.begun.elapsed();
        let outcome = match &self.outcome {
            None => "ok",
            Some(Ended::Cancelled) => "cancelled",
            Some(Ended::ToolError) => "tool_error",
            Some(Ended::Error(_)) => "error",
            Some(Ended::Internal(_)) => "internal_error",
        };
        self.watch.meters.requested(self.about.method, outcome, took);
        if let (Some(tracer), Some(context)) = (&self.watch.tracer, self.span) {
            tracer.finish(self.span(context, took));
        }
    }
}

impl Telling<'_> {
    fn span(&self, context: SpanContext, took: Duration) -> Span {
        let About { method, tool, version, transport, parent } = &self.about;
        let mut attributes: Vec<(&'static str, Attribute)> =
            vec![("mcp.method.name", method.name().into()), ("network.transport", (*transport).into())];
        if let Some(version) = version {
            attributes.push(("mcp.protocol.version", version.as_str().into()));
        }
        if let Some(tool) = tool {
            attributes.push(("gen_ai.tool.name", tool.as_str().into()));
            attributes.push(("gen_ai.operation.name", "execute_tool".into()));
        }
        let error: Option<&str> = match &self.outcome {
            None => None,
            Some(Ended::Cancelled) => Some("cancelled"),
            Some(Ended::ToolError) => Some("tool_error"),
            Some(Ended::Error(code) | Ended::Internal(code)) => Some(code),
        };
        attributes.extend(error.map(|error| ("error.type", error.into())));
        let name = match tool {
            Some(tool) => format!("{} {tool}", method.name()),
            None => method.name().to_owned(),
        };
        Span {
            context,
            parent: parent.map(|parent| parent.span),
            name,
            kind: Kind::Server,
            begun: self.at,
            ended: self.at + took,
            attributes,
            status: if error.is_some() { Status::Error } else { Status::Unset },
        }
    }
}

#[cfg(test)]
mod tests;
