//! Moves a table to the other tier while the store is open.
//!
//! ```text
//! copy a piece at a time -> sync the copy -> sync both directories -> one edit: out and in again, with its new place -> the old file is obsolete
//! ```
//!
//! The table keeps its number and its content, byte for byte; only its name says another tier.
//! Before the version edit is durable the old file is the table, and the copy is an orphan.
//! Afterwards it is the other way round. So a crash at any moment leaves at most one of each.
//! Readers of an older version hold the old file open, as with every obsolete file. The copy's
//! description shares no reference count with the old one, which would otherwise stay as long as
//! the table lives. Open files are keyed by number and tier, so each reader reads where its version
//! says. Cached blocks serve both files, since their bytes are equal. State of the table, such as
//! retained versions and quarantine, stays when the old file goes.
//!
//! A table may return to its former tier, and its file then has the same name as before. So it
//! returns only after the old file is removed ([`plan::moves::pick`]).
//!
//! No request waits for a move, so a move blocks no other job: the table is not claimed while it is
//! copied. If a compaction replaces the table meanwhile, the copy is removed. The table is claimed
//! only for the edit: a compaction with this input would otherwise leave the copy behind.
//!
//! If the copy does not fit after all, the move is abandoned without an error: the store itself is
//! not short of space.

use super::claim::Claim;
use super::{ClaimedJob, Jobs};
use crate::files::data_file::DataFile;
use crate::plan;
use crate::plan::in_progress::InProgressSet;
use crate::plan::placement::TierMove;
use crate::tree::family::Family;
use crate::tree::install::{FamilyEdit, InstallOutcome};
use crate::tree::table_placement;
use base::sync::lock;
use base::{ErrorKind, Result};
use io::{AppendFile, CreateOptions, ReadFile, SyncKind};
use std::path::PathBuf;
use std::sync::Arc;
use store::run::{Job, JobClass, Progress};
use store::space::Grant;
use store::volumes::Volume;
use version::{FileMeta, Record, State};

/// Bytes copied per step.
const STEP_BYTES: usize = 256 << 10;

/// A move of one table. See the module.
pub(crate) struct MoveJob {
    jobs: Arc<Jobs>,
    family: Arc<Family>,
    /// The table as picked; this reference pins its file.
    table: Arc<FileMeta>,
    wanted: TierMove,
    path: PathBuf,
    copy: Option<Under>,
    grant: Option<Grant>,
    /// True if the copy exists.
    is_made: bool,
    /// Dropped last.
    _claim: Claim,
}

/// An unfinished copy.
struct Under {
    source: Arc<dyn ReadFile>,
    target: Box<dyn AppendFile>,
    buf: Vec<u8>,
}

/// Claims a move.
pub(super) fn claim(
    jobs: &Arc<Jobs>,
    set: &mut InProgressSet,
    (family, table, wanted): (Arc<Family>, Arc<FileMeta>, TierMove),
) -> ClaimedJob {
    set.running.moves = true;
    let claim = Claim::new(jobs, |set| set.running.moves = false);
    let grant = jobs.space.grants.grant(table.len);
    let (jobs, path) = (jobs.clone(), jobs.context.path(&plan::moves::copy(&wanted).to_string()));
    Box::new(move || {
        Box::new(MoveJob {
            jobs,
            family,
            table,
            wanted,
            path,
            copy: None,
            grant,
            is_made: false,
            _claim: claim,
        })
    })
}

impl MoveJob {
    /// Creates the copy. Returns false if it does not fit any more.
    fn begin(&mut self) -> Result<bool> {
        let (context, table) = (&self.jobs.context, &self.table);
        if self.wanted.to == Volume::FAST && !table_placement::has_room_for_move(&self.jobs.tree, table.len) {
            return Ok(false);
        }
        let source = context.open(table.volume, &table.kind().to_string(), context.options.access)?;
        match context.env.fs.remove(&self.path) {
            // The file may be left over from an interrupted move.
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(e),
            _ => {}
        }
        let options = CreateOptions {
            access: context.options.access,
            expected_len: if self.jobs.space.is_limited() { 0 } else { table.len },
            write_buffer_len: STEP_BYTES,
            sync_every: 1 << 20,
            ..CreateOptions::default()
        };
        let target = context.env.fs.create(&self.path, &options)?;
        self.is_made = true;
        self.copy = Some(Under { source, target, buf: vec![0; STEP_BYTES] });
        Ok(true)
    }

