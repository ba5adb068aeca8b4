//! The replicated state: keys and values, and the number of each client's last write.
//!
//! | key | value |
//! |---|---|
//! | `client/ID` | number of this client's last write, `u64`, big-endian |
//! | `key/KEY` | the value |
//!
//! A client without an answer repeats its write with the same number, and numbers ascend. So a
//! repeated write is executed once, and a delayed old write changes nothing.

use lavastore::{Family, Result};
use openraft_lavalog::{Application, Changes, SnapshotFile};
use serde::{Deserialize, Serialize};

openraft::declare_raft_types!(
    /// The openraft types of the group.
    pub Types: D = Put, R = Made, SnapshotData = SnapshotFile
);

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Put {
    pub client: u64,
    /// Number of the client's write, from 1.
    pub number: u64,
    /// Key to set.
    pub key: String,
    pub value: Vec<u8>,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Made {
    /// The write was executed.
    #[default]
    Now,
    /// The write had been executed before.
    Before,
}

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

/// Returns the key in the state for a client's key.
pub fn key_of(key: &str) -> String {
    format!("key/{key}")
}
