//! The fast tier of a store with LavaKV: see [`store::fast_tier`].

use base::Result;
use io::Env;
use std::path::Path;
use std::sync::Arc;
use store::manifest::{Engines, Manifest as History};
use version::{Edit, Kv, Manifest, Record, StoreRecord};

pub use store::fast_tier::{FastTierSpace, alone, joined, with_directory};

/// Detaches the fast tier from a closed store: one edit moves log, tables and values to its
/// directory. Other engines need not be present.
///
/// # Errors
/// Those of [`store::fast_tier::give_back_with`].
pub fn detach_fast_tier(env: &Env, dir: &Path) -> Result<()> {
    store::fast_tier::give_back_with(
        env,
        dir,
        &Engines::of::<Kv>(),
        &|history: &Arc<History>, record: StoreRecord| {
            let build = |state: &version::State| {
                let Edit(mut records) = state.to_directory();
                records.push(Record::Store(record));
                Ok(Edit(records))
            };
            Manifest::of(history)?.commit_with(build, |_| ()).map(drop)
        },
    )
}
