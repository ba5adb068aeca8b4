//! Integrity check of all record data and of everything that locates it. Reports the damaged
//! records.
//!
//! The check runs in bounded steps, in this order:
//!
//! 1. The manifest, as the next open would read it, and the directory: all listed files exist, and
//!    there are no other files of the store.
//! 2. Both copies of the checkpoint.
//! 3. Index files, each with its log group, and cold files (`group`, `cold`): checksums; every row
//!    must lead to the record of its log, LSN and sequence number; nothing may lie between the
//!    records.
//! 4. The unsealed groups, as far as their pages are in their files or staged, against the index in
//!    memory.
//! 5. The ledger: the live bytes of each file, recounted from the index.
//!
//! Writers and background jobs continue, except while the directory is listed. Records that are
//! collected, trimmed or overwritten meanwhile are not damage: before the check reports a record,
//! it looks again at the record's current position. After damage it continues with the rest.

mod cold;
mod group;
mod report;

pub use report::{Checked, CheckedCount, Damage, LostRecords, VerifyReport};

use crate::checkpoint::Checkpoint;
use crate::collect::alive as alive_of;
use crate::core::Core;
use crate::disk::recorded;
use crate::entry::{LogId, Lsn, Source};
use crate::lsn_set::Size;
use crate::manifest::{FileMeta, FileRole, LavaLog};
use base::{Error, ErrorKind, HashMap, Result, SeqNo};
use cold::ColdCheck;
use group::GroupCheck;
use io::{Access, Cancel, DirEntry};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use store::commit::GroupState;
use store::manifest::Engine;
use store::names::{self, FileKind};
use store::volumes::Volume;

/// Maximum number of recounts of live bytes because operations intervened.
const COUNTS_MAX: u32 = 5;

/// Maximum wait for the index to follow an edit, in case the job has stopped.
const INDEX_WAIT_NS: u64 = 1_000_000_000;

/// A part that remains to be checked.
enum Part {
    Manifest,
    Directory,
    File(FileMeta),
    Open(u64, GroupState),
    Ledger,
}

/// The part that is being read.
enum PartCheck {
    Group(Box<GroupCheck>),
    Cold(Box<ColdCheck>),
}

/// A running verification.
pub(crate) struct Verify {
    core: Arc<Core>,
    parts: VecDeque<Part>,
    reading: Option<PartCheck>,
}

/// Checks everything, unless cancelled.
pub(crate) fn verify(core: &Arc<Core>, cancel: Option<&Cancel>) -> Result<VerifyReport> {
    let mut report =
        VerifyReport { logs: core.catalog.view().registry().len() as u64, ..VerifyReport::default() };
    for e in core.reader().iter().flat_map(|reader| &reader.damage) {
        report.damaged(e.clone(), Vec::new());
    }
    let mut verify = Verify::new(core);
    loop {
        core.context().check_call(cancel)?;
        let told = report.damages.len();
        let more = verify.step(&mut report);
        report.let_go_of(told, |e| core.reader().is_some() && core.records.has_gone(e));
        if !more {
            return Ok(report);
        }
    }
}

impl Verify {
    /// Creates a verification of the current files.
    pub fn new(core: &Arc<Core>) -> Verify {
        // This order misses no group that is sealed meanwhile, and reads none twice.
        let open = core.store.lane.reader().to_retain();
        let files = core.store.manifest.state();
        // The copies of the checkpoint come first: they cannot be rebuilt.
        let (first, others): (Vec<_>, Vec<_>) =
            files.files.values().copied().partition(|meta| meta.role == FileRole::Checkpoint);
        let open = open.into_iter().filter(|group| files.rows_of(Source::Group(group.ltn)).is_none());
        let open = open.map(|group| Part::Open(group.ltn, group.state));
        let parts = [Part::Manifest, Part::Directory].into_iter();
        let parts = parts.chain(first.into_iter().chain(others).map(Part::File)).chain(open);
        let parts = parts.chain([Part::Ledger]).collect();
        Verify { core: core.clone(), parts, reading: None }
    }

    /// Performs one step. Returns false at the end.
    pub fn step(&mut self, report: &mut VerifyReport) -> bool {
        let core = &self.core;
        let more = match &mut self.reading {
            Some(PartCheck::Group(group)) => group.step(core, report),
            Some(PartCheck::Cold(cold)) => cold.step(core, report),
            None => false,
        };
        if more {
            return true;
        }
        if let Some(PartCheck::Group(group)) = &self.reading
            && let Some(meta) = group.became_storage()
        {
            self.parts.push_front(Part::File(meta));
        }
        let part = self.parts.pop_front();
        let is_left = part.is_some();
        self.reading = part.and_then(|part| begin(core, part, report));
        is_left
    }
}

