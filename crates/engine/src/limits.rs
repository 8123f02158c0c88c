//! From a caller's wish to the limits of a sandbox, within what the operator allows.
//!
//! A wish that cannot be granted is refused with the bound in the caller's own units: never granted in part, since a
//! program that got less than it asked for fails later and elsewhere.

use std::fmt::Display;

use belljar_core::Limits;

use crate::{EngineError, Wish};

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// Below these no interpreter starts: Python maps some 10 MiB and opens its modules one by one, and a shell pipeline
/// already has three processes.
const FLOOR: Limits =
    Limits { memory_bytes: 16 * MIB, cpu_milli: 50, processes: 8, open_files: 16, disk_bytes: MIB, output_bytes: KIB };

pub(crate) fn grant(wish: &Wish, ceiling: &Limits) -> Result<Limits, EngineError> {
    let default = Limits::default();
    let mib = |bytes: u64| (bytes / MIB).to_string();
    let kib = |bytes: u64| (bytes / KIB).to_string();
    let cpus = |milli: u32| (f64::from(milli) / 1000.0).to_string();
    let count = |n: u32| n.to_string();
    let one = Bound { floor: &FLOOR, ceiling, default: &default };
    let memory_bytes = one.of("memory_mb", wish.memory_bytes, |l| l.memory_bytes, mib)?;
    // Files live in memory. Were they to take all of it, nothing could run that removes them again.
    let files = &Limits { disk_bytes: ceiling.disk_bytes.min(memory_bytes / 4 * 3), ..*ceiling };
    let disk = Bound { ceiling: files, ..one };
    Ok(Limits {
        memory_bytes,
        cpu_milli: one.of("cpus", wish.cpu_milli, |l| l.cpu_milli, cpus)?,
        processes: one.of("processes", wish.processes, |l| l.processes, count)?,
        open_files: one.of("open_files", wish.open_files, |l| l.open_files, count)?,
        disk_bytes: disk.of(
            "disk_mb",
            wish.disk_bytes,
            |l| l.disk_bytes,
            |bytes| format!("{}, or for more memory_mb: files live in memory", mib(bytes)),
        )?,
        output_bytes: one.of("output_kb", wish.output_bytes, |l| l.output_bytes, kib)?,
    })
}

#[derive(Clone, Copy)]
struct Bound<'a> {
    floor: &'a Limits,
    ceiling: &'a Limits,
    default: &'a Limits,
}

impl Bound<'_> {
    /// One limit; `shown` writes it in the unit that `name` has.
    fn of<T: Ord + Copy + Display>(
        &self,
        name: &'static str,
        wish: Option<T>,
        field: impl Fn(&Limits) -> T,
        shown: impl Fn(T) -> String,
    ) -> Result<T, EngineError> {
        let (floor, ceiling) = (field(self.floor), field(self.ceiling));
        match wish {
            None => Ok(field(self.default).min(ceiling)),
            Some(value) if value > ceiling => Err(EngineError::LimitTooHigh { name, max: shown(ceiling) }),
            Some(value) if value < floor => Err(EngineError::LimitTooLow { name, min: shown(floor) }),
            Some(value) => Ok(value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;

    #[test]
    fn an_empty_wish_gets_the_defaults() {
        assert_eq!(grant(&Wish::default(), &Settings::default().ceiling).unwrap(), Limits::default());
    }

    #[test]
    fn defaults_stay_below_a_low_ceiling() {
        let ceiling = Limits { memory_bytes: 64 * MIB, ..Limits::default() };
        assert_eq!(grant(&Wish::default(), &ceiling).unwrap().memory_bytes, 64 * MIB);
    }

    #[test]
    fn files_take_at_most_three_quarters_of_the_memory() {
        let ceiling = Settings::default().ceiling;
        let wish = Wish { memory_bytes: Some(64 * MIB), ..Wish::default() };
        assert_eq!(grant(&wish, &ceiling).unwrap().disk_bytes, 48 * MIB);
        let refused = grant(&Wish { disk_bytes: Some(49 * MIB), ..wish }, &ceiling).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "disk_mb is more than this server allows; ask for at most 48, or for more memory_mb: files live in memory"
        );
    }

    #[test]
    fn bounds_are_inclusive_and_named_in_the_callers_units() {
        let ceiling = Settings::default().ceiling;
        let memory = |memory_bytes| grant(&Wish { memory_bytes: Some(memory_bytes), ..Wish::default() }, &ceiling);
        assert_eq!(memory(16 * MIB).unwrap().memory_bytes, 16 * MIB);
        assert_eq!(memory(8192 * MIB).unwrap().memory_bytes, 8192 * MIB);
        assert_eq!(
            memory(8192 * MIB + 1).unwrap_err().to_string(),
            "memory_mb is more than this server allows; ask for at most 8192"
        );
        assert_eq!(
            memory(16 * MIB - 1).unwrap_err().to_string(),
            "memory_mb is too low to run anything; ask for at least 16"
        );

        let cpus = grant(&Wish { cpu_milli: Some(49), ..Wish::default() }, &ceiling).unwrap_err();
        assert_eq!(cpus.to_string(), "cpus is too low to run anything; ask for at least 0.05");
        let output = grant(&Wish { output_bytes: Some(1), ..Wish::default() }, &ceiling).unwrap_err();
        assert_eq!(output.to_string(), "output_kb is too low to run anything; ask for at least 1");
    }
}
