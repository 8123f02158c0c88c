//! Times, and what is told of them.

use std::time::{Duration, Instant};

use super::client::{Answer, Sample};
use super::processes;
use super::report::{Column, Row};

/// The runs of one kind.
#[derive(Debug, Default)]
pub(super) struct Tally {
    times: Vec<Duration>,
    failed: usize,
    /// What was wrong with the first that failed.
    pub(super) why: Option<String>,
}

impl Tally {
    pub(super) fn add(&mut self, sample: Sample) {
        match sample {
            Ok(took) => self.times.push(took),
            Err(why) => {
                self.failed += 1;
                self.why.get_or_insert(why);
            }
        }
    }

    /// Runs that must all have printed the same.
    pub(super) fn of(answers: &[Answer], expected: &str) -> Tally {
        let mut tally = Tally::default();
        answers.iter().for_each(|answer| tally.add(answer.printed(expected)));
        tally
    }

    pub(super) fn merge(&mut self, other: Tally) {
        self.times.extend(other.times);
        self.failed += other.failed;
        self.why = self.why.take().or(other.why);
    }

    pub(super) fn runs(&self) -> usize {
        self.times.len() + self.failed
    }

    /// How many of a hundred were as they should be.
    pub(super) fn success(&self) -> f64 {
        100.0 * self.times.len() as f64 / self.runs().max(1) as f64
    }

    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    pub(super) fn longest(&self) -> Duration {
        self.times.iter().max().copied().unwrap_or_default()
    }

    pub(super) fn spread(&self) -> Spread {
        Spread::of(&self.times)
    }

    /// What is told of it, in milliseconds and as a ratio to what the bare program takes.
    pub(super) fn row(&self, name: impl Into<String>, floor: &Spread) -> Row {
        let spread = self.spread();
        let row = Row::new(name).with(Column::Runs, self.runs() as f64).with(Column::Success, self.success());
        if self.times.is_empty() {
            return row;
        }
        spread
            .put(row)
            .with(Column::Ratio, spread.p50.as_secs_f64() / floor.p50.as_secs_f64())
            .with(Column::RatioP99, spread.p99.as_secs_f64() / floor.p50.as_secs_f64())
    }
}

/// The middle and the end of the times of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spread {
    pub(super) p50: Duration,
    pub(super) p95: Duration,
    pub(super) p99: Duration,
}

impl Spread {
    /// By the nearest rank: each is a time that was measured.
    fn of(times: &[Duration]) -> Spread {
        let mut times = times.to_vec();
        times.sort_unstable();
        let at = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).copied().unwrap_or_default()
        };
        Spread { p50: at(50), p95: at(95), p99: at(99) }
    }

    pub(super) fn put(&self, row: Row) -> Row {
        let millis = |time: Duration| time.as_secs_f64() * 1000.0;
        row.with(Column::P50, millis(self.p50)).with(Column::P95, millis(self.p95)).with(Column::P99, millis(self.p99))
    }
}

/// How long a server may take to put things away after a run and to prepare the next.
const REST: Duration = Duration::from_secs(2);

/// How often each lane has its turn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds<'a> {
    /// They come to rest before each turn.
    pub(super) servers: &'a [u32],
    pub(super) count: u32,
    /// The first ones, which pay for cold caches.
    pub(super) uncounted: u32,
    /// Once this is over, no round begins.
    pub(super) budget: Duration,
}

impl Rounds<'_> {
    /// In turn, so that a busy neighbour slows all lanes alike. `one` is told the lane and the number of the round.
    pub(super) fn run<const LANES: usize>(
        self,
        mut one: impl FnMut(usize, u32) -> anyhow::Result<Sample>,
    ) -> anyhow::Result<[Tally; LANES]> {
        let started = Instant::now();
        let mut tallies: [Tally; LANES] = std::array::from_fn(|_| Tally::default());
        for round in 0..self.uncounted + self.count {
            let is_last = round > 0 && started.elapsed() > self.budget;
            if is_last && round > self.uncounted {
                break;
            }
            for (lane, tally) in tallies.iter_mut().enumerate() {
                if !self.servers.is_empty() {
                    processes::settle(self.servers, REST);
                }
                let sample = one(lane, round)?;
                if round >= self.uncounted || is_last {
                    tally.add(sample);
                }
            }
            if is_last {
                break;
            }
        }
        Ok(tallies)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(numbers: impl IntoIterator<Item = u64>) -> Vec<Duration> {
        numbers.into_iter().map(Duration::from_millis).collect()
    }

    #[test]
    fn percentiles_are_times_that_were_measured() {
        let spread = Spread::of(&millis((1..=100).rev()));
        assert_eq!([spread.p50, spread.p95, spread.p99].to_vec(), millis([50, 95, 99]));
        let spread = Spread::of(&millis([3, 1, 2]));
        assert_eq!([spread.p50, spread.p95, spread.p99].to_vec(), millis([2, 3, 3]));
        assert_eq!(Spread::of(&millis([7])).p50, Duration::from_millis(7));
        assert_eq!(Spread::of(&[]).p99, Duration::ZERO);
    }

    #[test]
    fn what_failed_counts_and_has_no_time() {
        let mut tally = Tally::default();
        tally.add(Ok(Duration::from_millis(4)));
        tally.add(Err("first".to_owned()));
        tally.add(Err("second".to_owned()));
        tally.add(Ok(Duration::from_millis(4)));
        assert_eq!((tally.runs(), tally.success(), tally.why.as_deref()), (4, 50.0, Some("first")));
        let floor = Spread::of(&millis([8]));
        let row = tally.row("x", &floor);
        assert_eq!((row.get(Column::Ratio), row.get(Column::P99)), (Some(0.5), Some(4.0)));
        assert_eq!(Tally::default().row("none", &floor).get(Column::Ratio), None);
    }

    #[test]
    fn lanes_take_turns() {
        let mut turns = Vec::new();
        let rounds = Rounds { servers: &[], count: 2, uncounted: 1, budget: Duration::from_secs(60) };
        let tallies: anyhow::Result<[Tally; 2]> = rounds.run(|lane, round| {
            turns.push((round, lane));
            Ok(Ok(Duration::from_millis(1)))
        });
        assert_eq!(turns, [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
        assert_eq!(tallies.unwrap().map(|tally| tally.runs()), [2, 2]);
    }

    #[test]
    fn what_takes_too_long_is_told_of_with_what_there_is() {
        let runs = |uncounted: u32, budget: u64| {
            let rounds = Rounds { servers: &[], count: 9, uncounted, budget: Duration::from_millis(budget) };
            let tallies: anyhow::Result<[Tally; 1]> = rounds.run(|_, _| {
                std::thread::sleep(Duration::from_millis(20));
                Ok(Ok(Duration::from_millis(20)))
            });
            tallies.unwrap()[0].runs()
        };
        assert_eq!(runs(3, 1), 1, "one is counted, however long the first took");
        assert!((1..9).contains(&runs(1, 70)));
    }
}
