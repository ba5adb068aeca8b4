//! A space limit, and its enforcement by the harness for engines without limits.
//!
//! Follows Scavenger+, which gave every compared engine the same space. Its writer waited while the
//! store exceeded the limit, so that background work could shrink it. The bytes are those of
//! [`crate::space`]: the allocated size of the files, sampled every [`SAMPLE_NS`]. The wait is part
//! of the latency of the waiting operation. An engine that cannot shrink without new writes would
//! block its writer for ever. So when the space has reached no new minimum for a given time, the
//! throttle gives up, and the run ends early with a message.

use crate::host::{now_ns, wait_until};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Sampling interval of the space under a limit.
pub const SAMPLE_NS: u64 = 50_000_000;
/// Polling interval of a waiting writer.
const STEP_NS: u64 = 2_000_000;

/// Maximum size of a store.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SpaceLimit {
    /// In bytes.
    Bytes(u64),
    /// As a multiple of the raw bytes of the loaded data, which is a fixed number of bytes for a
    /// run.
    Times(f64),
}

impl SpaceLimit {
    /// Returns the limit in bytes for loaded data of `live_bytes`.
    pub fn bytes(self, live_bytes: u64) -> u64 {
        match self {
            SpaceLimit::Bytes(bytes) => bytes,
            SpaceLimit::Times(times) => (live_bytes as f64 * times) as u64,
        }
    }
}

impl fmt::Display for SpaceLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpaceLimit::Bytes(bytes) => write!(f, "{bytes}"),
            SpaceLimit::Times(times) => write!(f, "{times}x"),
        }
    }
}

impl FromStr for SpaceLimit {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let times = |number: &str| number.parse().ok().filter(|t: &f64| t.is_finite() && *t >= 1.0);
        let limit = match text.strip_suffix('x') {
            Some(number) => times(number).map(SpaceLimit::Times),
            None => text.parse().ok().filter(|bytes| *bytes > 0).map(SpaceLimit::Bytes),
        };
        limit.ok_or_else(|| {
            "a space limit is a number of bytes above 0, or a multiple of the raw data such as 1.5x (at least 1x)".to_owned()
        })
    }
}

impl TryFrom<String> for SpaceLimit {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SpaceLimit> for String {
    fn from(limit: SpaceLimit) -> String {
        limit.to_string()
    }
}

/// Samples of a store with a limit.
#[derive(Debug)]
pub struct Watch {
    /// The limit.
    pub limit_bytes: u64,
    bytes: AtomicU64,
    samples: AtomicU64,
    breaches: AtomicU64,
    peak_bytes: AtomicU64,
}

impl Watch {
    /// Returns a watch without samples.
    pub fn new(limit_bytes: u64) -> Self {
        let zero = || AtomicU64::new(0);
        Watch { limit_bytes, bytes: zero(), samples: zero(), breaches: zero(), peak_bytes: zero() }
    }

    /// Records a sample.
    pub fn note(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.breaches.fetch_add(u64::from(bytes > self.limit_bytes), Ordering::Relaxed);
        self.peak_bytes.fetch_max(bytes, Ordering::Relaxed);
    }

    /// Returns the number of samples.
    pub fn samples(&self) -> u64 {
        self.samples.load(Ordering::Relaxed)
    }

    /// Returns the number of samples above the limit.
    pub fn breaches(&self) -> u64 {
        self.breaches.load(Ordering::Relaxed)
    }

    /// Returns the maximum size.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes.load(Ordering::Relaxed)
    }
}

/// Makes writers wait while a store is at or above its limit.
#[derive(Debug)]
pub struct Throttle<'a> {
    watch: &'a Watch,
    patience_ns: u64,
    waited_ns: AtomicU64,
    gave_up: AtomicBool,
}

impl<'a> Throttle<'a> {
    /// Returns a throttle on the samples of `watch` that gives up after `patience_ns` without a new
    /// minimum.
    pub fn new(watch: &'a Watch, patience_ns: u64) -> Self {
        Throttle { watch, patience_ns, waited_ns: AtomicU64::new(0), gave_up: AtomicBool::new(false) }
    }

