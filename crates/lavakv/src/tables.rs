//! Open tables: one [`Ksst`] for each file in use, at most `open_files_max` of them.
//!
//! A lookup takes a read lock and a reference count. Past the bound the least recently used tables are closed (an
//! iterator that holds one keeps it open).

use base::sync::{read, write};
use base::{Error, ErrorKind, HashMap, Result};
use cache::Cache;
use io::{Access, Env};
use lsm::TableSource;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, RwLock};
use table::Ksst;
use version::{FileMeta, names};

pub(crate) struct Tables {
    env: Env,
    dir: PathBuf,
    access: Access,
    cache: Arc<Cache>,
    open_max: usize,
    open: RwLock<HashMap<u64, Open>>,
    uses: AtomicU64,
}

struct Open {
    table: Arc<Ksst>,
    last_use: AtomicU64,
}

impl Tables {
    pub fn new(env: Env, dir: PathBuf, access: Access, cache: Arc<Cache>, open_max: usize) -> Self {
        let open = RwLock::new(HashMap::default());
        Tables { env, dir, access, cache, open_max, open, uses: AtomicU64::new(0) }
    }

    /// Forgets a table whose file is about to be removed.
    pub fn forget(&self, number: u64) {
        write(&self.open).remove(&number);
        self.cache.remove_file(number);
    }

    fn open_table(&self, file: &FileMeta) -> Result<Arc<Ksst>> {
        let path = io::fs::join(&self.dir, &names::ksst(file.number));
        let handle = self.env.fs.open(&path, self.access).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::corruption(
                "a table that the manifest lists is missing; restore it from a checkpoint or backup",
            )
            .at_file(&path),
            _ => e,
        })?;
        let table = Ksst::open(handle, file.number, file.uid, file.global_seq, self.cache.clone())
            .map_err(|e| e.at_file(&path))?;
        let table = Arc::new(table);
        let mut open = write(&self.open);
        if open.len() >= self.open_max {
            Self::close_unused(&mut open);
        }
        let entry =
            Open { table: table.clone(), last_use: AtomicU64::new(self.uses.load(Ordering::Relaxed)) };
        Ok(open.entry(file.number).or_insert(entry).table.clone())
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

impl TableSource for Tables {
    fn table(&self, file: &FileMeta) -> Result<Arc<Ksst>> {
        if let Some(found) = read(&self.open).get(&file.number) {
            // The clock ticks with every table opened: exact enough to tell hot from cold, and reads of open tables
            // write to no shared cache line.
            let now = self.uses.load(Ordering::Relaxed);
            if found.last_use.load(Ordering::Relaxed) + 64 < now {
                found.last_use.store(now, Ordering::Relaxed);
            }
            return Ok(found.table.clone());
        }
        self.uses.fetch_add(1, Ordering::Relaxed);
        self.open_table(file)
    }
}
