//! QuickJS: a library of functions, called from outside. The driver in it makes it what code expects of JavaScript.

mod files;
mod transpile;

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_core::wire::QUESTION_MAX;
use belljar_core::{Language, Stream};
use rustix::fs::OFlags;
use wasmtime::{AsContextMut, Caller, Extern, Instance, Linker, Memory, Store, WasmParams, WasmResults};

use crate::instance::{Halt, Host, Kind, Launch, Prepared};
use crate::line::{Inbox, Said, Woken};

const DRIVER: &str = include_str!("javascript/driver.js");

/// Top-level `await`.
const ASYNC: i32 = 1 << 7;

/// What QuickJS lets its own stack have; its module has no more.
const STACK_BYTES: i32 = 256 * 1024;

pub(crate) fn kernel(env: Vec<(String, String)>) -> Launch {
    launch(Vec::new(), env, String::new())
}

pub(crate) fn program(language: Language, code: &str, env: Vec<(String, String)>) -> Launch {
    launch(vec![language.name().to_owned()], env, code.to_owned())
}

/// A program's language is its argument; a kernel has none.
fn launch(arguments: Vec<String>, env: Vec<(String, String)>, code: String) -> Launch {
    Launch { arguments, env, library: Arc::from(code.into_bytes()), kind: Kind::QuickJs }
}

pub(crate) fn add_to_linker(linker: &mut Linker<Host>) -> wasmtime::Result<()> {
    linker.func_wrap("env", "host_get_timezone_offset", |_: i32, _: i32| 0i32)?;
    linker.func_wrap("env", "host_module_normalize", |_: i32, _: i32| 0i32)?;
    linker.func_wrap("env", "host_module_load", |_: i32, _: i32| 0i32)?;
    linker.func_wrap(
        "env",
        "host_promise_rejection",
        |mut caller: Caller<'_, Host>, promise: i32, reason: i32, _: i32| {
            for value in [promise, reason] {
                call::<i32, ()>(&mut caller, "qjs_free_value", value)?;
            }
            Ok(())
        },
    )?;
    linker.func_wrap("env", "host_interrupt", |mut caller: Caller<'_, Host>| -> wasmtime::Result<i32> {
        let host = caller.data_mut();
        if host.line.stopped().is_some() {
            return Err(Halt::Stopped.into());
        }
        host.was_interrupted |= host.line.take_interrupt();
        Ok(i32::from(host.was_interrupted))
    })?;
    linker.func_wrap("env", "host_call", host_call)?;
    Ok(())
}

/// A function of the module's.
fn call<P: WasmParams, R: WasmResults>(caller: &mut Caller<'_, Host>, name: &str, given: P) -> wasmtime::Result<R> {
    let function = match caller.get_export(name) {
        Some(Extern::Func(function)) => function.typed::<P, R>(&mut *caller)?,
        _ => return Err(wasmtime::Error::msg("the module is no QuickJS that we know")),
    };
    function.call(&mut *caller, given)
}

fn memory_of(caller: &mut Caller<'_, Host>) -> wasmtime::Result<Memory> {
    match caller.get_export("memory") {
        Some(Extern::Memory(memory)) => Ok(memory),
        _ => Err(wasmtime::Error::msg("the module has no memory")),
    }
}

/// The one function that the driver has: its first argument says what is wanted, and its answer begins with 0 or 1.
fn host_call(
    mut caller: Caller<'_, Host>,
    _name: i32,
    _length: i32,
    _this: i32,
    count: i32,
    given: i32,
) -> wasmtime::Result<i32> {
    let memory = memory_of(&mut caller)?;
    let mut words = Vec::new();
    for index in 0..count.clamp(0, 3) as usize {
        let mut pointer = [0; 4];
        memory.read(&caller, given as u32 as usize + 4 * index, &mut pointer)?;
        words.push(text_of(&mut caller, memory, i32::from_le_bytes(pointer))?);
    }
    let answer = match obey(caller.data_mut(), &words)? {
        Ok(text) => format!("0{text}"),
        Err(text) => format!("1{text}"),
    };
    let (at, length) = put_text(&mut caller, memory, &answer)?;
    let value = call::<(i32, i32), i32>(&mut caller, "qjs_new_string", (at, length))?;
    call::<i32, ()>(&mut caller, "wasm_free", at)?;
    Ok(value)
}

