//! Versions, edits and states of the key-value engine: the set of its files.
//!
//! * [`meta`]: the manifest's description of each file ([`FileMeta`], [`VsstMeta`]).
//! * [`known`]: statistics of the entries of a table, in memory only.
//! * [`uses`]: references of tables, as sums. [`changes`]: changes of these sums by an edit,
//!   computed before it is installed.
//! * [`version`]: one immutable [`Version`] of one column family, and its queries.
//! * [`placed`]: counts of the tables of a level on each of two tiers.
//! * [`edit`]: [`Record`] and [`Edit`], the changes, and their encoding.
//! * [`state`]: [`KvState`], every family at one edit number; [`KvState::apply`] is pure and
//!   rejects contradictions.
//! * [`manifest`]: the engine's part of the manifest of a store ([`store::manifest`]: the file,
//!   group commit, roll, recovery), beside the parts of the store and other engines.
//! * [`witness`]: evidence from a damaged manifest.
//!
//! A reader takes an `Arc` of a [`Version`] and never sees it change. [`KvState::apply`] maintains
//! all derived data (level sizes, bytes referenced under each blob id). [`KvState::verify`]
//! compares it with the descriptions of the files, and a verification of the store compares it with
//! the files themselves.

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
pub use known::{Hides, TableStats};
pub use manifest::{Kv, Manifest, State, dump_manifest};
pub use meta::{BlobId, Dependency, FamilyId, FileMeta, Heat, VsstClass, VsstMeta};
pub use state::{FamilyState, FileOwner, KvState};
pub use store::manifest::{Commit, InitialState, LogGroupMeta, ManifestReport, Record as StoreRecord};
pub use store::numbers::{NUMBER_MAX, NUMBER_REACHED_MAX, NUMBER_SEEN_MAX};
pub use store::volumes::Volume;
pub use store::{IdMap, names};
pub use uses::{ReferenceChange, ReferenceSums, ReferenceTotals, TableReferences, UseSums};
pub use version::{AliasTarget, Level, LevelChanges, LevelSums, Version};
pub use witness::{FamilyWitness, ManifestWitness, TableWitness, look_through};
