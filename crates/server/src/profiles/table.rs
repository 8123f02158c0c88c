//! The surfaces, as data: each row is a tool of the system that people come from, what it does here, and where.
//!
//! Names, parameters, types, defaults and lists of what is required are theirs; the words that describe them are ours.

use belljar_core::Language;

/// A surface of another system.
#[derive(Debug)]
pub(crate) struct Profile {
    pub(super) name: &'static str,
    pub(super) style: Style,
    pub(super) instructions: &'static str,
    pub(super) keys: Keys,
    pub(super) rows: &'static [Row],
}

/// How its answers look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    E2b,
    Daytona,
    CodeSandbox,
    RunPython,
    AgentExec,
    Morph,
    Interpreter,
}

/// What it calls the arguments that several tools have.
#[derive(Debug)]
pub(super) struct Keys {
    pub(super) sandbox: &'static str,
    pub(super) path: &'static str,
    /// An object that the arguments may be wrapped in.
    pub(super) wrapper: Option<&'static str>,
}

/// One tool.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Other spellings that are answered too, but not listed.
    pub(super) aliases: &'static [&'static str],
    pub(super) title: Option<&'static str>,
    pub(super) description: &'static str,
    /// JSON Schema.
    pub(super) input: &'static str,
    /// Without it the tool is not offered.
    pub(super) needs: Option<Language>,
    pub(super) action: Action,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Run { what: What, place: Place, wall: Wall },
    Create,
    Destroy,
    Write,
    Read,
    List,
    Info,
    Move,
    Delete,
    MakeFolder,
    Install,
    Clone,
    Preview,
    SessionFiles,
    ClearSession,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The argument `code`, in the language's kernel.
    Cell(Language),
    /// The arguments `language` and `code`, as a program of its own.
    Code,
    /// The argument `command`.
    Command,
    /// The argument `python_code`, wrapped so that its value comes back as JSON.
    Wrapped,
}

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// In a sandbox of its own, which goes with it.
    Fresh,
    /// In the one sandbox that the caller has without naming it.
    Shared,
    /// In the sandbox that the arguments name.
    Named,
    /// In the sandbox of a session.
    Session,
}

/// Seconds of wall time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wall {
    Fixed(u64),
    /// The argument `timeout`.
    Asked {
        default: u64,
        max: u64,
    },
}

const PLAIN: Keys = Keys { sandbox: "sandbox_id", path: "path", wrapper: None };

/// What a row is unless it says otherwise.
const ROW: Row =
    Row { name: "", aliases: &[], title: None, description: "", input: "{}", needs: None, action: Action::Create };

/// The names that `--profile` takes.
pub const NAMES: &[&str] = &["e2b", "daytona", "code-sandbox", "run-python", "agentexec", "morph", "interpreter"];

pub(super) const ALL: &[Profile] = &[E2B, DAYTONA, CODE_SANDBOX, RUN_PYTHON, AGENTEXEC, MORPH, INTERPRETER];

const E2B: Profile = Profile {
    name: "e2b",
    style: Style::E2b,
    instructions: "Runs Python cells in an isolated sandbox without network. Variables, imports and files stay \
                   between calls.",
    keys: PLAIN,
    rows: &[Row {
        name: "run_code",
        description: "Run python code in a secure sandbox. Using the Jupyter Notebook syntax. Variables and files \
                      stay between calls.",
        input: r#"{"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]}"#,
        needs: Some(Language::Python),
        action: Action::Run { what: What::Cell(Language::Python), place: Place::Shared, wall: Wall::Fixed(60) },
        ..ROW
    }],
};

