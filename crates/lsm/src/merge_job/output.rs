//! The output files of a merge job: where each file ends, and which pieces of the range tombstones
//! it gets.
//!
//! The job's key range is cut only at user keys where the cutter ends a file, so no user key spans
//! two files. Each file owns the key range from its cut to the next one, including the gap before
//! the first key of the next file. It gets the pieces of the kept range tombstones inside its
//! range. Together the pieces cover exactly the same keys as the tombstones. A file may hold only
//! such pieces. The cutter is asked at the start of each tombstone too; otherwise many range
//! deletes without keys would become one wide file.

use super::JobEnv;
use base::Result;
use base::range_del::{Fragment, RangeTombstone};
use std::path::PathBuf;

/// A table being written.
pub trait OutputTable {
    /// Description of a finished table.
    type Finished;
    /// Adds an entry. Internal keys must ascend strictly.
    fn add(&mut self, ikey: &[u8], value: &[u8]) -> Result<()>;
    /// Adds a range tombstone. They must be in order of start, then newest first.
    fn add_range_tombstone(&mut self, tombstone: &RangeTombstone) -> Result<()>;
    /// Returns the length that the file would have if it were finished now.
    fn len_estimate(&self) -> u64;
    /// Returns the uncompressed bytes of the entries, separated values included.
    fn raw_bytes(&self) -> u64;
    /// Writes the remaining data and syncs the file.
    fn finish(self) -> Result<Self::Finished>;
}

/// A new output file.
#[derive(Debug)]
pub struct OutputFile<T> {
    /// File number.
    pub number: u64,
    /// Path of the file.
    pub path: PathBuf,
    /// Builder of the table.
    pub table: T,
}

/// Creates output files.
pub trait OutputFiles<T> {
    /// Creates a file. On failure it must leave no file behind.
    fn create(&mut self) -> Result<OutputFile<T>>;
}

/// Size of the open output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutputSize {
    /// Uncompressed bytes, separated values included.
    pub raw_bytes: u64,
    /// Length that the file would have if it were finished now.
    pub file_bytes: u64,
    /// True if the output has neither entries nor range tombstones, so there is nothing to cut.
    pub is_empty: bool,
}

/// Decides where output files end.
pub trait OutputCutter {
    /// Returns true to end the open output (if it is not empty) before `next_user_key`. Called in
    /// ascending order, before the first written entry of each user key and at the start of each
    /// range tombstone.
    fn cut_before(&mut self, next_user_key: &[u8], open: OutputSize) -> bool;
}

/// Cutter that ends files at a size.
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
    /// Description of the table.
    pub table: F,
}

struct Open<T> {
    number: u64,
    path: PathBuf,
    table: T,
}

pub(super) struct Output<T: OutputTable> {
    open: Option<Open<T>>,
    /// Range tombstones that the job must keep.
    tombstones: Vec<Fragment>,
    /// Index of the first fragment that is not completely written.
    piece: usize,
    /// Index of the first fragment whose start was not passed.
    passed: usize,
    /// Index of the first fragment that does not end before the last key asked by
    /// [`Output::deletes`].
    covering: usize,
    /// True if a fragment overlaps the open range.
    has_tombstones: bool,
    /// Start of the open range; `None`: before every key.
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

    /// Returns true if a kept range tombstone covers `user_key`. Keys must ascend from call to
    /// call.
    pub(super) fn deletes(&mut self, user_key: &[u8]) -> bool {
        while self.tombstones.get(self.covering).is_some_and(|f| f.end.as_slice() <= user_key) {
            self.covering += 1;
        }
        self.tombstones.get(self.covering).is_some_and(|f| f.start.as_slice() <= user_key)
    }

    /// Prepares for the first entry of a user key: passes the tombstones that start at or before
    /// it, and cuts if the cutter says so.
    pub(super) fn begin_key(&mut self, hooks: &mut JobEnv<'_, T>, user_key: &[u8]) -> Result<()> {
        self.pass_tombstones(hooks, Some(user_key))?;
        self.ask(hooks, user_key)?;
        if self.tombstones.get(self.passed).is_some_and(|f| f.start.as_slice() == user_key) {
            self.passed += 1;
            self.has_tombstones = true;
        }
        Ok(())
    }

    /// Passes the tombstones that start before `limit`.
    fn pass_tombstones(&mut self, hooks: &mut JobEnv<'_, T>, limit: Option<&[u8]>) -> Result<()> {
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

    fn ask(&mut self, hooks: &mut JobEnv<'_, T>, next: &[u8]) -> Result<()> {
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

    /// Writes an entry, and creates a file if none is open.
    #[inline]
    pub(super) fn add(&mut self, hooks: &mut JobEnv<'_, T>, ikey: &[u8], value: &[u8]) -> Result<()> {
        match &mut self.open {
            Some(open) => open.table.add(ikey, value),
            None => {
                self.create(hooks)?;
                let open = self.open.as_mut().expect("a file was just created");
                open.table.add(ikey, value)
            }
        }
    }

    fn create(&mut self, hooks: &mut JobEnv<'_, T>) -> Result<()> {
        let OutputFile { number, path, table } = hooks.files.create()?;
        self.created.push((number, path.clone()));
        self.open = Some(Open { number, path, table });
        Ok(())
    }

    /// Finishes the output at the end of the job's key range.
    pub(super) fn finish(&mut self, hooks: &mut JobEnv<'_, T>) -> Result<()> {
        self.pass_tombstones(hooks, None)?;
        self.close(hooks, None)?;
        assert_eq!(self.piece, self.tombstones.len(), "a range tombstone was not written");
        Ok(())
    }

    /// Ends the open range at `high`, and finishes its file if it has content.
    fn close(&mut self, hooks: &mut JobEnv<'_, T>, high: Option<&[u8]>) -> Result<()> {
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
        // A fragment that crosses the cut overlaps the next range as well.
        self.has_tombstones = self.piece < self.passed;
        Ok(())
    }
}
