//! A second in time, as people and files write it: `2026-12-31`, or `2026-12-31T23:59:59Z`. Always UTC.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

const DAY: u64 = 24 * 60 * 60;
/// The last second that has a year of four digits.
const LAST: u64 = 253_402_300_799;

/// Seconds since the beginning of 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    pub fn now() -> Moment {
        // A clock before 1970 is one that was never set: everything that expires has.
        let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(LAST, |since| since.as_secs());
        Moment(since.min(LAST))
    }

    pub fn from_unix(seconds: u64) -> Moment {
        Moment(seconds.min(LAST))
    }

    pub fn unix(self) -> u64 {
        self.0
    }

    #[must_use]
    pub fn after(self, time: Duration) -> Moment {
        Moment(self.0.saturating_add(time.as_secs()).min(LAST))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = date(self.0 / DAY);
        let second = self.0 % DAY;
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Not a date of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a date is written 2026-12-31 or 2026-12-31T23:59:59Z")]
pub struct BadMoment;

impl FromStr for Moment {
    type Err = BadMoment;

    /// A day alone is its first second.
    fn from_str(text: &str) -> Result<Moment, BadMoment> {
        let (day, time) = match text.split_once('T') {
            Some((day, time)) => (day, time.strip_suffix('Z').ok_or(BadMoment)?),
            None => (text, "00:00:00"),
        };
        let [year, month, day] = numbers(day, '-', [4, 2, 2])?;
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        if year < 1970 || hour > 23 || minute > 59 || second > 59 {
            return Err(BadMoment);
        }
        let days = days(year, month, day).ok_or(BadMoment)?;
        Ok(Moment(days * DAY + hour * 3600 + minute * 60 + second))
    }
}

fn numbers(text: &str, between: char, digits: [usize; 3]) -> Result<[u64; 3], BadMoment> {
    let mut parts = text.split(between);
    let mut read = [0; 3];
    for (number, digits) in read.iter_mut().zip(digits) {
        let part = parts.next().ok_or(BadMoment)?;
        if part.len() != digits || !part.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(BadMoment);
        }
        *number = part.parse().map_err(|_| BadMoment)?;
    }
    if parts.next().is_some() { Err(BadMoment) } else { Ok(read) }
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn months(year: u64) -> [u64; 12] {
    let february = if is_leap(year) { 29 } else { 28 };
    [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

/// Days of all years before this one, since 1970.
fn days_before(year: u64) -> u64 {
    let leaps = |year: u64| year / 4 - year / 100 + year / 400;
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969)
}

fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    let months = months(year);
    let month = usize::try_from(month).ok()?.checked_sub(1)?;
    let length = *months.get(month)?;
    if !(1..=length).contains(&day) {
        return None;
    }
    Some(days_before(year) + months[..month].iter().sum::<u64>() + day - 1)
}

fn date(days: u64) -> (u64, u64, u64) {
    let mut year = 1970 + days / 366;
    while days_before(year + 1) <= days {
        year += 1;
    }
    let mut left = days - days_before(year);
    for (month, length) in (1..).zip(months(year)) {
        if left < length {
            return (year, month, left + 1);
        }
        left -= length;
    }
    (year, 12, 31)
}

impl Serialize for Moment {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Moment, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_they_are_read() {
        for (text, unix) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1999-12-31T23:59:59Z", 946_684_799),
            ("2000-02-29T12:00:00Z", 951_825_600),
            ("2024-12-31T00:00:00Z", 1_735_603_200),
            ("2026-11-16T13:02:02Z", 1_794_834_122),
            ("2100-03-01T00:00:00Z", 4_107_542_400),
            ("9999-12-31T23:59:59Z", LAST),
        ] {
            assert_eq!(text.parse::<Moment>().unwrap().unix(), unix, "{text}");
            assert_eq!(Moment::from_unix(unix).to_string(), text);
        }
        assert_eq!("2024-12-31".parse::<Moment>().unwrap().unix(), 1_735_603_200);
        // Every day of more than a cycle of leap years.
        for day in 0..200_000 {
            let moment = Moment::from_unix(day * DAY);
            assert_eq!(moment.to_string().parse(), Ok(moment));
        }
    }

    #[test]
    fn what_is_no_date_is_none() {
        for bad in [
            "",
            "today",
            "2026-13-01",
            "2026-02-29",
            "2026-00-10",
            "2026-1-1",
            "1969-12-31",
            "2026-11-16T24:00:00Z",
            "2026-11-16T10:00:00",
            "2026-11-16T10:00:00+01:00",
            "2026-11-16T10:00Z",
            "2026-11-16-01",
            "+026-11-16",
        ] {
            assert_eq!(bad.parse::<Moment>(), Err(BadMoment), "{bad}");
        }
    }
}