const DAYTONA: Profile = Profile {
    name: "daytona",
    style: Style::Daytona,
    instructions: "Sandboxes without network: create_sandbox gives an id that every other tool takes. Files live in \
                   /workspace and /tmp. A sandbox that is not used for its autoStopInterval is removed with its \
                   files.",
    keys: Keys { sandbox: "id", path: "filePath", wrapper: None },
    rows: &[
        Row {
            name: "create_sandbox",
            description: "Create a new sandbox, or look whether an existing one is still there.",
            input: r#"{
                "type": "object",
                "properties": {
                    "id": {"type": "string",
                        "description": "An id that a call returned before; leave it out to create a sandbox."},
                    "name": {"type": "string",
                        "description": "Another name for the sandbox, taken in place of its id."},
                    "target": {"type": "string", "default": "us", "description": "Region; there is only this machine."},
                    "snapshot": {"type": "string", "description": "Not supported here; leave it out."},
                    "user": {"type": "string", "description": "Not supported here; leave it out."},
                    "env": {"type": "object", "properties": {}, "additionalProperties": {"type": "string"},
                        "description": "Environment variables, {\"key\": \"value\"}."},
                    "labels": {"type": "object", "properties": {}, "additionalProperties": {"type": "string"},
                        "description": "Labels, {\"key\": \"value\"}."},
                    "public": {"type": "boolean", "description": "Not supported here; leave it out."},
                    "cpu": {"type": "number", "maximum": 4, "description": "CPU cores."},
                    "gpu": {"type": "number", "maximum": 1, "description": "Not supported here; leave it out."},
                    "memory": {"type": "number", "maximum": 8, "description": "Memory in GB, files included."},
                    "disk": {"type": "number", "maximum": 10, "description": "Disk in GB; files live in memory."},
                    "autoStopInterval": {"type": "number", "default": 15, "minimum": 0,
                        "description": "Minutes without use until it is removed; 0 for as long as this server allows."},
                    "autoArchiveInterval": {"type": "number", "default": 10080, "minimum": 0,
                        "description": "No effect: nothing is archived."},
                    "autoDeleteInterval": {"type": "number", "default": -1,
                        "description": "No effect: a sandbox that stops is removed."},
                    "volumes": {"type": "array",
                        "description": "Not supported here; leave it out.",
                        "items": {"type": "object",
                            "properties": {"volumeId": {"type": "string"}, "mountPath": {"type": "string"}}}},
                    "buildInfo": {"type": "object",
                        "description": "Not supported here; leave it out.",
                        "properties": {"dockerfileContent": {"type": "string"},
                            "contextHashes": {"type": "array", "items": {"type": "string"}}}},
                    "networkBlockAll": {"type": "boolean", "description": "There is no network in any case."},
                    "networkAllowList": {"type": "string", "description": "Not supported here; leave it out."}
                }
            }"#,
            action: Action::Create,
            ..ROW
        },
        Row {
            name: "destroy_sandbox",
            description: "Remove a sandbox and all that is in it.",
            input: r#"{
                "type": "object",
                "properties": {"id": {"type": "string", "description": "ID of the sandbox."}},
                "required": ["id"]
            }"#,
            action: Action::Destroy,
            ..ROW
        },
        Row {
            name: "execute_command",
            description: "Run a shell command in a sandbox. Answers with stdout, stderr and the exit code.",
            input: r#"{
                "type": "object",
                "properties": {
                    "command": {"type": "string", "description": "Command to execute."},
                    "id": {"type": "string", "description": "ID of the sandbox."}
                },
                "required": ["command", "id"]
            }"#,
            action: Action::Run { what: What::Command, place: Place::Named, wall: Wall::Fixed(300) },
            ..ROW
        },
        Row {
            name: "file_upload",
            aliases: &["upload_file"],
            description: "Write a file of a sandbox, from text or from base64. Makes its directories.",
            input: r#"{
                "type": "object",
                "properties": {
                    "filePath": {"type": "string", "description": "Path of the file."},
                    "content": {"type": "string", "description": "Content of the file."},
                    "encoding": {"type": "string", "description": "base64, or text."},
                    "overwrite": {"type": "boolean", "description": "Whether a file that is there is replaced."},
                    "id": {"type": "string", "description": "ID of the sandbox."}
                },
                "required": ["filePath", "content", "encoding", "overwrite", "id"]
            }"#,
            action: Action::Write,
            ..ROW
        },
        Row {
            name: "file_download",
            aliases: &["download_file"],
            description: "Read a file of a sandbox: text, or a picture in base64.",
            input: r#"{
                "type": "object",
                "properties": {
                    "filePath": {"type": "string", "description": "Path of the file."},
                    "id": {"type": "string", "description": "ID of the sandbox."}
                },
                "required": ["filePath", "id"]
            }"#,
            action: Action::Read,
            ..ROW
        },
        Row {
            name: "list_files",
            description: "List a directory of a sandbox.",
            input: r#"{
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Directory; the workspace by default."},
                    "id": {"type": "string", "description": "ID of the sandbox."}
                },
                "required": ["id"]
            }"#,
            action: Action::List,
            ..ROW
        },
        Row {
            name: "get_file_info",
            description: "Size, times, owner and permissions of a file of a sandbox.",
            input: r#"{
                "type": "object",
                "properties": {
                    "filePath": {"type": "string", "description": "Path of the file."},
                    "id": {"type": "string", "description": "ID of the sandbox."}
                },
                "required": ["filePath", "id"]
            }"#,
            action: Action::Info,
            ..ROW
        },
        Row {
            name: "move_file",
            description: "Move or rename a file of a sandbox.",
            input: r#"{
                "type": "object",
                "properties": {
                    "sourcePath": {"type": "string", "description": "Path of the file."},
                    "destPath": {"type": "string", "description": "Its new path."},
                    "id": {"type": "string", "description": "ID of the sandbox."}
                },
                "required": ["sourcePath", "destPath", "id"]
            }"#,
            action: Action::Move,
            ..ROW
        },
        Row {
            name: "delete_file",
            description: "Delete a file of a sandbox, or a directory with all that is in it.",
            input: r#"{
                "type": "object",
                "properties": {
                    "filePath": {"type": "string", "description": "Path of the file or directory."},
                    "id": {"type": "string", "description": "ID of the sandbox."}
                },
                "required": ["filePath", "id"]
            }"#,
            action: Action::Delete,
            ..ROW
        },
        Row {
            name: "create_folder",
            description: "Make a directory in a sandbox, with its parents.",
            input: r#"{
                "type": "object",
                "properties": {
                    "folderPath": {"type": "string", "description": "Path of the directory."},
                    "mode": {"type": "string", "description": "Its mode; 0755 by default."},
                    "id": {"type": "string", "description": "ID of the sandbox."}
                },
                "required": ["folderPath", "id"]
            }"#,
            action: Action::MakeFolder,
            ..ROW
        },
        Row {
            name: "git_clone",
            description: "Clone a Git repository that is in the sandbox. There is no network to clone others from.",
            input: r#"{
                "type": "object",
                "properties": {
                    "url": {"type": "string", "description": "URL of the repository."},
                    "path": {"type": "string", "description": "Directory to clone into; the current one by default."},
                    "branch": {"type": "string", "description": "Branch to clone."},
                    "commitId": {"type": "string", "description": "Commit to check out."},
                    "username": {"type": "string", "description": "User name for the repository."},
                    "password": {"type": "string", "description": "Password for the repository."},
                    "id": {"type": "string", "description": "ID of the sandbox."}
                },
                "required": ["url", "id"]
            }"#,
            action: Action::Clone,
            ..ROW
        },
        Row {
            name: "preview_link",
            description: "Check a server in the sandbox. There are no links into a sandbox from outside.",
            input: r#"{
                "type": "object",
                "properties": {
                    "port": {"type": "number", "description": "Port of the server."},
                    "description": {"type": "string", "description": "What the server is."},
                    "checkServer": {"type": "boolean",
                        "description": "Whether to look if something listens on the port."},
                    "id": {"type": "string", "description": "ID of the sandbox."}
                },
                "required": ["port", "description", "checkServer", "id"]
            }"#,
            action: Action::Preview,
            ..ROW
        },
    ],
};

