//! Adds exports to a module before it is compiled: how an interpreter is interrupted is in it, and not offered.
//!
//! CPython has a function that notes a signal, after which the code raises `KeyboardInterrupt`. WASI has no signals, so that
//! nothing outside can call it. Which function that is cannot be told from a module without names, so that it is known for
//! single modules only, by their content.

/// What can be called from outside, by the module's functions and globals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Interrupt {
    /// Takes the number of a signal.
    pub(crate) function: u32,
    /// Where the stack of the C code ends. What is called in the midst of another function must leave what is below it.
    pub(crate) stack_pointer: u32,
}

pub(crate) const FUNCTION: &str = "belljar_interrupt";
pub(crate) const STACK_POINTER: &str = "belljar_stack_pointer";

const EXPORTS: u8 = 7;
const HEADER: usize = 8;

/// The module with both exported; as it is if it cannot be read, which compiling it will tell.
pub(crate) fn with_interrupt(module: &[u8], interrupt: Interrupt) -> Vec<u8> {
    rewritten(module, interrupt).unwrap_or_else(|| module.to_vec())
}

fn rewritten(module: &[u8], interrupt: Interrupt) -> Option<Vec<u8>> {
    let mut at = HEADER;
    while at < module.len() {
        let begin = at;
        let id = *module.get(at)?;
        at += 1;
        let length = number(module, &mut at)? as usize;
        let end = at.checked_add(length)?;
        if id != EXPORTS {
            at = end;
            continue;
        }
        let count = number(module, &mut at)?;
        let mut body = Vec::new();
        put_number(&mut body, count.checked_add(2)?);
        body.extend_from_slice(module.get(at..end)?);
        put_export(&mut body, FUNCTION, 0, interrupt.function);
        put_export(&mut body, STACK_POINTER, 3, interrupt.stack_pointer);
        let mut whole = module.get(..begin)?.to_vec();
        whole.push(EXPORTS);
        put_number(&mut whole, u32::try_from(body.len()).ok()?);
        whole.append(&mut body);
        whole.extend_from_slice(module.get(end..)?);
        return Some(whole);
    }
    None
}

fn put_export(body: &mut Vec<u8>, name: &str, kind: u8, index: u32) {
    put_number(body, name.len() as u32);
    body.extend_from_slice(name.as_bytes());
    body.push(kind);
    put_number(body, index);
}

/// LEB128, as all numbers of the format.
fn number(bytes: &[u8], at: &mut usize) -> Option<u32> {
    let mut value = 0u64;
    for shift in (0..35).step_by(7) {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return u32::try_from(value).ok();
        }
    }
    None
}

fn put_number(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_come_back() {
        for value in [0, 1, 127, 128, 300, 7415, u32::MAX] {
            let mut bytes = Vec::new();
            put_number(&mut bytes, value);
            assert_eq!(number(&bytes, &mut 0), Some(value));
        }
    }

    #[test]
    fn what_is_no_module_stays_as_it_is() {
        let interrupt = Interrupt { function: 1, stack_pointer: 0 };
        for hostile in [&b""[..], b"\0asm", b"\0asm\x01\0\0\0\x07\xff\xff\xff\xff\x0f", b"\0asm\x01\0\0\0\x07\x05\x01"]
        {
            assert_eq!(with_interrupt(hostile, interrupt), hostile);
        }
    }
}
