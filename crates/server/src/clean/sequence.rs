//! Terminal sequences (ECMA-48): where one ends, and what it asks for.

/// How far to look for the end of a terminal string (OSC, DCS and their kin). One that never ends would otherwise
/// swallow the rest of the output.
const STRING_CHARS_MAX: usize = 4096;

pub(super) const ESCAPE: char = '\u{1b}';

/// What a sequence asks a terminal to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// Colours, titles, and whatever else changes no text.
    Nothing,
    Up(usize),
    Down(usize),
    Right(usize),
    Left(usize),
    /// To the beginning of a line so many further down.
    NextLine(usize),
    PreviousLine(usize),
    /// Counted from 0, as in the next.
    Column(usize),
    Home {
        row: usize,
        column: usize,
    },
    EraseLine(Erase),
    EraseScreen(Erase),
    Save,
    Restore,
    /// The terminal as if it were new.
    Reset,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Erase {
    ToEnd,
    ToStart,
    All,
}

/// The sequence that `text`, which follows an ESC, begins with: how long it is, and its order. `None` when it is none.
/// Looks no further than the next ESC, so that a row of broken ones costs no more than its length.
pub(super) fn read(text: &str) -> Option<(usize, Order)> {
    let bytes = text.as_bytes();
    let simple = |order| Some((1, order));
    match *bytes.first()? {
        b'[' => {
            let parameters = count(&bytes[1..], 0x30..=0x3f);
            let intermediates = count(&bytes[1 + parameters..], 0x20..=0x2f);
            let end = 1 + parameters + intermediates;
            let last = *bytes.get(end).filter(|last| matches!(last, 0x40..=0x7e))?;
            let order = if intermediates == 0 { order(&bytes[1..end], last) } else { Order::Nothing };
            Some((end + 1, order))
        }
        b']' | b'P' | b'X' | b'^' | b'_' => Some((string_length(text)?, Order::Nothing)),
        0x20..=0x2f => {
            let intermediates = count(bytes, 0x20..=0x2f);
            matches!(bytes.get(intermediates), Some(0x30..=0x7e)).then_some((intermediates + 1, Order::Nothing))
        }
        b'7' => simple(Order::Save),
        b'8' => simple(Order::Restore),
        b'D' => simple(Order::Down(1)),
        b'E' => simple(Order::NextLine(1)),
        b'M' => simple(Order::Up(1)),
        b'c' => simple(Order::Reset),
        0x30..=0x7e => simple(Order::Nothing),
        _ => None,
    }
}

/// What a control sequence asks for. Private ones, which begin with one of `<=>?`, ask for nothing that is text.
fn order(parameters: &[u8], last: u8) -> Order {
    if !parameters.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b';' | b':')) {
        return Order::Nothing;
    }
    let mut numbers = parameters.split(|byte| matches!(byte, b';' | b':')).map(number);
    let first = numbers.next().flatten();
    let second = numbers.next().flatten();
    // A move by nothing is one by one.
    let by = first.unwrap_or(1).max(1);
    let erase = match first.unwrap_or(0) {
        0 => Some(Erase::ToEnd),
        1 => Some(Erase::ToStart),
        2 => Some(Erase::All),
        _ => None,
    };
    match last {
        b'A' => Order::Up(by),
        b'B' | b'e' => Order::Down(by),
        b'C' | b'a' => Order::Right(by),
        b'D' => Order::Left(by),
        b'E' => Order::NextLine(by),
        b'F' => Order::PreviousLine(by),
        b'G' | b'`' => Order::Column(by - 1),
        b'H' | b'f' => Order::Home { row: by - 1, column: second.unwrap_or(1).max(1) - 1 },
        b'J' => erase.map_or(Order::Nothing, Order::EraseScreen),
        b'K' => erase.map_or(Order::Nothing, Order::EraseLine),
        b's' => Order::Save,
        b'u' => Order::Restore,
        _ => Order::Nothing,
    }
}

/// A parameter; the largest number there is for one that is larger.
fn number(digits: &[u8]) -> Option<usize> {
    let next = |number: usize, digit: &u8| number.saturating_mul(10).saturating_add(usize::from(digit - b'0'));
    (!digits.is_empty()).then(|| digits.iter().fold(0, next))
}

fn count(bytes: &[u8], range: std::ops::RangeInclusive<u8>) -> usize {
    bytes.iter().take_while(|byte| range.contains(byte)).count()
}

/// A string sequence ends with BEL or ESC \. A newline in it says that it was never one.
fn string_length(text: &str) -> Option<usize> {
    for (at, c) in text.char_indices().take(STRING_CHARS_MAX) {
        match c {
            '\u{7}' | '\u{9c}' => return Some(at + c.len_utf8()),
            ESCAPE => return text[at + 1..].starts_with('\\').then_some(at + 2),
            '\n' => return None,
            _ => {}
        }
    }
    None
}
