//! Check of a cold file: its rows, and the record of each row, one log after another.
//!
//! The records of a block of rows are read together in pieces; after a failure, one by one, to
//! identify the damaged ones. Records are adjacent without gaps. So every byte of the file is read,
//! as long as the rows are intact.

use super::report::{LossesByPosition, VerifyReport};
use super::{alive_of, is_there, lost_runs, missing_is_damage, name_of, part_runs};
use crate::cold::ColdFile;
use crate::core::Core;
use crate::disk::directory::{Directory, LogRows};
use crate::entry::{Entry, Lsn, Source};
use crate::files::RowFile;
use crate::lsn_set::LsnSet;
use crate::manifest::FileMeta;
use base::Error;
use std::sync::Arc;

/// Bytes of records that are read together.
const RUN_LEN: u64 = 1 << 20;

pub(super) struct ColdCheck {
    meta: FileMeta,
    file: Arc<ColdFile>,
    directory: Directory,
    /// Number of logs already read.
    at: usize,
    /// Expected offset of the next record, if the previous rows were intact.
    next: Option<u64>,
    losses: LossesByPosition,
    records: u64,
    record_bytes: u64,
}

impl ColdCheck {
    /// Opens the file. Returns `None` if it is unreadable, which is reported, or gone.
    pub fn open(core: &Core, meta: &FileMeta, report: &mut VerifyReport) -> Option<ColdCheck> {
        match RowFile::open(core.context(), meta) {
            Ok((RowFile::Cold(file), directory)) => Some(ColdCheck {
                meta: *meta,
                file,
                directory,
                at: 0,
                next: Some(0),
                losses: LossesByPosition::default(),
                records: 0,
                record_bytes: 0,
            }),
            Err(e) if is_there(core, meta.number) => {
                let (e, mut losses) = (missing_is_damage(core, meta, e), LossesByPosition::default());
                losses.note(&e);
                let source = Source::Cold(meta.number);
                part_runs(core, source, |log, first, last| losses.lose(&e, log, first, last));
                lost_runs(core, source, |log, first, last| losses.lose(&e, log, first, last));
                losses.tell(report, |log| name_of(core, log));
                None
            }
            _ => None,
        }
    }

    /// Reads the next log. Returns false after the last one, when the findings are in the report.
    pub fn step(&mut self, core: &Core, report: &mut VerifyReport) -> bool {
        let Some(rows) = self.directory.logs.get(self.at) else {
            self.finish(core, report);
            return false;
        };
        self.at += 1;
        let rows = rows.clone();
        self.check_log(core, &rows);
        true
    }

    fn check_log(&mut self, core: &Core, rows: &LogRows) {
        let alive = alive_of(&core.catalog, Source::Cold(self.meta.number), rows);
        for (i, block) in rows.blocks.iter().enumerate() {
            match self.file.block(rows.log, *block) {
                Ok(entries) => self.check_block(&entries, &alive),
                Err(e) => {
                    self.losses.note(&e);
                    self.next = None;
                    let next = rows.blocks.get(i + 1);
                    let (first, last) = (block.first, next.map_or(Lsn::MAX, |next| next.first - 1));
                    let lost = alive.runs_from(first).take_while(|run| run.first <= last);
                    lost.for_each(|run| {
                        self.losses.lose(&e, rows.log, run.first.max(first), run.last().min(last));
                    });
                }
            }
        }
        // The blocks may be intact and still differ from the directory.
        if let Err(e) = self.file.each_of(rows, &mut |_| Ok(())) {
            self.losses.note(&e);
        }
    }

    fn check_block(&mut self, entries: &[Entry], alive: &LsnSet) {
        let mut rest = entries;
        while let Some(first) = rest.first() {
            let end = first.at.saturating_add(RUN_LEN);
            let fits = |row: &Entry| row.at.saturating_add(ColdFile::stored_len(row)) <= end;
            let (now, later) = rest.split_at(rest.partition_point(fits).max(1));
            if self.file.read_run(now, &mut |_, _| Ok(())).is_err() {
                now.iter().for_each(|row| self.read_alone(row, alive));
            } else {
                now.iter().for_each(|row| self.found(row, alive));
            }
            for row in now {
                if self.next.is_some_and(|next| next != row.at) {
                    let why = format!(
                        "the index of the cold file has no record for the bytes before this offset, where {row} begins"
                    );
                    let path = self.file.path();
                    self.losses.note(&Error::corruption(why).at_file(path).at_offset(row.at));
                }
                self.next = Some(row.at.saturating_add(ColdFile::stored_len(row)));
            }
            rest = later;
        }
    }

    fn found(&mut self, row: &Entry, alive: &LsnSet) {
        if alive.contains(row.lsn) {
            self.records += 1;
            self.record_bytes += u64::from(row.len);
        }
    }

    fn read_alone(&mut self, row: &Entry, alive: &LsnSet) {
        match self.file.read(row, &mut Vec::new()) {
            Ok(()) => self.found(row, alive),
            Err(e) if alive.contains(row.lsn) => self.losses.lose(&e, row.log, row.lsn, row.lsn),
            Err(e) => self.losses.note(&e),
        }
    }

    fn finish(&mut self, core: &Core, report: &mut VerifyReport) {
        if let Some(next) = self.next.filter(|next| *next != self.file.records_end()) {
            let why = "the index of the cold file has no record for the bytes from this offset on";
            self.losses.note(&Error::corruption(why).at_file(self.file.path()).at_offset(next));
        }
        report.checked.cold_files.add(1, self.meta.len);
        report.checked.records.add(self.records, self.record_bytes);
        std::mem::take(&mut self.losses).tell(report, |log| name_of(core, log));
    }
}
