//! What figures are told apart by. Each is one of a few words that are written here.

use belljar_core::{Language, Source};
use belljar_engine::EngineError;
use prometheus_client::encoding::EncodeLabelSet;

/// A method of the protocol; whatever is none that we know is `other`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Method(&'static str);

const METHODS: [&str; 21] = [
    "initialize",
    "ping",
    "server/discover",
    "tools/list",
    "tools/call",
    "resources/list",
    "resources/templates/list",
    "resources/read",
    "resources/subscribe",
    "resources/unsubscribe",
    "subscriptions/listen",
    "prompts/list",
    "prompts/get",
    "completion/complete",
    "logging/setLevel",
    "tasks/get",
    "tasks/update",
    "tasks/cancel",
    "tasks/list",
    "tasks/result",
    "other",
];

impl Method {
    pub fn of(name: &str) -> Method {
        Method(METHODS.into_iter().find(|known| *known == name).unwrap_or("other"))
    }

    pub fn name(self) -> &'static str {
        self.0
    }
}

/// Why something was not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Refused {
    /// The message, or its way here, was malformed.
    Malformed,
    NoToken,
    /// The Host, the Origin or the scopes were not good enough.
    Forbidden,
    /// No such path, session or method of HTTP.
    NotFound,
    TooSlow,
    TooLarge,
    /// More requests than a principal may send in a second, or one conversation at once.
    TooMany,
    /// A principal has, or used up, what its quota allows.
    OverQuota,
    /// Too many programs wait already.
    QueueFull,
    /// As many sandboxes or jobs as the server keeps are there.
    Full,
    /// The server is ending, not ready, or has no sandbox to give.
    Unavailable,
}

impl Refused {
    /// By the status of an answer of HTTP; `None` for one that is no refusal.
    pub fn by_status(status: u16) -> Option<Refused> {
        match status {
            401 => Some(Refused::NoToken),
            403 | 421 => Some(Refused::Forbidden),
            404 | 405 => Some(Refused::NotFound),
            408 => Some(Refused::TooSlow),
            413 | 414 | 431 => Some(Refused::TooLarge),
            429 => Some(Refused::TooMany),
            503 => Some(Refused::Unavailable),
            400..=499 => Some(Refused::Malformed),
            _ => None,
        }
    }

    /// By the word for what kept a program or a sandbox from beginning; `None` where the caller asked for what there is not.
    pub(crate) fn by_kind(kind: &str) -> Option<Refused> {
        match kind {
            "quota" => Some(Refused::OverQuota),
            "busy" => Some(Refused::QueueFull),
            "too-many-sandboxes" | "too-many-jobs" => Some(Refused::Full),
            "shutdown" | "not-recorded" | "unavailable" => Some(Refused::Unavailable),
            _ => None,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Refused::Malformed => "malformed",
            Refused::NoToken => "no_token",
            Refused::Forbidden => "forbidden",
            Refused::NotFound => "not_found",
            Refused::TooSlow => "too_slow",
            Refused::TooLarge => "too_large",
            Refused::TooMany => "too_many",
            Refused::OverQuota => "over_quota",
            Refused::QueueFull => "queue_full",
            Refused::Full => "full",
            Refused::Unavailable => "unavailable",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RunLabels {
    pub(crate) language: &'static str,
    pub(crate) ending: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct LanguageLabel {
    pub(crate) language: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct BackendLabel {
    pub(crate) backend: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct StateLabel {
    pub(crate) state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct WhyLabel {
    pub(crate) why: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct OutcomeLabel {
    pub(crate) outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct RequestLabels {
    pub(crate) method: &'static str,
    pub(crate) outcome: &'static str,
}

/// The name that the MCP conventions give it is `mcp.method.name`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct MethodLabel {
    pub(crate) mcp_method_name: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(crate) struct BuildLabel {
    pub(crate) version: &'static str,
}

pub(crate) fn language(source: &Source) -> &'static str {
    match source {
        Source::Code { language, .. } | Source::Cell { language, .. } => language.name(),
        Source::Command(_) => Language::Shell.name(),
    }
}

/// A backend says its own name; here it is one of those that we have.
pub(crate) fn backend(name: &str) -> &'static str {
    const BACKENDS: [&str; 8] = ["native", "wasm", "docker", "podman", "gvisor", "microvm", "kubernetes", "fake"];
    BACKENDS.into_iter().find(|known| *known == name).unwrap_or("other")
}

/// How a run ended that was given up by us.
pub(crate) fn failure(error: &EngineError) -> &'static str {
    match error {
        EngineError::ShuttingDown => "shutdown",
        EngineError::Lost | EngineError::NotAnswering => "lost",
        _ => "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_writes_is_never_a_label() {
        assert_eq!(Method::of("tools/call").name(), "tools/call");
        for made_up in ["", "tools/call ", "TOOLS/CALL", "x\"} 1\n", "other"] {
            assert_eq!(Method::of(made_up).name(), "other");
        }
        assert_eq!(backend("native"), "native");
        assert_eq!(backend("native\"}"), "other");
    }

    #[test]
    fn a_refusal_goes_by_its_status() {
        assert_eq!(Refused::by_status(200), None);
        assert_eq!(Refused::by_status(500), None);
        assert_eq!(Refused::by_status(401), Some(Refused::NoToken));
        assert_eq!(Refused::by_status(418), Some(Refused::Malformed));
        assert_eq!(Refused::by_status(429).map(Refused::name), Some("too_many"));
    }

    #[test]
    fn an_error_is_a_refusal_where_another_time_would_do() {
        let by = |error: &EngineError| Refused::by_kind(error.name());
        assert_eq!(by(&EngineError::Busy).map(Refused::name), Some("queue_full"));
        assert_eq!(by(&EngineError::TooManyJobs { max: 1 }), Some(Refused::Full));
        assert_eq!(by(&EngineError::NotRecorded), Some(Refused::Unavailable));
        let unavailable = belljar_core::BackendError::Unavailable { why: String::new(), fix: String::new() };
        assert_eq!(by(&EngineError::Backend(unavailable)), Some(Refused::Unavailable));
        for mistake in [EngineError::EmptyCode, EngineError::UnknownSandbox, EngineError::Lost] {
            assert_eq!(by(&mistake), None, "{mistake}");
        }
    }
}
