//! The six mixes of operations of YCSB (Cooper et al., "Benchmarking Cloud Serving Systems with
//! YCSB", SoCC 2010), with any key distribution, closed or open loop.
//!
//! | mix | operations |
//! |---|---|
//! | A | half reads, half updates |
//! | B | 95 % reads, 5 % updates |
//! | C | reads |
//! | D | 95 % reads, most of them of recently inserted keys, 5 % inserts |
//! | E | 95 % scans of 1 to 100 entries, 5 % inserts |
//! | F | half reads, half reads followed by an update of the same key |
//!
//! Two differences from YCSB's own driver keep the operations of a thread a function of the seed
//! and its number. Recently inserted keys are those of *this* thread, and before them the last keys
//! of the load; each thread inserts the keys congruent to its number modulo the number of threads.
//! And a bijection spreads Zipf's ranks over the key space ([`crate::distribution`]); for the
//! inserted keys of mix D, rank 0 is the newest.

use crate::record::Kind;
use clap::ValueEnum;
use io::Rng;
use serde::{Deserialize, Serialize};

/// Maximum length of a scan of mix E.
const SCAN_LENGTH_MAX: u64 = 100;

/// Mix of the operations of `async` and `ycsb`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mix {
    /// async: gets.
    Read,
    /// async: puts.
    Write,
    /// async: half gets, half puts.
    Mixed,
    /// async: scans of --scan-length entries.
    Scan,
    /// ycsb: half reads, half updates.
    A,
    /// ycsb: 95 % reads, 5 % updates.
    B,
    /// ycsb: reads.
    C,
    /// ycsb: 95 % reads, most of them of recently inserted keys, 5 % inserts.
    D,
    /// ycsb: 95 % scans of 1 to 100 entries, 5 % inserts.
    E,
    /// ycsb: half reads, half reads followed by an update of the same key.
    F,
}

impl Mix {
    /// Returns true for the six mixes of YCSB.
    pub fn is_of_ycsb(self) -> bool {
        !matches!(self, Mix::Read | Mix::Write | Mix::Mixed | Mix::Scan)
    }

    /// Returns true if the mix inserts keys.
    pub fn inserts(self) -> bool {
        matches!(self, Mix::D | Mix::E)
    }

    /// Returns the name on the command line.
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// Kinds of the operations of a stream, drawn from the stream's generator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mixture {
    /// Shares of the kinds, which add up to 1.
    shares: &'static [(Kind, f64)],
    /// Gets prefer recently inserted keys.
    latest: bool,
}

impl Mixture {
    /// Returns the shares of a mix.
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

    /// Returns the only kind, if there is just one.
    pub fn only(&self) -> Option<Kind> {
        match self.shares {
            [(kind, _)] => Some(*kind),
            _ => None,
        }
    }

    /// Returns true if operations of this kind prefer recently inserted keys.
    pub fn asks_for_latest(&self, kind: Kind) -> bool {
        self.latest && kind == Kind::Get
    }

    /// Draws the kind of the next operation.
    pub fn draw(&self, rng: &mut Rng) -> Kind {
        let drawn = rng.unit();
        let mut below = 0.0;
        let found = self.shares.iter().find(|(_, share)| {
            below += share;
            drawn < below
        });
        // Rounding may leave the sum slightly below 1.
        found.or(self.shares.last()).map_or(Kind::Get, |(kind, _)| *kind)
    }
}

/// Draws the number of entries of a scan of mix E.
pub fn scan_length(rng: &mut Rng) -> u64 {
    1 + rng.below(SCAN_LENGTH_MAX)
}

/// The keys that one of several threads inserts after the loaded ones.
#[derive(Clone, Copy, Debug)]
pub struct Inserts {
    loaded: u64,
    thread: u64,
    threads: u64,
    /// Number of inserted keys.
    count: u64,
}

impl Inserts {
    /// Returns the state without inserts.
    pub fn new(loaded: u64, thread: u64, threads: u64) -> Inserts {
        Inserts { loaded, thread, threads, count: 0 }
    }

    /// Returns the index of the next key.
    pub fn insert(&mut self) -> u64 {
        self.count += 1;
        self.nth(self.count - 1)
    }

    /// Returns the index of the key inserted `ago` inserts ago (0: the last one), or of a loaded
    /// key before them. `ago` must be below the number of loaded keys.
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
