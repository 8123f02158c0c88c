//! Starts an interpreter as a zygote: the driver's text is here, whoever makes the process is the jail.

use std::ffi::{CStr, CString};

use belljar_core::Language;
use belljar_core::wire::{ZYGOTE, ZYGOTE_GUEST_FD};

use crate::kernels;
use crate::launch::sealed_in_memory;
use crate::sys::{self, Strings};

/// Where the jail put our own executable, and where the driver finds its library.
const GUEST_FD: i32 = 4;
const LIBRARY_FD: i32 = 4;

/// Becomes the interpreter. Returns only if that fails.
pub(crate) fn start(interpreter: &CStr) -> i32 {
    let Some(driver) = kernels::zygote(Language::Python) else { return 1 };
    let guest = sys::inherited(GUEST_FD);
    // Before the other is made, which would get that number.
    let placed = sys::keep_as(&guest, ZYGOTE_GUEST_FD);
    let Ok(library) = sealed_in_memory(&driver.library) else { return 1 };
    let placed = placed.and_then(|()| sys::keep_as(&library, LIBRARY_FD));
    let arguments = driver.arguments.into_iter().chain([ZYGOTE]).map(CString::new);
    let (Ok(()), Ok(arguments)) = (placed, arguments.collect::<Result<Vec<_>, _>>()) else { return 1 };
    let argv = Strings::new(std::iter::once(interpreter.to_owned()).chain(arguments).collect());
    sys::exec_in_own_environment(interpreter, &argv);
    1
}
