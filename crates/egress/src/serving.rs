//! What all connections of one sandbox share.

use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_core::Host;

use crate::audit::{Attempt, Decision, Ended, Via};
use crate::egress::Egress;
use crate::hosts::{Hosts, Tally};
use crate::names::StandIns;
use crate::policy::Policy;
use crate::refusal::Refusal;

/// So many refused hosts are remembered until somebody asks.
const REFUSED_MAX: usize = 16;
/// Attempts at once, and how many more a second: an audit must not grow as fast as a loop can fail.
const ATTEMPTS_AT_ONCE: f64 = 4000.0;
const ATTEMPTS_A_SECOND: f64 = 1000.0;
const METHOD_LETTERS_MAX: usize = 24;

#[derive(Debug)]
pub(crate) struct Serving {
    pub(crate) egress: Arc<Egress>,
    pub(crate) policy: Policy,
    pub(crate) stand_ins: Arc<StandIns>,
    label: String,
    refused: Mutex<Vec<String>>,
    pub(crate) hosts: Hosts,
    bytes: AtomicU64,
    pace: Mutex<(f64, Instant)>,
}

impl Serving {
    pub(crate) fn new(egress: Arc<Egress>, policy: Policy, stand_ins: Arc<StandIns>, label: String) -> Serving {
        let pace = Mutex::new((ATTEMPTS_AT_ONCE, Instant::now()));
        let (refused, hosts, bytes) = (Mutex::default(), Hosts::default(), AtomicU64::new(0));
        Serving { egress, policy, stand_ins, label, refused, hosts, bytes, pace }
    }

    /// The refused hosts since this was last asked.
    pub(crate) fn take_refused(&self) -> Vec<String> {
        std::mem::take(&mut *self.refused.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until another attempt may be made.
    pub(crate) async fn pace(&self) {
        let wait = {
            let mut pace = self.pace.lock().unwrap_or_else(PoisonError::into_inner);
            let gained = pace.1.elapsed().as_secs_f64() * ATTEMPTS_A_SECOND;
            *pace = ((pace.0 + gained).min(ATTEMPTS_AT_ONCE) - 1.0, Instant::now());
            pace.0
        };
        if wait < 0.0 {
            tokio::time::sleep(Duration::from_secs_f64(-wait / ATTEMPTS_A_SECOND)).await;
        }
    }

    /// Takes a refusal down. The words are for the program.
    pub(crate) fn refuse(&self, via: Via, host: &Host, port: u16, method: Option<&str>, refusal: &Refusal) -> String {
        if refusal.is_for_the_operator() {
            self.remember(format!("{host}:{port}"));
        }
        self.tell(via, host.to_string(), Some(port), method, None, refusal.decision(host, port));
        refusal.words(host, port)
    }

    pub(crate) fn refuse_name(&self, name: &str) {
        self.remember(name.to_owned());
        let why = "no host of that name is granted".to_owned();
        self.tell(Via::Names, name.to_owned(), None, None, None, Decision::Refused { why });
    }

    /// Something that names no host, or none that is one.
    pub(crate) fn refuse_noise(&self, via: Via, why: &str) {
        self.tell(via, String::new(), None, None, None, Decision::Refused { why: why.to_owned() });
    }

    pub(crate) fn allow(&self, via: Via, host: &Host, port: u16, method: Option<&str>, address: Option<IpAddr>) {
        self.tell(via, host.to_string(), Some(port), method, address, Decision::Allowed);
    }

    fn tell(
        &self,
        via: Via,
        host: String,
        port: Option<u16>,
        method: Option<&str>,
        address: Option<IpAddr>,
        decision: Decision,
    ) {
        let method = method.map(|method| method.chars().take(METHOD_LETTERS_MAX).collect());
        let sandbox = self.label.clone();
        self.egress.audit.attempt(&Attempt { sandbox, host, port, via, method, address, decision });
    }

    fn remember(&self, what: String) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        if refused.len() < REFUSED_MAX && !refused.contains(&what) {
            refused.push(what);
        }
    }

    fn spend(&self, count: u64) -> io::Result<()> {
        let before = self.bytes.fetch_add(count, Ordering::Relaxed);
        match self.egress.bounds.bytes {
            Some(most) if before.saturating_add(count) > most => Err(io::ErrorKind::QuotaExceeded.into()),
            Some(_) | None => Ok(()),
        }
    }

    pub(crate) fn moved_bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.egress.bounds.bytes.is_some_and(|most| self.bytes.load(Ordering::Relaxed) >= most)
    }
}

/// Counts the bytes of a connection out of the host, and tells them when it ends, however it does.
#[derive(Debug)]
pub(crate) struct Meter {
    serving: Arc<Serving>,
    via: Via,
    host: Host,
    port: u16,
    begun: Instant,
    tally: Arc<Tally>,
    bytes_out: AtomicU64,
    bytes_in: AtomicU64,
}

impl Meter {
    pub(crate) fn new(serving: &Arc<Serving>, via: Via, host: &Host, port: u16) -> Meter {
        let (serving, host, begun) = (serving.clone(), host.clone(), Instant::now());
        let tally = serving.hosts.connected(format!("{host}:{port}"));
        Meter { serving, via, host, port, begun, tally, bytes_out: AtomicU64::new(0), bytes_in: AtomicU64::new(0) }
    }

    /// An error when the sandbox has had its share.
    pub(crate) fn sent(&self, count: usize) -> io::Result<()> {
        self.bytes_out.fetch_add(count as u64, Ordering::Relaxed);
        self.tally.sent(count as u64);
        self.serving.spend(count as u64)
    }

    pub(crate) fn received(&self, count: usize) -> io::Result<()> {
        self.bytes_in.fetch_add(count as u64, Ordering::Relaxed);
        self.tally.received(count as u64);
        self.serving.spend(count as u64)
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.serving.egress.audit.ended(&Ended {
            sandbox: self.serving.label.clone(),
            host: self.host.to_string(),
            port: self.port,
            via: self.via,
            bytes_out: self.bytes_out.load(Ordering::Relaxed),
            bytes_in: self.bytes_in.load(Ordering::Relaxed),
            milliseconds: u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        });
    }
}
