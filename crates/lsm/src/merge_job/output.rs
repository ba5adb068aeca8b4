//! The files a merge job writes: where each ends, and which pieces of the range tombstones it carries.
//!
//! The job's part of the key space is cut at the user keys where the cutter wants a new file, and only there, so no
//! user key spans two files. Each file owns the stretch from its cut to the next one, gaps between its keys and those
//! of the next file included, and gets the pieces of the retained range tombstones inside that stretch. Together the
//! pieces cover exactly what the tombstones covered. A file may hold nothing but such pieces; the start of a tombstone
//! is also a place where the cutter is asked, or a run of range deletes without keys would become one wide file.

use super::Hooks;
use base::Result;
use base::range_del::{Fragment, RangeTombstone};
use std::path::PathBuf;

/// A table being written.
pub trait OutputTable {
    /// What a finished table is described by.
    type Finished;
    /// Adds an entry: internal keys ascend strictly.
    fn add(&mut self, ikey: &[u8], value: &[u8]) -> Result<()>;
    /// Adds a range tombstone: in order of start, then newest first.
    fn add_range_tombstone(&mut self, tombstone: &RangeTombstone) -> Result<()>;
    /// Bytes of the file if it were finished now.
    fn len_estimate(&self) -> u64;
    /// Uncompressed bytes of its entries, separated values included.
    fn raw_bytes(&self) -> u64;
    /// Writes what is left and syncs the file.
    fn finish(self) -> Result<Self::Finished>;
}

/// A new output file.
#[derive(Debug)]
pub struct OutputFile<T> {
    /// Its number.
    pub number: u64,
    /// Its path.
    pub path: PathBuf,
    /// The table to fill.
    pub table: T,
}

/// Makes output files.
pub trait OutputFiles<T> {
    /// A new file. If this fails it must leave no file behind.
    fn create(&mut self) -> Result<OutputFile<T>>;
}

/// How full the output is that is open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputSize {
    /// Uncompressed bytes, separated values included.
    pub raw_bytes: u64,
    /// Bytes of the file if it were finished now.
    pub file_bytes: u64,
    /// True if it holds nothing, neither entries nor range tombstones: there is nothing to cut.
    pub is_empty: bool,
}

/// Decides where output files end.
pub trait OutputCutter {
    /// Asked before the first entry of each user key that is written, in ascending order, and at the start of each
    /// range tombstone. True ends the open output (if it is not empty) before `next_user_key`.
    fn cut_before(&mut self, next_user_key: &[u8], open: OutputSize) -> bool;
}

/// Ends files at a size.
#[derive(Clone, Copy, Debug)]
pub struct SizeCutter {
    /// Uncompressed bytes after which a file ends.
    pub raw_bytes: u64,
}

impl OutputCutter for SizeCutter {
    fn cut_before(&mut self, _next_user_key: &[u8], open: OutputSize) -> bool {
        open.raw_bytes >= self.raw_bytes
    }
}

/// A finished output.
#[derive(Clone, Debug)]
pub struct MergeOutput<F> {
    /// File number.
    pub number: u64,
    /// Path.
    pub path: PathBuf,
    /// What the table says of itself.
    pub table: F,
}

struct Open<T> {
    number: u64,
    path: PathBuf,
    table: T,
}

pub(super) struct Output<T: OutputTable> {
    open: Option<Open<T>>,
    /// The range tombstones that must go on existing.
    tombstones: Vec<Fragment>,
    /// The first fragment that is not wholly written.
    piece: usize,
    /// The first fragment whose start was not passed.
    passed: usize,
    /// The first fragment that does not end before the last key asked by [`Output::deletes`].
    covering: usize,
    /// True if a fragment belongs to the open stretch.
    has_tombstones: bool,
    /// Where the open stretch begins; `None`: before every key.
    low: Option<Vec<u8>>,
    created: Vec<(u64, PathBuf)>,
    finished: Vec<MergeOutput<T::Finished>>,
    /// Bytes of finished files.
    finished_bytes: u64,
    range_tombstones: u64,
}

impl<T: OutputTable> Output<T> {
    pub(super) fn new(low: Option<Vec<u8>>) -> Self {
        Output {
            open: None,
            tombstones: Vec::new(),
            piece: 0,
            passed: 0,
            covering: 0,
            has_tombstones: false,
            low,
            created: Vec::new(),
            finished: Vec::new(),
            finished_bytes: 0,
            range_tombstones: 0,
        }
    }

    pub(super) fn set_tombstones(&mut self, tombstones: Vec<Fragment>) {
        self.tombstones = tombstones;
    }

    pub(super) fn created(&self) -> &[(u64, PathBuf)] {
        &self.created
    }

    pub(super) fn take_finished(&mut self) -> Vec<MergeOutput<T::Finished>> {
        std::mem::take(&mut self.finished)
    }