    /// Waits until there is space for a write; returns false if the throttle gave up or `stop` was
    /// set.
    pub fn admit(&self, stop: &AtomicBool) -> bool {
        self.admit_by(stop, now_ns, wait_until)
    }

    fn admit_by(&self, stop: &AtomicBool, now_ns: impl Fn() -> u64, wait_until: impl Fn(u64)) -> bool {
        let bytes = || self.watch.bytes.load(Ordering::Relaxed);
        let mut lowest = bytes();
        if lowest < self.watch.limit_bytes {
            return !self.gave_up();
        }
        let begin_ns = now_ns();
        let mut lowest_ns = begin_ns;
        let mut end_ns = begin_ns;
        while bytes() >= self.watch.limit_bytes && !self.gave_up() && !stop.load(Ordering::Relaxed) {
            wait_until(end_ns + STEP_NS);
            end_ns = now_ns();
            if bytes() < lowest {
                (lowest, lowest_ns) = (bytes(), end_ns);
            }
            if end_ns - lowest_ns >= self.patience_ns {
                self.gave_up.store(true, Ordering::Relaxed);
            }
        }
        self.waited_ns.fetch_add(end_ns - begin_ns, Ordering::Relaxed);
        !self.gave_up() && !stop.load(Ordering::Relaxed)
    }

    /// Returns the total wait of writers.
    pub fn waited_ns(&self) -> u64 {
        self.waited_ns.load(Ordering::Relaxed)
    }

    /// Returns true if the run was ended because the store did not shrink.
    pub fn gave_up(&self) -> bool {
        self.gave_up.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn limits_are_read_and_printed_alike() {
        for (text, bytes) in [("1.5x", 3000), ("2x", 4000), ("12345", 12345)] {
            let limit: SpaceLimit = text.parse().unwrap();
            assert_eq!(limit.bytes(2000), bytes);
            assert_eq!(limit.to_string(), text);
            let json = serde_json::to_string(&limit).unwrap();
            assert_eq!(serde_json::from_str::<SpaceLimit>(&json).unwrap(), limit);
        }
        for bad in ["", "x", "0", "0.5x", "-1", "infx", "NaNx", "1.5", "lots"] {
            assert!(bad.parse::<SpaceLimit>().is_err(), "{bad}");
        }
    }

    /// Simulates a store whose size is a function of a simulated clock.
    fn admitted(patience_ns: u64, size_at: impl Fn(u64) -> u64) -> (bool, u64, u64) {
        let watch = Watch::new(100);
        let clock = Cell::new(0u64);
        let go_to = |ns: u64| {
            clock.set(ns);
            watch.note(size_at(ns));
        };
        go_to(0);
        let throttle = Throttle::new(&watch, patience_ns);
        let admitted = throttle.admit_by(&AtomicBool::new(false), || clock.get(), go_to);
        assert_eq!(throttle.gave_up(), !admitted);
        (admitted, throttle.waited_ns(), watch.breaches())
    }

    #[test]
    fn a_writer_waits_until_there_is_room() {
        assert_eq!(admitted(STEP_NS, |_| 99), (true, 0, 0));
        let shrinks = |ns: u64| 105 - ns / STEP_NS;
        // 105, 104, .. 101 are breaches, 100 is at the limit but no breach, 99 is below it.
        assert_eq!(admitted(2 * STEP_NS, shrinks), (true, 6 * STEP_NS, 5));
    }

    #[test]
    fn throttle_gives_up_if_space_does_not_shrink() {
        let (admitted_, waited_ns, _) = admitted(10 * STEP_NS, |ns| 200 + (ns / STEP_NS) % 3);
        assert!(!admitted_);
        assert_eq!(waited_ns, 10 * STEP_NS);
    }

    #[test]
    fn a_stopped_writer_does_not_wait() {
        let watch = Watch::new(1);
        watch.note(5);
        assert!(!Throttle::new(&watch, u64::MAX).admit(&AtomicBool::new(true)));
    }
}
