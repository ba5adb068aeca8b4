//! Opening a store: lock, manifest, log, then service.
//!
//! 1. Take the lock, so that no other process changes the files being read.
//! 2. Recover the manifest. It lists every file with its length. Missing tables and value files,
//!    and those of another length, are set aside (`damaged`); an incomplete log group fails the
//!    open.
//! 3. Replay the log into memtables, skipping records that tables already hold (each family's
//!    `log_floor`). If the memtables exceed their budget, some are flushed during replay
//!    ([`overflow`]). The floor of a family rises in replay order, so a crash during recovery
//!    shortens the next replay, and no record is applied twice. Before the first of these flushes
//!    the whole log is read and made durable, and step 4 is done.
//! 4. Check the witnesses: log pages name the manifest edit that was durable when they were
//!    written. A page of a group unknown to the manifest proves that an edit for it was durable. A
//!    manifest that ends before such an edit has lost its end.
//! 5. Begin service ([`crate::service`]): finalize the end of the old log, start a new one, remove
//!    unnamed files. If that does not fit, the store is readable, and the next write tries again.
//!    If a data file is missing, no file is removed: a manifest that lost its end lists files that
//!    were removed since, and unnamed files may then hold the only copy of data.
//!
//! Nothing is removed before step 5, and steps 1 to 4 are repeatable any number of times.

mod inserts;
pub(crate) mod overflow;

use crate::batch::{self, Change, DEFAULT_FAMILY};
use crate::context::Context;
use crate::context::event::Event;
use crate::context::family_options::FamilyOptions;
use crate::context::fit::SizeReduction;
use crate::context::options::{DamagedFiles, Options};
use crate::engine::Engine;
use crate::files::KvFiles;
use crate::files::log::{Log, TENANT};
use crate::large::placed::PlacedValues;
use crate::secondary_lane::{self, EmbeddedKvBatches};
use crate::service;
use crate::tree::Tree;
use crate::tree::family::Family;
use crate::work::jobs::flush;
use base::sync::lock;
use base::{Error, ErrorKind, HashMap, Result, SeqNo, ValueKind};
use inserts::Inserts;
use io::{DirEntry, Env, FileLock};
use overflow::Overflow;
use std::path::Path;
use std::sync::Arc;
use store::commit::LogTerms;
use store::commit::read::check_known_to_write;
use store::descriptors::open_max;
use store::directory;
use store::fast_tier;
use store::files::unfinished::{self, Mark};
use store::manifest::Engines;
use store::secondary_engine::{RequestFlush, SecondaryEngine};
use store::space::SpaceBudget;
use store::volumes::Location;
use version::names::{self, FileKind};
use version::{Edit, FamilyId, FamilyState, InitialState, Kv, KvState, Manifest, Record, State};
use wal::{Lane, LogGroup, OnReplay, RecoveryMode, RecoveryReport, Staging, TenantId};

/// Opens a store for reading and writing.
pub(crate) fn open(env: Env, dir: &Path, options: Options) -> Result<Arc<Engine>> {
    options.validate()?;
    let options = options.derived();
    let env = fast_tier::with_directory(env, dir, options.fast_tier.as_deref());
    open_to_write(env, dir, options, None, None).map_err(|e| match e.is_corruption() {
        true => e.context(
            "the store cannot be opened for writing; a read-only open may show the data before \
             the damage",
        ),
        false => e,
    })
}

/// Creates a store in a directory that stays marked as unfinished; the caller removes the mark.
pub(crate) fn make_marked(
    env: Env,
    dir: &Path,
    options: Options,
    mark: &Mark,
    secondary: Option<&mut dyn SecondaryEngine>,
) -> Result<Arc<Engine>> {
    options.validate()?;
    let options = options.derived();
    let replay = &mut |_: TenantId, _: SeqNo, _: &[u8]| Ok(());
    let secondaries = secondary.map(|secondary| SecondaryEngines {
        engines: Engines::default(),
        replay,
        records: Some(secondary),
    });
    open_to_write(env, dir, options, Some(mark), secondaries)
}

