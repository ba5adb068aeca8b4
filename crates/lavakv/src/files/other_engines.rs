//! Other engines on the same store: what must be left to them.
//!
//! LavaKV may share its store with engines that are not here, or that are here as strangers. Their records in the manifest and
//! their files are the store's affair (`store::manifest`); what lies in between is this: a group of the log in which one of
//! them has records that it may still need stays, and whatever makes a store out of LavaKV's part alone says so.

use super::log::TENANT;
use base::{Error, ErrorKind, SeqNo};
use std::path::Path;
use store::commit::tenant;
use store::manifest::{EngineId, State};
use wal::{PriorGroup, TenantId};

/// The floors of all other engines, as far as they are known: who has none needs all it has.
pub(crate) fn floors(state: &State) -> Vec<(TenantId, SeqNo)> {
    let others = state.engines.floors().filter(|(id, _)| *id != EngineId::NATIVE);
    others.filter_map(|(id, floor)| Some((tenant(id)?, floor))).collect()
}

/// True if another engine has records in a group that it may need.
pub(crate) fn need(state: &State, group: &PriorGroup) -> bool {
    let floors = floors(state);
    let floor_of = |tenant| floors.iter().find(|(of, _)| *of == tenant).map_or(0, |(_, floor)| *floor);
    let others = group.seqs.iter().filter(|span| span.tenant != TENANT);
    others.into_iter().any(|span| span.last >= floor_of(span.tenant))
}

/// What cannot be done without another engine.
pub fn refusal(dir: &Path, engines: &[String], what: &str) -> Error {
    let why = format!(
        "engine {} keeps something in this store that {what}: do it with that engine, or after it has let go of that",
        engines.join(", ")
    );
    Error::new(ErrorKind::Unsupported, why).at_file(dir)
}
