//! Reads of records: locates a record in the index, then reads its bytes from memory or a file.
//!
//! Reads pin nothing and hold no lock during I/O. Meanwhile the record may be moved, trimmed or
//! truncated, and its file may be deleted. So a failed read looks the record up again
//! ([`RecordReader::read_found`]). When an index block of a group is damaged, the reader waits for a
//! job to rebuild it ([`crate::remake`]), or reads the group itself.

use crate::catalog::Catalog;
use crate::cold::ColdFile;
use crate::disk::directory::Block;
use crate::entry::{Entry, LogId, Lsn, Source, page_of};
use crate::files::{RowFile, RowFiles};
use crate::group_rows::{is_damage, take_rows};
use crate::index::RecordLocation;
use crate::logs::{GroupPosition, Logs};
use crate::manifest::LavaLog;
use crate::reader::{changed, is_same_group};
use crate::rebuild_queue::RebuildQueue;
use crate::recent::RecentRecords;
use crate::store_handles::StoreHandles;
use crate::times::ReadTimes;
use base::{Error, ErrorKind, Result};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use store::commit::{LogAddress, LogFindings, LoggedBatch, ReadAhead};
use store::manifest::{Engines, Manifest};
use store::names::{self, FileKind};
use store::read_only::attempt;

/// Maximum number of look-ups for records that move while they are read.
const MOVES_MAX: usize = 64;
/// Time that a reader waits for a job to rebuild an index file before it reads the group.
const WAIT_NS: u64 = 5_000_000_000;

/// Whether a job has rebuilt an index file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rewritten {
    /// The rows are in another index file, or in memory.
    Yes,
    /// A job tried and failed: the group has damaged pages, too.
    Failed,
    /// No job has tried yet.
    NotYet,
}

/// Converts a position of the index into a position of the log.
///
/// # Errors
/// `Corruption` if no group is long enough.
pub(crate) fn place_in(ltn: u64, at: u64) -> Result<LogAddress> {
    match page_of(at) {
        Some((block, pos)) => Ok(LogAddress { ltn, block, pos }),
        None => Err(Error::corruption(format!(
            "the index gives a record the position {at}, which is outside its log group {ltn}; other records stay readable"
        ))),
    }
}

pub(crate) struct RecordReader {
    store: Arc<StoreHandles>,
    catalog: Arc<Catalog>,
    rows: Arc<RowFiles>,
    recent: Arc<RecentRecords>,
    remakes: Arc<RebuildQueue>,
    times: ReadTimes,
}

impl RecordReader {
    pub fn new(
        store: &Arc<StoreHandles>,
        catalog: &Arc<Catalog>,
        rows: &Arc<RowFiles>,
        recent: &Arc<RecentRecords>,
        remakes: &Arc<RebuildQueue>,
    ) -> RecordReader {
        let times = ReadTimes::new(&store.context().env);
        let (catalog, rows, recent) = (catalog.clone(), rows.clone(), recent.clone());
        RecordReader { store: store.clone(), catalog, rows, recent, remakes: remakes.clone(), times }
    }

    pub fn times(&self) -> &ReadTimes {
        &self.times
    }

    /// Returns the memory of the newest records, bytes.
    pub fn recent_bytes(&self) -> usize {
        self.recent.memory_bytes()
    }

    pub fn rows(&self) -> &RowFiles {
        &self.rows
    }

    /// Appends a record to `out`. Returns false if the LSN has no record.
    ///
    /// # Errors
    /// `Trimmed`; `NotFound` if the log does not exist; `Corruption` of the file that has the
    /// record, or may have had it; I/O errors. Then `out` is unchanged.
    pub fn read(&self, log: LogId, lsn: Lsn, out: &mut Vec<u8>) -> Result<bool> {
        self.times.read.time(|| self.read_where_it_is(log, lsn, out))
    }

    fn read_where_it_is(&self, log: LogId, lsn: Lsn, out: &mut Vec<u8>) -> Result<bool> {
        let look_up = |logs: &Logs| {
            let own = logs.log(log)?;
            match own.admit(lsn)? {
                Some(found) => Ok(Some((found, logs.groups().taken_in()))),
                None => own.lost().check(lsn, lsn).map(|()| None),
            }
        };
        let is_same = |(then, _): &(RecordLocation, u64), (now, _): &(RecordLocation, u64)| then == now;
        let read = self.read_found(look_up, is_same, |(found, taken_in)| {
            let (source, row) = self.row_of(log, lsn, (*found, *taken_in))?;
            self.bytes_of(source, &row, out)
        });
        Ok(read?.is_some())
    }

