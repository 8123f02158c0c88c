//! What of the network a sandbox gets: the caller's wish, within what the operator allows.

use belljar_core::{Grant, Network, PACKAGES};

use crate::EngineError;

/// Hosts in one wish.
const HOSTS_MAX: usize = 64;

/// What the operator decides about the network.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NetworkSettings {
    /// The most that a caller can ask for.
    pub allow: Vec<Grant>,
    /// Whether a caller can ask for the package registries.
    pub allow_packages: bool,
    /// What every sandbox gets whose caller asks for nothing.
    pub default: Vec<Grant>,
    /// What the word for the package registries stands for.
    pub registries: Vec<Grant>,
    /// Variables for those who have them, such as where an index is.
    pub registries_env: Vec<(String, String)>,
}

/// A network, and what belongs in the environment with it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Granted {
    pub(crate) network: Network,
    pub(crate) env: Vec<(String, String)>,
}

pub(crate) fn grant(wish: &[String], settings: &NetworkSettings) -> Result<Granted, EngineError> {
    if wish.is_empty() {
        let network = match settings.default.as_slice() {
            [] => Network::None,
            default => Network::Granted(default.to_vec()),
        };
        return Ok(Granted { network, env: Vec::new() });
    }
    if wish.len() > HOSTS_MAX {
        return Err(EngineError::TooManyHosts { max: HOSTS_MAX });
    }
    let (mut grants, mut env) = (Vec::new(), Vec::new());
    for word in wish {
        if word == PACKAGES {
            if !settings.allow_packages {
                return Err(EngineError::HostNotAllowed { host: PACKAGES.to_owned() });
            }
            grants.extend(settings.registries.iter().cloned());
            env.clone_from(&settings.registries_env);
            continue;
        }
        let wished: Grant = word.parse().map_err(EngineError::BadHost)?;
        if !settings.allow.iter().any(|allowed| allowed.covers(&wished)) {
            return Err(EngineError::HostNotAllowed { host: wished.to_string() });
        }
        grants.push(wished);
    }
    // In one order, so that equal wishes are equal sandboxes.
    grants.sort_by_cached_key(Grant::to_string);
    grants.dedup();
    Ok(Granted { network: Network::Granted(grants), env })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> NetworkSettings {
        let grants = |words: &[&str]| words.iter().map(|word| word.parse().unwrap()).collect();
        NetworkSettings {
            allow: grants(&["*.example.org", "GET api.test"]),
            allow_packages: false,
            default: Vec::new(),
            registries: grants(&["index.test"]),
            registries_env: vec![("INDEX".into(), "https://index.test".into())],
        }
    }

    fn wish(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn who_asks_for_nothing_gets_the_default() {
        assert_eq!(grant(&[], &settings()).unwrap().network, Network::None);
        let default: Vec<Grant> = vec!["a.test".parse().unwrap()];
        let settings = NetworkSettings { default: default.clone(), ..settings() };
        assert_eq!(grant(&[], &settings).unwrap().network, Network::Granted(default));
    }

    #[test]
    fn the_ceiling_goes_before_the_wish() {
        let granted = grant(&wish(&["b.example.org", "a.example.org", "b.example.org"]), &settings()).unwrap();
        let expected = ["a.example.org", "b.example.org"].map(|word| word.parse().unwrap()).to_vec();
        assert_eq!(granted.network, Network::Granted(expected));
        for refused in ["example.org", "*", "api.test", "10.0.0.1", "a.example.org:22", "packages"] {
            let error = grant(&wish(&["a.example.org", refused]), &settings()).unwrap_err();
            assert!(matches!(&error, EngineError::HostNotAllowed { host } if host == refused), "{error}");
            assert!(error.to_string().contains("--allow-network"), "{error}");
        }
        assert!(matches!(grant(&wish(&["http://a.example.org/"]), &settings()), Err(EngineError::BadHost(_))));
        assert!(grant(&wish(&["a.example.org"; 65]), &settings()).is_err());
    }

    #[test]
    fn the_word_for_registries_is_their_hosts() {
        let settings = NetworkSettings { allow_packages: true, ..settings() };
        let granted = grant(&wish(&["packages", "GET api.test"]), &settings).unwrap();
        assert_eq!(granted.env, settings.registries_env);
        let Network::Granted(grants) = granted.network else { panic!() };
        assert_eq!(grants.iter().map(Grant::to_string).collect::<Vec<_>>(), ["GET api.test", "index.test"]);
    }
}
