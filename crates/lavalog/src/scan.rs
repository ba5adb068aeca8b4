//! Reads the records of a log in LSN order, and waits for new ones.
//!
//! A scan holds no lock and pins nothing. It asks the index for the next spans, reads their
//! records, and asks again if a record was moved. So it returns every record that exists when it
//! begins and is not truncated before the scan reaches it. The same holds for trimmed records,
//! unless they are already read ahead. New records above its position are included. Records that
//! were read ahead and truncated since are discarded, because others may have replaced them.
//!
//! The read-ahead starts small and doubles with each read, up to a bound. One device request reads
//! adjacent records of a group (`store::commit::ReadAhead`) or of a cold file.

use crate::cold::ColdFile;
use crate::core::Core;
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::index::{RecordLocation, Span};
use crate::logs::Logs;
use base::Result;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use store::commit::ReadAhead;

/// Number of spans requested from the index at once.
const SPANS: usize = 64;
/// Initial read-ahead, bytes of records.
const AHEAD_FIRST: usize = 16 << 10;
/// Default maximum read-ahead.
const AHEAD_DEFAULT: usize = 512 << 10;
/// Upper bound of the configurable maximum.
const AHEAD_MAX: usize = 8 << 20;

/// Interval at which a waiting reader checks the health of the store.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A record with its LSN.
pub type Record = (Lsn, Vec<u8>);

/// Iterator over the records of a log. Continuing after an error repeats the read.
#[derive(Debug)]
pub struct Scan {
    core: Arc<Core>,
    log: LogId,
    next: Option<Lsn>,
    last: Lsn,
    /// Records that were read ahead.
    ahead: VecDeque<Record>,
    /// Values of [`Catalog::removals`] and [`crate::logs::LiveRecords::truncated`] at the look-up
    /// of these records.
    before: (u64, u64),
    /// Size of the next read-ahead, and its maximum.
    ahead_bytes: (usize, usize),
    files: ReadAhead,
}

impl Scan {
    pub(crate) fn new(core: &Arc<Core>, log: LogId, lsns: RangeInclusive<Lsn>) -> Scan {
        let (first, last) = lsns.into_inner();
        let next = Some(first).filter(|first| *first <= last);
        let scan = Scan {
            core: core.clone(),
            log,
            next,
            last,
            ahead: VecDeque::new(),
            before: (0, 0),
            ahead_bytes: (0, 0),
            files: ReadAhead::new(0),
        };
        scan.reading_ahead(AHEAD_DEFAULT)
    }

    /// Sets the maximum read-ahead in bytes (default 512 KiB, at most 8 MiB). With 0, each record
    /// is read when it is requested.
    #[must_use]
    pub fn reading_ahead(mut self, bytes: usize) -> Scan {
        let most = bytes.min(AHEAD_MAX);
        self.ahead_bytes = (AHEAD_FIRST.min(most), most);
        self.files = ReadAhead::new(most as u64);
        self
    }

    /// Returns the next record, or `None` if there is none yet or the scan is past its last LSN.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted; `Corruption` of the file that has the next record, or may
    /// have had it ([`Scan::skip_to`] continues after it); I/O errors.
    pub fn read_next(&mut self) -> Result<Option<Record>> {
        self.core.context().check_open()?;
        let begun = self.core.records.times().scan.begin();
        let next = self.next_of_those_ahead();
        self.core.records.times().scan.end(begun);
        next
    }

    fn next_of_those_ahead(&mut self) -> Result<Option<Record>> {
        self.let_go_of_truncated();
        if self.ahead.is_empty() {
            self.read_ahead()?;
        }
        let record = self.ahead.pop_front();
        if let Some((lsn, _)) = &record {
            self.next = lsn.checked_add(1).filter(|next| *next <= self.last);
        }
        Ok(record)
    }

    /// Appends the bytes of the next record to `out`. Returns its LSN, or `None` as
    /// [`Scan::read_next`] does.
    ///
    /// # Errors
    /// The errors of [`Scan::read_next`]; `out` is then unchanged.
    pub fn read_next_into(&mut self, out: &mut Vec<u8>) -> Result<Option<Lsn>> {
        let next = self.read_next()?;
        Ok(next.map(|(lsn, bytes)| {
            out.extend_from_slice(&bytes);
            lsn
        }))
    }

