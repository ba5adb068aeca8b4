//! The stream of operations of a client thread: a function of the seed and the thread's number. If
//! several threads take operations in turns, each one is a function of the seed and its own number
//! ([`Stream::prepare`]).

use crate::args::BenchArgs;
use crate::distribution::Picker;
use crate::keys::{Keys, mix};
use crate::record::Kind;
use crate::values::{ValueSizes, Values};
use crate::ycsb::{self, Inserts, Mixture};
use io::Rng;

/// State shared by the threads of a run.
#[derive(Clone, Debug)]
pub struct KeySpace {
    /// Keys.
    pub keys: Keys,
    /// Lengths of values.
    pub sizes: ValueSizes,
    /// Contents of values.
    pub values: Values,
    picker: Picker,
    seed: u64,
    num: u64,
}

impl KeySpace {
    /// Returns the key space of a run.
    pub fn new(args: &BenchArgs) -> Self {
        let sizes = args.sizes();
        KeySpace {
            keys: Keys::new(args.key_size, args.seed),
            sizes,
            values: Values::new(sizes, args.compressible, args.seed),
            picker: Picker::new(args.distribution, args.keys(), args.seed),
            seed: args.seed,
            num: args.keys(),
        }
    }
}

/// Part of a run; streams of different roles are independent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Load: every key once.
    Load,
    /// Warm-up before the measured phase.
    Warmup,
    /// Measured phase.
    Client,
    /// Extra writer during the measured phase.
    Writer,
}

/// A stream of operations.
#[derive(Clone, Debug)]
pub struct Stream {
    space: KeySpace,
    kind: Kind,
    every_key: bool,
    /// Shares of the kinds of operations, if there are several.
    mixture: Option<Mixture>,
    /// The keys that the stream inserts.
    inserts: Inserts,
    /// Number of the family whose keys are used, and number of families.
    family: (u64, u64),
    next: u64,
    end: u64,
    seed: u64,
    picks: Rng,
    contents: Rng,
    /// The key of the present operation.
    pub key: Vec<u8>,
    /// The value of the present operation, if it is a put.
    pub value: Vec<u8>,
    /// The index of the present key.
    pub index: u64,
    /// Number of entries of the present scan, if it is drawn.
    pub scan_length: Option<u64>,
}

impl Stream {
    /// Returns the operations of one of `threads` threads that share `ops` operations of `kind`.
    pub fn new(space: &KeySpace, role: Role, kind: Kind, ops: u64, thread: u64, threads: u64) -> Self {
        let part = |t: u64| (u128::from(ops) * u128::from(t) / u128::from(threads)) as u64;
        let seed = mix(space.seed ^ mix(thread ^ ((role as u64) << 32)));
        Stream {
            kind,
            every_key: role == Role::Load,
            mixture: None,
            inserts: Inserts::new(space.num, thread, threads),
            scan_length: None,
            family: (0, 1),
            next: part(thread),
            end: part(thread + 1),
            seed,
            picks: Rng::new(seed),
            contents: Rng::new(mix(seed)),
            key: Vec::new(),
            value: Vec::new(),
            index: 0,
            space: space.clone(),
        }
    }

    /// Returns the stream with operations of several kinds.
    pub fn mixed(self, mixture: Mixture) -> Self {
        Stream { mixture: Some(mixture), ..self }
    }

    /// Returns puts of every key of one of several families: the keys congruent to its number
    /// modulo `families`.
    pub fn of_family(space: &KeySpace, family: u64, families: u64) -> Self {
        let keys = space.num.saturating_sub(family).div_ceil(families);
        Stream { family: (family, families), ..Stream::new(space, Role::Load, Kind::Put, keys, 0, 1) }
    }

    /// Prepares the operation with this number: a get with the given probability, otherwise a put.
    /// It is independent of all others.
    pub fn prepare(&mut self, number: u64, read_share: f64) {
        let mut rng = Rng::new(mix(self.seed ^ mix(number)));
        self.kind = if rng.unit() < read_share { Kind::Get } else { Kind::Put };
        self.index = self.space.picker.next(&mut rng);
        self.contents = rng;
        self.write_out();
    }

    /// Returns the kind of the operations.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the number of remaining operations.
    pub fn left(&self) -> u64 {
        self.end - self.next
    }

    /// Prepares the next operation; returns false at the end.
    pub fn advance(&mut self) -> bool {
        if self.next == self.end {
            return false;
        }
        let (family, families) = self.family;
        if self.every_key {
            self.index = (self.next * families + family) % self.space.num;
        } else {
            self.draw();
        }
        self.next += 1;
        self.write_out();
        true
    }

    /// Draws key and kind of the next operation.
    fn draw(&mut self) {
        let rank = self.space.picker.rank(&mut self.picks);
        self.index = self.space.picker.spread(rank);
        let Some(mixture) = self.mixture.filter(|mixture| mixture.only().is_none()) else { return };
        self.kind = mixture.draw(&mut self.picks);
        if self.kind == Kind::Insert {
            self.index = self.inserts.insert();
        } else if mixture.asks_for_latest(self.kind) {
            self.index = self.inserts.latest(rank);
        }
        self.scan_length = (self.kind == Kind::Scan).then(|| ycsb::scan_length(&mut self.picks));
    }

    /// Generates key and value of the present index.
    fn write_out(&mut self) {
        self.space.keys.write(self.index, &mut self.key);
        if self.kind.puts() {
            self.space.values.write(self.index, self.value_len(), &mut self.contents, &mut self.value);
        }
    }

    /// Returns the length of the value of the present key.
    pub fn value_len(&self) -> u64 {
        self.space.sizes.len_of(self.index)
    }

    /// Returns true if `value` may be a value of the present key.
    pub fn check(&self, value: &[u8]) -> bool {
        self.check_of(self.index, value)
    }

    /// Returns true if this is the key of that index.
    pub fn is_key_of(&self, index: u64, key: &[u8]) -> bool {
        let mut own = Vec::with_capacity(key.len());
        self.space.keys.write(index, &mut own);
        own == key
    }

    /// Same as [`Stream::check`], for the key with this index.
    pub fn check_of(&self, index: u64, value: &[u8]) -> bool {
        Values::check(index, self.space.sizes.len_of(index), value)
    }
}

#[cfg(test)]
mod tests;