/// Checks a part at once, or begins to read it.
fn begin(core: &Arc<Core>, part: Part, report: &mut VerifyReport) -> Option<PartCheck> {
    match part {
        Part::Manifest => check_manifest(core, report),
        Part::Directory => check_directory(core, report),
        Part::Ledger => check_ledger(core, report),
        Part::File(meta) => match tell_of_end(core, &meta, report) {
            FileRole::Checkpoint => check_checkpoint(core, &meta, report),
            FileRole::Index { ltn } => {
                wait_for_index(core, &meta, ltn);
                return GroupCheck::retained(core, &meta, ltn, report).map(|g| PartCheck::Group(Box::new(g)));
            }
            FileRole::Cold { .. } => {
                return ColdCheck::open(core, &meta, report).map(|cold| PartCheck::Cold(Box::new(cold)));
            }
        },
        Part::Open(ltn, state) => {
            // Wait for pages that are being written to the file, unless the log has stopped.
            let whole =
                if state == GroupState::Active { None } else { core.store.lane.reader().scan(ltn).ok() };
            let is_whole = whole.is_some();
            match whole.map_or_else(|| core.store.lane.reader().scan_written(ltn), Ok) {
                Ok(check) => {
                    let group = GroupCheck::open(core, ltn, !is_whole, check);
                    return Some(PartCheck::Group(Box::new(group)));
                }
                // The log released the group, or it was sealed.
                Err(e) if e.kind() == ErrorKind::NotFound => {
                    let meta = core.store.manifest.state().rows_of(Source::Group(ltn))?;
                    return begin(core, Part::File(meta), report);
                }
                Err(e) => report.damaged(e, Vec::new()),
            }
        }
    }
    None
}

/// Waits until the index refers to a newly named index file. It follows the manifest a moment
/// later, log by log; until then nothing in the file would seem live.
fn wait_for_index(core: &Core, meta: &FileMeta, ltn: u64) {
    let follows = || core.collector.is_kept(ltn) || !is_there(core, meta.number);
    let until_ns = core.context().now_ns().saturating_add(INDEX_WAIT_NS);
    core.context().wait_before(until_ns, follows);
}

fn check_manifest(core: &Core, report: &mut VerifyReport) {
    if let Err(e) = core.store.manifest.state().verify() {
        report.damaged(e, Vec::new());
    }
    let found = match core.store.manifest.shared().read_again() {
        Ok(found) => {
            report.checked.manifest_edits.add(found.edits + 1, found.bytes);
            found.damaged
        }
        Err(e) => vec![e],
    };
    if !found.is_empty() && core.store.lane.begun().is_some() {
        // Write the manifest anew from memory. The damage is reported below; if the rewrite fails,
        // nothing changes.
        let _ = core.store.manifest.shared().commits().roll();
    }
    found.into_iter().for_each(|e| report.damaged(e, Vec::new()));
}

/// Checks a copy of the checkpoint. The next checkpoint has both copies again.
fn check_checkpoint(core: &Core, meta: &FileMeta, report: &mut VerifyReport) {
    let context = core.context();
    let read = || -> Result<u64> {
        let file = context.open(Volume::DIRECTORY, &meta.name(), Access::Buffered)?;
        let checkpoint = Checkpoint::open(recorded::up_to(file, meta.len), meta.number, meta.uid)?;
        let (own, floor) = (checkpoint.head().replay_from, core.store.manifest.state().floor);
        if own > floor {
            let why = format!(
                "the log checkpoint covers operations below sequence {own}, but the manifest says {floor}"
            );
            return Err(Error::corruption(why).at_file(context.path(&meta.name())));
        }
        checkpoint.verify()
    };
    match read() {
        Ok(bytes) => report.checked.checkpoints.add(1, bytes),
        Err(_) if !is_there(core, meta.number) => {}
        Err(e) => report.damaged(missing_is_damage(core, meta, e), Vec::new()),
    }
}

/// Reports bytes after the recorded end of a file. Returns the role of the file.
fn tell_of_end(core: &Core, meta: &FileMeta, report: &mut VerifyReport) -> FileRole {
    let context = core.context();
    let len = context.open(Volume::DIRECTORY, &meta.name(), Access::Buffered).and_then(|file| file.len());
    // A missing or short file is reported when it is read.
    if let Ok(len) = len
        && len > meta.len
    {
        let why = format!(
            "{} bytes follow the end of the file as written: no data is lost; cut them off",
            len - meta.len
        );
        report.damaged(Error::corruption(why).at_file(context.path(&meta.name())), Vec::new());
    }
    meta.role
}

/// Turns `NotFound` for a listed file into damage.
fn missing_is_damage(core: &Core, meta: &FileMeta, e: Error) -> Error {
    let e = if e.kind() == ErrorKind::NotFound { e.with_kind(ErrorKind::Corruption) } else { e };
    e.at_file(core.context().path(&meta.name()))
}

