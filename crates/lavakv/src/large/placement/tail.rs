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
//! Tails occupy space. Under a limit [`TAILS_KEPT_MAX`] of them are part of the reserve (`space_limit`). More are made only where
//! there is room for them as for a write, and go as soon as room is short and no file needs them: whoever gets none does
//! not place its values.

use crate::context::Context;
use crate::context::sizes::{TAILS_KEPT_MAX, tail_len};
use crate::files::Files;
use base::Result;
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind};
use io::{Access, ReadFile, ScratchFile};
use std::sync::Arc;
use store::space::SpaceBudget;
use table::segment::RecordReference;
use table::vsst::record::{LooseRecord, open_loose};
use version::names::{self, FileKind};

/// The ring of one file of values.
pub(crate) struct Tail {
    number: u64,
    ring: Arc<dyn ScratchFile>,
}

impl Tail {
    fn create(files: &Files) -> Result<Tail> {
        let number = files.manifest.allocate_file_number();
        let path = files.context.path(&names::tail(number));
        let ring = files.context.env.fs.create_scratch(&path, tail_len(&files.context.options))?;
        Ok(Tail { number, ring })
    }

    fn remove(self, files: &Files) {
        // What cannot be removed now is removed at the next open.
        let _ = files.context.env.fs.remove(&files.context.path(&names::tail(self.number)));
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
pub(crate) struct Tails {
    space: Arc<SpaceBudget>,
    files: Arc<Files>,
    /// Those that serve no file now.
    free: Mutex<Vec<Tail>, rank::Tails>,
}

impl Tails {
    pub fn new(space: &Arc<SpaceBudget>, files: &Arc<Files>) -> Tails {
        Tails { space: space.clone(), files: files.clone(), free: Mutex::default() }
    }

    /// One for a new file, whose first values are `more` bytes. `NoSpace` if there is no room for it.
    pub fn take(&self, more: u64) -> Result<Tail> {
        if let Some(free) = lock(&self.free).pop() {
            return Ok(free);
        }
        let len = tail_len(&self.files.context.options) as u64;
        if self.space.tail_reserve_bytes() < len && !self.space.has_room_left(len.saturating_add(more)) {
            let why = "no room for what keeps values that are placed in the log";
            return Err(Error::new(ErrorKind::NoSpace, why).at_file(&self.files.context.dir));
        }
        let tail = Tail::create(&self.files)?;
        self.space.gauges.tail_made(tail.len());
        Ok(tail)
    }

    /// Nobody needs the records in it any more.
    pub fn put(&self, tail: Tail) {
        lock(&self.free).push(tail);
        self.let_go(TAILS_KEPT_MAX);
        if self.space.is_short() {
            self.let_go_of_spare();
        }
    }

    /// What all tails occupy.
    pub fn bytes(&self) -> u64 {
        self.space.gauges.tail_bytes()
    }

    /// Room is short: what the reserve has no part for goes, unless a file needs it.
    pub fn let_go_of_spare(&self) {
        let spare_bytes = self.bytes().saturating_sub(self.space.tails_bytes());
        let spare = spare_bytes.div_ceil(tail_len(&self.files.context.options) as u64);
        let free = lock(&self.free).len();
        self.let_go(free.saturating_sub(usize::try_from(spare).unwrap_or(free)));
    }

    /// Keeps at most so many that are free.
    fn let_go(&self, most: usize) {
        let surplus: Vec<Tail> = {
            let mut free = lock(&self.free);
            let keep = most.min(free.len());
            free.drain(keep..).collect()
        };
        for tail in surplus {
            self.space.gauges.tail_removed(tail.len());
            tail.remove(&self.files);
        }
    }
}

/// The tails that another process left, or is writing.
pub(crate) struct FoundTails(Vec<Arc<dyn ReadFile>>);

impl FoundTails {
    /// Those in the directory of the store.
    pub fn open(context: &Context) -> Result<FoundTails> {
        let mut files = Vec::new();
        for entry in context.env.fs.list(&context.dir)? {
            if !matches!(names::parse(&entry.name), Some(FileKind::Tail(_))) {
                continue;
            }
            match context.env.fs.open(&context.path(&entry.name), Access::Buffered) {
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
