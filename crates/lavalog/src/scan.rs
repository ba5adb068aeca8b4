//! Records of a log in the order of their LSNs, and waiting for those to come.
//!
//! A scan keeps no lock and pins nothing: it asks the index for the next spans, reads what they lead to, and asks again where that was
//! moved. So it sees every record that was there when it began and was not trimmed or truncated before the scan came to it, and of
//! those that came meanwhile each above where it stands.

use crate::core::Core;
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::index::{Found, Span};
use base::sync::read;
use base::{Error, ErrorKind, Result};
use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

/// Spans of the index that are asked for at once.
const SPANS: usize = 64;
/// Bytes of records that are read ahead.
const AHEAD_BYTES: usize = 256 << 10;
/// How often a scan asks again without getting on.
const MOVES_MAX: usize = 64;

/// A record with its LSN.
pub type Record = (Lsn, Vec<u8>);

/// Goes through the records of a log. An iterator over results; after an error it may be asked again.
#[derive(Debug)]
pub struct Scan {
    core: Arc<Core>,
    log: LogId,
    next: Option<Lsn>,
    last: Lsn,
    ahead: VecDeque<Record>,
}

impl Scan {
    pub(crate) fn new(core: &Arc<Core>, log: LogId, lsns: RangeInclusive<Lsn>) -> Scan {
        let (first, last) = lsns.into_inner();
        let next = Some(first).filter(|first| *first <= last);
        Scan { core: core.clone(), log, next, last, ahead: VecDeque::new() }
    }

    /// The next record; `None` if there is none for the moment, or behind the last LSN of the scan.
    ///
    /// # Errors
    /// `NotFound` if the log was deleted; `Corruption` of the file that the next record is in; those of reading.
    pub fn read_next(&mut self) -> Result<Option<Record>> {
        if self.ahead.is_empty() {
            self.read_ahead()?;
        }
        let record = self.ahead.pop_front();
        if let Some((lsn, _)) = &record {
            self.next = lsn.checked_add(1).filter(|next| *next <= self.last);
        }
        Ok(record)
    }

    /// The next record, which is waited for if there is none yet, so long at most. `None` at once behind the last LSN of the scan.
    ///
    /// # Errors
    /// As [`Scan::read_next`]; `Closed` if the store is closed meanwhile.
    pub fn wait_next(&mut self, timeout: Duration) -> Result<Option<Record>> {
        let context = self.core.context().clone();
        let end_ns = context.now_ns().saturating_add(timeout.as_nanos().try_into().unwrap_or(u64::MAX));
        context.wait_until(|| match self.read_next() {
            Ok(None) if self.next.is_some() && context.now_ns() < end_ns => {
                context.health.check_sound().err().map(Err)
            }
            done => Some(done),
        })
    }

    /// Leaves out what is damaged, and goes on behind it: up to this LSN.
    pub fn skip_to(&mut self, lsn: Lsn) {
        self.ahead.clear();
        self.next = self.next.map(|next| next.max(lsn));
    }

    fn read_ahead(&mut self) -> Result<()> {
        let Some(mut from) = self.next else { return Ok(()) };
        for _ in 0..MOVES_MAX {
            let mut spans = Vec::new();
            read(&self.core.logs).log(self.log)?.index().spans(self.log, from, SPANS, &mut spans);
            spans.retain(|span| span.first <= self.last);
            let Some(last) = spans.last().map(|span| span.last) else { return Ok(()) };
            match self.read_spans(&spans, from) {
                // What was read before the error is handed out first.
                Err(_) if !self.ahead.is_empty() => return Ok(()),
                // Something was moved since it was found, or has gone.
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Ok(()) if self.ahead.is_empty() => from = last.saturating_add(1),
                done => return done,
            }
        }
        let why = "records were moved again and again while they were read: read on";
        Err(Error::new(ErrorKind::Busy, why))
    }

    fn read_spans(&mut self, spans: &[Span], from: Lsn) -> Result<()> {
        let mut bytes = 0;
        for span in spans {
            let rows = match span.found {
                Found::Record(source, row) => vec![(source, row)],
                Found::Block(source, block) => {
                    let rows = self.core.rows.of(source)?.block(self.log, block)?;
                    let wanted = span.first.max(from)..=span.last.min(self.last);
                    rows.into_iter()
                        .filter(|row| wanted.contains(&row.lsn))
                        .map(|row| (source, row))
                        .collect()
                }
            };
            for (source, row) in rows {
                bytes += self.read_row(source, &row)?;
                if bytes >= AHEAD_BYTES {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn read_row(&mut self, source: Source, row: &Entry) -> Result<usize> {
        let mut record = Vec::with_capacity(row.len as usize);
        self.core.bytes_of(source, row, &mut record)?;
        let len = record.len();
        self.ahead.push_back((row.lsn, record));
        Ok(len)
    }
}

impl Iterator for Scan {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read_next().transpose()
    }
}
