//! Files of rows, open: what leads from an LSN to a record where memory only knows the block.
//!
//! A file is found by what it has the rows of, since collection may put another in its place at any moment: who finds that it
//! is gone (`NotFound`) asks the index again.

use crate::cold::ColdFile;
use crate::disk::directory::{Block, Directory, LogRows};
use crate::disk::{prefetched, recorded};
use crate::entry::{Entry, LogId, Lsn, Source};
use crate::index_file::IndexFile;
use crate::manifest::{FileMeta, Role, State};
use base::sync::{RwLock, rank, read, write};
use base::{Error, ErrorKind, HashMap, Result};
use io::{Access, ReadFile};
use std::ops::RangeInclusive;
use std::sync::Arc;
use store::context::Context;
use store::descriptors::LOG_PARTS;
use store::files::OpenFiles;
use store::volumes::Volume;

/// A file that has rows.
#[derive(Clone, Debug)]
pub(crate) enum RowFile {
    /// Of a group.
    Index(Arc<IndexFile>),
    /// Of its own records.
    Cold(Arc<ColdFile>),
}

impl RowFile {
    /// Opens one, with its directory.
    pub fn open(context: &Context, meta: &FileMeta) -> Result<(RowFile, Directory)> {
        RowFile::over(context, meta, context.open(Volume::DIRECTORY, &meta.name(), Access::Direct)?)
    }

    /// Opens some, with their directories, which are read with as many requests in flight as the system takes.
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

    /// One that is open.
    fn over(context: &Context, meta: &FileMeta, file: Arc<dyn ReadFile>) -> Result<(RowFile, Directory)> {
        let file = recorded::up_to(file, meta.len);
        match meta.role {
            Role::Index { ltn } => {
                let (file, directory) = IndexFile::open(file, meta.number, meta.uid)?;
                if file.head().ltn != ltn {
                    let why =
                        format!("an index of group {} where that of group {ltn} belongs", file.head().ltn);
                    return Err(Error::corruption(why).at_file(context.path(&meta.name())));
                }
                Ok((RowFile::Index(Arc::new(file)), directory))
            }
            Role::Cold { .. } => {
                let (file, directory) = ColdFile::open(file, meta.number, meta.uid)?;
                Ok((RowFile::Cold(Arc::new(file)), directory))
            }
            Role::Checkpoint => unreachable!("a checkpoint has no source, by which files are asked for rows"),
        }
    }

    /// The rows of a block.
    pub fn block(&self, log: LogId, block: Block) -> Result<Vec<Entry>> {
        match self {
            RowFile::Index(file) => file.block(log, block),
            RowFile::Cold(file) => file.block(log, block),
        }
    }

    /// All rows of a log, LSNs ascending.
    pub fn each_of(&self, log: &LogRows, take: &mut dyn FnMut(&Entry) -> Result<()>) -> Result<()> {
        match self {
            RowFile::Index(file) => file.each_of(log, take),
            RowFile::Cold(file) => file.each_of(log, take),
        }
    }
}

/// The files of rows. They are here from before the index leads to them until after it has ceased to.
#[derive(Debug)]
pub(crate) struct RowFiles {
    context: Arc<Context>,
    /// Guards which file has the rows of a source.
    known: RwLock<HashMap<Source, FileMeta>, rank::RecordFiles>,
    /// Those that are open, at most so many.
    open: OpenFiles<RowFile>,
}

impl RowFiles {
    /// Those that a state names; at most `open_max` are open at once.
    pub fn new(context: &Arc<Context>, state: &State, open_max: usize) -> RowFiles {
        let known = state.files.values().filter_map(|meta| Some((meta.source()?, *meta))).collect();
        let open = OpenFiles::new(open_max);
        open.share(&context.volumes.directory().descriptors, LOG_PARTS);
        RowFiles { context: context.clone(), known: RwLock::new(known), open }
    }

    /// Closes all files: the store is closed.
    pub fn end(&self) {
        self.open.end();
    }

    /// A file is named, and the index is going to lead to it.
    pub fn add(&self, meta: &FileMeta) {
        if let Some(source) = meta.source() {
            write(&self.known).insert(source, *meta);
        }
    }

    /// Nothing leads to the rows of a source any more, and the file that has them is going to be removed.
    pub fn forget(&self, source: Source) {
        if let Some(meta) = write(&self.known).remove(&source) {
            self.open.forget(meta.number);
        }
    }

    /// The number of the file that has the rows of a source.
    pub fn number(&self, source: Source) -> Option<u64> {
        read(&self.known).get(&source).map(|meta| meta.number)
    }

    /// Another file has taken the place of this one, which is going to be removed.
    pub fn close(&self, number: u64) {
        self.open.forget(number);
    }

    /// The file that has the rows of a source.
    ///
    /// # Errors
    /// `NotFound` if it was collected; those of opening it.
    pub fn of(&self, source: Source) -> Result<RowFile> {
        let meta = |source| read(&self.known).get(&source).copied();
        let gone = || Error::not_found(format!("nothing has the rows of {source:?} any more"));
        let found = meta(source).ok_or_else(gone)?;
        let opened =
            self.open.find(found.number, || RowFile::open(&self.context, &found).map(|(file, _)| file));
        opened.map_err(|e| match e.kind() {
            // It is lost, unless it was collected or made again in this moment.
            ErrorKind::NotFound if meta(source).is_some_and(|meta| meta.number == found.number) => {
                e.with_kind(ErrorKind::Corruption)
            }
            _ => e,
        })
    }

    /// The rows of some consecutive records, in the block that is said to have them.
    ///
    /// # Errors
    /// As [`RowFiles::of`]; `Corruption` if the block has not all of them.
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
            "records {first} to {last} of log {log} are not in the block of {source:?} that should lead to them"
        );
        Err(Error::corruption(why))
    }
}