    /// Returns the next record, waiting for it for at most `timeout`. Returns `None` at once past
    /// the last LSN of the scan.
    ///
    /// # Errors
    /// The errors of [`Scan::read_next`]; `Closed` if the store is closed meanwhile.
    pub fn wait_next(&mut self, timeout: Duration) -> Result<Option<Record>> {
        let (core, log) = (self.core.clone(), self.log);
        let context = core.context();
        let end_ns = context.now_ns().saturating_add(timeout.as_nanos().try_into().unwrap_or(u64::MAX));
        let mut look = || match self.read_next() {
            Ok(None) if self.next.is_some() && context.now_ns() < end_ns => {
                context.health.check_sound().err().map(Err)
            }
            done => Some(done),
        };
        if context.env.is_simulated() {
            // A simulation has no other threads: run pending background work instead of sleeping.
            return context.wait_until(look);
        }
        if let Some(found) = look() {
            return found;
        }
        let waiting = core.writes.tails().enter(log);
        loop {
            let seen = waiting.changes();
            if let Some(found) = look() {
                return found;
            }
            let left = Duration::from_nanos(end_ns.saturating_sub(context.now_ns()));
            waiting.sleep(seen, left.min(SLEEP_MAX));
        }
    }

    /// Skips damaged records and continues at this LSN.
    pub fn skip_to(&mut self, lsn: Lsn) {
        self.ahead.clear();
        self.next = self.next.map(|next| next.max(lsn));
    }

    /// Discards the read-ahead if the log was truncated since its look-up, or deleted.
    fn let_go_of_truncated(&mut self) {
        let removals = self.core.catalog.removals();
        if self.ahead.is_empty() || removals == self.before.0 {
            return;
        }
        let truncated = self.core.catalog.view().get(self.log).map(|log| log.live().truncated());
        match truncated.filter(|truncated| *truncated == self.before.1) {
            Some(_) => self.before.0 = removals,
            None => self.ahead.clear(),
        }
    }

    fn read_ahead(&mut self) -> Result<()> {
        let Some(from) = self.next else { return Ok(()) };
        let (core, log, last) = (self.core.clone(), self.log, self.last);
        let look_up = |logs: &Logs| Looked::up(&core, logs, (log, last), from);
        let is_same = |then: &Looked, now: &Looked| then.spans.first() == now.spans.first();
        let read = core.records.read_found(look_up, is_same, |looked| {
            self.before = (looked.removals, looked.truncated);
            match self.read_spans(looked) {
                // Return the records read before the error first.
                Err(_) if !self.ahead.is_empty() => Ok(()),
                read => read,
            }
        });
        if read?.is_none() {
            self.files.clear();
        }
        Ok(())
    }

