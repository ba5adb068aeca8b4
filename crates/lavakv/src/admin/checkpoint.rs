//! Checkpoints: a consistent copy of the store in another directory, at the cost of a flush and some hard links.
//!
//! All memtables are frozen at one sequence S; while the checkpoint is taken, memtables with later writes are not
//! flushed. When everything up to S is in tables, the manifest's state holds exactly the writes up to S, of all
//! families, and flushing goes on. Its tables and vSSTs are linked into the new directory (copied, where the file system cannot link), and a manifest
//! with that state and no log is written there; `CURRENT` comes last, so a checkpoint that was interrupted is no store. It
//! is known for what it is by an empty file `UNFINISHED` ([`store::files::unfinished`]), which comes first and is removed at the
//! end (or by the first open, which finds `CURRENT` beside it); another checkpoint may be taken in its place. The lock of
//! the new directory is held meanwhile, so that of two checkpoints into it one is refused.
//! The checkpoint has an identity of its own. Its numbers go on where those of its source are, so numbers do not tell the
//! two apart; their tables are the same files, and what either makes from then on has a random uid.
//! Before a file gets a second link the manifest marks it as shared, durably: holes must never be punched into it.

use crate::admin::flush::{freeze_all_and, wait_flushed};
use crate::files::data_file::DataFile;
use crate::files::other_engines;
use crate::work::jobs::Jobs;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result, SeqNo};
use io::{CreateOptions, SyncKind};
use std::path::Path;
use std::sync::Arc;
use store::commit::Lane;
use store::directory;
use store::files::unfinished::{self, Mark, Work};
use store::manifest::EngineId;
use version::{Edit, Manifest, Record, State, names};

/// Bytes copied at a time where linking is not possible.
const COPY_LEN: usize = 1 << 20;

/// `one_at_a_time`: held while the names of a checkpoint are made durable, and while its state is taken.
pub(crate) fn checkpoint(
    jobs: &Arc<Jobs>,
    one_at_a_time: &Mutex<(), rank::Checkpoint>,
    dir: &Path,
) -> Result<()> {
    let fs = &jobs.context.env.fs;
    match fs.metadata(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
        Ok(meta) if meta.is_dir && unfinished::is_free(&fs.list(dir)?, Work::Checkpoint) => {}
        Ok(_) => return Err(not_empty(dir)),
    }
    check_log_of_others(jobs, &jobs.files.manifest.state())?;
    {
        // A sync of the directory above that fails may lose whatever was named there and not synced by then. So nobody else
        // syncs it for a checkpoint between this one's name and its sync.
        let _one_at_a_time = lock(one_at_a_time);
        directory::make(&jobs.context.env, dir)?;
    }
    // To the end: another checkpoint would take the files of this one for those of one that was cut off.
    let _lock = fs.lock(&io::fs::join(dir, names::LOCK), "a checkpoint")?;
    if !unfinished::clear(&**fs, dir, Work::Checkpoint)? {
        return Err(not_empty(dir));
    }
    let mark = Mark::set(fs, dir, Work::Checkpoint)?;
    // Holding the state keeps its tables from being removed until they are linked.
    let state = state_at_one_sequence(jobs, one_at_a_time)?;
    check_log_of_others(jobs, &state)?;
    for family in state.families.values() {
        for file in DataFile::all_of(&family.version) {
            link_or_copy(jobs, &file.kind().to_string(), dir)?;
        }
    }
    for (_, _, file) in state.store.engine_files() {
        link_or_copy(jobs, &file.to_string(), dir)?;
    }
    fs.sync_dir(dir)?;
    // From here on it is a store of its own, beside its source and on the same blocks after it.
    let uid = match base::canary::is("checkpoint-keeps-uid") {
        true => state.store.uid,
        false => jobs.context.env.new_uid(),
    };
    Manifest::create_with(&jobs.context.env, dir, State::of(Arc::new(state.store.without_log(uid)))?)?;
    mark.finish()
}

/// A checkpoint has no log, of whatever lane: what another engine has only there would not be in it.
fn check_log_of_others(jobs: &Jobs, state: &State) -> Result<()> {
    let of_lane = state.store.log_groups.values().any(|group| group.lane != Lane::FIRST);
    let of_lane = of_lane && !base::canary::is("checkpoint-without-the-lanes");
    if !of_lane && !jobs.log.in_use().iter().any(|group| other_engines::need(&state.store, group)) {
        return Ok(());
    }
    let others = state.store.engines().filter(|engine| engine.id != EngineId::NATIVE);
    let names: Vec<String> = others.map(|engine| engine.name.to_owned()).collect();
    Err(other_engines::refusal(
        &jobs.context.dir,
        &names,
        "is only in the log, which a checkpoint leaves out",
    ))
}

fn not_empty(dir: &Path) -> Error {
    Error::new(ErrorKind::AlreadyExists, "a checkpoint needs a new or empty directory").at_file(dir)
}

/// The manifest's state when it holds exactly the writes up to one sequence.
fn state_at_one_sequence(jobs: &Arc<Jobs>, one_at_a_time: &Mutex<(), rank::Checkpoint>) -> Result<State> {
    let _one_at_a_time = lock(one_at_a_time);
    // The ceiling is set under the writer's lock: whatever is frozen after it belongs to later writes.
    let upto = freeze_all_and(jobs, |upto| {
        let ceiling = if base::canary::is("checkpoint-without-a-ceiling") { SeqNo::MAX } else { upto };
        jobs.tree.together.set_flush_ceiling(ceiling);
    })?;
    jobs.context.signals.notify_work();
    let state = wait_flushed(jobs, upto).and_then(|()| share_files(jobs));
    jobs.tree.together.set_flush_ceiling(SeqNo::MAX);
    jobs.context.signals.notify_work();
    state
}

/// Marks all tables and vSSTs as shared, durably; returns the state in which they are.
fn share_files(jobs: &Jobs) -> Result<State> {
    jobs.tree.install_everywhere(|state| {
        let files = state.families.values().flat_map(|f| DataFile::all_of(&f.version));
        let records = files.filter(|f| !f.is_shared()).map(|f| Record::ShareFile { number: f.number() });
        Ok(Edit(records.collect()))
    })
}

fn link_or_copy(jobs: &Jobs, name: &str, dir: &Path) -> Result<()> {
    let (from, to) = (jobs.context.path(name), io::fs::join(dir, name));
    match jobs.context.env.fs.link(&from, &to) {
        Err(e) if e.kind() == ErrorKind::Unsupported => {}
        other => return other,
    }
    let source = jobs.context.env.fs.open(&from, jobs.context.options.access)?;
    let len = source.len()?;
    let mut target =
        jobs.context.env.fs.create(&to, &CreateOptions { expected_len: len, ..Default::default() })?;
    let mut buf = vec![0; COPY_LEN];
    let mut offset = 0;
    while offset < len {
        let n = COPY_LEN.min((len - offset) as usize);
        source.read_at(&mut buf[..n], offset)?;
        target.append(&buf[..n])?;
        offset += n as u64;
    }
    target.sync(SyncKind::Full)
}