const CODE_SANDBOX: Profile = Profile {
    name: "code-sandbox",
    style: Style::CodeSandbox,
    instructions: "Executes code in an isolated sandbox without network, each call in a fresh one. Print what you \
                   want to see; figures are captured.",
    keys: PLAIN,
    rows: &[
        Row {
            name: "run_python_code",
            description: "Execute Python code in a fresh sandbox and capture its standard output and error.",
            input: r#"{
                "type": "object",
                "properties": {"code": {"type": "string",
                    "description": "The Python code to execute; sandbox://environments lists the libraries."}},
                "required": ["code"]
            }"#,
            needs: Some(Language::Python),
            action: Action::Run { what: What::Cell(Language::Python), place: Place::Fresh, wall: Wall::Fixed(30) },
            ..ROW
        },
        Row {
            name: "run_javascript_code",
            aliases: &["run_js_code"],
            description: "Execute JavaScript code in a fresh sandbox and capture its standard output and error.",
            input: r#"{
                "type": "object",
                "properties": {"code": {"type": "string",
                    "description": "The JavaScript code to execute; Node's own modules are there."}},
                "required": ["code"]
            }"#,
            needs: Some(Language::JavaScript),
            action: Action::Run { what: What::Cell(Language::JavaScript), place: Place::Fresh, wall: Wall::Fixed(30) },
            ..ROW
        },
    ],
};

