//! Checkpoints: a consistent copy of the store in another directory, at the cost of a flush and some hard links.
//!
//! All memtables are frozen at one sequence S; while the checkpoint is taken, memtables with later writes are not
//! flushed. When everything up to S is in tables, the manifest's state holds exactly the writes up to S, of all
//! families, and flushing goes on. Its tables and vSSTs are linked into the new directory (copied, where the file system cannot link), and a manifest
//! with that state and no log is written there; `CURRENT` comes last, so a checkpoint that was interrupted is no store. It
//! is known for what it is by an empty file `UNFINISHED` ([`crate::files::unfinished`]), which comes first and is removed at the
//! end (or by the first open, which finds `CURRENT` beside it); another checkpoint may be taken in its place. The lock of
//! the new directory is held meanwhile, so that of two checkpoints into it one is refused.
//! The checkpoint has an identity of its own. Its numbers go on where those of its source are, so numbers do not tell the
//! two apart; their tables are the same files, and what either makes from then on has a random uid.
//! Before a file gets a second link the manifest marks it as shared, durably: holes must never be punched into it.

use crate::admin::maintenance::{freeze_all_and, must_be_writable, wait_flushed};
use crate::engine::Engine;
use crate::files::obsolete::DataFile;
use crate::files::unfinished::{self, Mark, Work};
use base::sync::atomic::Ordering;
use base::sync::lock;
use base::{Error, ErrorKind, Result, SeqNo};
use io::{CreateOptions, SyncKind};
use std::path::Path;
use std::sync::Arc;
use version::{Edit, Manifest, Record, State, names};

/// Bytes copied at a time where linking is not possible.
const COPY_LEN: usize = 1 << 20;

pub(crate) fn checkpoint(engine: &Arc<Engine>, dir: &Path) -> Result<()> {
    must_be_writable(engine)?;
    let fs = &engine.env.fs;
    match fs.metadata(dir) {
        Err(e) if e.kind() == ErrorKind::NotFound => {}
        Err(e) => return Err(e),
        Ok(meta) if meta.is_dir && unfinished::is_free(&fs.list(dir)?, Work::Checkpoint) => {}
        Ok(_) => return Err(not_empty(dir)),
    }
    {
        // A sync of the directory above that fails may lose whatever was named there and not synced by then. So nobody else
        // syncs it for a checkpoint between this one's name and its sync.
        let _one_at_a_time = lock(&engine.checkpointing);
        crate::open::make_directory(&engine.env, dir)?;
    }
    // To the end: another checkpoint would take the files of this one for those of one that was cut off.
    let _lock = fs.lock(&io::fs::join(dir, names::LOCK), "a checkpoint")?;
    if !unfinished::clear(&**fs, dir, Work::Checkpoint)? {
        return Err(not_empty(dir));
    }
    let mark = Mark::set(fs, dir, Work::Checkpoint)?;
    // Holding the state keeps its tables from being removed until they are linked.
    let state = state_at_one_sequence(engine)?;
    for family in state.families.values() {
        for file in DataFile::all_of(&family.version) {
            link_or_copy(engine, &file.kind().to_string(), dir)?;
        }
    }
    fs.sync_dir(dir)?;
    // From here on it is a store of its own, beside its source and on the same blocks after it.
    let uid = match base::canary::is("checkpoint-keeps-uid") {
        true => state.store.uid,
        false => engine.env.new_uid(),
    };
    Manifest::create_with(&engine.env, dir, State::of(Arc::new(state.store.without_log(uid)))?)?;
    mark.finish()
}

fn not_empty(dir: &Path) -> Error {
    Error::new(ErrorKind::AlreadyExists, "a checkpoint needs a new or empty directory").at_file(dir)
}

/// The manifest's state when it holds exactly the writes up to one sequence.
fn state_at_one_sequence(engine: &Arc<Engine>) -> Result<State> {
    let _one_at_a_time = lock(&engine.checkpointing);
    // The ceiling is set under the writer's lock: whatever is frozen after it belongs to later writes.
    let upto = freeze_all_and(engine, |upto| {
        engine.flush_ceiling.store(
            if base::canary::is("checkpoint-without-a-ceiling") { SeqNo::MAX } else { upto },
            Ordering::Release,
        );
    })?;
    engine.scheduler.notify_work();
    let state = wait_flushed(engine, upto).and_then(|()| share_files(engine));
    engine.flush_ceiling.store(SeqNo::MAX, Ordering::Release);
    engine.scheduler.notify_work();
    state
}

/// Marks all tables and vSSTs as shared, durably; returns the state in which they are.
fn share_files(engine: &Engine) -> Result<State> {
    engine.install(
        |state| {
            let files = state.families.values().flat_map(|f| DataFile::all_of(&f.version));
            let records = files.filter(|f| !f.is_shared()).map(|f| Record::ShareFile { number: f.number() });
            Ok(Edit(records.collect()))
        },
        |state| crate::work::jobs::output::publish(engine, state),
    )
}

fn link_or_copy(engine: &Engine, name: &str, dir: &Path) -> Result<()> {
    let (from, to) = (engine.path(name), io::fs::join(dir, name));
    match engine.env.fs.link(&from, &to) {
        Err(e) if e.kind() == ErrorKind::Unsupported => {}
        other => return other,
    }
    let source = engine.env.fs.open(&from, engine.options.access)?;
    let len = source.len()?;
    let mut target = engine.env.fs.create(&to, &CreateOptions { expected_len: len, ..Default::default() })?;
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
