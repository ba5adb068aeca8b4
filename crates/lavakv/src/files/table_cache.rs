//! Open data files: one [`Ksst`] or [`Vsst`] for each file in use, at most `open_files_max` of
//! them.
//!
//! [`OpenFiles`] decides which files stay open; this module opens them.

use crate::context::Context;
use crate::files::damaged::Quarantine;
use crate::files::data_file::DataFile;
use base::sync::OnceLock;
use base::{Error, ErrorKind, Result, Uid};
use cache::Cache;
use io::ReadFile;
use lsm::TableSource;
use std::path::Path;
use std::sync::Arc;
use store::context::closed;
use store::files::OpenFiles;
use store::volumes::Volume;
use table::vsst::Vsst;
use table::{Ksst, ReadCounters, SegmentReader, Source, Stop};
use version::{Dependency, FileMeta, UseSums, VsstMeta, names};

pub(crate) struct TableCache {
    /// Unreadable files.
    pub quarantine: Quarantine,
    context: Arc<Context>,
    cache: Arc<Cache>,
    open: OpenFiles<OpenFile>,
    /// Set if the store is opened for reading.
    is_read: OnceLock<()>,
}

#[derive(Clone)]
enum OpenFile {
    Table(Arc<Ksst>),
    Vsst(Arc<Vsst>),
    Segment(Arc<SegmentReader>),
}

impl TableCache {
    pub fn new(context: &Arc<Context>, cache: Arc<Cache>) -> Self {
        let open = OpenFiles::new(context.open_files_max);
        open.share(&context.volumes.directory().descriptors, context.engines);
        let (context, is_read) = (context.clone(), OnceLock::new());
        TableCache { quarantine: Quarantine::default(), context, cache, open, is_read }
    }

    /// Takes over an open file from the cache of an earlier state of the store.
    pub fn take_over(&self, earlier: &TableCache, file: &DataFile) {
        let key = match file {
            DataFile::Table(meta) => key(meta.volume, meta.number),
            DataFile::Vsst(meta) => meta.number,
        };
        self.open.take_over(&earlier.open, key);
    }

    /// Forgets files before their removal. The block cache is scanned once for all of them.
    pub fn forget(&self, numbers: &[u64]) {
        for &number in numbers {
            let volumes = [Volume::DIRECTORY, Volume::FAST];
            volumes.iter().for_each(|volume| self.open.forget(key(*volume, number)));
            self.quarantine.forget(number);
        }
        self.cache.remove_files(numbers.iter().copied());
    }

    /// Closes the old file of a table that moved to another tier: later readers open the new one.
    pub fn close(&self, file: &FileMeta) {
        self.open.forget(key(file.volume, file.number));
    }

    /// Marks the store as read-only. A missing file may then have been closed here, and removed by
    /// the writing process.
    pub fn set_read(&self) {
        let _ = self.is_read.set(());
    }

    /// Closes all files, at the close of the store.
    pub fn end(&self) {
        self.open.end();
    }

    fn open_file(&self, volume: Volume, name: &str) -> Result<Arc<dyn ReadFile>> {
        if self.open.is_ended() {
            return Err(closed());
        }
        self.context.open(volume, name, self.context.options.access).map_err(|e| match e.kind() {
            // The next process may have removed the file.
            ErrorKind::NotFound if self.open.is_ended() => closed(),
            ErrorKind::NotFound if self.is_read.get().is_some() && self.open.has_closed() => Error::new(
                ErrorKind::Busy,
                format!(
                    "the process that writes the store removed the file, and the limit of open \
                     files here is {}: open the store again, or raise the limit (ulimit -n)",
                    self.context.open_files_allowed()
                ),
            )
            .at_file(self.context.path(name)),
            ErrorKind::NotFound => Error::corruption(
                "a file that the manifest or the log refers to is missing; data in other files stays \
                 readable",
            )
            .at_file(self.context.path(name)),
            _ => e,
        })
    }

    fn open_table<S: Source>(&self, file: &FileMeta, source: &mut S) -> Result<OpenFile, S::Stop> {
        let open = || self.open_file(file.volume, &file.kind().to_string());
        let handle = source.file(file.number, open)?;
        let path = handle.path().to_owned();
        let (number, cache) = (file.number, self.cache.clone());
        let table = Ksst::open_from(handle, number, file.uid, file.global_seq, cache, source);
        Ok(OpenFile::Table(Arc::new(table.map_err(|stop| stop.map(|e| e.at_file(path)))?)))
    }

