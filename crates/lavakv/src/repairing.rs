//! The parts of the engine that the crate `repair` uses: log entries, and a new store that stays
//! marked as unfinished.
//!
//! For this project only.

pub use crate::batch::{BatchEntries, Change, DEFAULT_FAMILY, decode, header};
pub use crate::files::log::TENANT;
pub use crate::files::other_engines::refusal as refusal_for_others;
pub use crate::large::placed::not_closed;

use crate::files::log::Log;
use crate::{Db, Env, FamilyOptions, Options, Result};
use std::path::Path;
use store::context::closed;
use store::files::unfinished::Mark;
use store::secondary_engine::SecondaryEngine;
use version::State;

/// Creates a store that every open refuses until the mark is removed.
///
/// # Errors
/// As [`Db::open_in`], and those of the secondary engine.
pub fn make_marked(
    env: Env,
    dir: &Path,
    options: Options,
    mark: &Mark,
    secondary: Option<&mut dyn SecondaryEngine>,
) -> Result<Db> {
    Db::from_engine(crate::open::make_marked(env, dir, options, mark, secondary)?)
}

/// Decodes the options of a family from their bytes in the manifest.
///
/// # Errors
/// `Corruption`.
pub fn stored_options(bytes: &[u8]) -> Result<FamilyOptions> {
    FamilyOptions::decode(bytes)
}

/// Returns whether the log was closed, or sealed by an open that recovered the keys: it then
/// references no missing file.
pub fn was_closed(state: &State) -> bool {
    Log::was_closed(state)
}

/// Closes an unfinished store, without flushing its memtables.
pub fn discard(db: Db) {
    db.engine().context.health.poison(&closed());
    drop(db.close());
}
