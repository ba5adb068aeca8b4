//! The parts of the engine, put together; and how a record is read.
//!
//! Locks: `order` is held from the check of an operation until it is applied, so operations are applied in the order in which they
//! are in the log, and what was checked still holds. The
//! catalog of logs changes under it, and by what follows from files, which changes nothing that a reader sees.

use crate::catalog::Catalog;
use crate::cold::ColdFile;
use crate::entry::{Entry, LogId, Lsn, Source, page_of};
use crate::files::{RowFile, RowFiles};
use crate::index::Found;
use crate::logs::{GroupPlace, Logs};
use crate::manifest::LavaLog;
use crate::options::Options;
use crate::reader::Reader;
use crate::recent::RecentRecords;
use crate::tails::Tails;
use crate::times::Times;
use crate::to_collect::ToCollect;
use crate::to_remake::ToRemake;
use base::sync::{Mutex, rank};
use base::{Error, ErrorKind, Result, SeqNo};
use io::Env;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use store::Store;
use store::commit::{Log as Lane, Place, ReadAhead};
use store::context::{Context, Counter};
use store::descriptors::LOG_PARTS;
use store::files::Files;
use store::guest::Relieve;
use store::manifest::Handle;
use store::space::SpaceBudget;

/// How often records are looked for that are moved while they are read.
const MOVES_MAX: usize = 64;

/// What the next operation is called.
#[derive(Debug)]
pub(crate) struct Order {
    /// Its sequence.
    pub next_seq: SeqNo,
}

/// What is under way in the background.
#[derive(Debug, Default)]
pub(crate) struct UnderWay {
    /// A group gets its index file, or files are collected: one at a time, since both move groups.
    pub is_moving: bool,
    /// So many wait for the right to do so, in the foreground: no job takes it before them ([`crate::hold`]).
    pub waiting_holds: usize,
    /// What could not be collected, because something of it is damaged. It stays as it is.
    pub damaged: BTreeSet<Source>,
    /// The groups that are storage, each with the lowest sequence in it; 0, if its index file could not be read, which knows it.
    pub kept: BTreeMap<u64, SeqNo>,
    /// The groups with batches that carry another engine's, each with the highest sequence of these.
    pub carried: BTreeMap<u64, SeqNo>,
    /// The group for which that engine was asked to write down what it has in memory.
    pub relieved: Option<u64>,
    /// The groups up to this number are sealed as soon as they are closed: somebody asked for it.
    pub seal_to: u64,
    /// What could be.
    pub to_collect: ToCollect,
    /// The groups whose rows are to be made again.
    pub to_remake: ToRemake,
    /// The logs that somebody applies ([`crate::applying`]).
    pub applied: BTreeSet<LogId>,
}

/// Truncations from this sequence on are remembered, with `kept` as in [`UnderWay`]: those before it apply to nothing that could be
/// replayed, nor be in a group whose rows are lost and made again. There, all comes up that ever was in it.
pub(crate) fn needed_from(kept: &BTreeMap<u64, SeqNo>, replay_from: SeqNo) -> SeqNo {
    // They are in their order.
    kept.values().next().map_or(replay_from, |first| replay_from.min(*first))
}

/// What was done since the store was opened.
#[derive(Debug)]
pub(crate) struct Counters {
    /// Records appended.
    pub appends: Counter,
    /// Their bytes.
    pub append_bytes: Counter,
    /// Groups that got an index file.
    pub sealed_groups: Counter,
    /// Files that were collected.
    pub collected_files: Counter,
    /// Bytes of records that were copied for it.
    pub copied_bytes: Counter,
    /// Index files that were made again.
    pub remade_files: Counter,
    /// How long it took.
    pub times: Times,
}

impl Counters {
    pub fn new(env: &Env) -> Counters {
        let count = Counter::default;
        Counters {
            appends: count(),
            append_bytes: count(),
            sealed_groups: count(),
            collected_files: count(),
            copied_bytes: count(),
            remade_files: count(),
            times: Times::new(env),
        }
    }
}

/// Who drives what is not of the lane of records.
pub(crate) enum Roof {
    /// This engine, which opened the store.
    Own(Store),
    /// The one that did, which can be asked for relief, and the first lane of the log, which is its.
    Host(Relieve, Arc<Lane>),
    /// Nobody: the store is only read.
    Reader(Reader),
}

impl Roof {
    /// The store, if this engine opened it.
    pub fn own(&self) -> Option<&Store> {
        match self {
            Roof::Own(store) => Some(store),
            Roof::Host(..) | Roof::Reader(_) => None,
        }
    }

    /// The first lane of the log, which has the ballast; none where nothing is written.
    pub fn first(&self) -> Option<&Arc<Lane>> {
        match self {
            Roof::Own(store) => Some(store.log()),
            Roof::Host(_, first) => Some(first),
            Roof::Reader(_) => None,
        }
    }
}

