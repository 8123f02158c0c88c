//! The scientific packages that nearly every agent imports, pinned with their hashes. `scripts/lock-base` makes them anew.

/// For every Python from [`PYTHON_MIN`] on, by markers.
pub(crate) const LOCK: &str = include_str!("lock.txt");

/// What somebody asks for who wants them.
const NAMES: &str = include_str!("base.in");

pub(crate) const PYTHON_MIN: (u32, u32) = (3, 10);

pub(crate) fn names() -> Vec<String> {
    NAMES.lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_pinned_by_its_hash() {
        let starts = LOCK.lines().filter(|line| !line.starts_with([' ', '#']) && !line.is_empty()).collect::<Vec<_>>();
        assert!(starts.iter().all(|line| line.contains("==") && line.ends_with('\\')));
        assert!(LOCK.lines().all(|line| !line.contains("://")));
        for name in names() {
            assert!(starts.iter().any(|line| line.starts_with(&format!("{name}=="))), "{name}");
        }
    }
}
