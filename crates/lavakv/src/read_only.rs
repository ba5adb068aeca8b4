//! Opens a store for reading, possibly beside the process that writes it.
//!
//! The reader takes no lock, writes nothing, and needs no write permission. The writer may
//! meanwhile remove tables and recycle log groups. So an open is an attempt: read the manifest,
//! open every table in it, replay the log into memory. (An open file stays readable after its
//! removal.) If something is missing or inconsistent, the writer has moved on, and the open starts
//! again, a bounded number of times ([`store::read_only`]).
//!
//! Log pages are contiguous, so every group before the last one was read completely. But a group
//! that was recycled meanwhile looks like the end of the log, so the manifest is read once more. A
//! group is recycled only after the edit that drops it is durable. So if the last group that was
//! read is still listed, the end is real; if nothing was read, this applies to the first group, not
//! to the last. Of two groups the first may have been skipped and then dropped: the last stays
//! listed, and the reader would take the tables for all data. The staging file is read before the
//! files of groups, so a page that is written meanwhile is found in one of the two. Pages
//! superseded by a flush lose their places in the staging file only after a durable edit moves the
//! begin of the log behind them. So that begin must not be behind the end that was read.
//!
//! **Two lanes.** Batches embedded in the lane of a secondary engine ([`crate::secondary_lane`])
//! are read without that engine. The writer may append to both lanes meanwhile. So the secondary
//! lane is read before LavaKV's own, and once more after it if LavaKV's has more. A batch is
//! appended to a lane only after everything logged before it in the other lane is durable
//! ([`crate::write::embedded_batch`]). So LavaKV's lane contains everything before the batches of
//! the first read, and the second read finds everything before the end of LavaKV's lane. Up to the
//! later of both ends nothing is missing; batches beyond it are not shown. This holds for the
//! groups that the manifest listed when it was read. A new group of either lane may hold batches
//! before the end of the other, so the open starts again.
//!
//! **Damage.** A damaged log or manifest does not prevent reading the state before the damage
//! (unless `damaged_files` forbids it). The manifest is read up to its last sound edit, the log up
//! to its last sound page. The store then shows an earlier state of each family. Files that this
//! state lists and that are gone are set aside like unreadable ones. The damage is reported
//! ([`crate::Db::damage`], `Event::ReadUpToDamage`). Such a store cannot be opened for writing:
//! everything behind the damage would be lost for good. If the lane of a secondary engine is
//! damaged, the changes embedded in it are not shown, while later ones are. This is reported in the
//! same way.

mod catch_up;

use crate::context::Context;
use crate::context::event::Event;
use crate::context::family_options::FamilyOptions;
use crate::context::fit::SizeReduction;
use crate::context::options::{DamagedFiles, Options};
use crate::engine::Engine;
use crate::files::KvFiles;
use crate::files::damaged::is_of_reading;
use crate::files::data_file::DataFile;
use crate::large::placed::PlacedValues;
use crate::open::{
    build, check_files, check_remains, is_a_file, no_store, replay, replay_embedded, replay_up_to_damage,
};
use crate::secondary_lane::{self, EmbeddedKvBatches};
use base::{Error, ErrorKind, Result, SeqNo};
use catch_up::Earlier;
pub(crate) use catch_up::{ReadOnlyOpen, catch_up};
use io::Env;
use lsm::TableSource;
use std::path::Path;
use std::sync::Arc;
use store::commit::read::{check_known, check_known_to_read_on};
use store::manifest::{ListedGroups, LogGroupMeta, ManifestState};
use store::volumes::Location;
use version::names::FileKind;
use version::{Manifest, State, names};
use wal::{Lane, RecoveryReport};

/// Returns the options of all families, by name, from the manifest.
pub(crate) fn family_options(env: &Env, dir: &Path) -> Result<Vec<(String, FamilyOptions)>> {
    attempt(env, dir, || {
        let state = Manifest::recover(env, dir, true)?.state();
        let all = state.families.values();
        all.map(|f| Ok((f.name.clone(), FamilyOptions::decode(&f.options).map_err(|e| e.at_file(dir))?)))
            .collect()
    })
}

