//! Values of the command line that are more than a word.

use std::net::SocketAddr;
use std::time::Duration;

/// Seconds, whole or not, more than none.
pub(super) fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "give a number of seconds, such as 30 or 0.5".to_owned())?;
    match Duration::try_from_secs_f64(seconds) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("give a number of seconds above 0".to_owned()),
    }
}

/// A time back from now, such as 90s, 30m, 12h or 7d.
pub(super) fn back(text: &str) -> Result<Duration, String> {
    let wrong = || "give a time such as 90s, 30m, 12h or 7d".to_owned();
    let unit = text.chars().last().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 60 * 60,
        'd' => 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let count: u32 = text[..text.len() - 1].parse().map_err(|_| wrong())?;
    Ok(Duration::from_secs(u64::from(count) * seconds))
}

/// An address with a port. `localhost` is the one name that is known without asking anybody.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
    let parsed = numeric.as_deref().unwrap_or(text).parse();
    parsed.map_err(|_| "give an address and a port, such as 127.0.0.1:8931".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_a_port() {
        assert_eq!(address("localhost:80"), Ok(SocketAddr::from(([127, 0, 0, 1], 80))));
        assert_eq!(address("[::1]:0"), Ok("[::1]:0".parse().unwrap()));
        for bad in ["localhost", "127.0.0.1", "example.com:80", ":80", ""] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn times_back_have_a_unit() {
        assert_eq!(back("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(back("2d"), Ok(Duration::from_secs(2 * 86_400)));
        for bad in ["", "h", "5", "-1h", "1.5h", "1w", "5\u{e4}", "99999999999d"] {
            assert!(back(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn seconds_are_positive_numbers() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        for bad in ["0", "-1", "NaN", "inf", "1e30", "", "5s"] {
            assert!(seconds(bad).is_err(), "{bad}");
        }
    }
}
