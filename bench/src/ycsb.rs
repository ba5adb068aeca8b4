//! The six mixes of operations of YCSB (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010), over any of the
//! distributions of keys, closed or open loop.
//!
//! | mix | what it does |
//! |---|---|
//! | A | half reads, half updates |
//! | B | 95 % reads, 5 % updates |
//! | C | reads |
//! | D | 95 % reads, most of them of what was inserted last, 5 % inserts |
//! | E | 95 % scans of 1 to 100 entries, 5 % inserts |
//! | F | half reads, half reads followed by an update of the same key |
//!
//! Two things differ from YCSB's own driver, so that what a thread does stays a function of the seed and its number, whatever the
//! other threads and the engine do. What was inserted last is what *this* thread inserted last, and before that the last keys of the
//! load; each thread inserts keys that leave its number when divided by how many threads there are. And Zipf's ranks are spread over
//! the key space by a bijection ([`crate::distribution`]); over what was inserted, with mix D, they are not spread: rank 0 is the
//! newest.

use crate::record::Kind;
use clap::ValueEnum;
use io::Rng;
use serde::{Deserialize, Serialize};

/// The longest scan of mix E.
const SCAN_LENGTH_MAX: u64 = 100;

/// What the operations of `async` and `ycsb` are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// async: gets.
    Read,
    /// async: puts.
    Write,
    /// async: as many of the one as of the other.
    Mixed,
    /// async: scans of --scan-length entries.
    Scan,
    /// ycsb: half reads, half updates.
    A,
    /// ycsb: 95 % reads, 5 % updates.
    B,
    /// ycsb: reads.
    C,
    /// ycsb: 95 % reads, most of them of what was inserted last, 5 % inserts.
    D,
    /// ycsb: 95 % scans of 1 to 100 entries, 5 % inserts.
    E,
    /// ycsb: half reads, half reads followed by an update of the same key.
    F,
}

impl Mix {
    /// True for the six of YCSB.
    pub fn is_of_ycsb(self) -> bool {
        !matches!(self, Mix::Read | Mix::Write | Mix::Mixed | Mix::Scan)
    }

    /// True if it inserts keys.
    pub fn inserts(self) -> bool {
        matches!(self, Mix::D | Mix::E)
    }

    /// As it is written on the command line.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// What the operations of a stream are: one after the other drawn from the stream's own randomness.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixture {
    /// Shares of kinds of operation, which sum up to 1.
    shares: &'static [(Kind, f64)],
    /// Gets ask for what was inserted last.
    latest: bool,
}

impl Mixture {
    /// What the workloads `async` and `ycsb` were told.
    pub fn of(mix: Mix) -> Mixture {
        use Kind::{Get, Insert, Put, ReadModifyWrite, Scan};
        let shares: &[(Kind, f64)] = match mix {
            Mix::Read | Mix::C => &[(Get, 1.0)],
            Mix::Write => &[(Put, 1.0)],
            Mix::Mixed | Mix::A => &[(Get, 0.5), (Put, 0.5)],
            Mix::Scan => &[(Kind::Scan, 1.0)],
            Mix::B => &[(Get, 0.95), (Put, 0.05)],
            Mix::D => &[(Get, 0.95), (Insert, 0.05)],
            Mix::E => &[(Scan, 0.95), (Insert, 0.05)],
            Mix::F => &[(Get, 0.5), (ReadModifyWrite, 0.5)],
        };
        Mixture { shares, latest: mix == Mix::D }
    }

    /// The only kind, if there is one.
    pub fn only(&self) -> Option<Kind> {
        match self.shares {
            [(kind, _)] => Some(*kind),
            _ => None,
        }
    }

    /// True if operations of this kind ask for what was inserted last.
    pub fn asks_for_latest(&self, kind: Kind) -> bool {
        self.latest && kind == Kind::Get
    }

    /// The kind of the next operation.
    pub fn draw(&self, rng: &mut Rng) -> Kind {
        let drawn = rng.unit();
        let mut below = 0.0;
        let found = self.shares.iter().find(|(_, share)| {
            below += share;
            drawn < below
        });
        // Rounding may leave the sum a little below 1.
        found.or(self.shares.last()).map_or(Kind::Get, |(kind, _)| *kind)
    }
}

/// How many entries a scan of mix E visits.
pub fn scan_length(rng: &mut Rng) -> u64 {
    1 + rng.below(SCAN_LENGTH_MAX)
}

/// The keys that one of several threads inserts behind those that were loaded.
#[derive(Clone, Copy, Debug)]
pub struct Inserts {
    loaded: u64,
    thread: u64,
    threads: u64,
    /// How many it has inserted.
    count: u64,
}

impl Inserts {
    /// None yet.
    pub fn new(loaded: u64, thread: u64, threads: u64) -> Inserts {
        Inserts { loaded, thread, threads, count: 0 }
    }

    /// The index of the next key.
    pub fn insert(&mut self) -> u64 {
        self.count += 1;
        self.nth(self.count - 1)
    }

    /// The index of the key that was inserted so many inserts ago, 0 the last, or before them loaded so much earlier. `ago` is less than how
    /// many keys were loaded.
    pub fn latest(&self, ago: u64) -> u64 {
        match self.count.checked_sub(ago + 1) {
            Some(nth) => self.nth(nth),
            None => self.loaded - 1 - (ago - self.count),
        }
    }

    fn nth(&self, nth: u64) -> u64 {
        self.loaded + self.thread + nth * self.threads
    }
}

#[cfg(test)]
mod tests;