/// Returns the names of the secondary engines from the manifest.
pub(crate) fn other_engines(env: &Env, dir: &Path) -> Result<Vec<String>> {
    attempt(env, dir, || {
        let state = Manifest::recover(env, dir, true)?.state();
        Ok(state.store.engines.away().map(|engine| engine.name.to_string()).collect())
    })
}

/// Opens a store for reading.
pub(crate) fn open(env: Env, dir: &Path, options: Options) -> Result<(Arc<Engine>, ReadOnlyOpen)> {
    options.validate()?;
    let mut options = options.derived();
    let env = store::fast_tier::with_directory(env, dir, options.fast_tier.as_deref());
    // All tables stay open if the process has the descriptors: a table that the writer removes
    // stays readable.
    options.open_files_max = options.open_files_max.max(1 << 20);
    open_after(None, env, dir, options)
}

/// Opens a store for reading, in the environment of both tiers and with derived options.
fn open_after(
    earlier: Option<&Earlier<'_>>,
    env: Env,
    dir: &Path,
    options: Options,
) -> Result<(Arc<Engine>, ReadOnlyOpen)> {
    let mut read = None;
    let engine = open_or_serve(&env, dir, &options, || {
        let (engine, report) = open_once(&env, dir, &options, earlier)?;
        read = Some(report);
        Ok(engine)
    })?;
    Ok((engine, ReadOnlyOpen { env, dir: dir.to_owned(), options, log: read }))
}

/// Opens a store, or the state before its damage if the options allow that.
fn open_or_serve(
    env: &Env,
    dir: &Path,
    options: &Options,
    once: impl FnMut() -> Result<Arc<Engine>>,
) -> Result<Arc<Engine>> {
    match attempt(env, dir, once) {
        Err(e) if options.damaged_files == DamagedFiles::Serve && e.is_corruption() => {
            // If even that fails, the first error describes the damage best.
            store::read_only::attempt(env, || open_up_to_damage(env, dir, options)).map_err(|_| e)
        }
        opened => opened,
    }
}

/// Repeats `once` until no concurrent write interferes.
fn attempt<T>(env: &Env, dir: &Path, once: impl FnMut() -> Result<T>) -> Result<T> {
    if env.fs.metadata(dir).is_ok_and(|found| !found.is_dir) {
        return Err(is_a_file(dir));
    }
    if !store::directory::has_store(env, dir)? {
        let remains = match env.fs.list(dir) {
            Ok(files) => check_remains(dir, &files),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            Err(e) => return Err(e),
        };
        // A new store gets its data files after `CURRENT`. That may have happened meanwhile, before
        // or after the directory was listed.
        if !store::directory::has_store(env, dir)? {
            return Err(remains.err().unwrap_or_else(|| no_store(dir)));
        }
    }
    store::files::unfinished::refuse_beside_current(&*env.fs, dir)?;
    store::read_only::attempt(env, once)
}

/// Opens all data files. Returns true if some cannot be opened; they are set aside.
fn open_all(engine: &Engine) -> Result<bool> {
    let (mut damaged, mut count) = (false, 0);
    for family in engine.tree.families.all() {
        for file in DataFile::all_of(&family.read_state().version) {
            count += 1;
            let opened = match &file {
                DataFile::Table(meta) => engine.files.tables.table(meta).map(drop),
                DataFile::Vsst(meta) if meta.segment => {
                    engine.files.tables.segment(meta.number, meta.uid).map(drop)
                }
                DataFile::Vsst(meta) => engine.files.tables.vsst(meta).map(drop),
            };
            match opened {
                Err(e)
                    if engine.context.options.damaged_files == DamagedFiles::Serve && is_of_reading(&e) =>
                {
                    damaged |= engine.tree.set_aside(file.number(), &e);
                }
                other => other?,
            }
        }
    }
    engine.files.tables.set_read();
    engine.context.tell_open_files(count);
    Ok(damaged)
}

