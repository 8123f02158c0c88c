//! Who a span is, and the `traceparent` of W3C that says it to others.

use std::fmt::{self, Write as _};

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId([u8; 16]);

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId([u8; 8]);

/// A span's place in its trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpanContext {
    pub trace: TraceId,
    pub span: SpanId,
    /// Whether whoever began the trace wants it kept.
    pub is_sampled: bool,
}

impl SpanContext {
    /// The parent that a caller names. Nothing for what is not exactly in the form of version 00, or a later one's that
    /// begins with it: a caller's mistake must not become a trace of ours.
    pub fn parse(text: &str) -> Option<SpanContext> {
        // Later versions may have more behind.
        const LENGTH: usize = 55;
        const LENGTH_MAX: usize = 256;
        if text.len() > LENGTH_MAX || !text.is_ascii() {
            return None;
        }
        let (known, more) = text.split_at_checked(LENGTH)?;
        let mut parts = known.split('-');
        let (version, trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || !(more.is_empty() || version != "00" && more.starts_with('-')) {
            return None;
        }
        let [version] = bytes::<1>(version)?;
        let (trace, span, [flags]) = (bytes::<16>(trace)?, bytes::<8>(span)?, bytes::<1>(flags)?);
        let is_valid = version != 0xff && trace != [0; 16] && span != [0; 8];
        is_valid.then_some(SpanContext { trace: TraceId(trace), span: SpanId(span), is_sampled: flags & 1 == 1 })
    }

    /// The form in which others are told of it.
    pub fn traceparent(&self) -> String {
        format!("00-{}-{}-{:02x}", self.trace, self.span, u8::from(self.is_sampled))
    }

    /// A span below `parent`, or the first of a trace of its own. `None` where the host gives no random numbers.
    pub(crate) fn below(parent: Option<&SpanContext>) -> Option<SpanContext> {
        let span = SpanId(random()?);
        Some(match parent {
            Some(parent) => SpanContext { span, ..*parent },
            None => SpanContext { trace: TraceId(random()?), span, is_sampled: true },
        })
    }
}

/// Never all zeroes, which would mean none.
fn random<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).ok()?;
    if bytes == [0; N] {
        bytes[N - 1] = 1;
    }
    Some(bytes)
}

/// Small letters alone, as the recommendation has it.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    let mut bytes = [0; N];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A name for a span that somebody else had a part in: short, on one line, and printable.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::new();
    for character in text.chars().take(100) {
        let _ = plain.write_char(if character.is_control() { ' ' } else { character });
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn a_traceparent_is_read_and_said_again() {
        let context = SpanContext::parse(GOOD).unwrap();
        assert!(context.is_sampled);
        assert_eq!(context.trace.to_string(), "0af7651916cd43dd8448eb211c80319c");
        assert_eq!(context.span.to_string(), "b7ad6b7169203331");
        assert_eq!(context.traceparent(), GOOD);
        assert!(!SpanContext::parse(&GOOD.replace("-01", "-00")).unwrap().is_sampled);
        assert!(SpanContext::parse(&GOOD.replace("-01", "-03")).unwrap().is_sampled, "other flags are not ours");
        assert!(SpanContext::parse(&format!("cc{}-more", &GOOD[2..])).is_some(), "a later version may have more");
    }

    #[test]
    fn anything_else_is_no_parent() {
        let bad = [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "cc-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01more",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0x",
            "00_0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331_01",
            "00-0af7651916cd43dd8448eb211c80319-cb7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            " 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b716920333ü-1",
        ];
        for bad in bad {
            assert_eq!(SpanContext::parse(bad), None, "{bad:?}");
        }
        let long = format!("cc{}-{}", &GOOD[2..], "x".repeat(300));
        assert_eq!(SpanContext::parse(&long), None);
    }

    #[test]
    fn a_span_below_another_is_in_its_trace() {
        let parent = SpanContext::parse(GOOD).unwrap();
        let below = SpanContext::below(Some(&parent)).unwrap();
        assert_eq!((below.trace, below.is_sampled), (parent.trace, true));
        assert_ne!(below.span, parent.span);
        let (one, other) = (SpanContext::below(None).unwrap(), SpanContext::below(None).unwrap());
        assert!(one.is_sampled && one.trace != other.trace);
    }
}
