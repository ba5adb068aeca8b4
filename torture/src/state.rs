//! The model: the expected contents of a store.
//!
//! A family is a sorted map that is shared until it changes, so a snapshot of the model costs a
//! reference count. A *fingerprint* is a sum over the hashes of the entries: equal contents have
//! equal fingerprints, and a change updates it in constant time. It replaces the contents where
//! thousands of states are compared.

use crate::check::{Check, show};
use std::collections::BTreeMap;
use std::rc::Rc;

pub(crate) type FamilyId = u32;
pub(crate) type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

/// One change of a batch.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Put(Vec<u8>, Vec<u8>),
    /// An operand of the operator [`OPERATOR_DELIMITER`].
    Merge(Vec<u8>, Vec<u8>),
    Delete(Vec<u8>),
    /// A delete of a key that was put at most once since its last delete.
    SingleDelete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

/// The merge operator of families that have one appends operands with this delimiter.
pub(crate) const OPERATOR_DELIMITER: &[u8] = b"+";

/// Bytes of the longest operand: less than a quarter of the shortest log group.
pub(crate) const OPERAND_LEN_MAX: usize = 8 << 10;

/// Returns a value with an operand appended.
pub(crate) fn merged(value: Option<&Vec<u8>>, operand: &[u8]) -> Vec<u8> {
    value.map_or(operand.to_vec(), |value| [value, OPERATOR_DELIMITER, operand].concat())
}

impl Change {
    /// Returns true if the change concerns a key.
    pub fn touches(&self, key: &[u8]) -> bool {
        match self {
            Change::Put(own, _) | Change::Merge(own, _) | Change::Delete(own) | Change::SingleDelete(own) => {
                own == key
            }
            Change::DeleteRange(start, end) => start.as_slice() <= key && key < end.as_slice(),
        }
    }

    /// Returns the value of a key of the change after it.
    pub fn value_after(&self, before: Option<&Vec<u8>>) -> Option<Vec<u8>> {
        match self {
            Change::Put(_, value) => Some(value.clone()),
            Change::Merge(_, operand) => Some(merged(before, operand)),
            Change::Delete(_) | Change::SingleDelete(_) | Change::DeleteRange(..) => None,
        }
    }

    pub fn describe(&self) -> String {
        match self {
            Change::Put(key, value) => format!("put {} = {} B", show(key), value.len()),
            Change::Merge(key, operand) => format!("merge {} + {} B", show(key), operand.len()),
            Change::Delete(key) => format!("delete {}", show(key)),
            Change::SingleDelete(key) => format!("single delete {}", show(key)),
            Change::DeleteRange(start, end) => format!("delete {} to {}", show(start), show(end)),
        }
    }
}

/// The contents of one family.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    entries: Rc<Entries>,
    fingerprint: u64,
}

/// A hash of an entry.
pub(crate) fn entry_hash(key: &[u8], value: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
    let mut h = key.iter().fold(0xcbf2_9ce4_8422_2325 ^ key.len() as u64, step);
    let mut words = value.chunks_exact(8);
    for word in &mut words {
        h = (h ^ u64::from_le_bytes(word.try_into().expect("eight bytes")))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        h ^= h >> 29;
    }
    h = words.remainder().iter().fold(h ^ (value.len() as u64) << 32, step);
    h = (h ^ (h >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    h ^ (h >> 33)
}

impl Contents {
    pub fn entries(&self) -> &Entries {
        &self.entries
    }

    pub fn shared(&self) -> Rc<Entries> {
        self.entries.clone()
    }

    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub fn from_entries(entries: Entries) -> Self {
        let fingerprint = entries.iter().fold(0u64, |sum, (k, v)| sum.wrapping_add(entry_hash(k, v)));
        Contents { entries: Rc::new(entries), fingerprint }
    }

    pub fn apply(&mut self, change: &Change) {
        let entries = Rc::make_mut(&mut self.entries);
        match change {
            Change::Merge(key, operand) => {
                let value = merged(entries.get(key), operand);
                self.fingerprint = self.fingerprint.wrapping_add(entry_hash(key, &value));
                if let Some(old) = entries.insert(key.clone(), value) {
                    self.fingerprint = self.fingerprint.wrapping_sub(entry_hash(key, &old));
                }
            }
            Change::Put(key, value) => {
                self.fingerprint = self.fingerprint.wrapping_add(entry_hash(key, value));
                if let Some(old) = entries.insert(key.clone(), value.clone()) {
                    self.fingerprint = self.fingerprint.wrapping_sub(entry_hash(key, &old));
                }
            }
            Change::Delete(key) | Change::SingleDelete(key) => {
                if let Some(old) = entries.remove(key) {
                    self.fingerprint = self.fingerprint.wrapping_sub(entry_hash(key, &old));
                }
            }
            Change::DeleteRange(start, end) if start < end => {
                let inside: Vec<Vec<u8>> =
                    entries.range(start.clone()..end.clone()).map(|(k, _)| k.clone()).collect();
                for key in inside {
                    if let Some(old) = entries.remove(&key) {
                        self.fingerprint = self.fingerprint.wrapping_sub(entry_hash(&key, &old));
                    }
                }
            }
            Change::DeleteRange(..) => {}
        }
    }
}

/// Describes the first difference between two contents.
pub(crate) fn difference(expected: &Entries, found: &Entries) -> Check {
    let keys: std::collections::BTreeSet<_> = expected.keys().chain(found.keys()).collect();
    for key in keys {
        let (want, got) = (expected.get(key), found.get(key));
        if want != got {
            let text = |v: Option<&Vec<u8>>| v.map_or("nothing".to_owned(), |v| show(v));
            return Err(format!(
                "key {}: expected {}, found {} ({} keys expected, {} found)",
                show(key),
                text(want),
                text(got),
                expected.len(),
                found.len()
            ));
        }
    }
    Ok(())
}
