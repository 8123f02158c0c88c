//! The actions: each reads its arguments, asks the engine, and says what came of it. How that looks is
//! [`super::shape`]'s.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belljar_core::{Content, Language, Program, Range, Source, Stdin, Then};
use belljar_engine::{Answer, Attendance, Phase, Run, RunRequest, Stays, Wants};
use serde_json::Value;

use super::args::Args;
use super::fault::Fault;
use super::files::{self, FileInfo, FileRef};
use super::memory::{self, Desk};
use super::table::{Action, Keys, Place, Profile, Style, Wall, What};
use super::{create, ending, rich, wrap};
use crate::approval;
use crate::tools::Call;

/// A surface without jobs waits for each run. This is longer than any, its time in the queue included.
const PATIENCE: Duration = Duration::from_secs(7 * 24 * 60 * 60);
/// Files that an answer of the interpreter tells of.
const CHANGED_MAX: u32 = 50;
const READ_BYTES_MAX: u64 = 4 * 1024 * 1024;
const WRITE_BYTES_MAX: usize = 8 * 1024 * 1024;
const LIST_ENTRIES_MAX: u32 = 1000;
const SESSION_DEPTH: u32 = 16;
/// Pictures of one cell that are saved as files.
const SAVED_MAX: usize = 16;

/// One call, with what it works on.
#[derive(Debug)]
pub(super) struct Doing<'a> {
    pub(super) profile: &'static Profile,
    pub(super) call: &'a Call<'a>,
    pub(super) desk: Arc<Desk>,
    pub(super) args: Args,
}

#[derive(Debug)]
pub(super) enum Outcome {
    Ran(Box<Ran>),
    Created {
        sandbox: String,
        reused: bool,
        note: Option<String>,
    },
    Destroyed {
        sandbox: String,
    },
    Wrote {
        path: String,
    },
    Read {
        path: String,
        content: Content,
    },
    Listed {
        files: Vec<FileInfo>,
        more: bool,
    },
    Info(FileInfo),
    /// A sentence, in the surface's words.
    Done(String),
    SessionFiles {
        session: String,
        files: Vec<FileRef>,
    },
    Cleared {
        session: String,
    },
}

#[derive(Debug)]
pub(super) struct Ran {
    pub(super) run: Arc<Run>,
    pub(super) wall: Duration,
    pub(super) language: Option<Language>,
    pub(super) session: Option<Session>,
    pub(super) files: Vec<FileRef>,
    pub(super) notes: Vec<String>,
    /// Where all of the output can be read.
    pub(super) whole: Option<String>,
}

#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) is_new: bool,
    pub(super) idle: Duration,
}