const RUN_PYTHON: Profile = Profile {
    name: "run-python",
    style: Style::RunPython,
    instructions: "Call the \"run_python_code\" tool with the Python code to run.",
    keys: PLAIN,
    rows: &[Row {
        name: "run_python_code",
        title: Some("Run Python code"),
        description: "Execute Python code and return stdout, stderr, and return value. The code may be async, and \
                      the value on the last line is the return value. Each call begins anew. Dependencies are found \
                      in the imports, or in PEP 723 script metadata; only those that this host has can be used.",
        input: r#"{
            "type": "object",
            "properties": {
                "python_code": {"type": "string", "description": "Python code to run"},
                "global_variables": {"type": "object", "additionalProperties": {}, "default": {},
                    "description": "Global variables that the code finds"}
            },
            "required": ["python_code"],
            "additionalProperties": false
        }"#,
        needs: Some(Language::Python),
        action: Action::Run { what: What::Wrapped, place: Place::Fresh, wall: Wall::Fixed(60) },
        ..ROW
    }],
};

const AGENTEXEC: Profile = Profile {
    name: "agentexec",
    style: Style::AgentExec,
    instructions: "Shell commands and code in one sandbox without network; files in /workspace stay between calls.",
    keys: Keys { wrapper: Some("request"), ..PLAIN },
    rows: &[
        Row {
            name: "shell",
            description: "Execute a shell command in the sandbox. Files in /workspace stay between calls. Example: \
                          {\"command\": \"ls -la\", \"timeout\": 120, \"cwd\": \"/workspace\"}",
            input: r#"{
                "type": "object",
                "properties": {
                    "request": {
                        "type": "object",
                        "properties": {
                            "command": {"type": "string", "description": "Shell command"},
                            "timeout": {"type": "integer", "default": 60, "maximum": 300, "description": "Seconds"},
                            "cwd": {"type": "string", "default": "/workspace", "description": "Working directory"}
                        },
                        "required": ["command"]
                    }
                },
                "required": ["request"]
            }"#,
            action: Action::Run {
                what: What::Command,
                place: Place::Shared,
                wall: Wall::Asked { default: 60, max: 300 },
            },
            ..ROW
        },
        Row {
            name: "execute_code",
            description: "Execute a program in Python, Node.js or Go. Variables do not stay; files in /workspace do. \
                          Example: {\"code\": \"print('hi')\", \"language\": \"python\"}",
            input: r#"{
                "type": "object",
                "properties": {
                    "request": {
                        "type": "object",
                        "properties": {
                            "code": {"type": "string", "description": "Source code"},
                            "language": {"type": "string", "enum": ["python", "node", "go"],
                                "description": "Language of the code"},
                            "timeout": {"type": "integer", "default": 60, "maximum": 300, "description": "Seconds"}
                        },
                        "required": ["code", "language"]
                    }
                },
                "required": ["request"]
            }"#,
            action: Action::Run { what: What::Code, place: Place::Shared, wall: Wall::Asked { default: 60, max: 300 } },
            ..ROW
        },
        Row {
            name: "install_package",
            description: "Ask for a package of pip, npm or go. Without network only what this host has can be used, \
                          and the answer says whether that is so.",
            input: r#"{
                "type": "object",
                "properties": {
                    "request": {
                        "type": "object",
                        "properties": {
                            "package": {"type": "string", "description": "Name of the package"},
                            "package_manager": {"type": "string", "enum": ["pip", "npm", "go"], "default": "pip",
                                "description": "Where it comes from"},
                            "timeout": {"type": "integer", "default": 60, "maximum": 300, "description": "Seconds"}
                        },
                        "required": ["package"]
                    }
                },
                "required": ["request"]
            }"#,
            action: Action::Install,
            ..ROW
        },
    ],
};

