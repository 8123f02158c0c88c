//! How each language is started: the arguments of its interpreter, and the driver that goes before the code, if any; as a
//! program of its own ([`Invocation`]), and as a kernel ([`Driver`]).
//!
//! Finding the interpreter and starting it is `launch`'s and `runner`'s; what a kernel then does is in `cells`.

mod go;
mod javascript;
mod python;
mod rust;
mod shell;

use belljar_core::{Language, Then};

/// The first descriptor after the standard ones. A program finds there code that does not travel as an argument, and must
/// close it before the code runs: a program starts with descriptors 0, 1 and 2, and no other. A kernel's driver finds its
/// control socket there, and its library on the next.
pub(crate) const FIRST_FD: i32 = 3;

/// What one argument holds: the kernel's `MAX_ARG_STRLEN` is 128 KiB, with its NUL.
const ARGUMENT_MAX: usize = 120 * 1024;

/// What an interpreter is called with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    /// The name it is called by; `None` for the path it was found at.
    pub(crate) name: Option<&'static str>,
    /// After its own name.
    pub(crate) arguments: Vec<String>,
    /// For [`FIRST_FD`].
    pub(crate) code: Option<String>,
}

/// What makes an interpreter a kernel.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Driver {
    /// After the interpreter's own name. The last is small, and takes the rest from the library.
    pub(crate) arguments: Vec<&'static str>,
    pub(crate) library: String,
}

/// The invocation of `interpreter`, one of the language's own list.
pub(crate) fn invocation(language: Language, interpreter: &'static str, code: String) -> Invocation {
    match language {
        Language::Python => python::invocation(code),
        Language::JavaScript | Language::TypeScript => javascript::invocation(code),
        Language::Shell | Language::Go | Language::Rust => shell::invocation(interpreter, code),
    }
}

/// Whether a cell is run in a kernel even if that has to be started.
pub(crate) fn has_kernel(language: Language, then: Then) -> bool {
    match language.kernel() {
        None => false,
        // A shell has nothing to show but its output, so that an only cell is as well a script.
        Some(Language::Shell) => then == Then::More,
        Some(_) => true,
    }
}

/// The driver of a language that has kernels, for `interpreter`, one of the language's own list.
pub(crate) fn driver(language: Language, interpreter: &str) -> Driver {
    match language {
        Language::Python => python::driver(),
        Language::JavaScript | Language::TypeScript => javascript::driver(),
        Language::Shell | Language::Go | Language::Rust => shell::driver(interpreter),
    }
}

/// As [`driver`], for a kernel that is copied with its machine while it waits, and has loaded by then what it can.
pub(crate) fn copied(language: Language, interpreter: &str) -> Driver {
    match language {
        Language::Python => python::copied(),
        _ => driver(language, interpreter),
    }
}

/// What makes an interpreter a zygote, which is forked into kernels; one more argument is to come, the path of the native
/// module that forks. `None` for a language whose interpreter cannot be forked.
pub(crate) fn zygote(language: Language) -> Option<Driver> {
    match language {
        Language::Python => Some(python::zygote()),
        Language::JavaScript | Language::TypeScript | Language::Shell | Language::Go | Language::Rust => None,
    }
}

/// The invocation of the shell for a program that has to be compiled first, by the `compiler` at that path; `None` for a
/// language that an interpreter runs.
pub(crate) fn compilation(language: Language, compiler: &str, code: &str) -> Option<Invocation> {
    let script = match language {
        Language::Go => go::RUN,
        Language::Rust => rust::RUN,
        Language::Python | Language::JavaScript | Language::TypeScript | Language::Shell => return None,
    };
    let arguments = ["-c", script, language.name(), compiler].map(str::to_owned).to_vec();
    Some(Invocation { name: None, arguments, code: Some(code.to_owned()) })
}

fn fits_an_argument(code: &str) -> bool {
    code.len() <= ARGUMENT_MAX && !code.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zygote_is_its_languages_kernel_and_more() {
        let (kernel, zygote) = (driver(Language::Python, "python3"), zygote(Language::Python).unwrap());
        assert_eq!(kernel.arguments, zygote.arguments);
        assert!(zygote.library.starts_with(&kernel.library) && zygote.library.contains("\0zygote\n"));
        assert!(!kernel.library.contains("\0zygote\n"));
        assert_eq!(super::zygote(Language::Shell), None);
    }
}