    fn read_spans(&mut self, looked: &Looked) -> Result<()> {
        let (wanted, most) = self.ahead_bytes;
        self.ahead_bytes.0 = (2 * wanted).min(most);
        let mut left = wanted as u64;
        for span in &looked.spans {
            let (source, rows) = match span.found {
                RecordLocation::Record(source, row) => (source, vec![row]),
                RecordLocation::Block(source, block) => {
                    let (at, lsns) = ((source, looked.taken_in), span.first..=span.last);
                    (source, self.core.records.rows_of(at, self.log, &lsns, block)?)
                }
            };
            let mut rows = &rows[..];
            while !rows.is_empty() {
                let count = self.read_some(source, rows, left)?;
                let (read, later) = rows.split_at(count.min(rows.len()));
                let bytes = read.iter().map(|row| u64::from(row.len)).sum();
                (rows, left) = (later, left.saturating_sub(bytes));
                if left == 0 {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Reads the first of these records; in a cold file also the following ones, up to `bytes`.
    /// Returns the number of records read.
    fn read_some(&mut self, source: Source, rows: &[Entry], bytes: u64) -> Result<usize> {
        if let Source::Cold(_) = source {
            let mut sum = 0;
            let fits = |row: &&Entry| {
                sum += u64::from(row.len);
                sum <= bytes
            };
            let some = rows.get(..rows.iter().take_while(fits).count().max(1)).unwrap_or_default();
            let cold = self.core.records.cold(source)?;
            // If one of the records is unreadable, read the earlier ones singly.
            if some.len() > 1
                && let Ok(count) = self.read_run(&cold, some)
            {
                return Ok(count);
            }
        }
        for row in rows.iter().take(1) {
            let mut record = Vec::with_capacity(row.len as usize);
            self.core.records.bytes_ahead(source, row, &mut self.files, &mut record)?;
            self.ahead.push_back((row.lsn, record));
        }
        Ok(1)
    }

    /// Reads records of a cold file in one request, all or none. Returns their number.
    fn read_run(&mut self, cold: &ColdFile, rows: &[Entry]) -> Result<usize> {
        let mut records = Vec::with_capacity(rows.len());
        cold.read_run(rows, &mut |row, bytes| {
            records.push((row.lsn, bytes.to_vec()));
            Ok(())
        })?;
        self.ahead.extend(records);
        Ok(rows.len())
    }
}

/// The positions of the next records of a scan, from one look-up.
struct Looked {
    /// Spans of the index, at least one.
    spans: Vec<Span>,
    /// Values of [`crate::logs::GroupLogs::taken_in`] and [`crate::logs::LiveRecords::truncated`]
    /// at the look-up.
    taken_in: u64,
    truncated: u64,
    /// Value of [`Catalog::removals`] at the look-up: the index reflects exactly these removals.
    removals: u64,
}

impl Looked {
    /// Looks up the records of a log from LSN `from` to `last`. Returns `None` if there are none.
    ///
    /// # Errors
    /// `NotFound` if the log does not exist; `Corruption` if the first of the records may be lost.
    fn up(core: &Core, logs: &Logs, (log, last): (LogId, Lsn), from: Lsn) -> Result<Option<Looked>> {
        let log = logs.log(log)?;
        // The index may still have trimmed records.
        let from = from.max(log.live().trimmed_below());
        let lost = log.lost().first(from).filter(|lost| *lost <= last);
        if lost.is_some_and(|lost| lost <= from) {
            return log.lost().check(from, last).map(|()| None);
        }
        // Lost records are reported when the scan reaches them.
        let end = lost.map_or(last, |lost| lost - 1);
        let mut spans = Vec::new();
        log.live().index().spans(log.id(), from, SPANS, &mut spans);
        spans.retain_mut(|span| {
            span.last = span.last.min(end);
            span.first <= end
        });
        let (taken_in, truncated) = (logs.groups().taken_in(), log.live().truncated());
        let looked = Looked { spans, taken_in, truncated, removals: core.catalog.removals() };
        Ok(Some(looked).filter(|looked| !looked.spans.is_empty()))
    }
}

impl Iterator for Scan {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_next().transpose()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Durability, LogStore, Options};
    use io::sim::SimEnv;
    use std::path::Path;

    /// A scan compares the two values to detect that its read-ahead may be gone.
    #[test]
    fn a_removal_after_a_lookup_is_noticed() {
        let env = SimEnv::new(1).env();
        let store = LogStore::open(&env, Path::new("/logs"), &Options::default()).unwrap();
        let log = store.create_log("a").unwrap();
        (1..=3).for_each(|lsn| log.append(lsn, b"record", Durability::Durable).unwrap());
        let core = store.core();
        let look_up = || Looked::up(core, &core.catalog.view(), (log.id(), Lsn::MAX), 0).unwrap().unwrap();
        let looked = look_up();
        assert_eq!(looked.removals, core.catalog.removals());
        log.truncate_after(1, Durability::Durable).unwrap();
        assert_eq!(looked.removals + 1, core.catalog.removals());
        assert!(look_up().removals == core.catalog.removals() && look_up().truncated == looked.truncated + 1);
    }
}
