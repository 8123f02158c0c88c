//! Why a call has no value: what the program catches.

use serde::Serialize;
use serde_json::Value;

/// An error of a call, as it goes into the sandbox.
#[derive(Debug, Clone, PartialEq, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct CallError {
    #[serde(rename = "type")]
    pub kind: ErrorKind,
    pub message: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub server: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tool: String,
    /// The upstream's own number, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    pub retryable: bool,
    /// What is wrong with the arguments, one sentence each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signature: Option<String>,
    /// Names that may have been meant.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub suggestions: Vec<String>,
    /// Where a person can give what is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<f64>,
    /// Seconds that the call had.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<f64>,
}

/// The names are those of the classes in the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum ErrorKind {
    /// The tool itself says that it failed.
    ToolError,
    InvalidArguments,
    UnknownTool,
    PolicyDenied,
    ApprovalDenied,
    AuthRequired,
    RateLimited,
    ToolTimeout,
    Cancelled,
    /// The server could not be reached, ended, or broke the protocol.
    Upstream,
    BudgetExceeded,
}

impl ErrorKind {
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::ToolError => "ToolError",
            ErrorKind::InvalidArguments => "InvalidArguments",
            ErrorKind::UnknownTool => "UnknownTool",
            ErrorKind::PolicyDenied => "PolicyDenied",
            ErrorKind::ApprovalDenied => "ApprovalDenied",
            ErrorKind::AuthRequired => "AuthRequired",
            ErrorKind::RateLimited => "RateLimited",
            ErrorKind::ToolTimeout => "ToolTimeout",
            ErrorKind::Cancelled => "Cancelled",
            ErrorKind::Upstream => "Upstream",
            ErrorKind::BudgetExceeded => "BudgetExceeded",
        }
    }
}

impl CallError {
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> CallError {
        let retryable = matches!(kind, ErrorKind::RateLimited | ErrorKind::ToolTimeout | ErrorKind::Upstream);
        CallError {
            kind,
            message: message.into(),
            server: String::new(),
            tool: String::new(),
            code: None,
            data: None,
            retryable,
            problems: Vec::new(),
            signature: None,
            suggestions: Vec::new(),
            url: None,
            retry_after: None,
            limit: None,
        }
    }
}
