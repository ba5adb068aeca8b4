//! Records of a log in the order of their LSNs, and waiting for those to come.
//!
//! A scan keeps no lock and pins nothing: it asks the index for the next spans, reads what they lead to, and asks again where that was
//! moved. So it sees every record that was there when it began and was not truncated before the scan came to it (nor trimmed, unless it was
//! read ahead by then), and of those that came meanwhile each above where it stands. What was read ahead and truncated since is not handed
//! out: others may be in its places.
//!
//! Records are read ahead: few at first, and twice as many each time, up to a bound. Those that lie one behind another in a group
//! (`store::commit::ReadAhead`) or in a cold file come with one request of the device.

use crate::cold::ColdFile;
use crate::core::Core;
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::index::{Found, Span};
use crate::logs::Logs;
use base::Result;
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;
use store::commit::ReadAhead;

/// Spans of the index that are asked for at once.
const SPANS: usize = 64;
/// Bytes of records that are read ahead at first.
const AHEAD_FIRST: usize = 16 << 10;
/// And at most, if nobody says otherwise.
const AHEAD_DEFAULT: usize = 512 << 10;
/// The most that may be asked for.
const AHEAD_MAX: usize = 8 << 20;

/// How long a reader sleeps that waits for records, before he looks whether the store is still sound.
const SLEEP_MAX: Duration = Duration::from_secs(1);

/// A record with its LSN.
pub type Record = (Lsn, Vec<u8>);

/// Goes through the records of a log. An iterator over results; after an error it may be asked again.
#[derive(Debug)]
pub struct Scan {
    core: Arc<Core>,
    log: LogId,
    next: Option<Lsn>,
    last: Lsn,
    /// Records that were read and not handed out.
    ahead: VecDeque<Record>,
    /// What [`Catalog::removals`] and [`crate::logs::LiveRecords::truncated`] were before these were looked for.
    before: (u64, u64),
    /// Bytes of them that are read the next time, and at most.
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

    /// As it is, but that at most so many bytes are read ahead (8 MiB at most; by default 512 KiB); 0: each record is read when it is
    /// asked for.
    #[must_use]
    pub fn reading_ahead(mut self, bytes: usize) -> Scan {
        let most = bytes.min(AHEAD_MAX);
        self.ahead_bytes = (AHEAD_FIRST.min(most), most);
        self.files = ReadAhead::new(most as u64);
        self
    }

    /// The next record; `None` if there is none for the moment, or behind the last LSN of the scan.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted; `Corruption` of the file that the next record is in, or may have been in ([`Scan::skip_to`] goes
    /// behind it); those of reading.
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

    /// Appends the bytes of the next record to `out` and returns its LSN; `None` as [`Scan::read_next`] says.
    ///
    /// # Errors
    /// As there; `out` is then as it was.
    pub fn read_next_into(&mut self, out: &mut Vec<u8>) -> Result<Option<Lsn>> {
        let next = self.read_next()?;
        Ok(next.map(|(lsn, bytes)| {
            out.extend_from_slice(&bytes);
            lsn
        }))
    }

    /// The next record, which is waited for if there is none yet, so long at most. `None` at once behind the last LSN of the scan.
    ///
    /// # Errors
    /// As [`Scan::read_next`]; `Closed` if the store is closed meanwhile.
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
            // Nobody else is there to write: what is under way is done meanwhile.
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

    /// Leaves out what is damaged, and goes on behind it: up to this LSN.
    pub fn skip_to(&mut self, lsn: Lsn) {
        self.ahead.clear();
        self.next = self.next.map(|next| next.max(lsn));
    }

    /// Forgets what was read ahead if something of the log was truncated since, or the log deleted.
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
                // What was read before the error is handed out first.
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
                Found::Record(source, row) => (source, vec![row]),
                Found::Block(source, block) => {
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

    /// Reads the first of some records, and of a cold file those behind it, up to so many bytes. Returns how many.
    fn read_some(&mut self, source: Source, rows: &[Entry], bytes: u64) -> Result<usize> {
        if let Source::Cold(_) = source {
            let mut sum = 0;
            let fits = |row: &&Entry| {
                sum += u64::from(row.len);
                sum <= bytes
            };
            let some = rows.get(..rows.iter().take_while(fits).count().max(1)).unwrap_or_default();
            let cold = self.core.records.cold(source)?;
            // Where one of them cannot be read, those before it can.
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

    /// Reads records of a cold file with one request: all of them, or none. Returns how many.
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

/// Where the next records of a scan are, as the index said.
struct Looked {
    /// One at least.
    spans: Vec<Span>,
    /// What [`crate::logs::GroupLogs::taken_in`] and [`crate::logs::LiveRecords::truncated`] were.
    taken_in: u64,
    truncated: u64,
    /// [`Catalog::removals`] before the look-up: the index has these and no more.
    removals: u64,
}

impl Looked {
    /// Where those of a log from one LSN to another are. `None` if there are none.
    ///
    /// # Errors
    /// `NotFound` if there is no such log; `Corruption` if the first of them may be lost.
    fn up(core: &Core, logs: &Logs, (log, last): (LogId, Lsn), from: Lsn) -> Result<Option<Looked>> {
        let log = logs.log(log)?;
        // What is trimmed may be in the index still.
        let from = from.max(log.live().trimmed_below());
        let lost = log.lost().first(from).filter(|lost| *lost <= last);
        if lost.is_some_and(|lost| lost <= from) {
            return log.lost().check(from, last).map(|()| None);
        }
        // What may be lost is told when the scan comes there.
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

    /// A scan compares the two to find out that what it read ahead may be gone.
    #[test]
    fn a_removal_behind_a_look_up_is_not_among_those_that_it_saw() {
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
