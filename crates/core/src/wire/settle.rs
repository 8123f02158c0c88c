//! What the program that settles into a place, which another made, is told of it.

use serde::{Deserialize, Serialize};

use super::{Bounds, WireError, decode_body, encode_body};

/// The guest's first argument where it was started by that program. Its stream is then two descriptors, 3 to read and 4 to
/// write; the second argument is how many sockets follow from 5 on: a listener for each granted port, the proxy's, the one
/// for names; or 0 where there is no network.
pub const SETTLED: &str = "settled";

/// In place of a plan: look for interpreters in the directories that the next argument names, as `PATH` does, print each as a
/// line of name, path and version, with tabs between, and end.
pub const SURVEY: &str = "--survey";

/// How a place is finished from inside. Given as the one argument, in hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Plan {
    /// The size of the disk to be mounted over all writable places; `None` where whoever made the place did so.
    pub disk_bytes: Option<u64>,
    pub bounds: Bounds,
    /// The ports that are granted; `None` for no network.
    pub ports: Option<Vec<u16>>,
    /// Whether [`crate::BUILD`] may be written.
    pub builds: bool,
}

impl Plan {
    pub fn to_argument(&self) -> Result<String, WireError> {
        Ok(encode_body(self)?.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    pub fn from_argument(argument: &[u8]) -> Result<Plan, WireError> {
        let digit = |byte: u8| (byte as char).to_digit(16).map(|digit| digit as u8);
        let (pairs, rest) = argument.as_chunks::<2>();
        let bytes: Option<Vec<u8>> = pairs.iter().map(|[high, low]| Some(digit(*high)? << 4 | digit(*low)?)).collect();
        if !rest.is_empty() {
            return Err(WireError::Malformed);
        }
        decode_body(&bytes.ok_or(WireError::Malformed)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_comes_back_from_its_digits() {
        let plan = Plan {
            disk_bytes: Some(1 << 29),
            bounds: Bounds { processes: 258, open_files: 1024, data_bytes: None },
            ports: Some(vec![80, 443]),
            builds: false,
        };
        let argument = plan.to_argument().unwrap();
        assert_eq!(Plan::from_argument(argument.as_bytes()), Ok(plan));
        for bad in [&argument[1..], "zz", "", "00ff"] {
            assert_eq!(Plan::from_argument(bad.as_bytes()), Err(WireError::Malformed), "{bad:?}");
        }
    }
}
