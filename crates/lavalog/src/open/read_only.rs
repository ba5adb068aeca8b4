//! Read-only open of a store of logs, possibly while another process writes it.
//!
//! The open takes no lock, writes nothing, and needs no write permission. It shows the store at one
//! moment: all operations acknowledged before the call, and no operation without its predecessors.
//! Seeing later operations requires another open.
//!
//! Opening is an attempt ([`store::read_only`]), since the writer collects, seals, and reuses group
//! files meanwhile. An attempt reads the manifest, the files that it names, and the replayed
//! groups; then it reads the manifest again. If each of those groups is still the same, their
//! apparent ends are real. A missing file counts as lost only if the manifest has not changed. In a
//! store of both engines only the record lane is read. An embedded batch belongs to the host
//! engine, so it appears with its records or not at all.
//!
//! **Damage.** If the lane or the manifest is damaged, everything before the damage is shown, and
//! [`Reader`] describes the damage. Damaged index files, cold files and checkpoint copies are
//! handled as in any open.

use super::{Restored, check_place, is_known};
use crate::core::{Core, StoreOwner};
use crate::manifest::LavaLog;
use crate::options::Options;
use crate::reader::{Reader, changed, is_same_group};
use base::{Error, Result};
use io::Env;
use std::path::Path;
use std::sync::Arc;
use store::commit::read::{check_known, check_whole};
use store::commit::{Lane, Log};
use store::context::Context;
use store::files::{StoreFiles, unfinished};
use store::manifest::{Engines, Manifest};
use store::read_only::attempt;
use store::secondary_engine::SecondaryEngineStore;
use store::space::SpaceBudget;
use store::volumes::Location;

/// Opens a store of logs for reading.
pub(crate) fn open(env: &Env, dir: &Path, options: &Options) -> Result<Arc<Core>> {
    options.check()?;
    let env = &store::fast_tier::with_directory(env.clone(), dir, options.fast_tier.as_deref());
    let options = &options.within(&*env.fs, 1);
    if let Err(e) = check_place(env, dir, &Options { create_if_missing: false, ..options.clone() })
        // The creator of a store writes data files after `CURRENT`, possibly since the check.
        && !store::directory::has_store(env, dir).unwrap_or(false)
    {
        return Err(e);
    }
    unfinished::refuse_beside_current(&*env.fs, dir)?;
    let engines = Engines::of::<LavaLog>();
    let whole = || open_once(env, dir, options, Manifest::recover(env, dir, true, &engines)?, None);
    match attempt(env, whole) {
        Err(e) if e.is_corruption() => {
            let up_to_damage = || {
                let (manifest, damage) = Manifest::recover_up_to_damage(env, dir, &engines)?;
                open_once(env, dir, options, manifest, Some(damage))
            };
            // If even the part before the damage is unreadable, the first error is the most useful.
            up_to_damage().map_err(|_| e)
        }
        opened => opened,
    }
}

/// Attempts the open once. `damage` has the known damage, if only the part before it is to be
/// opened.
fn open_once(
    env: &Env,
    dir: &Path,
    options: &Options,
    manifest: Manifest,
    damage: Option<Vec<Error>>,
) -> Result<Arc<Core>> {
    let manifest = Arc::new(manifest);
    let (given, env) = (env, &store::fast_tier::of_reader(env, dir, &manifest.state()));
    let (up_to_damage, mut damage) = (damage.is_some(), damage.unwrap_or_default());
    // Nothing is written, so writes need no metering.
    let context = Arc::new(Context::new(env, Location::unmetered(env, dir)));
    let then = manifest.state();
    let listing = env.fs.list(dir)?;
    for found in
        [check_whole(dir, &listing, &then), check_known(env, dir, &listing, &then, &manifest.report().name)]
    {
        if up_to_damage { damage.extend(found.err()) } else { found? }
    }
    let files = Arc::new(StoreFiles::new(&context, manifest.clone(), None));
    let space = Arc::new(SpaceBudget::new(&context, crate::space::terms(options)));
    let mut restored = Restored::of(&context, &manifest)?;
    if !is_known(&restored.manifest) {
        return Err(Error::not_found(
            "there are no logs in this store: name a store with logs, or append to one first",
        )
        .at_file(dir));
    }
    let has_lost = !restored.lost_rows.is_empty() || !restored.damaged.is_empty();
    let lane = Arc::new(Log::of_lane(Lane::LOG, options.lane_terms(), files.clone(), space.clone()));
    let (report, of_lane) =
        lane.recovery().replay_to_read(up_to_damage, &mut |batch| restored.replay(batch).map(drop))?;
    damage.extend(of_lane);
    if !up_to_damage {
        let now = Manifest::recover(given, dir, true, &Engines::of::<LavaLog>())?.state();
        let moved = then.edit_number != now.edit_number;
        let group_moved =
            then.log_groups.chain(Lane::LOG).any(|group| !is_same_group(&then, &now, group.ltn));
        // A crash leaves pages behind a hole, too; but then the manifest does not change.
        if group_moved || moved && (has_lost || report.discarded_pages > 0) {
            return Err(changed(dir));
        }
    }
    let first = Arc::new(Log::new(options.first_lane_terms(), files.clone(), space.clone()));
    restored.begin(
        options,
        SecondaryEngineStore { files, space, lane, first },
        StoreOwner::Reader(Reader { damage }),
    )
}
