//! An engine for tests: a map of numbers, as two engines that differ only in their id.
//!
//! Within one edit the removals take effect first, like the tables of the key-value engine. So two
//! edits differ from one with the changes of both, and code that merges them fails.

use base::codec::{Reader, put_varint};
use base::{Error, Result, SeqNo};
use lavastore_store::IdMap;
use lavastore_store::manifest::{self, Engine, EngineId, StateBuilder};

/// The engine `ID`, which knows this format.
#[derive(Debug)]
pub struct Ledger<const ID: u32, const FORMAT: u32 = 1>;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entries {
    pub values: IdMap<u64, u64>,
    pub floor: SeqNo,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// The key must be absent.
    Add(u64, u64),
    /// The key must be present.
    Remove(u64),
    Floor(SeqNo),
}

impl<const ID: u32, const FORMAT: u32> Engine for Ledger<ID, FORMAT> {
    const ID: EngineId = EngineId(ID);
    const NAME: &'static str = "ledger";
    const FORMAT: u32 = FORMAT;
    type State = Entries;
    type Edit = Vec<Change>;

    fn empty() -> Entries {
        Entries::default()
    }

    fn encode(edit: &Vec<Change>) -> Vec<u8> {
        let mut out = Vec::new();
        for change in edit {
            let (kind, a, b) = match *change {
                Change::Add(key, value) => (0, key, value),
                Change::Remove(key) => (1, key, 0),
                Change::Floor(seq) => (2, seq, 0),
            };
            [kind, a, b].into_iter().for_each(|n| put_varint(&mut out, n));
        }
        out
    }

    fn decode(bytes: &[u8]) -> Result<Vec<Change>> {
        let (mut r, mut edit) = (Reader::new(bytes), Vec::new());
        while !r.is_empty() {
            edit.push(match (r.varint()?, r.varint()?, r.varint()?) {
                (0, key, value) => Change::Add(key, value),
                (1, key, _) => Change::Remove(key),
                (2, seq, _) => Change::Floor(seq),
                (kind, ..) => return Err(Error::corruption(format!("a change of kind {kind}"))),
            });
        }
        Ok(edit)
    }

    fn apply(state: &Entries, edit: &Vec<Change>, ground: &mut StateBuilder<'_>) -> Result<Entries> {
        let mut next = state.clone();
        for change in edit {
            if let Change::Remove(key) = change
                && next.values.remove(key).is_none()
            {
                return manifest::refuse(format!("there is no entry {key}"));
            }
        }
        for change in edit {
            match *change {
                Change::Add(key, value) => {
                    if next.values.insert(key, value).is_some() {
                        return manifest::refuse(format!("entry {key} is there already"));
                    }
                }
                Change::Floor(seq) => {
                    next.floor = seq;
                    ground.raise_seq(seq)?;
                }
                Change::Remove(_) => {}
            }
        }
        Ok(next)
    }

    fn snapshot(state: &Entries) -> Vec<Change> {
        // Never empty: an engine may have a record for its empty state.
        let floor = Change::Floor(state.floor);
        std::iter::once(floor)
            .chain(state.values.iter().map(|(key, value)| Change::Add(key, *value)))
            .collect()
    }

    fn verify(_state: &Entries, _store: &manifest::ManifestState) -> Result<()> {
        Ok(())
    }

    fn floor(state: &Entries) -> SeqNo {
        state.floor
    }

    fn describe(state: &Entries) -> String {
        format!("{} entries, floor {}\n", state.values.len(), state.floor)
    }

    fn list(bytes: &[u8]) -> Result<Vec<String>> {
        Ok(Self::decode(bytes)?.iter().map(|change| format!("{change:?}")).collect())
    }
}