fn text_of(caller: &mut Caller<'_, Host>, memory: Memory, value: i32) -> wasmtime::Result<String> {
    let place = call::<i32, i32>(caller, "wasm_malloc", 4)?;
    let text = call::<(i32, i32), i32>(caller, "qjs_get_string_len", (value, place))?;
    let mut length = [0; 4];
    memory.read(&*caller, place as u32 as usize, &mut length)?;
    call::<i32, ()>(caller, "wasm_free", place)?;
    if text == 0 {
        return Ok(String::new());
    }
    let (start, length) = (text as u32 as usize, u32::from_le_bytes(length) as usize);
    let found = start.checked_add(length).and_then(|end| memory.data(&*caller).get(start..end));
    let found = String::from_utf8_lossy(found.ok_or(Halt::Broken)?).into_owned();
    call::<i32, ()>(caller, "qjs_free_cstring", text)?;
    Ok(found)
}

fn put_text(caller: &mut Caller<'_, Host>, memory: Memory, text: &str) -> wasmtime::Result<(i32, i32)> {
    let at = call::<i32, i32>(caller, "wasm_malloc", text.len() as i32 + 1)?;
    if at == 0 {
        return Err(Halt::OutOfMemory.into());
    }
    memory.write(&mut *caller, at as u32 as usize, text.as_bytes())?;
    memory.write(&mut *caller, at as u32 as usize + text.len(), &[0])?;
    Ok((at, text.len() as i32))
}

fn obey(host: &mut Host, words: &[String]) -> wasmtime::Result<files::Answer> {
    let word = |index: usize| words.get(index).map(String::as_str).unwrap_or_default();
    let said = |host: &Host, stream| {
        for bytes in word(1).as_bytes().chunks(belljar_core::wire::CHUNK_MAX) {
            host.say(Said::Output { stream, bytes: bytes.to_vec() });
        }
    };
    let answer = match word(0) {
        "out" => {
            said(host, Stream::Stdout);
            Ok(String::new())
        }
        "err" => {
            said(host, Stream::Stderr);
            Ok(String::new())
        }
        "record" => {
            host.say(Said::Record(word(1).as_bytes().to_vec()));
            Ok(String::new())
        }
        "exit" => return Err(Halt::Exited(word(1).parse::<i32>().unwrap_or(1) & 0xff).into()),
        "env" => {
            let env: serde_json::Map<_, _> =
                host.env.iter().map(|(name, value)| (name.clone(), value.as_str().into())).collect();
            Ok(serde_json::Value::Object(env).to_string())
        }
        "stdin" => return stdin(host).map(Ok),
        "ask" if word(1).len() > QUESTION_MAX => {
            Err("EMSGSIZE the arguments are too long for a call: pass a path or a part of them".to_owned())
        }
        "ask" => return ask(host, word(1)).map(Ok),
        "read" => files::read(word(1)),
        "write" => files::write(word(1), word(2), OFlags::TRUNC),
        "append" => files::write(word(1), word(2), OFlags::APPEND),
        "list" => files::list(word(1)),
        "mkdir" => files::make_directory(word(1)),
        "remove" => files::remove(word(1)),
        _ => Err("ENOSYS there is no such call".to_owned()),
    };
    if host.line.stopped().is_some() {
        return Err(Halt::Stopped.into());
    }
    Ok(answer)
}

/// All that is there to be read.
fn stdin(host: &Host) -> wasmtime::Result<String> {
    let mut all = Vec::new();
    loop {
        let part = host.line.wait(None, false, |inbox: &mut Inbox| inbox.stdin.take(1 << 16).map(<[u8]>::to_vec));
        let part = part.map_err(|_| Halt::Stopped)?;
        if part.is_empty() {
            return Ok(String::from_utf8_lossy(&all).into_owned());
        }
        host.say(Said::Taken(part.len() as u32));
        all.extend_from_slice(&part);
    }
}

fn ask(host: &mut Host, line: &str) -> wasmtime::Result<String> {
    host.ask(line.as_bytes().to_vec());
    let answered = host.line.wait(None, true, |inbox| inbox.is_answered.then(|| std::mem::take(&mut inbox.answer)));
    match answered {
        Ok(answer) => Ok(String::from_utf8_lossy(&answer).into_owned()),
        Err(Woken::Interrupted) => {
            host.withdraw();
            host.was_interrupted = true;
            Ok("{\"error\":{\"message\":\"the call was given up\",\"kind\":\"Cancelled\"}}".to_owned())
        }
        Err(Woken::Stopped | Woken::Late) => Err(Halt::Stopped.into()),
    }
}