/// Secondary engines of an open.
pub(crate) struct SecondaryEngines<'a> {
    pub engines: Engines,
    /// Receives their records in LavaKV's log.
    pub replay: &'a mut OnReplay<'a>,
    /// The secondary engine with a lane of its own.
    pub records: Option<&'a mut dyn SecondaryEngine>,
}

/// Opens a store for reading and writing, with secondary engines.
pub(crate) fn open_with_secondary(
    env: Env,
    dir: &Path,
    options: Options,
    secondaries: SecondaryEngines<'_>,
) -> Result<Arc<Engine>> {
    options.validate()?;
    let options = options.derived();
    let env = fast_tier::with_directory(env, dir, options.fast_tier.as_deref());
    open_to_write(env, dir, options, None, Some(secondaries))
}

fn open_to_write(
    env: Env,
    dir: &Path,
    options: Options,
    mark: Option<&Mark>,
    secondaries: Option<SecondaryEngines<'_>>,
) -> Result<Arc<Engine>> {
    let location = Location::metered(&env, dir);
    let env = location.env(&env);
    let exists = mark.is_none() && check_directory(&env, dir, &options)?;
    if !exists {
        options.family.check_names(&options).map_err(|e| e.context("column family default"))?;
    }
    let store_lock = store::directory::lock(&env, dir)?;
    // Checked again under the lock: another process may have created the store meanwhile.
    let exists = exists || directory::has_store(&env, dir)?;
    if mark.is_none() {
        unfinished::refuse_beside_current(&*env.fs, dir)?;
    }
    if exists && options.error_if_exists {
        return Err(Error::new(
            ErrorKind::AlreadyExists,
            "there is a store in this directory already: open it, or name another directory",
        )
        .at_file(dir));
    }
    if !exists {
        fast_tier::make_place(&env, dir)?;
    }
    let (manifest, store_lock) = manifest(&env, dir, &options, (exists, secondaries.as_ref()), store_lock)?;
    let listing = env.fs.list(dir)?;
    location.meter.take_over(&listing);
    // The sizes are reduced before other state depends on them.
    let used_bytes = location.meter.used_bytes();
    let volume = env.fs.space(dir).ok();
    let room_bytes = volume.map(|volume| used_bytes.saturating_add(volume.available));
    let fit = SizeReduction::to(&options, (room_bytes, volume.map(|volume| volume.total)));
    let findings = check_files(dir, &listing, &manifest, options.damaged_files, None)?;
    let staging =
        check_known_to_write(&env, dir, &listing, &manifest.state().store, &manifest.report().name)?;
    manifest.bump_file_number(names::largest_number(listing.iter().filter_map(|e| names::parse(&e.name))));
    let (engines, records) = lane_terms(&env, secondaries.as_ref());
    let context = Context::new(&env, location, options.clone(), fit, engines);
    context.tell_open_files(options.open_files_max);
    let engine = Arc::new(build(KvFiles::new(&Arc::new(context), manifest, Some(store_lock)), records)?);
    tell_damage(&engine, &findings);
    let mut ignore = |_: TenantId, _: SeqNo, _: &[u8]| Ok(());
    let (others, mut secondary): (&mut OnReplay<'_>, _) = match secondaries {
        Some(secondaries) => (secondaries.replay, secondaries.records),
        None => (&mut ignore, None),
    };
    let (of_records, mut embedded) = replay_records(&engine, secondary.as_deref_mut())?;
    let recovered = replay(&engine, Some(&staging), others, &mut embedded)?;
    let removable = if findings.iter().any(|finding| finding.is_missing) { Vec::new() } else { listing };
    *lock(&engine.unstarted) = Some(service::Unstarted::new(recovered, of_records, removable));
    match service::begin(&engine) {
        // Without space for service, the store is readable, and each write tries again. A secondary
        // engine does not retry.
        Err(e) if e.kind() == ErrorKind::NoSpace && exists && secondary.is_none() => {}
        begun => begun?,
    }
    if let Some(secondary) = secondary {
        secondary_lane::begin(&engine.log, &engine.files, &engine.scheduler, relieve(&engine), secondary)?;
    }
    service::bound_old_log(&engine)?;
    engine.serve_requests();
    engine.scheduler.start()?;
    Ok(engine)
}