    /// Looks something up and reads it without a lock. Meanwhile it may be moved, trimmed or
    /// truncated, and its file may be deleted. So after an error the look-up is repeated, and the
    /// error is returned only if the look-up gives the same position. Returns `None` if the look-up
    /// finds nothing.
    ///
    /// # Errors
    /// Errors of `look_up`; errors of `read` at a position that is still valid; `Busy` after too
    /// many moves.
    pub fn read_found<F, T>(
        &self,
        look_up: impl Fn(&Logs) -> Result<Option<F>>,
        is_same: impl Fn(&F, &F) -> bool,
        mut read: impl FnMut(&F) -> Result<T>,
    ) -> Result<Option<T>> {
        let mut failed: Option<(F, Error)> = None;
        for _ in 0..MOVES_MAX {
            let Some(found) = look_up(&self.catalog.view())? else { return Ok(None) };
            if let Some((_, e)) = failed.filter(|(then, _)| is_same(then, &found)) {
                return Err(self.judge(e));
            }
            failed = match read(&found) {
                Ok(done) => return Ok(Some(done)),
                // The file existed a moment ago: the record was moved or removed.
                Err(e) if e.kind() == ErrorKind::NotFound => None,
                Err(e) => Some((found, e)),
            };
        }
        let why = "the records moved during every attempt to read them: read them again";
        Err(Error::new(ErrorKind::Busy, why))
    }

    /// Returns the row of a record from its look-up result and the value of
    /// [`crate::logs::GroupLogs::taken_in`] at the look-up.
    ///
    /// # Errors
    /// `NotFound` if the record was moved meanwhile; I/O errors.
    pub fn row_of(
        &self,
        log: LogId,
        lsn: Lsn,
        (found, taken_in): (RecordLocation, u64),
    ) -> Result<(Source, Entry)> {
        match found {
            RecordLocation::Record(source, entry) => Ok((source, entry)),
            RecordLocation::Block(source, block) => {
                match self.rows_of((source, taken_in), log, &(lsn..=lsn), block)?[..] {
                    [row] => Ok((source, row)),
                    _ => unreachable!("one row for one LSN"),
                }
            }
        }
    }

    /// Appends the bytes of a record to `out`.
    ///
    /// # Errors
    /// `NotFound` if the record was moved meanwhile; I/O errors.
    pub fn bytes_of(&self, source: Source, row: &Entry, out: &mut Vec<u8>) -> Result<()> {
        self.bytes_ahead(source, row, &mut ReadAhead::new(0), out)
    }

    /// Appends the bytes of a record to `out` as [`RecordReader::bytes_of`] does, with read-ahead
    /// for the next records.
    ///
    /// # Errors
    /// The errors of [`RecordReader::bytes_of`].
    pub fn bytes_ahead(
        &self,
        source: Source,
        row: &Entry,
        ahead: &mut ReadAhead,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        if row.len == 0 {
            return Ok(());
        }
        match source {
            Source::Group(ltn) => {
                let place = place_in(ltn, row.at)?;
                if self.recent.copy(GroupPosition { ltn, at: row.at }, out) {
                    return Ok(());
                }
                self.store.lane.reader().read_ahead(place, row.len as usize, ahead, out)
            }
            Source::Cold(_) => self.cold(source)?.read(row, out),
        }
    }

    /// Returns the cold file of a source.
    ///
    /// # Errors
    /// `NotFound` if the file was collected; I/O errors of opening it.
    pub fn cold(&self, source: Source) -> Result<Arc<ColdFile>> {
        match self.rows.of(source)? {
            RowFile::Cold(file) => Ok(file),
            RowFile::Index(_) => unreachable!("{source:?} is a cold file, by the role that it was opened in"),
        }
    }

    /// Reads the rows of consecutive records from the given block. `taken_in` is the value of
    /// [`crate::logs::GroupLogs::taken_in`] at the look-up. If a block of an index file is damaged,
    /// the reader waits for a job to rebuild the file. Without a job, it reads the rows from the
    /// group itself.
    ///
    /// # Errors
    /// The errors of [`crate::files::RowFiles::rows`]; `Corruption` if the group lacks some of the
    /// records; `NotFound`: the caller must repeat the look-up.
    pub fn rows_of(
        &self,
        (source, taken_in): (Source, u64),
        log: LogId,
        lsns: &RangeInclusive<Lsn>,
        block: Block,
    ) -> Result<Vec<Entry>> {
        let number = self.rows.number(source);
        let read = || self.rows.rows(source, log, lsns, block);
        let rows = match (read(), source, number) {
            // No jobs run on a read-only store.
            (Err(e), Source::Group(ltn), Some(number)) if e.is_corruption() && !self.store.is_read_only() => {
                match self.wait_for_rows(ltn, number) {
                    Rewritten::Yes => read(),
                    Rewritten::Failed => Err(e),
                    Rewritten::NotYet => self.rows_in_group(ltn, log, lsns)?.ok_or(e),
                }
            }
            (rows, ..) => rows,
        };
        let is_same = self.catalog.view().groups().taken_in() == taken_in;
        if is_same {
            return rows;
        }
        Err(Error::not_found(format!("the index of {source} may have moved during the read")))
    }

