//! What is replicated: keys and values, and of each client the number of its last write.
//!
//! | key | value |
//! |---|---|
//! | `client/ID` | the number of the last write of this client, `u64`, big-endian |
//! | `key/KEY` | the value |
//!
//! A client that got no answer sends its write again, with the same number, and its writes have ascending numbers: so a write
//! is made once, however often it comes, and an old one that was on its way for long takes nothing back.

use lavastore::{Family, Result};
use openraft_lavalog::{Application, Changes, SnapshotFile};
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// The types of the group.
    pub Types: D = Put, R = Made, SnapshotData = SnapshotFile
);

/// A write.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Put {
    /// Who writes.
    pub client: u64,
    /// Which of its writes this is, from 1.
    pub number: u64,
    /// The key.
    pub key: String,
    /// Its value from now on.
    pub value: Vec<u8>,
}

/// What became of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Made {
    /// It was made.
    #[default]
    Now,
    /// It had been made before.
    Before,
}

/// The application.
#[derive(Debug)]
pub struct Kv;

impl Application<Types> for Kv {
    fn apply(&mut self, put: &Put, state: &Family, changes: &mut Changes) -> Result<Made> {
        let client = format!("client/{}", put.client);
        let last = state.get(&client)?.and_then(|number| number.first_chunk().copied());
        if last.is_some_and(|last| put.number <= u64::from_be_bytes(last)) {
            return Ok(Made::Before);
        }
        changes.put(client, put.number.to_be_bytes()).put(key_of(&put.key), &put.value);
        Ok(Made::Now)
    }
}

/// The key in the state of a key of clients.
pub fn key_of(key: &str) -> String {
    format!("key/{key}")
}
