//! How much the log tells, which can change while a server runs.

use std::sync::OnceLock;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::reload::Handle;

type Change = Box<dyn Fn(EnvFilter) + Send + Sync>;

/// How the filter is changed. There is one log.
static CHANGE: OnceLock<Change> = OnceLock::new();

/// Of a subscriber that was built `with_filter_reloading`, before it is installed.
pub(super) fn keep<S: 'static>(handle: Handle<EnvFilter, S>) {
    // Whatever fails there is a log that is gone, with nobody to tell it to.
    let _ = CHANGE.set(Box::new(move |filter| drop(handle.reload(filter))));
}

/// From now on only this is told; the words were looked at before.
pub(crate) fn tell_only(words: &str) {
    if let (Some(change), Ok(filter)) = (CHANGE.get(), EnvFilter::try_new(words)) {
        change(filter);
    }
}