    /// Waits for a job to rebuild an index file.
    fn wait_for_rows(&self, ltn: u64, number: u64) -> Rewritten {
        let (context, source) = (self.store.context(), Source::Group(ltn));
        let outcome = || {
            // A job names the successor before it marks the file as tried.
            let is_tried = self.remakes.is_tried(number);
            match self.rows.number(source) {
                of_now if of_now != Some(number) => Rewritten::Yes,
                _ if is_tried => Rewritten::Failed,
                _ => Rewritten::NotYet,
            }
        };
        if outcome() == Rewritten::NotYet && self.remakes.is_worth_a_wait(ltn, number) {
            context.signals.notify_work();
            let end_ns = context.now_ns().saturating_add(WAIT_NS);
            context.wait_until(|| {
                let gives_up = context.health.check().is_err() || context.health.out_of_space();
                (outcome() != Rewritten::NotYet || gives_up || context.now_ns() >= end_ns).then_some(())
            });
            if context.now_ns() >= end_ns {
                self.remakes.note_late(number);
            }
        }
        outcome()
    }

    /// Reads rows of a log from the group itself. Returns `None` if the group lacks some of them,
    /// is damaged, or was collected.
    fn rows_in_group(&self, ltn: u64, log: LogId, lsns: &RangeInclusive<Lsn>) -> Result<Option<Vec<Entry>>> {
        let mut scan = match self.store.lane.reader().scan(ltn) {
            Err(e) if is_damage(&e) => return Ok(None),
            scan => scan?,
        };
        let (mut rows, mut failed) = (BTreeMap::new(), None);
        let mut take = |batch: &LoggedBatch<'_>| {
            let taken = take_rows(&mut rows, batch, |of, lsn| of == log && lsns.contains(&lsn));
            failed = failed.take().or(taken.err());
        };
        // Records missing at the end reveal damage of the group.
        while scan.step(&mut LogFindings::default(), &mut take) {}
        let mut wanted = lsns.clone();
        let is_whole = rows.keys().all(|(_, lsn)| wanted.next() == Some(*lsn)) && wanted.is_empty();
        match failed {
            Some(e) if !is_damage(&e) => Err(e),
            _ => Ok(is_whole.then(|| rows.into_values().collect())),
        }
    }

    /// Turns apparent damage of a file that the writer has since deleted into `Busy`, in a
    /// read-only store.
    pub fn judge(&self, e: Error) -> Error {
        if self.store.is_read_only() && self.has_gone(&e) {
            changed(&self.store.context().dir).caused_by(e)
        } else {
            e
        }
    }

    /// Returns true if the error concerns a file that the manifest no longer lists, or lists in
    /// another role.
    pub fn has_gone(&self, e: &Error) -> bool {
        let name = e.file().and_then(|path| path.file_name()?.to_str());
        let Some(kind) = name.and_then(names::parse).filter(|_| e.is_corruption()) else { return false };
        let (env, dir) = (&self.store.context().env, &self.store.context().dir);
        let now = attempt(env, || Manifest::recover(env, dir, true, &Engines::of::<LavaLog>()));
        let Ok(now) = now else { return false };
        let (then, now) = (self.store.manifest.state(), now.state());
        match kind {
            FileKind::Log(number) => then
                .store
                .log_groups
                .in_file(number)
                .is_some_and(|ltn| !is_same_group(&then.store, &now, ltn)),
            FileKind::Engine { number, .. } => {
                then.files.contains_key(&number) && !now.engines.files().any(|(_, _, file)| file == kind)
            }
            FileKind::Manifest(_) | FileKind::ManifestCopy(_) => then.store.edit_number != now.edit_number,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_outside_every_group_is_damage() {
        assert_eq!(place_in(5, 4096).unwrap().block, 1);
        let e = place_in(5, u64::MAX).unwrap_err();
        assert!(
            e.is_corruption()
                && e.message().ends_with("is outside its log group 5; other records stay readable"),
            "{e}"
        );
    }
}
