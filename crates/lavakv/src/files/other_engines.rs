//! Data of other engines in the same store, which LavaKV must preserve.
//!
//! LavaKV may share its store with engines that are not open, or unknown to this build. Their
//! manifest records and files belong to the store (`store::manifest`). Two rules remain for this
//! module. A log group with records that another engine may need must stay. An operation that
//! rebuilds a store from LavaKV's part alone must report that.

use super::log::TENANT;
use base::{Error, ErrorKind, SeqNo};
use std::path::Path;
use store::commit::tenant;
use store::manifest::{EngineId, ManifestState};
use wal::{PriorGroup, TenantId};

/// Returns the known floors of all other engines. An engine without a floor needs all its records.
pub(crate) fn floors(state: &ManifestState) -> Vec<(TenantId, SeqNo)> {
    let others = state.engines.floors().filter(|(id, _)| *id != EngineId::NATIVE);
    others.filter_map(|(id, floor)| Some((tenant(id)?, floor))).collect()
}

/// Returns whether another engine may need records of a group.
pub(crate) fn need(state: &ManifestState, group: &PriorGroup) -> bool {
    let floors = floors(state);
    let floor_of = |tenant| floors.iter().find(|(of, _)| *of == tenant).map_or(0, |(_, floor)| *floor);
    let others = group.seqs.iter().filter(|span| span.tenant != TENANT);
    others.into_iter().any(|span| span.last >= floor_of(span.tenant))
}

/// Returns the error of an operation that needs another engine.
pub fn refusal(dir: &Path, engines: &[String], what: &str) -> Error {
    let why = format!(
        "engine {} keeps data in this store that {what}: open the store with that engine, or \
         release the data first",
        engines.join(", ")
    );
    Error::new(ErrorKind::Unsupported, why).at_file(dir)
}
