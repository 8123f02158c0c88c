//! Whether a request is one that could be done at all, before anything is opened for it.

use std::time::Duration;

use belljar_core::{FileError, FileErrorKind, Language, Program, Source, Stdin};

use crate::EngineError;

/// The longest program text that is taken.
pub const CODE_BYTES_MAX: usize = 1024 * 1024;
/// The longest standard input that is taken.
pub const STDIN_BYTES_MAX: usize = 1024 * 1024;

const ENV_VARIABLES_MAX: usize = 128;
/// Linux gives arguments and environment together at least this much (ARG_MAX), whatever the stack limit.
const ENV_BYTES_MAX: usize = 128 * 1024;
const PACKAGES_MAX: usize = 100;
const PACKAGE_BYTES_MAX: usize = 512;
/// PATH_MAX of Linux.
const PATH_BYTES_MAX: usize = 4096;

/// Whether the server's own ground has what the program is written in. Another's tells by itself.
pub(crate) fn language(
    source: &Source,
    languages: &[Language],
    missing: &[(Language, String)],
) -> Result<(), EngineError> {
    let (Source::Code { language, .. } | Source::Cell { language, .. }) = source else { return Ok(()) };
    let language = *language;
    if languages.contains(&language) {
        return Ok(());
    }
    let fix = missing.iter().find(|(of, _)| *of == language).map(|(_, fix)| fix.clone());
    Err(EngineError::LanguageMissing { language, available: languages.to_vec(), fix })
}

pub(crate) fn program(program: &Program, wall_max: Duration) -> Result<(), EngineError> {
    let text = match &program.source {
        Source::Code { code, .. } | Source::Cell { code, .. } => code,
        Source::Command(line) => line,
    };
    if text.trim().is_empty() {
        return Err(EngineError::EmptyCode);
    }
    if text.len() > CODE_BYTES_MAX {
        return Err(EngineError::CodeTooLong { max_bytes: CODE_BYTES_MAX });
    }
    if text.contains('\0') {
        return Err(EngineError::BadCode);
    }
    if matches!(&program.stdin, Stdin::Whole(bytes) if bytes.len() > STDIN_BYTES_MAX) {
        return Err(EngineError::StdinTooLong { max_bytes: STDIN_BYTES_MAX });
    }
    if program.wall.is_zero() || program.wall > wall_max {
        return Err(EngineError::BadTimeout { max_seconds: wall_max.as_secs() });
    }
    if let Some(cwd) = &program.cwd {
        path(cwd).map_err(|FileError { kind, .. }| EngineError::BadCwd { kind })?;
    }
    env(&program.env)
}

/// What a caller asks for by name. What a name means is for the package manager to say, in its sandbox; that it is one, and
/// not one of its options, is for us.
pub(crate) fn packages(packages: &[String]) -> Result<(), EngineError> {
    let bad = |why| Err(EngineError::BadPackages { why });
    if packages.len() > PACKAGES_MAX {
        return bad("more than 100 at once; ask for fewer");
    }
    for package in packages {
        if package.trim().is_empty() || package.len() > PACKAGE_BYTES_MAX || package.contains(|c: char| c.is_control())
        {
            return bad("each is a name, with a version if that matters, such as pandas or pandas==2.2.3");
        }
        if package.trim_start().starts_with('-') || package.contains(" -") {
            return bad("one begins with a hyphen, or has an option behind it; give names, not options");
        }
    }
    Ok(())
}

pub(crate) fn env(variables: &[(String, String)]) -> Result<(), EngineError> {
    let bad = |why| Err(EngineError::BadEnv { why });
    if variables.len() > ENV_VARIABLES_MAX {
        return bad("more than 128 variables; send fewer, or write them to a file");
    }
    let mut bytes = 0;
    for (name, value) in variables {
        if name.is_empty() {
            return bad("a variable has an empty name; name it");
        }
        if name.contains(['=', '\0']) {
            return bad("a variable's name has '=' or a NUL byte; rename it");
        }
        if value.contains('\0') {
            return bad("a variable's value has a NUL byte; encode it, or write it to a file");
        }
        bytes += name.len() + value.len();
    }
    if bytes > ENV_BYTES_MAX {
        return bad("more than 128 KiB in total; write the long values to a file");
    }
    Ok(())
}

pub(crate) fn path(path: &str) -> Result<(), FileError> {
    if path.is_empty() || path.len() > PATH_BYTES_MAX || path.contains('\0') {
        return Err(FileError { kind: FileErrorKind::BadPath, path: path.chars().take(80).collect() });
    }
    Ok(())
}