/// See the module.
pub(crate) struct Core {
    pub files: Arc<Files>,
    pub space: Arc<SpaceBudget>,
    pub roof: Roof,
    pub manifest: Handle<LavaLog>,
    /// Where records are.
    pub lane: Arc<Lane>,
    pub options: Options,
    /// Guards the order of operations.
    pub order: Mutex<Order, rank::RecordOrder>,
    pub catalog: Arc<Catalog>,
    pub rows: RowFiles,
    pub recent: Arc<RecentRecords>,
    pub tails: Tails,
    /// Guards what is under way in the background.
    pub under_way: Mutex<UnderWay, rank::RecordWork>,
    pub counters: Counters,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LavaLog({})", self.context().dir.display())
    }
}

/// A place of the index, as the log knows places.
///
/// # Errors
/// `Corruption` if no group is so long.
pub(crate) fn place_in(ltn: u64, at: u64) -> Result<Place> {
    match page_of(at) {
        Some((block, pos)) => Ok(Place { ltn, block, pos }),
        None => Err(Error::corruption(format!("log group {ltn} has no place {at}"))),
    }
}

impl Core {
    /// The machine, and the store's directory.
    pub fn context(&self) -> &Arc<Context> {
        self.files.context()
    }

    /// Files of storage that may stay open now.
    pub fn open_files_max(&self) -> u64 {
        let (max, descriptors) =
            (self.options.open_files_max, &self.context().volumes.directory().descriptors);
        let part = || descriptors.part(LOG_PARTS).saturating_mul(2);
        let now = if descriptors.is_alone() { max } else { max.min(part()) };
        now as u64
    }

    /// Appends a record to `out`; false if there is none.
    ///
    /// # Errors
    /// `Trimmed`; `NotFound` if there is no such log; `Corruption` of the file it is in, or may have been in; those of reading. Then `out` is as it was.
    pub fn read(&self, log: LogId, lsn: Lsn, out: &mut Vec<u8>) -> Result<bool> {
        self.counters.times.read.time(|| self.read_where_it_is(log, lsn, out))
    }

    fn read_where_it_is(&self, log: LogId, lsn: Lsn, out: &mut Vec<u8>) -> Result<bool> {
        let look_up = |logs: &Logs| {
            let own = logs.log(log)?;
            match own.admit(lsn)? {
                Some(found) => Ok(Some((found, logs.taken_in()))),
                None => own.check_lost(lsn, lsn).map(|()| None),
            }
        };
        let is_same = |(then, _): &(Found, u64), (now, _): &(Found, u64)| then == now;
        let read = self.read_found(look_up, is_same, |(found, taken_in)| {
            let (source, row) = self.row_of(log, lsn, (*found, *taken_in))?;
            self.bytes_of(source, &row, out)
        });
        Ok(read?.is_some())
    }

    /// Looks something up, and reads what it leads to, without a lock. Until that was read it may be moved, trimmed or truncated, and the
    /// file that it was in may go: so whatever fails is looked up again, and it has failed only if it is still found in the same place.
    /// `None` if nothing is found.
    ///
    /// # Errors
    /// Those of `look_up`; those of `read`, of what is still there; `Busy` if it is moved again and again.
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
                // It was there a moment ago: it was moved, or has gone.
                Err(e) if e.kind() == ErrorKind::NotFound => None,
                Err(e) => Some((found, e)),
            };
        }
        let why = "records were moved again and again while they were read: read them once more";
        Err(Error::new(ErrorKind::Busy, why))
    }

    /// Where a record is, by what was found of it, and [`crate::logs::Logs::taken_in`] then.
    ///
    /// # Errors
    /// `NotFound` if it was moved meanwhile; those of reading.
    pub fn row_of(&self, log: LogId, lsn: Lsn, (found, taken_in): (Found, u64)) -> Result<(Source, Entry)> {
        match found {
            Found::Record(source, entry) => Ok((source, entry)),
            Found::Block(source, block) => {
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
    /// `NotFound` if it was moved meanwhile; those of reading.
    pub fn bytes_of(&self, source: Source, row: &Entry, out: &mut Vec<u8>) -> Result<()> {
        self.bytes_ahead(source, row, &mut ReadAhead::new(0), out)
    }

    /// The same, by one who reads what follows next.
    ///
    /// # Errors
    /// As there.
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
                if self.recent.copy(GroupPlace { ltn, at: row.at }, out) {
                    return Ok(());
                }
                self.lane.read_ahead(place, row.len as usize, ahead, out)
            }
            Source::Cold(_) => self.cold(source)?.read(row, out),
        }
    }

    /// The cold file of a source.
    ///
    /// # Errors
    /// `NotFound` if it was collected; those of opening it.
    pub fn cold(&self, source: Source) -> Result<Arc<ColdFile>> {
        match self.rows.of(source)? {
            RowFile::Cold(file) => Ok(file),
            RowFile::Index(_) => unreachable!("{source:?} is a cold file, by the role that it was opened in"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_that_no_group_has_is_damage() {
        assert_eq!(place_in(5, 4096).unwrap().block, 1);
        let e = place_in(5, u64::MAX).unwrap_err();
        assert!(e.is_corruption() && e.message().starts_with("log group 5 has no place"), "{e}");
    }
}
