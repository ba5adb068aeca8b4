//! Versions, edits and the manifest: which files make up a store, and the durable history of that.
//!
//! * [`meta`]: what the manifest knows of each file ([`FileMeta`], [`VsstMeta`], [`LogGroupMeta`]).
//! * [`version`]: one immutable [`Version`] of one column family, and the questions asked of it.
//! * [`edit`]: [`Record`] and [`Edit`], the changes, and their encoding.
//! * [`state`]: [`State`], every family at one edit number; [`State::apply`] is pure and refuses contradictions.
//! * [`sources`]: how the files of a version are opened.
//! * [`manifest`]: the file that holds the history, group commit, roll and recovery.
//!
//! A reader takes an `Arc` of a [`Version`] and never sees it change. Everything that is derived (level sizes, how
//! many bytes the tables reference under each blob id) is computed from the files themselves and carried along by
//! [`State::apply`], so that it cannot drift from them; [`State::verify`] recomputes it all and compares.

#[cfg(test)]
mod arbitrary;
pub mod edit;
pub mod manifest;
pub mod meta;
pub mod sources;
pub mod state;
pub mod version;

pub use edit::{Edit, Record};
pub use manifest::{
    FamilyWitness, InitialState, Manifest, ManifestReport, ManifestWitness, TableWitness, dump_manifest,
    look_through,
};
pub use meta::{BlobId, Dependency, FamilyId, FileMeta, LogGroupMeta, VsstClass, VsstMeta};
pub use sources::{TableSource, VsstSource};
pub use state::{FamilyState, Place, State};
pub use store::numbers::{NUMBER_MAX, NUMBER_REACHED_MAX, NUMBER_SEEN_MAX};
pub use store::{IdMap, names};
pub use version::{AliasTarget, Level, ReferenceTotals, Version};
