//! Tails: the last values of a file, a second time, where a failed sync does not reach them.
//!
//! When the device fails a sync, the kernel may drop from the page cache what was not durable yet, and a value of a
//! buffered write, which was acknowledged because it survives the process, would be gone with the process. So each
//! value also goes into a *tail* before it is logged: a ring in a scratch file, which survives the process and is never synced,
//! as the staging file of the log is. The byte at offset `o` of the file of values is at `o mod len` of its tail. Before the ring
//! would overwrite bytes that are not durable, the file is synced.
//!
//! Invariant: **every logged value is durable in its file, or whole in the tail of its file.** A value that the tail does
//! not take, because it is longer or because the write fails, makes the file durable before it is logged.
//!
//! A tail serves one file until the values of that file are in tables, and then another. Which file's bytes it holds is
//! written nowhere: the checksum of a record says to which file and offset it belongs. Recovery tries each tail there is.
//!
//! Tails occupy space. Under a limit [`KEPT_MAX`] of them are part of the reserve (`space_limit`). More are made only where
//! there is room for them as for a write, and go as soon as room is short and no file needs them: whoever gets none does
//! not place its values.

use crate::context::options::Options;
use crate::engine::Engine;
use base::Result;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind};
use io::{Access, PAGE, ReadFile, ScratchFile};
use std::sync::Arc;
use table::segment::RecordReference;
use table::vsst::record::{LooseRecord, open_loose};
use version::names::{self, FileKind};

/// Tails that are kept, and that a limit has room for. Two memtables take turns where the flush keeps up.
const KEPT_MAX: usize = 2;

/// Bytes of a tail.
fn tail_len(options: &Options) -> usize {
    crate::open::staging_len(options.log_group_bytes) / PAGE * PAGE
}

/// Bytes of the tails that are part of the reserve where values are placed in the log.
pub(crate) fn kept_bytes(options: &Options) -> u64 {
    (KEPT_MAX * tail_len(options)) as u64
}

/// The ring of one file of values.
pub(crate) struct Tail {
    number: u64,
    ring: Arc<dyn ScratchFile>,
}

impl Tail {
    fn create(engine: &Engine) -> Result<Tail> {
        let number = engine.manifest.allocate_file_number();
        let path = engine.path(&names::tail(number));
        let ring = engine.env.fs.create_scratch(&path, tail_len(&engine.options))?;
        Ok(Tail { number, ring })
    }

    fn remove(self, engine: &Engine) {
        // What cannot be removed now is removed at the next open.
        let _ = engine.env.fs.remove(&engine.path(&names::tail(self.number)));
    }

    /// Bytes of the ring.
    pub fn len(&self) -> u64 {
        self.ring.len() as u64
    }

    /// Takes a record that begins at `offset` of the file and is no longer than the ring. After an error it is not there.
    pub fn keep(&self, offset: u64, record: &[u8]) -> Result<()> {
        let at = (offset % self.len()) as usize;
        let (now, wrapped) = record.split_at(record.len().min(self.ring.len() - at));
        self.ring.write(at, now)?;
        if !wrapped.is_empty() {
            self.ring.write(0, wrapped)?;
        }
        Ok(())
    }
}

/// All tails of the store.
#[derive(Default)]
pub(crate) struct Tails {
    /// Those that serve no file now.
    free: Mutex<Vec<Tail>, rank::Tails>,
    /// What all of them occupy.
    bytes: AtomicU64,
}

impl Tails {
    /// One for a new file, whose first values are `more` bytes. `NoSpace` if there is no room for it.
    pub fn take(&self, engine: &Engine, more: u64) -> Result<Tail> {
        if let Some(free) = lock(&self.free).pop() {
            return Ok(free);
        }
        let len = tail_len(&engine.options) as u64;
        if engine.tail_reserve_bytes() < len && !engine.has_room_left(len.saturating_add(more)) {
            let why = "no room for what keeps values that are placed in the log";
            return Err(Error::new(ErrorKind::NoSpace, why).at_file(&engine.dir));
        }
        let tail = Tail::create(engine)?;
        self.bytes.fetch_add(tail.len(), Ordering::Relaxed);
        Ok(tail)
    }

    /// Nobody needs the records in it any more.
    pub fn put(&self, engine: &Engine, tail: Tail) {
        lock(&self.free).push(tail);
        self.let_go(engine, KEPT_MAX);
        if engine.is_space_short() {
            self.let_go_of_spare(engine);
        }
    }

    /// What all tails occupy.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Room is short: what the reserve has no part for goes, unless a file needs it.
    pub fn let_go_of_spare(&self, engine: &Engine) {
        let spare_bytes = self.bytes().saturating_sub(engine.space.tails_bytes());
        let spare = spare_bytes.div_ceil(tail_len(&engine.options) as u64);
        let free = lock(&self.free).len();
        self.let_go(engine, free.saturating_sub(usize::try_from(spare).unwrap_or(free)));
    }

    /// Keeps at most so many that are free.
    fn let_go(&self, engine: &Engine, most: usize) {
        let surplus: Vec<Tail> = {
            let mut free = lock(&self.free);
            let keep = most.min(free.len());
            free.drain(keep..).collect()
        };
        for tail in surplus {
            self.bytes.fetch_sub(tail.len(), Ordering::Relaxed);
            tail.remove(engine);
        }
    }
}

/// The tails that another process left, or is writing.
pub(crate) struct FoundTails(Vec<Arc<dyn ReadFile>>);

impl FoundTails {
    /// Those in the directory of the store.
    pub fn open(engine: &Engine) -> Result<FoundTails> {
        let mut files = Vec::new();
        for entry in engine.env.fs.list(&engine.dir)? {
            if !matches!(names::parse(&entry.name), Some(FileKind::Tail(_))) {
                continue;
            }
            match engine.env.fs.open(&engine.path(&entry.name), Access::Buffered) {
                Ok(file) => files.push(file),
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(e),
            }
        }
        Ok(FoundTails(files))
    }

    /// The record, if one of them has it whole.
    pub fn find(&self, reference: &RecordReference) -> Result<Option<LooseRecord>> {
        for file in &self.0 {
            let len = file.len()?;
            if reference.stored_len > len {
                continue;
            }
            let mut bytes = vec![0; reference.stored_len as usize];
            let at = reference.offset % len;
            let until_wrap = usize::try_from(len - at).unwrap_or(usize::MAX).min(bytes.len());
            let (now, wrapped) = bytes.split_at_mut(until_wrap);
            match file.read_at(now, at).and_then(|()| file.read_at(wrapped, 0)) {
                // It is never synced, so after a loss of power any of it may be unreadable.
                Err(e) if io::is_unreadable(&e) => continue,
                read => read?,
            }
            match open_loose(&bytes, reference.uid, reference.offset) {
                Ok(record) => return Ok(Some(record)),
                Err(e) if e.is_corruption() => {}
                Err(e) => return Err(Error::at_file(e, file.path())),
            }
        }
        Ok(None)
    }
}
