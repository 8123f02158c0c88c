//! `~/.netrc`: names and passwords by host, which pip and uv heed.

use super::{HostSettings, Secret};

#[derive(Debug, Default)]
pub(super) struct Netrc(Vec<Machine>);

#[derive(Debug)]
struct Machine {
    /// `None` for the default entry.
    host: Option<String>,
    login: String,
    password: Secret,
}

pub(super) fn read(host: &HostSettings<'_>) -> Netrc {
    let text = match host.var("NETRC") {
        Some(path) => host.file(path),
        None => host.at_home(".netrc"),
    };
    text.map(|text| Netrc::parse(&text)).unwrap_or_default()
}

impl Netrc {
    fn parse(text: &str) -> Netrc {
        let mut machines = Vec::new();
        // A macro goes on to the next empty line, and is nothing to us.
        let mut in_macro = false;
        let plain = text.lines().filter(|line| {
            in_macro = (in_macro || line.trim_start().starts_with("macdef")) && !line.trim().is_empty();
            !in_macro && !line.trim_start().starts_with('#')
        });
        let plain = plain.collect::<Vec<_>>().join("\n");
        let mut words = plain.split_whitespace();
        while let Some(word) = words.next() {
            let empty = |host| Machine { host, login: String::new(), password: Secret(String::new()) };
            match (word, machines.last_mut()) {
                ("machine", _) => machines.extend(words.next().map(|host| empty(Some(host.to_ascii_lowercase())))),
                ("default", _) => machines.push(empty(None)),
                ("login", Some(machine)) => machine.login = words.next().unwrap_or_default().to_owned(),
                ("password", Some(machine)) => machine.password = Secret(words.next().unwrap_or_default().to_owned()),
                _ => {}
            }
        }
        Netrc(machines)
    }

    /// Only an entry of its own: what is meant for every host is not sent to registries.
    pub(super) fn find(&self, host: &str) -> Option<(String, Secret)> {
        let machine = self.0.iter().find(|machine| machine.host.as_deref() == Some(host))?;
        Some((machine.login.clone(), machine.password.clone()))
    }
}
