//! What one sandbox was granted, asked by host and port.

use belljar_core::{Grant, Host, Pattern, Reach, USUAL_PORTS};

#[derive(Debug)]
pub(crate) struct Policy {
    grants: Vec<Grant>,
}

/// A connection that may be, and how far that goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Allowed {
    pub(crate) addresses: Addresses,
    pub(crate) methods: Methods,
    pub(crate) protocols: Protocols,
}

/// Where a granted host may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addresses {
    Public,
    /// Wherever a name can stand for.
    Anywhere,
    /// The very address that was granted.
    Itself,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Methods {
    Any,
    Only(Vec<String>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Protocols {
    /// HTTP, and TLS where it is usual.
    Web,
    /// The port was named, and is not one of the web's: whatever is spoken there.
    Any,
}

impl Policy {
    pub(crate) fn new(grants: Vec<Grant>) -> Policy {
        Policy { grants }
    }

    /// Whether anything at all is granted of a name.
    pub(crate) fn knows(&self, host: &Host) -> bool {
        self.grants.iter().any(|grant| grant.pattern.matches(host))
    }

    pub(crate) fn connection(&self, host: &Host, port: u16) -> Option<Allowed> {
        let matching: Vec<&Grant> = self.grants.iter().filter(|grant| grant.allows_connection(host, port)).collect();
        if matching.is_empty() {
            return None;
        }
        let anywhere = |grant: &&&Grant| grant.reach == Reach::Anywhere;
        let is_itself = |grant: &&Grant| matches!(&grant.pattern, Pattern::Host(Host::Address(_)));
        let addresses = match matching.iter().filter(anywhere).any(is_itself) {
            true => Addresses::Itself,
            false if matching.iter().any(|grant| grant.reach == Reach::Anywhere) => Addresses::Anywhere,
            false => Addresses::Public,
        };
        let methods = match matching.iter().any(|grant| grant.methods.is_empty()) {
            true => Methods::Any,
            false => Methods::Only(matching.iter().flat_map(|grant| grant.methods.clone()).collect()),
        };
        let named = matching.iter().any(|grant| grant.port == Some(port)) && !USUAL_PORTS.contains(&port);
        let protocols = if named && methods == Methods::Any { Protocols::Any } else { Protocols::Web };
        Some(Allowed { addresses, methods, protocols })
    }
}

impl Methods {
    pub(crate) fn allow(&self, method: &str) -> bool {
        match self {
            Methods::Any => true,
            Methods::Only(methods) => methods.iter().any(|granted| granted == method),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(grants: &[&str], host: &str, port: u16) -> Option<Allowed> {
        let policy = Policy::new(grants.iter().map(|text| text.parse().unwrap()).collect());
        policy.connection(&host.parse().unwrap(), port)
    }

    #[test]
    fn no_grant_is_no_connection() {
        assert_eq!(allowed(&[], "a.test", 443), None);
        assert_eq!(allowed(&["a.test"], "a.test", 22), None);
        assert_eq!(allowed(&["*"], "10.0.0.1", 443), None);
    }

    #[test]
    fn a_method_is_allowed_if_any_grant_allows_it() {
        let methods = |grants: &[&str]| allowed(grants, "a.test", 443).unwrap().methods;
        assert_eq!(methods(&["GET a.test"]), Methods::Only(vec!["GET".into()]));
        assert_eq!(methods(&["GET a.test", "*.test"]), Methods::Any);
        let two = methods(&["GET a.test", "POST *.test", "PUT b.test"]);
        assert!(two.allow("GET") && two.allow("POST") && !two.allow("PUT") && !two.allow("get"));
    }

    #[test]
    fn other_protocols_are_for_ports_that_were_named() {
        let protocols = |grants: &[&str], port| allowed(grants, "a.test", port).unwrap().protocols;
        assert_eq!(protocols(&["a.test:5432"], 5432), Protocols::Any);
        assert_eq!(protocols(&["a.test"], 443), Protocols::Web);
        assert_eq!(protocols(&["a.test:443"], 443), Protocols::Web);
        assert_eq!(protocols(&["GET a.test:8080"], 8080), Protocols::Web, "its methods could not be told");
    }

    #[test]
    fn an_address_that_was_granted_is_itself() {
        assert_eq!(allowed(&["169.254.169.254"], "169.254.169.254", 80).unwrap().addresses, Addresses::Itself);
        assert_eq!(allowed(&["a.test"], "a.test", 80).unwrap().addresses, Addresses::Public);
    }
}
