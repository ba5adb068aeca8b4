//! Open files of data: one [`Ksst`] or [`Vsst`] for each file in use, at most `open_files_max` of them.
//!
//! A lookup takes a read lock and a reference count. Past the bound the least recently used files are closed (an
//! iterator that holds one keeps it open).

use crate::context::Context;
use crate::files::damaged::Quarantine;
use base::sync::statistic::{AtomicU64, Ordering};
use base::sync::{RwLock, rank, read, write};
use base::{Error, ErrorKind, HashMap, Result, Uid};
use cache::Cache;
use io::ReadFile;
use std::path::Path;
use std::sync::Arc;
use table::vsst::Vsst;
use table::{Ksst, SegmentReader};
use version::{FileMeta, TableSource, VsstMeta, VsstSource, names};

pub(crate) struct TableCache {
    /// Those that cannot be read.
    pub quarantine: Quarantine,
    context: Arc<Context>,
    cache: Arc<Cache>,
    /// Open files by number. Files are opened outside of it.
    open: RwLock<HashMap<u64, Open>, rank::TableCache>,
    uses: AtomicU64,
}

struct Open {
    file: OpenFile,
    last_use: AtomicU64,
}

#[derive(Clone)]
enum OpenFile {
    Table(Arc<Ksst>),
    Vsst(Arc<Vsst>),
    Segment(Arc<SegmentReader>),
}

impl TableCache {
    pub fn new(context: &Arc<Context>, cache: Arc<Cache>) -> Self {
        let open = RwLock::new(HashMap::default());
        let context = context.clone();
        TableCache { quarantine: Quarantine::default(), context, cache, open, uses: AtomicU64::new(0) }
    }

    /// Forgets a file that is about to be removed.
    pub fn forget(&self, number: u64) {
        write(&self.open).remove(&number);
        self.quarantine.forget(number);
        self.cache.remove_file(number);
    }

    fn open_file(&self, name: &str) -> Result<Arc<dyn ReadFile>> {
        let path = self.context.path(name);
        self.context.env.fs.open(&path, self.context.options.access).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::corruption(
                "a file that manifest or log refer to is missing; restore it from a checkpoint or backup, or run `lava repair`",
            )
            .at_file(&path),
            _ => e,
        })
    }

    fn open_table(&self, file: &FileMeta) -> Result<OpenFile> {
        let handle = self.open_file(&names::ksst(file.number))?;
        let path = handle.path().to_owned();
        let table = Ksst::open(handle, file.number, file.uid, file.global_seq, self.cache.clone());
        Ok(OpenFile::Table(Arc::new(table.map_err(|e| e.at_file(path))?)))
    }

    fn open_vsst(&self, meta: &VsstMeta) -> Result<OpenFile> {
        let handle = self.open_file(&names::vsst(meta.number))?;
        let path = handle.path().to_owned();
        let vsst = Vsst::open(handle, meta.number, meta.uid, self.cache.clone());
        Ok(OpenFile::Vsst(Arc::new(vsst.map_err(|e| e.at_file(path))?)))
    }

    /// The segment of a large value.
    pub fn segment(&self, number: u64, uid: Uid) -> Result<Arc<SegmentReader>> {
        let open = || {
            let handle = self.open_file(&names::vsst(number))?;
            Ok(OpenFile::Segment(Arc::new(SegmentReader::open(handle, number, uid)?)))
        };
        match self.find(number, open)? {
            OpenFile::Segment(segment) => Ok(segment),
            _ => Err(another_kind(&self.context.dir, number)),
        }
    }

    /// The open file of this number; what `make` makes if there is none.
    fn find(&self, number: u64, make: impl FnOnce() -> Result<OpenFile>) -> Result<OpenFile> {
        if let Some(found) = read(&self.open).get(&number) {
            // The clock ticks with every file opened: exact enough to tell hot from cold, and reads of open files
            // write to no shared cache line.
            let now = self.uses.load(Ordering::Relaxed);
            if found.last_use.load(Ordering::Relaxed) + 64 < now {
                found.last_use.store(now, Ordering::Relaxed);
            }
            return Ok(found.file.clone());
        }
        self.uses.fetch_add(1, Ordering::Relaxed);
        let file = make()?;
        let mut open = write(&self.open);
        if open.len() >= self.context.options.open_files_max {
            Self::close_unused(&mut open);
        }
        let entry = Open { file, last_use: AtomicU64::new(self.uses.load(Ordering::Relaxed)) };
        Ok(open.entry(number).or_insert(entry).file.clone())
    }

    /// Closes the least recently used quarter.
    fn close_unused(open: &mut HashMap<u64, Open>) {
        let mut by_use: Vec<(u64, u64)> =
            open.iter().map(|(&n, o)| (o.last_use.load(Ordering::Relaxed), n)).collect();
        by_use.sort_unstable();
        for (_, number) in by_use.iter().take(open.len() / 4 + 1) {
            open.remove(number);
        }
    }
}

impl TableSource for TableCache {
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>> {
        match self.find(file.number, || self.open_table(file))? {
            OpenFile::Table(table) => Ok(table),
            _ => Err(another_kind(&self.context.dir, file.number)),
        }
    }
}

impl VsstSource for TableCache {
    fn vsst(&self, meta: &VsstMeta) -> Result<Arc<Vsst>> {
        match self.find(meta.number, || self.open_vsst(meta))? {
            OpenFile::Vsst(vsst) => Ok(vsst),
            _ => Err(another_kind(&self.context.dir, meta.number)),
        }
    }
}

/// File numbers are never used twice, so one of the references to this file is wrong.
fn another_kind(dir: &Path, number: u64) -> Error {
    let why = "the file is referred to as files of two kinds (table, vSST, segment): verify the store";
    Error::corruption(why).at_file(io::fs::join(dir, &names::vsst(number)))
}
