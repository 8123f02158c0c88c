//! The words that everything here is decided by.

use belljar_core::{Grant, Host};
use proptest::prelude::*;

proptest! {
    #[test]
    fn what_is_a_host_has_one_spelling_and_only_a_hosts_letters(text in "\\PC{0,30}|[a-zA-Z0-9.:\\[\\]%@#?/\\\\_ -]{0,30}") {
        if let Ok(host) = text.parse::<Host>() {
            let written = host.to_string();
            prop_assert!(written.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:[]".contains(&byte)));
            prop_assert_eq!(written.to_ascii_lowercase(), written.clone());
            prop_assert_eq!(written.parse::<Host>(), Ok(host));
        }
    }

    #[test]
    fn a_grant_reads_as_it_is_written(
        text in "((GET|POST)(,PUT)? )?(\\*|\\*\\.|)([a-z]{1,3}\\.){0,2}[a-z]{1,3}(:[0-9]{1,5})?|\\PC{0,20}",
    ) {
        if let Ok(grant) = text.parse::<Grant>() {
            prop_assert_eq!(grant.to_string().parse::<Grant>(), Ok(grant.clone()));
            prop_assert!(grant.covers(&grant));
        }
    }

    /// A ceiling that covers a wish allows whatever the wish does.
    #[test]
    fn whatever_covers_matches(
        ceiling in "((GET|POST) )?(\\*|(\\*\\.)?([ab]\\.){0,2}c|1\\.2\\.3\\.4)(:(80|81))?",
        wish in "((GET|POST) )?(\\*|(\\*\\.)?([ab]\\.){0,2}c|1\\.2\\.3\\.4)(:(80|81))?",
        host in "([ab]\\.){0,3}c|1\\.2\\.3\\.4",
        port in prop::sample::select(vec![80_u16, 81, 443]),
    ) {
        let (ceiling, wish): (Grant, Grant) = (ceiling.parse().unwrap(), wish.parse().unwrap());
        let host: Host = host.parse().unwrap();
        if ceiling.covers(&wish) {
            prop_assert!(!wish.allows_connection(&host, port) || ceiling.allows_connection(&host, port));
            for method in ["GET", "POST", "PUT"] {
                prop_assert!(!wish.allows_method(method) || ceiling.allows_method(method));
            }
        }
        if wish.pattern.matches(&host) && ceiling.pattern.covers(&wish.pattern) {
            prop_assert!(ceiling.pattern.matches(&host));
        }
    }
}
