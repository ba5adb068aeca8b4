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
    Delete(Vec<u8>),
    DeleteRange(Vec<u8>, Vec<u8>),
}

impl Change {
    pub fn describe(&self) -> String {
        match self {
            Change::Put(key, value) => format!("put {} = {} B", show(key), value.len()),
            Change::Delete(key) => format!("delete {}", show(key)),
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
            Change::Put(key, value) => {
                self.fingerprint = self.fingerprint.wrapping_add(entry_hash(key, value));
                if let Some(old) = entries.insert(key.clone(), value.clone()) {
                    self.fingerprint = self.fingerprint.wrapping_sub(entry_hash(key, &old));
                }
            }
            Change::Delete(key) => {
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