/// A QuickJS that stands, and its driver.
struct Vm<'a> {
    store: &'a mut Store<Host>,
    instance: Instance,
    memory: Memory,
    driver: i32,
}

/// Code to be run.
struct Work {
    text: String,
    language: String,
    is_last: bool,
}

/// Runs one cell after the other, or the one program; its value is the exit code.
pub(crate) fn serve(prepared: &Prepared, store: &mut Store<Host>) -> wasmtime::Result<i32> {
    let instance = prepared.module.instantiate(&mut *store)?;
    let memory = instance.get_memory(&mut *store, "memory").ok_or(Halt::Broken)?;
    let mut vm = Vm { store, instance, memory, driver: 0 };
    vm.call::<(), ()>("_initialize", ())?;
    if vm.call::<(), i32>("qjs_init", ())? != 0 {
        return Err(Halt::OutOfMemory.into());
    }
    vm.call::<i32, ()>("qjs_set_max_stack_size", STACK_BYTES)?;
    vm.call::<i32, ()>("qjs_set_interrupt_handler", 1)?;
    let (name, length) = vm.put("belljarHost")?;
    let function = vm.call::<(i32, i32, i32), i32>("qjs_new_host_function", (name, length, 0))?;
    let global = vm.call::<(), i32>("qjs_get_global", ())?;
    vm.call::<(i32, i32, i32), i32>("qjs_set_prop_string", (global, name, function))?;
    vm.driver = vm.evaluate(DRIVER, "<belljar driver>", 0)?;
    if vm.is_exception(vm.driver)? {
        return Err(Halt::Broken.into());
    }
    let language = vm.store.data().arguments.first().cloned();
    if let Some(language) = language {
        let text = String::from_utf8_lossy(&vm.store.data().library).into_owned();
        return vm.run(&Work { text, language, is_last: true }, true);
    }
    vm.store.data().say(Said::Ready);
    loop {
        let line = vm.store.data().line.clone();
        let work = line.wait(None, false, next_work).map_err(|_| Halt::Stopped)?;
        let code = vm.run(&work, false)?;
        vm.store.data().say(Said::Done { code });
        if work.is_last {
            return Ok(code);
        }
    }
}

/// The next cell, when it is here as a whole.
fn next_work(inbox: &mut Inbox) -> Option<Work> {
    let end = inbox.control.iter().position(|&byte| byte == b'\n')?;
    let header = String::from_utf8_lossy(&inbox.control[..end]).into_owned();
    let mut words = header.split(' ').skip(1);
    let length: usize = words.next()?.parse().ok()?;
    let (language, is_last) = (words.next()?.to_owned(), words.next() == Some("1"));
    if inbox.control.len() < end + 1 + length {
        return None;
    }
    let text: Vec<u8> = inbox.control.drain(..end + 1 + length).skip(end + 1).collect();
    Some(Work { text: String::from_utf8_lossy(&text).into_owned(), language, is_last })
}