/// Opens the store once. `earlier`: an earlier state, to share files and memtables with.
fn open_once(
    env: &Env,
    dir: &Path,
    options: &Options,
    earlier: Option<&Earlier<'_>>,
) -> Result<(Arc<Engine>, RecoveryReport)> {
    let manifest = Manifest::recover(env, dir, true)?;
    let (given, env) = (env, &store::fast_tier::of_reader(env, dir, &manifest.state().store));
    let listing = env.fs.list(dir)?;
    let findings = check_files(dir, &listing, &manifest, options.damaged_files, None)?;
    let earlier = earlier.filter(|earlier| earlier.is_of(&manifest));
    let state = manifest.state();
    let known = (&*state.store, &*manifest.report().name);
    let staging = match earlier.and_then(Earlier::log) {
        Some(log) => Some(check_known_to_read_on(env, dir, &listing, known, log)?),
        None => check_known(env, dir, &listing, known.0, known.1).map(|()| None)?,
    };
    let files = match earlier {
        Some(earlier) => earlier.engine.files.later(manifest),
        None => KvFiles::new(&context(env, dir, options), manifest, None),
    };
    let engine = Arc::new(build(files, None)?);
    findings.iter().for_each(|finding| finding.set_aside(&engine.tree));
    let damaged = open_all(&engine)? || !findings.is_empty();
    if damaged
        && Manifest::recover(given, dir, true)?.state().store.edit_number
            != engine.files.manifest.durable_edit()
    {
        // A file is removed only after the edit that drops it is durable: the apparent damage may
        // be such a removal.
        let why = "the process that writes the store changed it meanwhile: try again";
        return Err(Error::new(ErrorKind::Busy, why).at_file(dir));
    }
    let report = match earlier.zip(staging) {
        Some((earlier, staging)) => match earlier.replay_into(&engine, &staging)? {
            Some(report) => report,
            None => return open_once(given, dir, options, Some(earlier)),
        },
        None => replay_lanes(&engine)?,
    };
    let (then, now) = (engine.files.manifest.state(), Manifest::recover(given, dir, true)?.state());
    let (end, end_lpn) = report.history.chain.map(|c| (c.ltn, c.end_lpn)).unzip();
    let end = end.or_else(|| first_group(&then.store));
    let file_of = |state: &State, ltn| state.store.log_groups.get(&ltn).map(|g| g.file);
    let end_moved = end.is_some_and(|ltn| file_of(&then, ltn) != file_of(&now, ltn));
    let end_moved = end_moved
        || lanes_moved(&then.store, &now.store)
        || begin_moved(&then.store, &now.store, end_lpn.unwrap_or(0));
    // A crash leaves pages after a hole too, but then there is no writer to edit the manifest.
    if end_moved || (report.discarded_pages > 0 && now.store.edit_number != then.store.edit_number) {
        let why = "the process that writes the store recycles its log faster than it can be read: try again";
        return Err(Error::new(ErrorKind::Busy, why).at_file(dir));
    }
    engine.log.reader().set_replayed(report.history.groups.clone());
    Ok((engine, report))
}

/// Returns the context of a reader. It writes nothing, so no bytes are counted.
fn context(env: &Env, dir: &Path, options: &Options) -> Arc<Context> {
    let location = Location::unmetered(env, dir);
    Arc::new(Context::new(env, location, options.clone(), SizeReduction::default(), 1))
}

/// Returns the first group to read of LavaKV's log.
fn first_group(state: &ManifestState) -> Option<u64> {
    state.log_groups.chain(Lane::FIRST).find(|group| !group.discarded).map(|group| group.ltn)
}

/// True if LavaKV's log now begins behind the end that was read: places of expected pages were
/// reused. (Everything read before is complete: a page is skipped, or it is in one of the files.)
fn begin_moved(then: &ManifestState, now: &ManifestState, end_lpn: u64) -> bool {
    let begin = |state: &ManifestState| {
        state.log_groups.chain(Lane::FIRST).find_map(|group| Some((group.ltn, group.begin?)))
    };
    begin(now) != begin(then) && begin(now).is_some_and(|(_, begin)| begin.lpn > end_lpn)
}

