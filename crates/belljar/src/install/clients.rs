//! Every MCP client that can be set up, in one table: where its file is, how it is written, and what to do afterwards.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::document::Format;

/// The operating systems whose paths are known. The program itself runs on neither Windows nor anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Os {
    Linux,
    Mac,
}

/// What of the environment decides where clients keep their files.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) os: Os,
    pub(crate) home: PathBuf,
    /// `XDG_CONFIG_HOME`.
    pub(crate) xdg_config: Option<PathBuf>,
    /// `CLAUDE_CONFIG_DIR`.
    pub(crate) claude: Option<PathBuf>,
    /// `CODEX_HOME`.
    pub(crate) codex: Option<PathBuf>,
    /// `GOOSE_PATH_ROOT`.
    pub(crate) goose: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct Client {
    /// The word on our command line.
    pub(crate) name: &'static str,
    /// What people call it.
    pub(crate) title: &'static str,
    base: Base,
    path: &'static str,
    /// Another folder that the client's own variable can name, and the file in it.
    instead: Option<(Variable, &'static str)>,
    /// The folder that shows that the client is there.
    sign: Sign,
    /// The file inside a project, for clients that read one.
    project: Option<&'static str>,
    pub(crate) format: Format,
    /// The key that holds all servers.
    pub(crate) servers: &'static str,
    shape: Shape,
    next: &'static str,
    next_in_project: &'static str,
}

#[derive(Debug)]
enum Base {
    Home,
    /// The XDG folder, on whatever system.
    Xdg,
    /// The XDG folder, but on macOS always `~/.config`.
    XdgOnLinux,
    /// Where desktop applications keep theirs.
    Applications,
}

#[derive(Debug)]
enum Variable {
    Claude,
    Codex,
    Goose,
}

#[derive(Debug)]
enum Sign {
    /// The file's own folder.
    Folder,
    /// The folder around that.
    FolderAbove,
    /// A folder next to the file.
    Beside(&'static str),
}

/// How a client writes one server.
#[derive(Debug)]
enum Shape {
    /// `command` and `args`.
    Command,
    /// The same, with `type`.
    Typed,
    /// An extension of goose's.
    Extension,
}

pub(crate) const CLIENTS: [Client; 8] = [
    Client {
        name: "claude-desktop",
        title: "Claude Desktop",
        base: Base::Applications,
        path: "Claude/claude_desktop_config.json",
        instead: None,
        sign: Sign::Folder,
        project: None,
        format: Format::Json,
        servers: "mcpServers",
        shape: Shape::Command,
        next: "quit Claude Desktop entirely and start it again; Settings > Developer shows the server",
        next_in_project: "",
    },
    Client {
        name: "claude-code",
        title: "Claude Code",
        base: Base::Home,
        path: ".claude.json",
        instead: Some((Variable::Claude, ".claude.json")),
        sign: Sign::Beside(".claude"),
        project: Some(".mcp.json"),
        format: Format::Json,
        servers: "mcpServers",
        shape: Shape::Typed,
        next: "`claude mcp list` shows whether it connects; open sessions have to be started again",
        next_in_project: "start `claude` in the project and approve the server; `/mcp` shows it",
    },
    Client {
        name: "cursor",
        title: "Cursor",
        base: Base::Home,
        path: ".cursor/mcp.json",
        instead: None,
        sign: Sign::Folder,
        project: Some(".cursor/mcp.json"),
        format: Format::Json,
        servers: "mcpServers",
        shape: Shape::Command,
        next: "restart Cursor; its settings, under MCP, show the server",
        next_in_project: "open the project in Cursor and turn the server on in its settings, under MCP",
    },
    Client {
        name: "vscode",
        title: "VS Code",
        base: Base::Applications,
        path: "Code/User/mcp.json",
        instead: None,
        sign: Sign::FolderAbove,
        project: Some(".vscode/mcp.json"),
        format: Format::Json,
        servers: "servers",
        shape: Shape::Typed,
        next: "in VS Code run `MCP: List Servers`, choose it and start it",
        next_in_project: "open the project in VS Code, run `MCP: List Servers`, choose it and start it",
    },
    Client {
        name: "windsurf",
        title: "Windsurf",
        base: Base::Home,
        path: ".codeium/windsurf/mcp_config.json",
        instead: None,
        sign: Sign::Folder,
        project: None,
        format: Format::Json,
        servers: "mcpServers",
        shape: Shape::Command,
        next: "press refresh in Cascade's MCP panel, or restart Windsurf",
        next_in_project: "",
    },
    Client {
        name: "zed",
        title: "Zed",
        base: Base::XdgOnLinux,
        path: "zed/settings.json",
        instead: None,
        sign: Sign::Folder,
        project: Some(".zed/settings.json"),
        format: Format::Json,
        servers: "context_servers",
        shape: Shape::Command,
        next: "nothing to restart: Zed reads its settings as they change; the agent panel's settings show the server",
        next_in_project: "open the project in Zed and trust it; the agent panel's settings show the server",
    },
    Client {
        name: "goose",
        title: "goose",
        base: Base::Xdg,
        path: "goose/config.yaml",
        instead: Some((Variable::Goose, "config/config.yaml")),
        sign: Sign::Folder,
        project: None,
        format: Format::Yaml,
        servers: "extensions",
        shape: Shape::Extension,
        next: "start a new goose session; restart goose Desktop if you use that",
        next_in_project: "",
    },
    Client {
        name: "codex",
        title: "Codex",
        base: Base::Home,
        path: ".codex/config.toml",
        instead: Some((Variable::Codex, "config.toml")),
        sign: Sign::Folder,
        project: Some(".codex/config.toml"),
        format: Format::Toml,
        servers: "mcp_servers",
        shape: Shape::Command,
        next: "start Codex again; `codex mcp list` shows the server",
        next_in_project: "start `codex` in the project and trust it: the file is not read before",
    },
];

/// Whose configuration is meant.
#[derive(Debug, Clone)]
pub(crate) enum Scope {
    /// The user's own, for every project.
    User,
    /// One project's.
    Project(PathBuf),
}

impl Client {
    pub(crate) fn named(name: &str) -> Option<&'static Client> {
        CLIENTS.iter().find(|client| client.name == name)
    }

    /// The file to edit; none if the client has no file of that scope.
    pub(crate) fn file(&self, scope: &Scope, places: &Places) -> Option<PathBuf> {
        match scope {
            Scope::User => Some(self.user_file(places)),
            Scope::Project(folder) => self.project.map(|file| folder.join(file)),
        }
    }

    fn user_file(&self, places: &Places) -> PathBuf {
        if let Some((folder, file)) = self.named_folder(places) {
            return folder.join(file);
        }
        let dot_config = || places.home.join(".config");
        let xdg = || places.xdg_config.clone().unwrap_or_else(dot_config);
        let base = match (&self.base, places.os) {
            (Base::Home, _) => places.home.clone(),
            (Base::Xdg, _) | (Base::XdgOnLinux | Base::Applications, Os::Linux) => xdg(),
            (Base::XdgOnLinux, Os::Mac) => dot_config(),
            (Base::Applications, Os::Mac) => places.home.join("Library/Application Support"),
        };
        base.join(self.path)
    }

    /// What the client's own variable says, if it is set.
    fn named_folder<'a>(&self, places: &'a Places) -> Option<(&'a Path, &'static str)> {
        let (variable, file) = self.instead.as_ref()?;
        let folder = match variable {
            Variable::Claude => &places.claude,
            Variable::Codex => &places.codex,
            Variable::Goose => &places.goose,
        };
        folder.as_deref().map(|folder| (folder, *file))
    }

    /// Whether the client seems to be installed here: its file or its folder exists.
    pub(crate) fn is_here(&self, places: &Places) -> bool {
        let file = self.user_file(places);
        let folder = file.parent().unwrap_or(Path::new("/"));
        let named = self.named_folder(places).is_some();
        let sign = match self.sign {
            Sign::Beside(name) if !named => folder.join(name),
            Sign::FolderAbove => folder.parent().unwrap_or(folder).to_owned(),
            Sign::Folder | Sign::Beside(_) => folder.to_owned(),
        };
        file.exists() || sign.is_dir()
    }

    /// What the file has to say so that the client starts this command.
    pub(crate) fn entry(&self, name: &str, command: &str, args: &[String]) -> Value {
        match self.shape {
            Shape::Command => json!({ "command": command, "args": args }),
            Shape::Typed => json!({ "type": "stdio", "command": command, "args": args }),
            Shape::Extension => json!({
                "enabled": true,
                "type": "stdio",
                "name": name,
                "cmd": command,
                "args": args,
            }),
        }
    }

    /// The command line that an entry starts, or the address that it names.
    pub(crate) fn line(&self, entry: &Value) -> String {
        let text = |key: &str| entry.get(key).and_then(Value::as_str);
        let Some(command) = text(self.command_key()) else {
            let address = ["url", "serverUrl", "uri", "httpUrl"].into_iter().find_map(text);
            return address.unwrap_or("something that is not a command").to_owned();
        };
        let args = entry.get("args").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        std::iter::once(command).chain(args).collect::<Vec<_>>().join(" ")
    }

    pub(crate) fn command_key(&self) -> &'static str {
        match self.shape {
            Shape::Command | Shape::Typed => "command",
            Shape::Extension => "cmd",
        }
    }

    pub(crate) fn next(&self, scope: &Scope) -> &'static str {
        match scope {
            Scope::User => self.next,
            Scope::Project(_) => self.next_in_project,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(os: Os) -> Places {
        Places { os, home: "/h".into(), xdg_config: None, claude: None, codex: None, goose: None }
    }

    fn user(name: &str, places: &Places) -> String {
        Client::named(name).unwrap().file(&Scope::User, places).unwrap().to_str().unwrap().to_owned()
    }

    #[test]
    fn paths_on_linux_and_macos() {
        for (name, linux, mac) in [
            ("claude-desktop", ".config/Claude/", "Library/Application Support/Claude/"),
            ("claude-code", ".claude.json", ".claude.json"),
            ("cursor", ".cursor/mcp.json", ".cursor/mcp.json"),
            ("vscode", ".config/Code/User/mcp.json", "Library/Application Support/Code/User/mcp.json"),
            ("windsurf", ".codeium/windsurf/mcp_config.json", ".codeium/windsurf/mcp_config.json"),
            ("zed", ".config/zed/settings.json", ".config/zed/settings.json"),
            ("goose", ".config/goose/config.yaml", ".config/goose/config.yaml"),
            ("codex", ".codex/config.toml", ".codex/config.toml"),
        ] {
            for (os, expected) in [(Os::Linux, linux), (Os::Mac, mac)] {
                let path = user(name, &places(os));
                assert!(path.starts_with(&format!("/h/{expected}")), "{name}: {path}");
            }
        }
    }

    #[test]
    fn variables_move_the_files_of_those_who_read_them() {
        let x = |os| Places { xdg_config: Some("/x".into()), ..places(os) };
        assert_eq!(user("zed", &x(Os::Linux)), "/x/zed/settings.json");
        assert_eq!(user("zed", &x(Os::Mac)), "/h/.config/zed/settings.json");
        assert_eq!(user("goose", &x(Os::Mac)), "/x/goose/config.yaml");
        assert_eq!(user("vscode", &x(Os::Linux)), "/x/Code/User/mcp.json");
        assert_eq!(user("cursor", &x(Os::Linux)), "/h/.cursor/mcp.json");
        let own = |folder: &str| Some(PathBuf::from(folder));
        let named = Places { claude: own("/c"), codex: own("/d"), goose: own("/g"), ..x(Os::Linux) };
        assert_eq!(user("claude-code", &named), "/c/.claude.json");
        assert_eq!(user("codex", &named), "/d/config.toml");
        assert_eq!(user("goose", &named), "/g/config/config.yaml");
    }

    #[test]
    fn every_client_says_what_to_do_next() {
        for client in &CLIENTS {
            assert!(!client.next.is_empty(), "{}", client.name);
            assert_eq!(client.project.is_some(), !client.next_in_project.is_empty(), "{}", client.name);
            assert_eq!(Client::named(client.name).unwrap().title, client.title);
        }
    }
}
