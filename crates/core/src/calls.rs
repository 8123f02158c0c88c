//! What a program can call outside its sandbox: tools of other servers, behind one contract. Those who run programs know no
//! more of it than this.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;

use crate::{Later, Layer};

/// A boxed future that cannot fail.
pub type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Whoever answers the calls of programs.
pub trait HostCalls: Debug + Send + Sync {
    /// What sandboxes of this owner's see of it, as files.
    fn layers<'a>(&'a self, owner: &'a str) -> Soon<'a, Vec<Layer>>;
    /// A program begins. It may call until its desk is dropped, and not a moment longer.
    fn begin(&self, caller: Caller) -> Box<dyn Desk>;
}

/// On whose behalf a program calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub owner: String,
    pub run: String,
    /// The sandbox, if it is not a throw-away one.
    pub sandbox: Option<String>,
    /// What the caller's connection was told of this run, by which it is asked when a person has to decide. Without one there
    /// is nobody to ask.
    pub occasion: Option<u64>,
}

/// Where one program's calls are answered.
pub trait Desk: Debug + Send + Sync {
    /// The answer to a question, which is an object of JSON: one line of JSON with its newline. Dropping it cancels the call.
    /// Several may be under way at once.
    fn ask<'a>(&'a self, question: &'a [u8], spool: &'a dyn Spool) -> Soon<'a, Vec<u8>>;
    /// What was called so far.
    fn calls(&self) -> Calls;
}

/// A place in the caller's sandbox for what is too large for an answer.
pub trait Spool: Debug + Send + Sync {
    /// Writes a file of this name, and says at which path the program finds it.
    fn keep<'a>(&'a self, name: &'a str, bytes: Vec<u8>) -> Later<'a, String>;
}

/// What a program called, for its report.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Calls {
    /// The first of them, in order.
    pub made: Vec<Made>,
    /// How many there were besides.
    pub more: u64,
    /// What the same calls, made by the model itself, would have put into its context.
    pub direct_tokens: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Made {
    /// `server.tool`, in the upstream's own spelling.
    pub tool: String,
    /// `ok`, or the name of the error.
    pub outcome: String,
    pub milliseconds: u64,
}
