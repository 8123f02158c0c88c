//! The contract suite on each backend of the registry.

use std::sync::Arc;

use belljar_backends::{Choice, Host, Preload, choose};
use belljar_core::Backend;

fn native() -> Arc<dyn Backend> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    choose(
        Choice::Native,
        &Host { path, home: std::env::var_os("HOME").map(Into::into), layers: None, trust: None },
        Preload::No,
    )
}

belljar_testkit::keeps_the_contract!(native, std::future::ready(native()));