    fn open_vsst<S: Source>(&self, meta: &VsstMeta, source: &mut S) -> Result<OpenFile, S::Stop> {
        let open = || self.open_file(meta.volume, &meta.kind().to_string());
        let handle = source.file(meta.number, open)?;
        let path = handle.path().to_owned();
        let vsst = Vsst::open_from(handle, meta.number, meta.uid, self.cache.clone(), source);
        Ok(OpenFile::Vsst(Arc::new(vsst.map_err(|stop| stop.map(|e| e.at_file(path)))?)))
    }

    /// Returns the open segment of a large value.
    pub fn segment(&self, number: u64, uid: Uid) -> Result<Arc<SegmentReader>> {
        let open = || -> Result<OpenFile> {
            let handle = self.open_file(Volume::DIRECTORY, &names::vsst(number))?;
            Ok(OpenFile::Segment(Arc::new(SegmentReader::open(handle, number, uid)?)))
        };
        match self.open.find(number, open)? {
            OpenFile::Segment(segment) => Ok(segment),
            _ => Err(another_kind(&self.context.dir, number)),
        }
    }

    /// Returns the open vSST of `meta`.
    pub fn vsst(&self, meta: &VsstMeta) -> Result<Arc<Vsst>> {
        self.vsst_from(meta, &mut ReadCounters::default())
    }

    /// Returns the bytes that [`TableCache::vsst`] reads to open a file that is not open yet.
    pub fn opening_bytes(&self, meta: &VsstMeta) -> u64 {
        if self.open.is_open(meta.number) { 0 } else { Vsst::opening_bytes(meta.len) }
    }

    /// Like [`TableCache::vsst`], with bytes from a source.
    pub fn vsst_from<S: Source>(&self, meta: &VsstMeta, source: &mut S) -> Result<Arc<Vsst>, S::Stop> {
        match self.open.find(meta.number, || self.open_vsst(meta, source))? {
            OpenFile::Vsst(vsst) => Ok(vsst),
            _ => Err(another_kind(&self.context.dir, meta.number).into()),
        }
    }

    /// Returns the open table of `file`, with bytes from a source.
    pub fn table_from<S: Source>(&self, file: &FileMeta, source: &mut S) -> Result<Arc<Ksst>, S::Stop> {
        match self.open.find(key(file.volume, file.number), || self.open_table(file, source))? {
            OpenFile::Table(table) => Ok(table),
            _ => Err(another_kind(&self.context.dir, file.number).into()),
        }
    }

    /// Reads the references of a table per name, in one read.
    ///
    /// # Errors
    /// `Corruption`, in the table, if the list differs from the sums in the manifest: edits derived
    /// from such a list would be wrong.
    pub fn dependencies(&self, file: &FileMeta) -> Result<Vec<Dependency>> {
        if file.uses.sums().names == 0 {
            return Ok(Vec::new());
        }
        let table = self.table(file)?;
        let list = table.dependencies(&mut ReadCounters::default())?;
        if UseSums::of(&list) == *file.uses.sums() {
            return Ok(list);
        }
        let (found, listed) = (UseSums::of(&list), file.uses.sums());
        let why = format!(
            "the references of the table to value files differ from their sums in the manifest: {} \
             references to {} value files and {} bytes, listed {}, {} and {}",
            found.references,
            found.names,
            found.stored_bytes,
            listed.references,
            listed.names,
            listed.stored_bytes
        );
        Err(Error::corruption(why).at_file(table.path()))
    }
}

impl TableSource for TableCache {
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>> {
        self.table_from(file, &mut ReadCounters::default())
    }

    fn excludes(&self, streams: u64) {
        self.context.stats.prefix_exclusions.add(streams);
    }
}

/// Returns the cache key of a file. A table that moved to another tier has two files for a while,
/// one for readers of older versions. Value files never move, so their number alone is the key.
fn key(volume: Volume, number: u64) -> u64 {
    const { assert!(version::NUMBER_MAX < 1 << 62) };
    number | (u64::from(volume.0) & 3) << 62
}

/// File numbers are never reused, so one of the references to this file is wrong.
fn another_kind(dir: &Path, number: u64) -> Error {
    let why = "the manifest refers to this file as two kinds of file (table, value file or large value), \
               so one reference is wrong";
    Error::corruption(why).at_file(io::fs::join(dir, &names::vsst(number)))
}
