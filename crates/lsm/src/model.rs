//! The reference model for the tests of this crate: a history of operations, and the view of each
//! snapshot.

use crate::operator::MergeOperator;
use crate::vec_iter::Entry;
use base::key::{self, encode};
use base::range_del::RangeTombstone;
use base::{Result, SeqNo, ValueKind};
use io::Rng;
use std::collections::BTreeMap;

/// View of a snapshot: key to value (references appear as their encoded bytes).
pub type View = BTreeMap<Vec<u8>, Vec<u8>>;

/// Merge operator that appends operands to the base.
pub struct Append;

impl MergeOperator for Append {
    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        out.extend_from_slice(base.unwrap_or_default());
        operands.iter().for_each(|o| out.extend_from_slice(o));
        Ok(())
    }
}

/// Weights of the operations in a history.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    pub keys: u64,
    pub put: u64,
    pub reference: u64,
    pub delete: u64,
    pub merge: u64,
    pub range: u64,
    /// Number of keys, from the first on, that follow the contract of single deletes: put, single
    /// delete, put, ...
    pub single_keys: u64,
}

impl Mix {
    pub fn random(rng: &mut Rng) -> Mix {
        let merge = if rng.one_in(2) { 3 } else { 0 };
        let range = [0, 1, 4][rng.below(3) as usize];
        let keys = 1 + rng.below(24);
        Mix {
            keys,
            put: 8,
            // A merge operand on a reference needs a resolver, which the model lacks.
            reference: if merge == 0 { 3 } else { 0 },
            delete: 1 + rng.below(6),
            merge,
            range,
            single_keys: rng.below(keys / 2 + 1),
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Point(Vec<u8>, ValueKind, Vec<u8>),
    Range(Vec<u8>, Vec<u8>),
}

/// All operations so far; operation `i` has the sequence `i + 1`.
#[derive(Default)]
pub struct History {
    ops: Vec<Op>,
    /// For keys under the single-delete contract: whether a value exists.
    single_present: BTreeMap<Vec<u8>, bool>,
}

/// Keys of several lengths, some prefixes of others.
pub fn user_key(i: u64) -> Vec<u8> {
    let mut k = vec![b'k', b'a' + (i / 3) as u8];
    k.extend(std::iter::repeat_n(b'x', (i % 3) as usize));
    k
}

impl History {
    pub fn last_seq(&self) -> SeqNo {
        self.ops.len() as u64
    }

    /// Appends one random operation.
    pub fn write(&mut self, rng: &mut Rng, mix: &Mix) {
        let seq = self.last_seq() + 1;
        let i = rng.below(mix.keys);
        let k = user_key(i);
        let mut value = format!("{seq};").into_bytes();
        value.resize(value.len() + rng.below(20) as usize, b'.');
        let total = mix.put + mix.reference + mix.delete + mix.merge + mix.range;
        let mut dice = rng.below(total);
        let mut is = |weight: u64| {
            let hit = dice < weight;
            dice = dice.saturating_sub(weight);
            if hit {
                dice = u64::MAX;
            }
            hit
        };
        let op = if is(mix.range) {
            let (a, b) = (rng.below(mix.keys + 1), rng.below(mix.keys + 1));
            Op::Range(user_key(a.min(b)), user_key(a.max(b)))
        } else if i < mix.single_keys {
            let present = self.single_present.entry(k.clone()).or_default();
            *present = !*present;
            if *present {
                Op::Point(k, ValueKind::Value, value)
            } else {
                Op::Point(k, ValueKind::SingleDeletion, Vec::new())
            }
        } else if is(mix.put) {
            Op::Point(k, ValueKind::Value, value)
        } else if is(mix.reference) {
            Op::Point(k, ValueKind::Reference, value)
        } else if is(mix.merge) {
            Op::Point(k, ValueKind::Merge, value)
        } else {
            Op::Point(k, ValueKind::Deletion, Vec::new())
        };
        self.ops.push(op);
    }

    /// Returns the point entries (sorted) and range tombstones with sequences in `(after, upto]`.
    pub fn entries(&self, after: SeqNo, upto: SeqNo) -> (Vec<Entry>, Vec<RangeTombstone>) {
        let (mut points, mut ranges) = (Vec::new(), Vec::new());
        for (seq, op) in (1..).zip(&self.ops).skip(after as usize).take((upto - after) as usize) {
            match op {
                Op::Point(k, kind, v) => points.push((encode(k, seq, *kind), v.clone())),
                Op::Range(a, b) => ranges.push(RangeTombstone { start: a.clone(), end: b.clone(), seq }),
            }
        }
        points.sort_by(|a: &Entry, b: &Entry| key::compare(&a.0, &b.0));
        (points, ranges)
    }

    /// Computes the view of `snapshot` by definition.
    pub fn view(&self, snapshot: SeqNo) -> View {
        let mut view = View::new();
        for op in self.ops.iter().take(snapshot as usize) {
            match op {
                Op::Point(k, ValueKind::Deletion | ValueKind::SingleDeletion, _) => {
                    view.remove(k);
                }
                Op::Point(k, ValueKind::Merge, v) => {
                    view.entry(k.clone()).or_default().extend_from_slice(v);
                }
                Op::Point(k, _, v) => {
                    view.insert(k.clone(), v.clone());
                }
                Op::Range(a, b) => view.retain(|k, _| k < a || b <= k),
            }
        }
        view
    }
}
