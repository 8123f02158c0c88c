//! The library as Python sees it: a module with one function, in the part of Python's interface that stays the same from
//! version to version.
#![expect(unsafe_code, reason = "a foreign interface; each block says what it relies on")]

use std::ffi::{c_char, c_int, c_long, c_void};
use std::os::fd::AsFd;
use std::ptr;

use belljar_core::wire::ZYGOTE_GUEST_FD;
use belljar_seal::Filter;

use crate::fork;
use crate::request::{self, Buffer, Request};
use crate::sys::{self, Forked};

/// A value of Python's, of which we know nothing.
#[repr(C)]
pub(crate) struct Object {
    _opaque: [u8; 0],
}

#[repr(C)]
struct MethodDef {
    name: *const c_char,
    method: Option<extern "C" fn(*mut Object, *mut Object) -> *mut Object>,
    flags: c_int,
    doc: *const c_char,
}

#[repr(C)]
struct ModuleDef {
    reference_count: isize,
    kind: *mut c_void,
    init: *mut c_void,
    index: isize,
    copy: *mut c_void,
    name: *const c_char,
    doc: *const c_char,
    size: isize,
    methods: *mut MethodDef,
    slots: *mut c_void,
    traverse: *mut c_void,
    clear: *mut c_void,
    free: *mut c_void,
}

/// A function that takes one argument.
const METH_O: c_int = 8;
/// What those who keep to the stable interface say.
const ABI_VERSION: c_int = 3;

unsafe extern "C" {
    fn PyModule_Create2(definition: *mut ModuleDef, version: c_int) -> *mut Object;
    fn PyLong_AsLong(number: *mut Object) -> c_long;
    fn PyBytes_FromStringAndSize(bytes: *const c_char, size: isize) -> *mut Object;
    fn PyOS_BeforeFork();
    fn PyOS_AfterFork_Parent();
    fn PyOS_AfterFork_Child();
}

/// Python's entry point.
// SAFETY: the name is the one that Python looks for, and belongs to this module alone.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn PyInit_belljar_zygote() -> *mut Object {
    let methods = [
        MethodDef { name: c"serve".as_ptr(), method: Some(serve), flags: METH_O, doc: ptr::null() },
        MethodDef { name: ptr::null(), method: None, flags: 0, doc: ptr::null() },
    ];
    let null = ptr::null_mut();
    let definition = ModuleDef {
        reference_count: 1,
        kind: null,
        init: null,
        index: 0,
        copy: null,
        name: c"belljar_zygote".as_ptr(),
        doc: ptr::null(),
        size: -1,
        methods: Box::leak(Box::new(methods)).as_mut_ptr(),
        slots: null,
        traverse: null,
        clear: null,
        free: null,
    };
    // SAFETY: the definition is laid out as in Python's headers and lives for ever, as Python asks.
    unsafe { PyModule_Create2(Box::leak(Box::new(definition)), ABI_VERSION) }
}

/// `serve(fd)`: answers requests on the socket `fd` for ever. Returns in each kernel that is forked, with its environment.
extern "C" fn serve(_module: *mut Object, fd: *mut Object) -> *mut Object {
    // SAFETY: Python has given us a value, and we have its lock.
    let fd = unsafe { PyLong_AsLong(fd) };
    let (socket, guest) = (sys::inherited(fd as i32), sys::inherited(ZYGOTE_GUEST_FD));
    let Ok(filter) = Filter::forked() else { sys::end() };
    let mut buffer = Buffer::default();
    while let Some(request) = Request::receive(socket.as_fd(), &mut buffer) {
        // SAFETY: we have Python's lock, and are in a function that it has called.
        unsafe { PyOS_BeforeFork() };
        match fork::fork(&request, &filter, guest.as_fd()) {
            Forked::Zygote(outcome) => {
                // SAFETY: as above.
                unsafe { PyOS_AfterFork_Parent() };
                request::answer(socket.as_fd(), outcome);
            }
            Forked::Kernel => {
                let environment = request.environment();
                // All of these are closed here, and their numbers may be somebody else's by now.
                std::mem::forget((request, socket, guest, buffer));
                // SAFETY: as above; the bytes outlive the call, which copies them.
                return unsafe {
                    PyOS_AfterFork_Child();
                    PyBytes_FromStringAndSize(environment.as_ptr().cast(), environment.len() as isize)
                };
            }
        }
    }
    sys::end()
}
