//! What one run may spend on calls.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use crate::error::{CallError, ErrorKind};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    pub calls: u64,
    /// Of arguments and results together.
    pub bytes: u64,
    /// Spent waiting for tools, one call after the other.
    pub waiting: Duration,
    /// Calls under way at once; further ones wait.
    pub in_flight: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Budget { calls: 2_000, bytes: 256 << 20, waiting: Duration::from_secs(20 * 60), in_flight: 8 }
    }
}

#[derive(Debug)]
pub(super) struct Purse {
    budget: Budget,
    spent: Mutex<Spent>,
}

#[derive(Debug, Default)]
struct Spent {
    calls: u64,
    bytes: u64,
    waiting: Duration,
}

impl Purse {
    pub(super) fn new(budget: Budget) -> Purse {
        Purse { budget, spent: Mutex::default() }
    }

    /// Room for one more call, with arguments of this size.
    pub(super) fn call(&self, bytes: usize) -> Result<(), CallError> {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        let over = |what: String| {
            let message =
                format!("this run has used up its budget of tool calls: {what}; split the work over several runs");
            Err(CallError::new(ErrorKind::BudgetExceeded, message))
        };
        if spent.calls >= self.budget.calls {
            return over(format!("{} calls", self.budget.calls));
        }
        if spent.waiting >= self.budget.waiting {
            return over(format!("{} seconds of waiting", self.budget.waiting.as_secs()));
        }
        if spent.bytes + bytes as u64 > self.budget.bytes {
            return over(format!("{} MiB of arguments and results", self.budget.bytes >> 20));
        }
        spent.calls += 1;
        spent.bytes += bytes as u64;
        Ok(())
    }

    pub(super) fn spent(&self, bytes: usize, waited: Duration) {
        let mut spent = self.spent.lock().unwrap_or_else(PoisonError::into_inner);
        spent.bytes += bytes as u64;
        spent.waiting += waited;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_of_the_budget_ends_it() {
        let budget = Budget { calls: 2, bytes: 100, waiting: Duration::from_secs(10), in_flight: 1 };
        let purse = Purse::new(budget);
        assert!(purse.call(10).is_ok());
        assert!(purse.call(91).unwrap_err().message.contains("MiB"));
        assert!(purse.call(10).is_ok());
        assert!(purse.call(0).unwrap_err().message.contains("2 calls"));
        let purse = Purse::new(budget);
        purse.spent(0, Duration::from_secs(10));
        assert!(purse.call(0).unwrap_err().message.contains("seconds"));
    }
}