/// Replays the lane of a secondary engine. Returns its report, and the embedded batches for LavaKV.
fn replay_records(
    engine: &Engine,
    secondary: Option<&mut (dyn SecondaryEngine + '_)>,
) -> Result<(Option<RecoveryReport>, EmbeddedKvBatches)> {
    let Some(secondary) = secondary else {
        secondary_lane::refuse_carried(&engine.files)?;
        return Ok((None, EmbeddedKvBatches::default()));
    };
    let (report, embedded) = secondary_lane::replay(&engine.log, &engine.files, secondary)?;
    Ok((Some(report), embedded))
}

/// Returns the number of engines, and the terms of a secondary engine's lane. Its groups may take
/// half of its open files.
fn lane_terms(env: &Env, secondaries: Option<&SecondaryEngines<'_>>) -> (u64, Option<LogTerms>) {
    let Some(secondary) = secondaries.and_then(|secondaries| secondaries.records.as_deref()) else {
        return (1, None);
    };
    let terms = secondary.terms();
    (2, Some(LogTerms { retained_open_max: open_max(&*env.fs, terms.retained_open_max, 4), ..terms }))
}

/// Returns the manifest, recovered or created, and the lock of the store combined with that of its
/// fast tier.
fn manifest(
    env: &Env,
    dir: &Path,
    options: &Options,
    (exists, secondaries): (bool, Option<&SecondaryEngines<'_>>),
    store_lock: Box<dyn FileLock>,
) -> Result<(Manifest, Box<dyn FileLock>)> {
    if !exists {
        let made = create(env, dir, options)?;
        if secondaries.is_none() {
            let speed_lock = fast_tier::attach(env, dir, made.shared())?;
            return Ok((made, fast_tier::both(store_lock, speed_lock)));
        }
    }
    let mut engines =
        secondaries.map(|secondaries| secondaries.engines.clone()).unwrap_or_default().with::<Kv>();
    if let Some(secondary) = secondaries.and_then(|secondaries| secondaries.records.as_deref()) {
        engines = secondary.join(engines);
    }
    let manifest = store::manifest::Manifest::recover(env, dir, false, &engines)?;
    let store_lock = fast_tier::both(store_lock, fast_tier::attach(env, dir, &manifest)?);
    let manifest = Manifest::of(&Arc::new(manifest))?;
    if manifest.state().next_family == 0 {
        // Another engine made the store.
        manifest.commit(Edit(vec![default_family(options)]))?;
    }
    Ok((manifest, store_lock))
}

/// Sets damaged files aside. Reports which copy of `CURRENT` and of the manifest was damaged while
/// the other was intact; the first commit rewrites both.
fn tell_damage(engine: &Engine, findings: &[Finding]) {
    findings.iter().for_each(|finding| finding.set_aside(&engine.tree));
    for error in &engine.files.manifest.report().damaged {
        engine.context.stats.log_damages.add(1);
        engine.context.notify(&Event::LogDamaged { error: error.clone() });
    }
}

/// Fails for a path that cannot be a store's directory. Returns whether there is a store.
fn check_directory(env: &Env, dir: &Path, options: &Options) -> Result<bool> {
    options.expert.check_disks(env.fs.disks(dir).is_some())?;
    match env.fs.metadata(dir) {
        Ok(meta) if !meta.is_dir => return Err(is_a_file(dir)),
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::NotFound && options.create_if_missing => {
            directory::make(env, dir)?;
        }
        Err(e) if e.kind() == ErrorKind::NotFound => return Err(no_store(dir)),
        Err(e) => return Err(e),
    }
    if directory::has_store(env, dir)? {
        // Checked before the lock file is touched, and once more under the lock.
        unfinished::refuse_beside_current(&*env.fs, dir)?;
        return Ok(true);
    }
    let files = fast_tier::alone(env, dir).fs.list(dir)?;
    check_remains(dir, &files)?;
    fast_tier::check_place(env, dir)?;
    if let Some(file) = files.iter().find(|f| names::parse(&f.name).is_none()) {
        return Err(Error::invalid(format!(
            "the directory has no store, but other files ({}): choose an empty directory",
            file.name
        ))
        .at_file(dir));
    }
    if !options.create_if_missing {
        return Err(no_store(dir));
    }
    Ok(false)
}

/// Fails for a directory without `CURRENT` whose files rule out a new store.
pub(crate) fn check_remains(dir: &Path, files: &[DirEntry]) -> Result<()> {
    let find =
        |wanted: fn(FileKind) -> bool| files.iter().find(|f| names::parse(&f.name).is_some_and(wanted));
    if let Some(work) = unfinished::of(files) {
        return Err(unfinished::refusal(dir, work));
    }
    // A new store begins its first log after CURRENT is durable, so a log file implies an earlier
    // store.
    let Some(file) = find(|kind| kind.data().is_some() || matches!(kind, FileKind::Log(_))) else {
        return Ok(());
    };
    let why = format!(
        "CURRENT, which names the manifest, is missing, but the directory has data files ({})",
        file.name
    );
    Err(Error::corruption(why).at_file(io::fs::join(dir, names::CURRENT)))
}

pub(crate) fn is_a_file(dir: &Path) -> Error {
    Error::invalid("the path is a file, and a store is a directory: name a directory").at_file(dir)
}

pub(crate) fn no_store(dir: &Path) -> Error {
    Error::not_found("there is no store in this directory: name the directory of a store, or create one")
        .at_file(dir)
}

fn default_family(options: &Options) -> Record {
    Record::CreateFamily { id: DEFAULT_FAMILY, name: "default".into(), options: options.family.encode() }
}

fn create(env: &Env, dir: &Path, options: &Options) -> Result<Manifest> {
    let first = options.expert.first_number;
    let numbers =
        InitialState { first_seq: first, first_file_number: first, first_ltn: first, ..Default::default() };
    let empty = State::new(env.new_uid(), &numbers, KvState::default());
    // The first durable state includes the default family: a crash leaves a complete store or none.
    directory::sync_name(env, dir)?;
    Manifest::create_with(env, dir, empty.apply(Edit(vec![default_family(options)]))?)
}

/// A table or value file that does not match the manifest.
pub(crate) struct Finding {
    number: u64,
    error: Error,
    pub is_missing: bool,
}

impl Finding {
    pub fn set_aside(&self, tree: &Tree) {
        tree.set_aside(self.number, &self.error);
    }
}

/// Returns the data files that do not match the manifest, or fails for the first one if the options
/// say so. If a file is missing, the manifest may be at fault as well: a manifest that lost its end
/// lists files that were removed since. Damaged log groups fail, or are added to `of_log` if given.
pub(crate) fn check_files(
    dir: &Path,
    listing: &[DirEntry],
    manifest: &Manifest,
    damaged_files: DamagedFiles,
    mut of_log: Option<&mut Vec<Error>>,
) -> Result<Vec<Finding>> {
    let (state, name) = (manifest.state(), &manifest.report().name);
    let lengths: HashMap<FileKind, u64> =
        listing.iter().filter_map(|e| Some((names::parse(&e.name)?, e.len))).collect();
    let mut findings = Vec::new();
    let mut check = |kind: FileKind, len: u64| {
        let problem = match lengths.get(&kind) {
            None => format!("{name} lists this file, but it is missing, or {name} has lost its end"),
            // Bytes behind the end of a log group are not part of it.
            Some(&found) if found > len && kind.data().is_none() => return Ok(()),
            Some(&found) if found != len => {
                format!("the file has {found} bytes instead of the {len} that {name} lists")
            }
            Some(_) => return Ok(()),
        };
        let offset = lengths.get(&kind).map_or(0, |&found| found.min(len));
        let error =
            Error::corruption(problem).at_file(io::fs::join(dir, &kind.to_string())).at_offset(offset);
        match (kind.data(), &mut of_log) {
            (Some(number), _) if damaged_files == DamagedFiles::Serve => {
                findings.push(Finding { number, error, is_missing: !lengths.contains_key(&kind) });
                Ok(())
            }
            (None, Some(of_log)) => {
                of_log.push(error);
                Ok(())
            }
            _ => Err(error),
        }
    };
    for family in state.families.values() {
        for file in family.version.levels.iter().flat_map(|level| level.iter()) {
            check(file.kind(), file.len)?;
        }
        for file in family.version.vssts.values() {
            check(file.kind(), file.len)?;
        }
    }
    // Groups retained as storage are checked by their engine.
    let replayed = Lane::ALL.into_iter().flat_map(|lane| state.store.log_groups.chain(lane));
    replayed.into_iter().try_for_each(|g| check(FileKind::Log(g.file), g.len))?;
    Ok(findings)
}

/// Builds the engine over the files of a recovered manifest, before the log is read. `records`: the
/// terms of a secondary engine's lane.
pub(crate) fn build(files: KvFiles, records: Option<LogTerms>) -> Result<Engine> {
    let context = files.context.clone();
    let terms = context.options.terms(&context.fit.family(&context.options.family));
    let space = Arc::new(SpaceBudget::new(context.store(), terms));
    let families = families(&files.manifest.state(), &context)?;
    Ok(Engine::new(context, space, Arc::new(files), families, records))
}

/// Builds the families of a recovered manifest, each with an empty memtable; memtables are numbered
/// from 1.
fn families(state: &State, context: &Context) -> Result<HashMap<FamilyId, Arc<Family>>> {
    let family = |(memtable_id, family): (u64, &Arc<FamilyState>)| {
        let own = FamilyOptions::decode(&family.options).map_err(|e| e.at_file(&context.dir))?;
        let (name, version) = (family.name.clone(), family.version.clone());
        let family = Family::new(family.id, name, own, version, memtable_id, &context.options, context.fit);
        Ok((family.id, Arc::new(family)))
    };
    (1..).zip(state.families.values()).map(family).collect()
}

/// Returns the callback with which a secondary engine requests flushes, if LavaKV's memtables hold
/// its groups.
fn relieve(engine: &Engine) -> RequestFlush {
    let writes = engine.writes.clone();
    Arc::new(move || {
        let Some(mut writer) = writes.memtables.try_lock() else { return false };
        writes.memtables.freeze_all(&mut writer);
        true
    })
}

/// Replays the log into memtables, together with embedded batches in sequence order. `others`
/// receives the records of other tenants. `staging`: given if the process has exclusive access;
/// without it nothing is written.
pub(crate) fn replay(
    engine: &Engine,
    staging: Option<&Staging>,
    others: &mut OnReplay<'_>,
    embedded: &mut EmbeddedKvBatches,
) -> Result<(RecoveryReport, PlacedValues)> {
    let state = engine.files.manifest.state();
    let groups = engine.log.recovery().groups_to_read(|path| match staging {
        Some(_) => engine.context.env.fs.open_in_place(path, engine.context.options.access),
        None => io::open_in_place_read_only(&*engine.context.env.fs, path, engine.context.options.access),
    })?;
    // A read-only open may encounter values that another process is moving. It then retries, or
    // fails with advice.
    let mut placed = PlacedValues::new(Log::was_closed(&state));
    let mut overflow = Overflow::new(&engine.jobs);
    for payload in embedded.payloads() {
        batch::decode(payload)?.2.try_for_each(|change| keep_number(engine, &change?))?;
    }
    let (writes, context) = (&engine.writes, &engine.context);
    let mut inserts = Inserts::by_threads(writes, context.env.spawner.clone(), &context.options);
    let mut take = |tenant: TenantId, first_seq: SeqNo, payload: &[u8]| {
        if tenant != TENANT {
            return others(tenant, first_seq, payload);
        }
        carry_over((engine, &mut inserts), &state, &mut placed, embedded, first_seq)?;
        replay_batch((engine, &mut inserts), &state, &mut placed, first_seq, payload)?;
        match staging {
            Some(staging) => {
                overflow.relieve(&placed, &mut inserts, || judge_log(engine, &state, &groups, staging))
            }
            None => Ok(()),
        }
    };
    let (env, dir, uid) = (&engine.context.env, &engine.context.dir, state.store.uid);
    let report = match staging {
        Some(staging) => wal::recover_staged(env, staging, uid, &groups, RecoveryMode::ReadWrite, &mut take)?,
        None => wal::recover(env, dir, uid, &groups, RecoveryMode::ReadOnly, &mut take)?,
    };
    inserts.settle();
    replay_embedded(engine, &state, &mut placed, embedded, SeqNo::MAX)?;
    engine.files.manifest.require_edit(report.witness_edit)?;
    Ok((report, placed))
}

/// Checks that the whole log is sound and consistent with the manifest, before any of it is
/// flushed. The edits of a flush would replace those that a manifest has lost at its end, and hide
/// the loss. File numbers in the log are reserved, so that the flush does not use them. Then the
/// log is made durable.
fn judge_log(engine: &Engine, state: &State, groups: &[LogGroup], staging: &Staging) -> Result<()> {
    let mut check = wal::only(TENANT, |_: SeqNo, payload: &[u8]| {
        let (_, _, mut entries) = batch::decode(payload)?;
        entries.try_for_each(|change| {
            let change = change?;
            keep_number(engine, &change)?;
            must_know(engine, state, change.family)
        })
    });
    let (env, uid) = (&engine.context.env, state.store.uid);
    // A read-only pass first, so that a refused store is unchanged.
    let report = wal::recover_staged(env, staging, uid, groups, RecoveryMode::ReadOnly, &mut check)?;
    engine.files.manifest.require_edit(report.witness_edit)?;
    let mut known = wal::only(TENANT, |_: SeqNo, _: &[u8]| Ok(()));
    wal::recover_staged(env, staging, uid, groups, RecoveryMode::ReadWrite, &mut known).map(drop)
}

/// Reserves the number of a file that the log references, even if it is missing: the manifest may
/// not know so high a number, and another file would be mistaken for it.
fn keep_number(engine: &Engine, change: &Change<'_>) -> Result<()> {
    if let Some(number) = change.file()? {
        engine.files.manifest.bump_file_number(number);
    }
    Ok(())
}

/// Fails for a family in the log that the manifest never had.
fn must_know(engine: &Engine, state: &State, family: FamilyId) -> Result<()> {
    if family < state.next_family {
        return Ok(());
    }
    let why = format!(
        "the log names column family {family}, but the manifest has only ids below {}: the manifest has \
         lost its end",
        state.next_family
    );
    Err(Error::corruption(why).at_file(engine.context.path(&engine.files.manifest.report().name)))
}

/// Replays the log for a read-only open, up to the first damage.
pub(crate) fn replay_up_to_damage(
    engine: &Engine,
    damage: &mut Vec<Error>,
) -> Result<(RecoveryReport, PlacedValues)> {
    let state = engine.files.manifest.state();
    let groups = engine.log.recovery().groups_to_read(|path| {
        store::commit::read::open_group(&engine.context.env, path, engine.context.options.access)
    })?;
    let mut placed = PlacedValues::new(Log::was_closed(&state));
    let mut inserts = Inserts::at_once(&engine.writes);
    let mut on_batch = wal::only(TENANT, |first_seq: SeqNo, payload: &[u8]| {
        replay_batch((engine, &mut inserts), &state, &mut placed, first_seq, payload)
    });
    let (env, dir) = (&engine.context.env, &engine.context.dir);
    let (report, of_log) = wal::recover_up_to_damage(env, dir, state.store.uid, &groups, &mut on_batch)?;
    drop(on_batch);
    // Missing or short groups are already reported.
    damage.extend(of_log.filter(|e| !damage.iter().any(|known| known.file() == e.file())));
    if damage.is_empty() {
        damage.extend(engine.files.manifest.require_edit(report.witness_edit).err());
    }
    Ok((report, placed))
}

/// Replays the part of the log after an earlier replay, for a read-only store. `None`: the whole
/// log must be replayed into an engine with empty memtables.
pub(crate) fn replay_on(
    engine: &Engine,
    staging: &Staging,
    last: &RecoveryReport,
) -> Result<Option<RecoveryReport>> {
    let state = engine.files.manifest.state();
    let (env, access) = (&engine.context.env, engine.context.options.access);
    let groups =
        engine.log.recovery().groups_to_read(|path| io::open_in_place_read_only(&*env.fs, path, access))?;
    let mut placed = PlacedValues::new(Log::was_closed(&state));
    let mut inserts = Inserts::by_threads(&engine.writes, env.spawner.clone(), &engine.context.options);
    let mut on_batch = wal::only(TENANT, |first_seq: SeqNo, payload: &[u8]| {
        replay_batch((engine, &mut inserts), &state, &mut placed, first_seq, payload)
    });
    let report = wal::read_on(env, staging, state.store.uid, &groups, last, &mut on_batch)?;
    drop(on_batch);
    inserts.settle();
    let witness_edit = report.as_ref().map_or(0, |report| report.witness_edit);
    engine.files.manifest.require_edit(witness_edit)?;
    Ok(report)
}

/// Flushes values that were beside the log. Their files are removed afterwards.
pub(crate) fn settle_placed(engine: &Engine) -> Result<()> {
    engine.writes.memtables.freeze_all(&mut engine.writes.memtables.lock());
    flush::run_inline(&engine.jobs).map(drop)
}

/// Replays embedded batches below this sequence number.
pub(crate) fn replay_embedded(
    engine: &Engine,
    state: &State,
    placed: &mut PlacedValues,
    embedded: &mut EmbeddedKvBatches,
    below: SeqNo,
) -> Result<()> {
    carry_over((engine, &mut Inserts::at_once(&engine.writes)), state, placed, embedded, below)
}

/// Replays embedded batches in the middle of a replay.
fn carry_over(
    (engine, inserts): (&Engine, &mut Inserts<'_>),
    state: &State,
    placed: &mut PlacedValues,
    embedded: &mut EmbeddedKvBatches,
    below: SeqNo,
) -> Result<()> {
    while let Some((first_seq, payload)) = embedded.next_below(below) {
        replay_batch((engine, inserts), state, placed, first_seq, &payload)?;
        let mut writer = engine.writes.memtables.lock();
        writer.embedded_seq = writer.next_seq.saturating_sub(1);
    }
    Ok(())
}

fn replay_batch(
    (engine, inserts): (&Engine, &mut Inserts<'_>),
    state: &State,
    placed: &mut PlacedValues,
    logged_seq: SeqNo,
    payload: &[u8],
) -> Result<()> {
    let (first_seq, count, entries) = batch::decode(payload)?;
    if first_seq != logged_seq {
        return Err(Error::corruption(format!(
            "a batch in the log has another first sequence number than its log record: {first_seq}, not \
             {logged_seq}"
        )));
    }
    let mut changed: Vec<Arc<Family>> = Vec::new();
    let mut seq = first_seq;
    for change in entries {
        let mut change = change?;
        let value;
        keep_number(engine, &change)?;
        let family = engine.tree.families.get(change.family);
        match (family, state.families.get(&change.family)) {
            (Some(family), Some(durable)) if seq >= durable.version.log_floor => {
                if change.is_placed() {
                    value = placed.value(&engine.context, change.key, seq, change.value)?;
                    change = Change { kind: ValueKind::Value, value: &value, ..change };
                } else if change.kind == ValueKind::PlacedReference {
                    crate::large::segments::check(&engine.tree, &family, &change)?;
                }
                inserts.put(&family, seq, &change);
                if changed.last().is_none_or(|last| last.id != family.id) {
                    changed.push(family);
                }
            }
            (Some(_), _) => {}
            (None, _) => must_know(engine, state, change.family)?,
        }
        seq += 1;
    }
    if seq != first_seq + u64::from(count) {
        return Err(Error::corruption(format!(
            "a batch in the log differs in its number of entries from its header: {}, not {count}",
            seq - first_seq
        )));
    }
    let mut writer = engine.writes.memtables.lock();
    writer.changes(&changed);
    writer.next_seq = writer.next_seq.max(seq);
    engine.tree.snapshots.publish(engine.tree.snapshots.visible().max(seq - 1));
    Ok(())
}

#[cfg(test)]
mod tests;