    pub(super) fn range_tombstones(&self) -> u64 {
        self.range_tombstones
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.finished_bytes + self.open.as_ref().map_or(0, |o| o.table.len_estimate())
    }

    /// True if a range tombstone that is kept covers `user_key` (keys are asked in ascending order).
    pub(super) fn deletes(&mut self, user_key: &[u8]) -> bool {
        while self.tombstones.get(self.covering).is_some_and(|f| f.end.as_slice() <= user_key) {
            self.covering += 1;
        }
        self.tombstones.get(self.covering).is_some_and(|f| f.start.as_slice() <= user_key)
    }

    /// Before the first entry of a user key: passes the tombstones that start up to it and cuts where the cutter
    /// says.
    pub(super) fn begin_key(&mut self, hooks: &mut Hooks<'_, T>, user_key: &[u8]) -> Result<()> {
        self.pass_tombstones(hooks, Some(user_key))?;
        self.ask(hooks, user_key)?;
        if self.tombstones.get(self.passed).is_some_and(|f| f.start.as_slice() == user_key) {
            self.passed += 1;
            self.has_tombstones = true;
        }
        Ok(())
    }

    /// Passes the tombstones that start before `limit`.
    fn pass_tombstones(&mut self, hooks: &mut Hooks<'_, T>, limit: Option<&[u8]>) -> Result<()> {
        while let Some(f) = self.tombstones.get(self.passed)
            && limit.is_none_or(|limit| f.start.as_slice() < limit)
        {
            let start = f.start.clone();
            self.ask(hooks, &start)?;
            self.passed += 1;
            self.has_tombstones = true;
        }
        Ok(())
    }

    fn ask(&mut self, hooks: &mut Hooks<'_, T>, next: &[u8]) -> Result<()> {
        let size = match &self.open {
            Some(o) => OutputSize {
                raw_bytes: o.table.raw_bytes(),
                file_bytes: o.table.len_estimate(),
                is_empty: false,
            },
            None => OutputSize { is_empty: !self.has_tombstones, ..OutputSize::default() },
        };
        if hooks.cutter.cut_before(next, size) && !size.is_empty {
            self.close(hooks, Some(next))?;
        }
        Ok(())
    }

    /// Writes an entry.
    #[inline]
    pub(super) fn add(&mut self, hooks: &mut Hooks<'_, T>, ikey: &[u8], value: &[u8]) -> Result<()> {
        match &mut self.open {
            Some(open) => open.table.add(ikey, value),
            None => {
                self.create(hooks)?;
                let open = self.open.as_mut().expect("a file was just created");
                open.table.add(ikey, value)
            }
        }
    }

    fn create(&mut self, hooks: &mut Hooks<'_, T>) -> Result<()> {
        let OutputFile { number, path, table } = hooks.files.create()?;
        self.created.push((number, path.clone()));
        self.open = Some(Open { number, path, table });
        Ok(())
    }

    /// The end of the job's part of the key space.
    pub(super) fn finish(&mut self, hooks: &mut Hooks<'_, T>) -> Result<()> {
        self.pass_tombstones(hooks, None)?;
        self.close(hooks, None)?;
        assert_eq!(self.piece, self.tombstones.len(), "a range tombstone was not written");
        Ok(())
    }

    /// Ends the open stretch at `high` and its file, if it has anything to hold.
    fn close(&mut self, hooks: &mut Hooks<'_, T>, high: Option<&[u8]>) -> Result<()> {
        while let Some(f) = self.tombstones.get(self.piece)
            && high.is_none_or(|high| f.start.as_slice() < high)
        {
            let start = self.low.as_ref().filter(|&low| f.start < *low).unwrap_or(&f.start).clone();
            let ends_here = high.is_none_or(|high| f.end.as_slice() <= high);
            let end = if ends_here { f.end.clone() } else { high.unwrap_or_default().to_vec() };
            debug_assert!(start < end, "an empty piece of a range tombstone");
            if self.open.is_none() {
                self.create(hooks)?;
            }
            let (Some(open), Some(f)) = (&mut self.open, self.tombstones.get(self.piece)) else { break };
            let mut tombstone = RangeTombstone { start, end, seq: 0 };
            for &seq in &f.seqs {
                tombstone.seq = seq;
                open.table.add_range_tombstone(&tombstone)?;
                self.range_tombstones += 1;
            }
            if !ends_here {
                break;
            }
            self.piece += 1;
        }
        if let Some(Open { number, path, table }) = self.open.take() {
            let estimate = table.len_estimate();
            let table = table.finish().map_err(|e| e.at_file(&path))?;
            self.finished_bytes += estimate;
            self.finished.push(MergeOutput { number, path, table });
        }
        self.low = high.map(<[u8]>::to_vec);
        // A fragment that reaches over the cut belongs to the next stretch as well.
        self.has_tombstones = self.piece < self.passed;
        Ok(())
    }
}
