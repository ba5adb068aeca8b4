//! Versions, edits and states of the key-value engine: which files it consists of.
//!
//! * [`meta`]: what the manifest knows of each file ([`FileMeta`], [`VsstMeta`]).
//! * [`known`]: facts about the entries of a table that only memory holds.
//! * [`uses`]: what tables reference, as sums. [`changes`]: what an edit changes of these, worked out before it is installed.
//! * [`version`]: one immutable [`Version`] of one column family, and the questions asked of it.
//! * [`placed`]: how many tables of a level lie on which of two disks.
//! * [`edit`]: [`Record`] and [`Edit`], the changes, and their encoding.
//! * [`state`]: [`KvState`], every family at one edit number; [`KvState::apply`] is pure and refuses contradictions.
//! * [`manifest`]: all that in the manifest of a store ([`store::manifest`]: the file, group commit, roll, recovery), beside
//!   what the store and other engines keep there.
//! * [`witness`]: what is to be learned from a damaged manifest.
//!
//! A reader takes an `Arc` of a [`Version`] and never sees it change. Everything that is derived (level sizes, how
//! many bytes the tables reference under each blob id) is carried along by [`KvState::apply`]; [`KvState::verify`] holds it
//! against the descriptions of the files, and a verification of the store against the files themselves.

#[cfg(test)]
mod arbitrary;
pub mod changes;
pub mod edit;
pub mod known;
pub mod manifest;
pub mod meta;
pub mod placed;
pub mod state;
pub mod uses;
pub mod version;
pub mod witness;

pub use changes::ReferenceChanges;
pub use edit::{Edit, Record};
pub use known::{Hides, Known};
pub use manifest::{Kv, Manifest, State, dump_manifest};
pub use meta::{BlobId, Dependency, FamilyId, FileMeta, Heat, VsstClass, VsstMeta};
pub use state::{FamilyState, KvState, Place};
pub use store::manifest::{Commit, InitialState, LogGroupMeta, ManifestReport, Record as StoreRecord};
pub use store::numbers::{NUMBER_MAX, NUMBER_REACHED_MAX, NUMBER_SEEN_MAX};
pub use store::volumes::Volume;
pub use store::{IdMap, names};
pub use uses::{ReferenceChange, ReferenceSums, ReferenceTotals, UseSums, Uses};
pub use version::{AliasTarget, Level, LevelChanges, LevelSums, Version};
pub use witness::{FamilyWitness, ManifestWitness, TableWitness, look_through};
