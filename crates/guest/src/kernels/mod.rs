//! How each language is started: the arguments of its interpreter, and the driver that goes before the code, if any.
//!
//! Finding the interpreter and starting it is `launch`'s and `runner`'s.

mod javascript;
mod python;
mod shell;

use belljar_core::Language;

/// The descriptor on which a driver finds code that does not travel as an argument. It must close it before the code
/// runs: a program starts with descriptors 0, 1 and 2, and no other.
pub(crate) const CODE_FD: i32 = 3;

/// What one argument holds: the kernel's `MAX_ARG_STRLEN` is 128 KiB, with its NUL.
const ARGUMENT_MAX: usize = 120 * 1024;

/// What an interpreter is called with.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Invocation {
    /// The name it is called by; `None` for the path it was found at.
    pub(crate) name: Option<&'static str>,
    /// After its own name.
    pub(crate) arguments: Vec<String>,
    /// For [`CODE_FD`].
    pub(crate) code: Option<String>,
}

/// The invocation of `interpreter`, one of the language's own list.
pub(crate) fn invocation(language: Language, interpreter: &'static str, code: String) -> Invocation {
    match language {
        Language::Python => python::invocation(code),
        Language::JavaScript => javascript::invocation(code),
        Language::Shell => shell::invocation(interpreter, code),
    }
}

fn fits_an_argument(code: &str) -> bool {
    code.len() <= ARGUMENT_MAX && !code.contains('\0')
}