/// Reports unlisted files in the directory. (Missing listed files are reported when they are read.)
fn check_directory(core: &Arc<Core>, report: &mut VerifyReport) {
    if core.reader().is_some() {
        // Files that the writer is about to name or to remove are unlisted as well.
        return;
    }
    // In a stopped store, files may remain unfinished forever.
    let Ok(_hold) = core.moves.hold() else { return };
    let list = || core.context().env.fs.list(&core.context().dir);
    let mut strange: BTreeSet<String> = BTreeSet::new();
    for (nth, log) in core.store.lanes().enumerate() {
        let listed = log.preparation().while_none_is_made(|| list().map(|listing| unlisted(core, &listing)));
        match listed {
            Ok(names) if nth == 0 => strange.extend(names),
            Ok(names) => strange.retain(|name| names.contains(name)),
            Err(e) => return report.damaged(e, Vec::new()),
        }
    }
    for name in strange {
        let why = "the file is not in the manifest: it takes space until the next open removes it";
        report.damaged(Error::corruption(why).at_file(core.context().path(&name)), Vec::new());
    }
}

/// Returns the files of this engine and of the log that are neither listed nor in use. The lanes of
/// a host engine are unknown here.
fn unlisted(core: &Core, listing: &[DirEntry]) -> Vec<String> {
    let state = core.store.manifest.state();
    let kept: BTreeSet<String> = core.store.lanes().flat_map(|log| log.files().file_names()).collect();
    let owns_store = core.store.is_owner();
    let is_strange = |entry: &&DirEntry| match names::parse(&entry.name) {
        Some(FileKind::Engine { engine, number, .. }) if engine == LavaLog::ID.0 => {
            !state.files.contains_key(&number)
        }
        Some(FileKind::Log(number)) => {
            owns_store && state.store.log_groups.in_file(number).is_none() && !kept.contains(&entry.name)
        }
        Some(FileKind::Room(_)) => owns_store && !kept.contains(&entry.name),
        _ => false,
    };
    listing.iter().filter(is_strange).map(|entry| entry.name.clone()).collect()
}

/// Recounts the live bytes of each file from the index, while nothing changes.
fn check_ledger(core: &Core, report: &mut VerifyReport) {
    for _ in 0..COUNTS_MAX {
        let before = moment(core);
        let mut counted: HashMap<Source, Size> = HashMap::default();
        core.catalog.each_log(|log| {
            log.live().index().sizes().for_each(|(source, size)| *counted.entry(source).or_default() += size);
        });
        let ledger: Vec<_> =
            core.catalog.view().ledger().iter().map(|(source, usage)| (source, usage.live)).collect();
        if moment(core) != before || before.is_none() {
            continue;
        }
        report.ledger_checked = true;
        for (source, live) in ledger {
            let counted = counted.remove(&source).unwrap_or_default();
            hold_against(core, report, source, counted, live);
        }
        counted.into_iter().for_each(|(source, size)| {
            hold_against(core, report, source, size, Size::default());
        });
        return;
    }
}

fn hold_against(core: &Core, report: &mut VerifyReport, source: Source, counted: Size, live: Size) {
    if counted != live {
        let why = format!(
            "{source} has {counted} alive by the index, but the space ledger has {live}: no record is lost, only the account of space is wrong; test the memory, take a checkpoint or copy of the logs, and report it"
        );
        let remedy = "the next open counts the space anew";
        report.damaged(Error::corruption(why).with_remedy(remedy).at_file(&core.context().dir), Vec::new());
    }
}

/// Returns a value that changes whenever the index does, or `None` while the index may be changing.
/// (Records die only by operations.)
fn moment(core: &Core) -> Option<(SeqNo, u64, u64)> {
    let (sealed, collected) = (core.sealer.sealed_groups(), core.collector.collected_files());
    let is_moving = core.moves.is_moving();
    let next_seq = core.log.next_seq();
    (!is_moving).then_some((next_seq, sealed, collected))
}

/// Returns true if the manifest still lists a file of the engine.
fn is_there(core: &Core, number: u64) -> bool {
    core.store.manifest.state().files.contains_key(&number)
}

/// Returns the name of a log, if it exists.
fn name_of(core: &Core, log: LogId) -> Option<String> {
    core.catalog.view().get(log).map(|log| log.name().to_string())
}

/// Calls `take` for the runs of live LSNs of all logs in a source.
fn alive_runs(core: &Core, source: Source, mut take: impl FnMut(LogId, Lsn, Lsn)) {
    part_runs(core, source, &mut take);
    if let Source::Group(ltn) = source {
        core.catalog.each_log(|log| {
            log.live().index().recent_in(log.id(), ltn).for_each(|row| take(log.id(), row.lsn, row.lsn));
        });
    }
}

/// Calls `take` for the runs of live LSNs that are located by the rows of a file.
fn part_runs(core: &Core, source: Source, mut take: impl FnMut(LogId, Lsn, Lsn)) {
    core.catalog.each_log(|log| {
        for part in log.live().index().parts().filter(|part| part.source() == source) {
            part.set().runs().for_each(|run| take(log.id(), run.first, run.last()));
        }
    });
}

/// Calls `take` for the runs of LSNs that may be lost with a source whose rows were unreadable at
/// open. More is not known.
fn lost_runs(core: &Core, source: Source, mut take: impl FnMut(LogId, Lsn, Lsn)) {
    if core.collector.is_damaged(source) {
        core.catalog.each_log(|log| {
            log.lost().runs().into_iter().for_each(|(first, last)| take(log.id(), first, last))
        });
    }
}

#[cfg(test)]
mod tests;