    /// Copies another piece. Returns whether the copy is complete and synced; its directory entry
    /// is not synced yet.
    fn copy(&mut self) -> Result<bool> {
        let Some(Under { source, target, buf }) = &mut self.copy else { return Ok(true) };
        let left = self.table.len.saturating_sub(target.len());
        let piece = buf.get_mut(..left.min(STEP_BYTES as u64) as usize).unwrap_or_default();
        if !piece.is_empty() {
            source.read_at(piece, target.len())?;
            target.append(piece)?;
            if let Some(grant) = &self.grant {
                grant.wrote(|| vec![(self.table.number, self.path.clone())]);
            }
            return Ok(false);
        }
        target.sync(SyncKind::Full)?;
        self.copy = None;
        Ok(true)
    }

    /// Installs the copy as the table.
    fn install(&mut self) -> Result<()> {
        let jobs = &self.jobs.clone();
        jobs.files.sync_dir()?;
        let (family, number) = (self.wanted.family, self.wanted.number);
        // A compaction that begins after this sees the new state.
        if !lock(&jobs.in_progress).of_mut(family).claim_table(number) {
            self.remove_copy();
            return Ok(());
        }
        let installed = self.edit();
        lock(&jobs.in_progress).of_mut(family).release_table(number);
        let bytes = self.table.len;
        match installed? {
            InstallOutcome::Whole if self.wanted.to == Volume::FAST => {
                jobs.context.stats.fast_tier_tables_moved_up.add(1);
                jobs.context.stats.fast_tier_bytes_moved.add(bytes);
            }
            InstallOutcome::Whole => {
                jobs.context.stats.fast_tier_tables_moved_down.add(1);
                jobs.context.stats.fast_tier_bytes_moved.add(bytes);
            }
            // The copy was removed.
            InstallOutcome::Overtaken | InstallOutcome::Dropped => {}
        }
        self.is_made = false;
        jobs.tree.refresh_space();
        Ok(())
    }

    fn edit(&self) -> Result<InstallOutcome> {
        let TierMove { family, level, number, to } = self.wanted;
        let mut part = FamilyEdit::new(&self.family);
        part.copied = vec![self.path.clone()];
        part.retired = vec![DataFile::Table(self.table.clone())];
        let records = |state: &State, _| {
            let known =
                state.families.get(&family)?.version.files(level).iter().find(|f| f.number == number)?;
            // No checkpoint has linked the copy.
            let meta =
                FileMeta { volume: to, shared: false, copies: Arc::default(), ..FileMeta::clone(known) };
            let level = u32::try_from(level).ok()?;
            (known.volume != to).then(|| {
                vec![Record::RemoveFile { family, level, number }, Record::AddFile { family, level, meta }]
            })
        };
        let published = || self.grant.iter().for_each(Grant::installed);
        let installed = self.jobs.tree.install(vec![part], records, published)?;
        Ok(installed.first().copied().unwrap_or(InstallOutcome::Dropped))
    }

    /// Removes the copy, which is not part of the store yet.
    fn remove_copy(&mut self) {
        self.copy = None;
        if std::mem::take(&mut self.is_made) {
            let _ = self.jobs.context.env.fs.remove(&self.path);
        }
    }

    fn advance(&mut self) -> Result<Progress> {
        if !self.is_made && !self.begin()? {
            lock(&self.jobs.in_progress).learned.moving.give_up();
            return Ok(Progress::Done);
        }
        if !self.copy()? {
            return Ok(Progress::More);
        }
        self.install()?;
        Ok(Progress::Done)
    }
}

impl Job for MoveJob {
    fn class(&self) -> JobClass {
        JobClass::Move
    }

    fn step(&mut self) -> Result<Progress> {
        match self.advance() {
            // Only the copy failed, which is not part of the store yet.
            Err(e) if e.kind() == ErrorKind::NoSpace && !self.jobs.context.health.outcome_unknown() => {
                if self.wanted.to == Volume::FAST {
                    self.jobs.tree.speed.refused(&self.jobs.context);
                }
                self.remove_copy();
                lock(&self.jobs.in_progress).learned.moving.give_up();
                Ok(Progress::Done)
            }
            advanced => advanced,
        }
    }

    fn inputs(&self) -> Vec<u64> {
        vec![self.table.number]
    }

    fn abandon(&mut self) {
        // A failed commit may be durable nevertheless: its files may be removed only if the
        // manifest does not name them.
        if !self.jobs.context.health.outcome_unknown() {
            self.remove_copy();
        }
    }
}