impl Vm<'_> {
    fn call<P: WasmParams, R: WasmResults>(&mut self, name: &str, given: P) -> wasmtime::Result<R> {
        let function = self.instance.get_typed_func::<P, R>(&mut *self.store, name)?;
        function.call(&mut *self.store, given)
    }

    fn put(&mut self, text: &str) -> wasmtime::Result<(i32, i32)> {
        let at = self.call::<i32, i32>("wasm_malloc", text.len() as i32 + 1)?;
        if at == 0 {
            return Err(Halt::OutOfMemory.into());
        }
        self.memory.write(self.store.as_context_mut(), at as u32 as usize, text.as_bytes())?;
        self.memory.write(self.store.as_context_mut(), at as u32 as usize + text.len(), &[0])?;
        Ok((at, text.len() as i32))
    }

    fn evaluate(&mut self, text: &str, name: &str, flags: i32) -> wasmtime::Result<i32> {
        let (code, length) = self.put(text)?;
        let (file, _) = self.put(name)?;
        let value = self.call::<(i32, i32, i32, i32), i32>("qjs_eval", (code, length, file, flags))?;
        self.call::<i32, ()>("wasm_free", code)?;
        self.call::<i32, ()>("wasm_free", file)?;
        Ok(value)
    }

    fn is_exception(&mut self, value: i32) -> wasmtime::Result<bool> {
        Ok(self.call::<i32, i32>("qjs_is_exception", value)? != 0)
    }

    /// Calls a function of the driver's with one value; its answer as a number.
    fn tell(&mut self, name: &str, value: i32) -> wasmtime::Result<f64> {
        let (text, _) = self.put(name)?;
        let function = self.call::<(i32, i32), i32>("qjs_get_prop_string", (self.driver, text))?;
        self.call::<i32, ()>("wasm_free", text)?;
        let given = self.call::<i32, i32>("wasm_malloc", 4)?;
        self.memory.write(self.store.as_context_mut(), given as u32 as usize, &value.to_le_bytes())?;
        let answer = self.call::<(i32, i32, i32, i32), i32>("qjs_call", (function, self.driver, 1, given))?;
        self.call::<i32, ()>("wasm_free", given)?;
        let number = if self.is_exception(answer)? {
            // What the code did to the language's own objects reaches the driver; then it is over.
            let raised = self.call::<(), i32>("qjs_get_exception", ())?;
            self.call::<i32, ()>("qjs_free_value", raised)?;
            -1.0
        } else {
            self.call::<i32, f64>("qjs_get_float64", answer)?
        };
        for value in [function, answer] {
            self.call::<i32, ()>("qjs_free_value", value)?;
        }
        Ok(number)
    }

    fn tell_word(&mut self, name: &str, word: &str) -> wasmtime::Result<f64> {
        let (text, length) = self.put(word)?;
        let value = self.call::<(i32, i32), i32>("qjs_new_string", (text, length))?;
        self.call::<i32, ()>("wasm_free", text)?;
        let answer = self.tell(name, value);
        self.call::<i32, ()>("qjs_free_value", value)?;
        answer
    }

    fn run(&mut self, work: &Work, is_program: bool) -> wasmtime::Result<i32> {
        self.store.data_mut().was_interrupted = false;
        self.store.data_mut().cells += 1;
        self.tell_word("begin", if is_program { "program" } else { "cell" })?;
        let name = if is_program { "main.js".to_owned() } else { format!("<cell {}>", self.store.data().cells) };
        match transpile::plain(&work.text, &work.language) {
            Ok(text) => {
                let value = self.evaluate(&text, &name, ASYNC)?;
                if self.is_exception(value)? {
                    let raised = self.call::<(), i32>("qjs_get_exception", ())?;
                    if !self.store.data().was_interrupted {
                        self.tell("failed", raised)?;
                    }
                    self.call::<i32, ()>("qjs_free_value", raised)?;
                } else {
                    self.tell("watch", value)?;
                }
                self.call::<i32, ()>("qjs_free_value", value)?;
            }
            Err(why) => {
                self.tell_word("failed", &why)?;
            }
        }
        self.settle(if work.is_last { "last" } else { "more" })?;
        Ok(self.tell_word("code", "")? as i32 & 0xff)
    }

    /// Until the code is over, with its promises and, if nothing follows, its timers.
    fn settle(&mut self, last: &str) -> wasmtime::Result<()> {
        loop {
            while !self.store.data().was_interrupted && self.call::<(), i32>("qjs_is_job_pending", ())? != 0 {
                if self.call::<(), i32>("qjs_execute_pending_job", ())? < 0 {
                    let raised = self.call::<(), i32>("qjs_get_exception", ())?;
                    self.call::<i32, ()>("qjs_free_value", raised)?;
                }
            }
            let wait = if self.store.data().was_interrupted { -3.0 } else { self.tell_word("tick", last)? };
            if self.store.data().was_interrupted {
                // Before the driver is called, which would be interrupted in its turn.
                self.store.data_mut().was_interrupted = false;
                self.tell_word("interrupted", "")?;
                return Ok(());
            }
            if wait < 0.0 {
                return Ok(());
            }
            if wait > 0.0 {
                let until = Instant::now() + Duration::from_secs_f64((wait / 1000.0).min(3600.0));
                let line = self.store.data().line.clone();
                match line.wait(Some(until), true, |_| None::<()>) {
                    Err(Woken::Stopped) => return Err(Halt::Stopped.into()),
                    Err(Woken::Interrupted) => self.store.data_mut().was_interrupted = true,
                    Ok(()) | Err(Woken::Late) => {}
                }
            }
        }
    }
}