impl Doing<'_> {
    pub(super) async fn act(&mut self, action: Action) -> Result<Outcome, Fault> {
        match action {
            Action::Run { what, place, wall } => self.run(what, place, wall).await,
            Action::Create => create::create(self).await,
            Action::Destroy => self.destroy().await,
            Action::Write => self.write().await,
            Action::Read => self.read().await,
            Action::List => self.list().await,
            Action::Info => self.info().await,
            Action::Move => self.move_file().await,
            Action::Delete => self.delete().await,
            Action::MakeFolder => self.make_folder().await,
            Action::Install => self.install().await,
            Action::Clone => self.clone_repository().await,
            Action::Preview => self.preview().await,
            Action::SessionFiles => self.session_files().await,
            Action::ClearSession => self.clear_session().await,
        }
    }

    fn keys(&self) -> &'static Keys {
        &self.profile.keys
    }

    /// The sandbox that the arguments name, by its id or by the name that it was given.
    fn sandbox(&mut self) -> Result<String, Fault> {
        let given = self.args.required(self.keys().sandbox)?;
        Ok(self.desk.sandbox_of(&given).unwrap_or(given))
    }

    async fn run(&mut self, what: What, place: Place, wall: Wall) -> Result<Outcome, Fault> {
        let wall = self.wall(wall)?;
        let (source, language) = match what {
            What::Cell(language) => {
                let code = self.args.text("code")?;
                (Source::Cell { language, code, then: Then::More }, Some(language))
            }
            What::Code => {
                let code = self.args.text("code")?;
                let language: Language =
                    self.args.required("language")?.parse().map_err(|error| Fault::argument(format!("{error}")))?;
                (Source::Code { language, code }, Some(language))
            }
            What::Command => (Source::Command(self.args.required("command")?), None),
            What::Wrapped => {
                let code = self.args.text("python_code")?;
                let source = Source::Code { language: Language::Python, code: code.clone() };
                self.approve(&program(source, wall)).await?;
                let program = wrap::program(&code, self.args.object("global_variables")?, wall)?;
                let run = self.start(None, program).await?;
                return Ok(self.ran(run, wall, Some(Language::Python), Vec::new()));
            }
        };
        let cwd = if self.profile.style == Style::AgentExec { self.args.nonempty("cwd")? } else { None };
        let named = if place == Place::Named { Some(self.sandbox()?) } else { None };
        let env = named.as_deref().map(|sandbox| self.desk.variables_of(sandbox)).unwrap_or_default();
        let program = Program { cwd, env, ..program(source, wall) };
        // Before there is a place for it: nothing is made for a program that nobody approves.
        self.approve(&program).await?;
        match place {
            Place::Fresh => {
                let run = self.start(None, program).await?;
                Ok(self.ran(run, wall, language, Vec::new()))
            }
            Place::Named => {
                let run = self.start(named, program).await?;
                let notes = ending::losses(&run).into_iter().collect();
                Ok(self.ran(run, wall, language, notes))
            }
            Place::Shared => {
                let (run, notes) = self.run_shared(program).await?;
                Ok(self.ran(run, wall, language, notes))
            }
            Place::Session => self.run_session(program, wall).await,
        }
    }

    fn wall(&mut self, wall: Wall) -> Result<Duration, Fault> {
        match wall {
            Wall::Fixed(seconds) => Ok(Duration::from_secs(seconds)),
            Wall::Asked { default, max } => {
                let asked = self.args.number("timeout", 0.001, max as f64)?;
                Ok(asked.map_or(Duration::from_secs(default), Duration::from_secs_f64))
            }
        }
    }

    async fn approve(&self, program: &Program) -> Result<(), Fault> {
        match &self.call.asking {
            Some(asking) => {
                let request = RunRequest { sandbox: None, program: program.clone(), wants: Wants::default() };
                Ok(asking.approve(self.call, &request).await?)
            }
            None => Ok(()),
        }
    }

    /// Runs a program of the caller's to its end. Whoever gives up the call stops it.
    async fn start(&self, sandbox: Option<String>, program: Program) -> Result<Arc<Run>, Fault> {
        let wall = program.wall;
        let request = RunRequest { sandbox, program, wants: Wants::default() };
        match approval::attend(self.call, request, Stays::For(PATIENCE), wall).await? {
            Answer::Finished(run) => Ok(run),
            Answer::Job(_) => Err(Fault::refused("it did not end in time; do less at once")),
        }
    }

    /// The same for a program of ours, which nobody is asked about: it has nothing of the caller's environment, and runs nothing
    /// that could be the caller's.
    async fn start_own(&self, sandbox: Option<String>, program: Program) -> Result<Arc<Run>, Fault> {
        let (wall, phase) = (program.wall, Phase::default());
        let departure = self.call.departure.clone();
        let attendance = Attendance { departure, phase: phase.clone(), ..Attendance::new(Stays::For(PATIENCE)) };
        let request = RunRequest { sandbox, program, wants: Wants::default() };
        let attended = self.call.engine.attend(self.call.who, request, attendance);
        match self.call.progress.during(wall, &phase, attended).await? {
            Answer::Finished(run) => Ok(run),
            Answer::Job(_) => Err(Fault::refused("it did not end in time; do less at once")),
        }
    }

    fn ran(&self, run: Arc<Run>, wall: Duration, language: Option<Language>, mut notes: Vec<String>) -> Outcome {
        if !run.report.ending.is_success() {
            notes.extend(crate::answer::calls_note(&run.calls));
        }
        let is_kept = self.call.engine.kept(self.call.who, run.id.as_str()).is_some();
        let whole = is_kept.then(|| format!("belljar://runs/{}/stdout (and /stderr)", run.id));
        Outcome::Ran(Box::new(Ran { run, wall, language, session: None, files: Vec::new(), notes, whole }))
    }

    /// In the sandbox that the caller has without naming it. One that is gone is replaced, and the answer says so; code
    /// that was begun is never begun again.
    async fn run_shared(&self, program: Program) -> Result<(Arc<Run>, Vec<String>), Fault> {
        let mut notes = Vec::new();
        loop {
            let sandbox = self.desk.shared(self.call.engine, self.call.who).await?;
            let ran = self.start(Some(sandbox.clone()), program.clone()).await;
            match ran {
                Ok(run) => {
                    if matches!(run.lost, Some(belljar_engine::Lost::Sandbox)) {
                        self.desk.forget_shared(&sandbox).await;
                    }
                    notes.extend(ending::losses(&run));
                    return Ok((run, notes));
                }
                Err(fault) if fault.is_gone() && notes.is_empty() => {
                    self.desk.forget_shared(&sandbox).await;
                    let note = "the earlier sandbox is gone, and this ran in a new one: variables and files of \
                                earlier calls are not there";
                    notes.push(format!("[{note}]"));
                }
                Err(fault) => {
                    if fault.is_gone() || fault.is_lost() {
                        self.desk.forget_shared(&sandbox).await;
                    }
                    return Err(fault);
                }
            }
        }
    }

    async fn run_session(&mut self, program: Program, wall: Duration) -> Result<Outcome, Fault> {
        let program = Program { changed_max: CHANGED_MAX, ..program };
        let asked = self.args.optional("session_id")?.filter(|id| !id.is_empty() && id != "0");
        let (call, desk) = (self.call, self.desk.clone());
        // A call that comes back to its run comes back to the session that was made for it.
        let asked = asked.or_else(|| desk.name_of(&self.sandbox_come_back_to()?));
        let (id, sandbox, is_new) = match asked {
            Some(id) => {
                let sandbox = desk.sandbox_of(&id).ok_or_else(|| self.expired(&id))?;
                (id, sandbox, false)
            }
            None => {
                desk.make_room(call.engine, call.who)?;
                let id = memory::session_id()?;
                let info = call.engine.create(call.who, Default::default()).await?;
                let sandbox = info.id.as_str().to_owned();
                desk.name(&id, &sandbox);
                (id, sandbox, true)
            }
        };
        let run = match self.start(Some(sandbox.clone()), program).await {
            Ok(run) => run,
            Err(fault @ Fault::Asks(_)) => return Err(fault),
            Err(fault) => {
                if is_new {
                    // Nobody was told of it.
                    desk.forget(&sandbox);
                    let _ = call.engine.destroy(call.who, &sandbox).await;
                } else if fault.is_gone() || fault.is_lost() {
                    desk.forget(&sandbox);
                    return Err(self.expired(&id));
                }
                return Err(fault);
            }
        };
        let mut notes: Vec<String> = ending::losses(&run).into_iter().collect();
        let mut files: Vec<FileRef> =
            run.changes.entries.iter().map(|entry| FileRef::new(&id, &entry.path, entry.metadata.size)).collect();
        if run.changes.more > 0 {
            notes.push(format!("[{} more files were changed; list_session_files shows all]", run.changes.more));
        }
        if matches!(run.lost, Some(belljar_engine::Lost::Sandbox)) {
            desk.forget(&sandbox);
        } else {
            files.extend(self.save_pictures(&id, &sandbox, &run).await);
        }
        let session = Session { id, is_new, idle: call.engine.tenure().idle };
        let Outcome::Ran(mut ran) = self.ran(run, wall, Some(Language::Python), notes) else {
            return Err(Fault::refused("the run was not told"));
        };
        (ran.session, ran.files) = (Some(session), files);
        Ok(Outcome::Ran(ran))
    }

    fn sandbox_come_back_to(&self) -> Option<String> {
        let job = self.call.asking.as_ref()?.came_back.job()?;
        let jobs = self.call.engine.jobs(self.call.who);
        let job = jobs.into_iter().find(|known| known.id.as_str() == job)?;
        job.sandbox.map(|sandbox| sandbox.as_str().to_owned())
    }

    /// Pictures that a cell showed, as files of the session.
    async fn save_pictures(&self, id: &str, sandbox: &str, run: &Run) -> Vec<FileRef> {
        let mut millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
        let mut saved = Vec::new();
        for (bundle, _) in rich::bundles(run).take(SAVED_MAX) {
            let picture = rich::picture(bundle).map(|(image, bytes)| (image.mime_type, bytes)).or_else(|| {
                let svg = bundle.data.get("image/svg+xml").and_then(Value::as_str)?;
                Some(("image/svg+xml", svg.as_bytes().to_vec()))
            });
            let Some((mime_type, bytes)) = picture else { continue };
            let ending = mime_type.trim_start_matches("image/").trim_end_matches("+xml");
            let name = format!("inline_{millis}.{ending}");
            millis += 1;
            let size = bytes.len() as u64;
            if self.call.engine.write(self.call.who, sandbox, &name, bytes).await.is_ok() {
                saved.push(FileRef::new(id, &name, size));
            }
        }
        saved
    }

    pub(super) fn expired(&self, id: &str) -> Fault {
        Fault::refused(format!("{}{}", expired(id, self.call.engine.tenure().idle), RENEW))
    }

    async fn destroy(&mut self) -> Result<Outcome, Fault> {
        let given = self.args.required(self.keys().sandbox)?;
        let sandbox = self.desk.sandbox_of(&given).unwrap_or_else(|| given.clone());
        self.call.engine.destroy(self.call.who, &sandbox).await?;
        self.desk.forget(&sandbox);
        Ok(Outcome::Destroyed { sandbox: given })
    }

    async fn write(&mut self) -> Result<Outcome, Fault> {
        let sandbox = self.sandbox()?;
        let path = self.args.required(self.keys().path)?;
        let content = self.args.text("content")?;
        let is_daytona = self.profile.style == Style::Daytona;
        let encoding = if is_daytona { self.args.required("encoding")? } else { String::new() };
        let bytes = match encoding.as_str() {
            "base64" => files::base64_decode(&content)
                .ok_or_else(|| Fault::argument("invalid base64 encoding; send standard base64, or encoding text"))?,
            _ => content.into_bytes(),
        };
        if bytes.len() > WRITE_BYTES_MAX {
            return Err(Fault::argument(format!("content is longer than {WRITE_BYTES_MAX} bytes; write it in parts")));
        }
        if is_daytona && !self.args.flag("overwrite")? {
            let looked = self.call.engine.read(self.call.who, &sandbox, &path, Range { offset: 0, length: 1 }).await;
            if files::is_there(looked.map_err(Fault::from))? {
                return Err(Fault::refused(format!("file '{path}' already exists and overwrite=false")));
            }
        }
        self.call.engine.write(self.call.who, &sandbox, &path, bytes).await?;
        Ok(Outcome::Wrote { path })
    }

    async fn read(&mut self) -> Result<Outcome, Fault> {
        let sandbox = self.sandbox()?;
        let path = self.args.required(self.keys().path)?;
        let range = Range { offset: 0, length: READ_BYTES_MAX };
        let content = self.call.engine.read(self.call.who, &sandbox, &path, range).await?;
        Ok(Outcome::Read { path, content })
    }

    async fn list(&mut self) -> Result<Outcome, Fault> {
        let sandbox = self.sandbox()?;
        let path = self.args.nonempty("path")?.unwrap_or_else(|| ".".into());
        let listing = self.call.engine.list(self.call.who, &sandbox, &path, 1, LIST_ENTRIES_MAX).await?;
        // The engine's listing has neither owner nor permissions; without them the answer still stands.
        let detail = self.start_own(Some(sandbox), files::list_details(&path)).await;
        let details = detail.map(|run| files::parse_details(&run.report.stdout)).unwrap_or_default();
        let files = listing.entries.iter().map(|entry| FileInfo::of(entry, &details)).collect();
        Ok(Outcome::Listed { files, more: listing.truncated })
    }

    async fn info(&mut self) -> Result<Outcome, Fault> {
        let sandbox = self.sandbox()?;
        let path = self.args.required(self.keys().path)?;
        let stdout = self.shell(sandbox, files::stat(&path)).await?;
        let info = FileInfo::parse(&path, &stdout);
        info.map(Outcome::Info).ok_or_else(|| Fault::refused("the sandbox has no stat that can be read"))
    }

    async fn move_file(&mut self) -> Result<Outcome, Fault> {
        let sandbox = self.sandbox()?;
        let (from, to) = (self.args.required("sourcePath")?, self.args.required("destPath")?);
        self.shell(sandbox, files::move_file(&from, &to)).await?;
        Ok(Outcome::Done(format!("Moved file from {from} to {to}")))
    }

    async fn delete(&mut self) -> Result<Outcome, Fault> {
        let sandbox = self.sandbox()?;
        let path = self.args.required(self.keys().path)?;
        let output = self.shell(sandbox, files::delete(&path)).await?;
        Ok(Outcome::Done(format!("Deleted file: {path}\nOutput: {output}")))
    }

    async fn make_folder(&mut self) -> Result<Outcome, Fault> {
        let sandbox = self.sandbox()?;
        let path = self.args.required("folderPath")?;
        let mode = self.args.nonempty("mode")?.unwrap_or_else(|| "0755".into());
        if !(3..=4).contains(&mode.len()) || !mode.bytes().all(|digit| (b'0'..=b'7').contains(&digit)) {
            return Err(Fault::argument("mode must be three or four octal digits, such as 0755"));
        }
        self.shell(sandbox, files::make_folder(&path, &mode)).await?;
        Ok(Outcome::Done(format!("Created folder: {path}")))
    }

    async fn clone_repository(&mut self) -> Result<Outcome, Fault> {
        let sandbox = self.sandbox()?;
        let url = self.args.required("url")?;
        let path = self.args.nonempty("path")?.unwrap_or_else(|| ".".into());
        let (branch, commit) = (self.args.nonempty("branch")?, self.args.nonempty("commitId")?);
        if commit.as_ref().is_some_and(|commit| commit.starts_with('-')) {
            return Err(Fault::argument("commitId must be a commit, not an option"));
        }
        if !(url.starts_with("file://") || url.starts_with('/') || url.starts_with("./")) {
            // The sandbox first: who names none of theirs is told that.
            self.call.engine.list(self.call.who, &sandbox, ".", 1, 1).await?;
            return Err(Fault::refused(
                "error cloning repository: the sandbox has no network; upload the files with file_upload instead",
            ));
        }
        let variables = self.desk.variables_of(&sandbox);
        let program = files::clone(&url, &path, branch.as_deref(), commit.as_deref(), variables);
        let wall = program.wall;
        let run = self.start(Some(sandbox), program).await?;
        printed(&run, wall)?;
        Ok(Outcome::Done(format!("Cloned repository: {url} to {path}")))
    }

    async fn preview(&mut self) -> Result<Outcome, Fault> {
        let sandbox = self.sandbox()?;
        let port = self.args.number("port", 1.0, 65535.0)?.filter(|port| port.fract() == 0.0);
        let port = port.ok_or_else(|| Fault::argument("port is required; send a whole number from 1 to 65535"))? as u16;
        if self.args.flag("checkServer")? {
            let run = self.start_own(Some(sandbox), files::is_listening(port)).await?;
            if !run.report.ending.is_success() {
                let sentence = format!("no server detected on port {port}. Process info: No process found");
                return Err(Fault::refused(sentence));
            }
        } else {
            self.call.engine.list(self.call.who, &sandbox, ".", 1, 1).await?;
        }
        Err(Fault::refused(format!(
            "no preview link: a sandbox cannot be reached from outside; use port {port} from within it, by \
             execute_command"
        )))
    }

    /// Whether the host has the package is all that can be done about it without network.
    async fn install(&mut self) -> Result<Outcome, Fault> {
        let mut name = None;
        for key in ["package", "package_name", "name"] {
            name = name.or(self.args.nonempty(key)?);
        }
        let name = name.ok_or_else(|| Fault::argument("package is required; send its name"))?;
        let mut manager = None;
        for key in ["package_manager", "manager", "language"] {
            manager = manager.or(self.args.nonempty(key)?);
        }
        let wall = self.wall(Wall::Asked { default: 60, max: 300 })?;
        let manager = match manager.as_deref().unwrap_or("pip") {
            "pip" | "python" => "pip",
            "npm" | "node" => "npm",
            "go" => "go",
            _ => return Err(Fault::argument("package_manager must be one of: pip, npm, go")),
        };
        let program = Program { wall, ..files::is_installed(manager, &name) };
        let (run, notes) = self.run_shared(program).await?;
        Ok(self.ran(run, wall, None, notes))
    }

    async fn session_files(&mut self) -> Result<Outcome, Fault> {
        let session = self.args.required("session_id")?;
        let gone = || Fault::refused(expired(&session, self.call.engine.tenure().idle));
        let sandbox = self.desk.sandbox_of(&session).ok_or_else(gone)?;
        let listed = self.call.engine.list(self.call.who, &sandbox, ".", SESSION_DEPTH, LIST_ENTRIES_MAX).await;
        let listing = listed.map_err(|error| {
            let fault = Fault::from(error);
            if fault.is_gone() || fault.is_lost() { gone() } else { fault }
        })?;
        let regular = listing.entries.iter().filter(|entry| entry.metadata.kind == belljar_core::FileKind::File);
        let files = regular.map(|entry| FileRef::new(&session, &entry.path, entry.metadata.size)).collect();
        Ok(Outcome::SessionFiles { session, files })
    }

    async fn clear_session(&mut self) -> Result<Outcome, Fault> {
        let session = self.args.required("session_id")?;
        let gone = || Fault::refused(format!("Session {session} not found"));
        let sandbox = self.desk.sandbox_of(&session).ok_or_else(gone)?;
        self.desk.forget(&sandbox);
        self.call.engine.destroy(self.call.who, &sandbox).await.map_err(|error| {
            let fault = Fault::from(error);
            if fault.is_gone() || fault.is_lost() { gone() } else { fault }
        })?;
        Ok(Outcome::Cleared { session })
    }

    /// What a command of ours printed; what it complained of is the fault.
    async fn shell(&self, sandbox: String, program: Program) -> Result<String, Fault> {
        let wall = program.wall;
        let run = self.start_own(Some(sandbox), program).await?;
        printed(&run, wall)
    }
}

fn printed(run: &Run, wall: Duration) -> Result<String, Fault> {
    if run.report.ending.is_success() {
        return Ok(super::reply::stream(&run.report.stdout));
    }
    let said = ending::stderr(run, wall);
    let said = said.trim();
    let said = if said.is_empty() { "the operation failed in the sandbox" } else { said };
    Err(Fault::refused(crate::answer::shorten_text(said, 2_000)))
}

const RENEW: &str =
    " Please create a new session (use session_id=\"\" or session_id=\"0\") and run your setup code again.";

pub(super) fn expired(id: &str, idle: Duration) -> String {
    let id: String = id.chars().take(40).collect();
    let id = crate::clean::clean(id.as_bytes());
    let minutes = idle.as_secs().div_ceil(60);
    format!("Session {id} not found or has expired. Sessions expire after {minutes} minutes of inactivity.")
}

pub(super) fn program(source: Source, wall: Duration) -> Program {
    Program { source, env: Vec::new(), cwd: None, stdin: Stdin::empty(), wall, changed_max: 0 }
}
