//! Open index and cold files, which have the rows of records that the in-memory index locates only
//! by block.
//!
//! Files are looked up by the source of their records, since garbage collection may replace a file
//! at any time. A reader that gets `NotFound` repeats its look-up in the index.

use crate::cold::ColdFile;
use crate::disk::directory::{Block, Directory, LogRows};
use crate::disk::{prefetched, recorded};
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::index_file::IndexFile;
use crate::manifest::{FileMeta, FileRole, LogManifestState};
use base::sync::{RwLock, rank, read, write};
use base::{Error, ErrorKind, HashMap, Result};
use io::{Access, ReadFile};
use std::ops::RangeInclusive;
use std::sync::Arc;
use store::context::Context;
use store::descriptors::LOG_PARTS;
use store::files::OpenFiles;
use store::volumes::Volume;

/// A file with rows.
#[derive(Clone, Debug)]
pub(crate) enum RowFile {
    /// The index file of a group.
    Index(Arc<IndexFile>),
    /// A cold file, with rows of its own records.
    Cold(Arc<ColdFile>),
}

impl RowFile {
    /// Opens a file with its directory.
    pub fn open(context: &Context, meta: &FileMeta) -> Result<(RowFile, Directory)> {
        RowFile::over(context, meta, context.open(Volume::DIRECTORY, &meta.name(), Access::Direct)?)
    }

    /// Opens several files with their directories. Reads their ends with as many requests in flight
    /// as the system allows.
    pub fn with_directories(context: &Context, metas: &[FileMeta]) -> Vec<Result<(RowFile, Directory)>> {
        let opened = |meta: &FileMeta| context.open(Volume::DIRECTORY, &meta.name(), Access::Direct);
        let opened: Vec<Result<_>> = metas.iter().map(opened).collect();
        let found = opened.iter().zip(metas).filter_map(|(file, meta)| Some((file.clone().ok()?, meta.len)));
        let mut with_ends = prefetched::with_ends(found.collect()).into_iter();
        let open = |(meta, file): (&FileMeta, Result<_>)| {
            let file = file.map(|file| with_ends.next().unwrap_or(file));
            RowFile::over(context, meta, file?)
        };
        metas.iter().zip(opened).map(open).collect()
    }

    /// Interprets an open file.
    fn over(context: &Context, meta: &FileMeta, file: Arc<dyn ReadFile>) -> Result<(RowFile, Directory)> {
        let file = recorded::up_to(file, meta.len);
        match meta.role {
            FileRole::Index { ltn } => {
                let (file, directory) = IndexFile::open(file, meta.number, meta.uid)?;
                if file.head().ltn != ltn {
                    let why = format!(
                        "the index file is of log group {}, expected was log group {ltn}: files were swapped",
                        file.head().ltn
                    );
                    return Err(Error::corruption(why).at_file(context.path(&meta.name())));
                }
                Ok((RowFile::Index(Arc::new(file)), directory))
            }
            FileRole::Cold { .. } => {
                let (file, directory) = ColdFile::open(file, meta.number, meta.uid)?;
                Ok((RowFile::Cold(Arc::new(file)), directory))
            }
            FileRole::Checkpoint => {
                unreachable!("a checkpoint has no source, by which files are asked for rows")
            }
        }
    }

    /// Reads the rows of a block.
    pub fn block(&self, log: LogId, block: Block) -> Result<Vec<Entry>> {
        match self {
            RowFile::Index(file) => file.block(log, block),
            RowFile::Cold(file) => file.block(log, block),
        }
    }

    /// Calls `take` for all rows of a log, LSNs ascending.
    pub fn each_of(&self, log: &LogRows, take: &mut dyn FnMut(&Entry) -> Result<()>) -> Result<()> {
        match self {
            RowFile::Index(file) => file.each_of(log, take),
            RowFile::Cold(file) => file.each_of(log, take),
        }
    }
}

/// The index and cold files. A file is registered before the index refers to it, and until the
/// index no longer does.
#[derive(Debug)]
pub(crate) struct RowFiles {
    context: Arc<Context>,
    /// Guards the map from each source to the file with its rows.
    known: RwLock<HashMap<Source, FileMeta>, rank::RecordFiles>,
    /// The open files, limited in number.
    open: OpenFiles<RowFile>,
}

impl RowFiles {
    /// Registers the files of a manifest state. At most `open_max` are open at once.
    pub fn new(context: &Arc<Context>, state: &LogManifestState, open_max: usize) -> RowFiles {
        let known = state.files.values().filter_map(|meta| Some((meta.source()?, *meta))).collect();
        let open = OpenFiles::new(open_max);
        open.share(&context.volumes.directory().descriptors, LOG_PARTS);
        RowFiles { context: context.clone(), known: RwLock::new(known), open }
    }

    /// Closes all files, because the store is closed.
    pub fn end(&self) {
        self.open.end();
    }

    /// Registers a file that the manifest names, before the index refers to it.
    pub fn add(&self, meta: &FileMeta) {
        if let Some(source) = meta.source() {
            write(&self.known).insert(source, *meta);
        }
    }

    /// Unregisters the file of a source that the index no longer refers to, before the file is
    /// removed.
    pub fn forget(&self, source: Source) {
        if let Some(meta) = write(&self.known).remove(&source) {
            self.open.forget(meta.number);
        }
    }

    /// Returns the number of the file with the rows of a source.
    pub fn number(&self, source: Source) -> Option<u64> {
        read(&self.known).get(&source).map(|meta| meta.number)
    }

    /// Closes a replaced file before it is removed.
    pub fn close(&self, number: u64) {
        self.open.forget(number);
    }

    /// Returns the file with the rows of a source.
    ///
    /// # Errors
    /// `NotFound` if the source was collected; I/O errors of opening the file.
    pub fn of(&self, source: Source) -> Result<RowFile> {
        let meta = |source| read(&self.known).get(&source).copied();
        let gone = || Error::not_found(format!("the index of {source} was removed"));
        let found = meta(source).ok_or_else(gone)?;
        let opened =
            self.open.find(found.number, || RowFile::open(&self.context, &found).map(|(file, _)| file));
        opened.map_err(|e| match e.kind() {
            // The file is lost, unless it was collected or rebuilt in this moment.
            ErrorKind::NotFound if meta(source).is_some_and(|meta| meta.number == found.number) => {
                e.with_kind(ErrorKind::Corruption)
            }
            _ => e,
        })
    }

    /// Reads the rows of consecutive records from the given block.
    ///
    /// # Errors
    /// The errors of [`RowFiles::of`]; `Corruption` if the block lacks some of the rows.
    pub fn rows(
        &self,
        source: Source,
        log: LogId,
        lsns: &RangeInclusive<Lsn>,
        block: Block,
    ) -> Result<Vec<Entry>> {
        let mut rows = self.of(source)?.block(log, block)?;
        rows.retain(|row| lsns.contains(&row.lsn));
        let mut wanted = lsns.clone();
        let is_next = |row: &Entry| wanted.next() == Some(row.lsn);
        if rows.iter().all(is_next) && wanted.is_empty() {
            return Ok(rows);
        }
        let (first, last) = (lsns.start(), lsns.end());
        let why = format!(
            "records {first} to {last} of log {log} are missing in their index block of {source}; other records stay readable"
        );
        Err(Error::corruption(why))
    }
}
