//! From what the host wants run to what the kernel can execute: interpreter, arguments, environment, directory.

use std::ffi::CString;
use std::os::fd::OwnedFd;

use belljar_core::wire::{Init, Start};
use belljar_core::{FileError, FileErrorKind, Language, Source, WORKSPACE};
use rustix::fs::{FileType, MemfdFlags};

use crate::files::{absolute, kind_of, refusal};
use crate::kernels::{self, Driver, Invocation};
use crate::sys::Strings;

/// Everything an `exec` needs, made before the fork so that nothing in between can fail for want of memory.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: CString,
    pub(crate) argv: Strings,
    pub(crate) envp: Strings,
    pub(crate) cwd: CString,
    /// For [`kernels::FIRST_FD`] and those after it.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// A kernel lives longer than any one run, and has no such limit.
    pub(crate) cpu_seconds: Option<u64>,
    pub(crate) about: About,
}

/// What a failure to start is about, in the caller's words.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) interpreter: &'static str,
    pub(crate) cwd: String,
}

impl Launch {
    pub(crate) fn program(init: &Init, start: Start) -> Result<Launch, FileError> {
        let (language, code) = match start.source {
            Source::Code { language, code } | Source::Cell { language, code, .. } => (language, code),
            Source::Command(line) => (Language::Shell, line),
        };
        let env = Environment::new(&init.env, &start.env);
        let (interpreter, path) = find(language, &init.interpreters)?;
        let (interpreter, path, invocation) = match kernels::compilation(language, &path, &code) {
            Some(invocation) => {
                let (shell, path) = find(Language::Shell, &init.interpreters)?;
                (shell, path, invocation)
            }
            None => (interpreter, path, kernels::invocation(language, interpreter, code)),
        };
        let Invocation { name, arguments, code } = invocation;
        let argv = std::iter::once(name.unwrap_or(&path).to_owned()).chain(arguments);
        let argv = argv.map(|argument| c_string(argument, interpreter)).collect::<Result<_, _>>()?;
        let code = code.map(|code| sealed_in_memory(&code)).transpose();
        let cwd = start.cwd.unwrap_or_else(|| WORKSPACE.to_owned());
        Ok(Launch {
            program: c_string(path, interpreter)?,
            argv: Strings::new(argv),
            envp: Strings::new(env.into_strings()?),
            cwd: absolute(&cwd).map_err(|kind| refusal(kind, &cwd))?,
            descriptors: code.map_err(|errno| refusal(kind_of(errno), interpreter))?.into_iter().collect(),
            cpu_seconds: Some(start.cpu_seconds),
            about: About { interpreter, cwd },
        })
    }

    /// A language's kernel, whose driver speaks over `control`; one to be `copied`, if that is so.
    pub(crate) fn kernel(
        init: &Init,
        language: Language,
        env: &[(String, String)],
        control: OwnedFd,
        copied: bool,
    ) -> Result<Launch, FileError> {
        let (interpreter, path) = find(language, &init.interpreters)?;
        let driver = if copied { kernels::copied } else { kernels::driver };
        let Driver { arguments, library } = driver(language, interpreter);
        let failed = |errno| refusal(kind_of(errno), interpreter);
        let argv = std::iter::once(path.as_str()).chain(arguments).map(str::to_owned);
        let argv = argv.map(|argument| c_string(argument, interpreter)).collect::<Result<_, _>>()?;
        let cwd = WORKSPACE.to_owned();
        Ok(Launch {
            program: c_string(path, interpreter)?,
            argv: Strings::new(argv),
            envp: Strings::new(Environment::new(&init.env, env).into_strings()?),
            cwd: absolute(&cwd).map_err(|kind| refusal(kind, &cwd))?,
            descriptors: vec![control, sealed_in_memory(&library).map_err(failed)?],
            cpu_seconds: None,
            about: About { interpreter, cwd },
        })
    }
}

/// The sandbox's environment with the program's own on top, in the order in which the names first came.
#[derive(Debug)]
struct Environment<'a>(Vec<(&'a str, &'a str)>);

impl<'a> Environment<'a> {
    fn new(base: &'a [(String, String)], own: &'a [(String, String)]) -> Environment<'a> {
        let mut pairs: Vec<(&str, &str)> = Vec::with_capacity(base.len() + own.len());
        for (name, value) in base.iter().chain(own) {
            match pairs.iter_mut().find(|(known, _)| known == name) {
                Some(pair) => pair.1 = value,
                None => pairs.push((name, value)),
            }
        }
        Environment(pairs)
    }

    fn into_strings(self) -> Result<Vec<CString>, FileError> {
        let named = |(name, value): (&str, &str)| {
            if name.is_empty() || name.contains('=') {
                return Err(refusal(FileErrorKind::BadPath, name));
            }
            c_string(format!("{name}={value}"), name)
        };
        self.0.into_iter().map(named).collect()
    }
}

/// The language's interpreter: the name it goes by, and where it is.
fn find(language: Language, interpreters: &[(Language, String)]) -> Result<(&'static str, String), FileError> {
    let names = language.interpreters();
    let found = interpreters.iter().find(|(of, path)| {
        *of == language
            && rustix::fs::stat(path).is_ok_and(|stat| {
                FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && stat.st_mode & 0o111 != 0
            })
    });
    let Some((_, path)) = found else { return Err(refusal(FileErrorKind::NotFound, names[0])) };
    let called = path.rsplit('/').next().unwrap_or(path);
    Ok((names.iter().find(|name| **name == called).unwrap_or(&names[0]), path.clone()))
}

fn c_string(text: String, about: &str) -> Result<CString, FileError> {
    CString::new(text).map_err(|_| refusal(FileErrorKind::BadPath, about))
}

/// A file without a name, read from its beginning.
pub(crate) fn sealed_in_memory(code: &str) -> rustix::io::Result<OwnedFd> {
    let fd = rustix::fs::memfd_create(c"code", MemfdFlags::CLOEXEC)?;
    let mut done = 0;
    while done < code.len() {
        // `pwrite` leaves the position at the beginning, where the reader starts.
        done += rustix::io::pwrite(&fd, &code.as_bytes()[done..], done as u64)?;
    }
    Ok(fd)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_programs_own_environment_wins() {
        let (base, own) = (pairs(&[("PATH", "/bin"), ("A", "1")]), pairs(&[("A", "2"), ("B", "3"), ("A", "4")]));
        let strings = Environment::new(&base, &own).into_strings().unwrap();
        assert_eq!(strings, [c"PATH=/bin".to_owned(), c"A=4".to_owned(), c"B=3".to_owned()]);
    }

    #[test]
    fn a_name_that_no_environment_can_hold_is_refused() {
        for name in ["", "a=b", "a\0"] {
            let own = pairs(&[(name, "1")]);
            assert_eq!(Environment::new(&[], &own).into_strings().unwrap_err().kind, FileErrorKind::BadPath);
        }
    }

    #[test]
    fn a_missing_interpreter_is_not_found_by_its_usual_name() {
        let known = [(Language::JavaScript, "/nowhere/node".to_owned()), (Language::JavaScript, "/dev".to_owned())];
        let error = find(Language::JavaScript, &known).unwrap_err();
        assert_eq!((error.kind, error.path.as_str()), (FileErrorKind::NotFound, "node"));
    }
}
