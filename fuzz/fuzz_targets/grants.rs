//! Hosts and grants as anybody may write them: what is taken for a host has one spelling and only a host's letters, and what a
//! ceiling covers it also matches.
#![no_main]

use belljar_core::{Grant, Host};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(host) = text.parse::<Host>() {
        let written = host.to_string();
        assert!(written.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte)), "{text:?}");
        assert!(!written.bytes().any(|byte| byte.is_ascii_uppercase()));
        assert_eq!(written.parse::<Host>().as_ref(), Ok(&host), "{text:?}");
    }
    if let Ok(grant) = text.parse::<Grant>() {
        assert_eq!(grant.to_string().parse::<Grant>().as_ref(), Ok(&grant), "{text:?}");
        assert!(grant.covers(&grant), "{text:?}");
    }
    let mut lines = text.lines();
    let (Some(ceiling), Some(wish), Some(host)) = (lines.next(), lines.next(), lines.next()) else { return };
    if let (Ok(ceiling), Ok(wish), Ok(host)) = (ceiling.parse::<Grant>(), wish.parse::<Grant>(), host.parse::<Host>())
        && ceiling.covers(&wish)
    {
        for port in wish.ports() {
            assert!(!wish.allows_connection(&host, port) || ceiling.allows_connection(&host, port), "{text:?}");
        }
        for method in ["GET", "POST", "DELETE"] {
            assert!(!wish.allows_method(method) || ceiling.allows_method(method), "{text:?}");
        }
    }
});