const MORPH: Profile = Profile {
    name: "morph",
    style: Style::Morph,
    instructions: "Sandboxes without network: create_sandbox gives the id that exec and the file tools take. Files \
                   live in /workspace.",
    keys: PLAIN,
    rows: &[
        Row {
            name: "create_sandbox",
            description: "Create an isolated sandbox. Answers with its id.",
            input: r#"{
                "type": "object",
                "properties": {
                    "template": {"type": "string", "enum": ["python-3.12", "node-20", "go", "rust"],
                        "description": "What it has"},
                    "timeout": {"type": "number", "description": "Seconds without use after which it is removed"}
                }
            }"#,
            action: Action::Create,
            ..ROW
        },
        Row {
            name: "exec",
            description: "Run a shell command in a sandbox. Answers with stdout, stderr and exit_code.",
            input: r#"{
                "type": "object",
                "properties": {"sandbox_id": {"type": "string"}, "command": {"type": "string"}},
                "required": ["sandbox_id", "command"]
            }"#,
            action: Action::Run { what: What::Command, place: Place::Named, wall: Wall::Fixed(300) },
            ..ROW
        },
        Row {
            name: "write_file",
            description: "Write a file of a sandbox.",
            input: r#"{
                "type": "object",
                "properties": {
                    "sandbox_id": {"type": "string"}, "path": {"type": "string"}, "content": {"type": "string"}
                },
                "required": ["sandbox_id", "path", "content"]
            }"#,
            action: Action::Write,
            ..ROW
        },
        Row {
            name: "read_file",
            description: "Read a file of a sandbox.",
            input: r#"{
                "type": "object",
                "properties": {"sandbox_id": {"type": "string"}, "path": {"type": "string"}},
                "required": ["sandbox_id", "path"]
            }"#,
            action: Action::Read,
            ..ROW
        },
        Row {
            name: "destroy_sandbox",
            description: "Remove a sandbox and all that is in it.",
            input: r#"{
                "type": "object",
                "properties": {"sandbox_id": {"type": "string"}},
                "required": ["sandbox_id"]
            }"#,
            action: Action::Destroy,
            ..ROW
        },
    ],
};

const INTERPRETER: Profile = Profile {
    name: "interpreter",
    style: Style::Interpreter,
    instructions: "A Python interpreter that remembers. 1. Call execute_code without session_id (or with \"\"). 2. \
                   Keep the session_id of its answer, and send it with every further call: variables, imports and \
                   files stay. 3. Files are told by URI and read as kernel:// resources; figures are captured. A \
                   session that is not used for a while (30 minutes by default) expires with its files; the error \
                   then is a SessionExpiredError: begin a new session and run the setup code again. There is no \
                   network.",
    keys: Keys { sandbox: "session_id", ..PLAIN },
    rows: &[
        Row {
            name: "execute_code",
            description: "Execute Python code in a session, in which variables, imports and files stay between \
                          calls. Answers with success, output, result, error, traceback, files and, for a new \
                          session, session_info.",
            input: r#"{
                "type": "object",
                "properties": {
                    "code": {"type": "string"},
                    "session_id": {"type": "string", "default": ""}
                },
                "required": ["code"]
            }"#,
            needs: Some(Language::Python),
            action: Action::Run { what: What::Cell(Language::Python), place: Place::Session, wall: Wall::Fixed(120) },
            ..ROW
        },
        Row {
            name: "list_session_files",
            description: "List the files of a session, with their kernel:// URIs.",
            input: r#"{
                "type": "object",
                "properties": {"session_id": {"type": "string"}},
                "required": ["session_id"]
            }"#,
            action: Action::SessionFiles,
            ..ROW
        },
        Row {
            name: "clear_session",
            description: "End a session; its variables and files are removed.",
            input: r#"{
                "type": "object",
                "properties": {"session_id": {"type": "string"}},
                "required": ["session_id"]
            }"#,
            action: Action::ClearSession,
            ..ROW
        },
    ],
};