/// True if the secondary lane has changed, or LavaKV's lane has a new group beside it: see the
/// module.
fn lanes_moved(then: &ManifestState, now: &ManifestState) -> bool {
    let (then, now) = (&then.log_groups, &now.log_groups);
    let place = |group: &LogGroupMeta| (group.ltn, group.file);
    let guest_moved = !then.chain(Lane::LOG).map(place).eq(now.chain(Lane::LOG).map(place));
    let last = |groups: &ListedGroups| groups.chain(Lane::FIRST).next_back().map(place);
    let has_secondary = now.chain(Lane::LOG).next().is_some();
    guest_moved || (has_secondary && last(then) != last(now))
}

/// Replays LavaKV's lane and the batches embedded in the secondary lane: see the module.
fn replay_lanes(engine: &Engine) -> Result<RecoveryReport> {
    let mut embedded = secondary_lane::look(&engine.files)?;
    let none = &mut EmbeddedKvBatches::default();
    let (report, mut placed) = replay(engine, None, &mut |_, _, _| Ok(()), none)?;
    let own_end = engine.tree.snapshots.visible();
    let end = own_end.max(embedded.last_seq());
    if embedded.last_seq() < own_end {
        embedded = secondary_lane::look(&engine.files)?;
    }
    replay_embedded(engine, &engine.files.manifest.state(), &mut placed, &mut embedded, end + 1)?;
    Ok(report)
}

/// Opens the state before the damage of log and manifest: see the module.
fn open_up_to_damage(env: &Env, dir: &Path, options: &Options) -> Result<Arc<Engine>> {
    let (manifest, mut damage) = Manifest::recover_up_to_damage(env, dir)?;
    let (given, env) = (env, &store::fast_tier::of_reader(env, dir, &manifest.state().store));
    let listing = env.fs.list(dir)?;
    let findings = check_files(dir, &listing, &manifest, options.damaged_files, Some(&mut damage))?;
    damage.extend(check_known(env, dir, &listing, &manifest.state().store, &manifest.report().name).err());
    let engine = Arc::new(build(KvFiles::new(&context(env, dir, options), manifest, None), None)?);
    findings.iter().for_each(|finding| finding.set_aside(&engine.tree));
    open_all(&engine)?;
    let (report, mut placed) = replay_up_to_damage(&engine, &mut damage)?;
    replay_carried_up_to_damage(&engine, &mut placed, &mut damage)?;
    // Apparent damage may have been a concurrent write.
    if Manifest::recover_up_to_damage(given, dir)?.0.state().store.edit_number
        != engine.files.manifest.state().store.edit_number
    {
        let why =
            "the process that writes the store changed it while it was read up to its damage: try again";
        return Err(Error::new(ErrorKind::Busy, why).at_file(dir));
    }
    engine.log.reader().set_replayed(report.history.groups);
    if !damage.is_empty() {
        engine.context.notify(&Event::ReadUpToDamage { errors: damage.clone() });
        engine.files.tables.quarantine.set_damage(damage);
    }
    Ok(engine)
}

/// Replays the batches embedded in the secondary lane, up to the damage of LavaKV's own lane.
fn replay_carried_up_to_damage(
    engine: &Engine,
    placed: &mut PlacedValues,
    damage: &mut Vec<Error>,
) -> Result<()> {
    let mut embedded = match secondary_lane::look(&engine.files) {
        Err(e) if e.is_corruption() => {
            damage.push(e);
            return Ok(());
        }
        looked => looked?,
    };
    let is_log = |name: &str| matches!(names::parse(name), Some(FileKind::Log(_)));
    let of_log =
        |e: &Error| e.file().and_then(Path::file_name).and_then(|name| name.to_str()).is_some_and(is_log);
    let below = match damage.iter().any(of_log) {
        true => engine.tree.snapshots.visible() + 1,
        false => SeqNo::MAX,
    };
    replay_embedded(engine, &engine.files.manifest.state(), placed, &mut embedded, below)
}
