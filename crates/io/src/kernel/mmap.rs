//! Memory that outlives the process: a shared mapping of a file.
//!
//! The pages of a shared mapping are those of the page cache. When the process dies, even by `SIGKILL` in the middle
//! of a store, what it stored so far is in the file; when the power fails, nothing is promised.
//!
//! The file's blocks are reserved and written before it is mapped: a store into a hole of a full file system would
//! otherwise kill the process with `SIGBUS`. For the same reason nobody may cut the file while it is mapped (the
//! store's lock keeps other processes of ours away).
//!
//! Copies go through atomic words in ascending order with a compiler fence after each, not through `memcpy`. That
//! gives the two promises of the trait: a copy cut off by the death of the process is a prefix (`memcpy` may store
//! the last bytes first), and a caller that breaks the rule about overlapping calls gets mixed bytes, not undefined
//! behaviour.

use super::handle::Handle;
use crate::{Access, SharedMapping, SyncKind};
use base::{Error, Result};
use rustix::fs::OFlags;
use rustix::mm::{MapFlags, ProtFlags};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering, compiler_fence};

const WORD: usize = size_of::<u64>();

#[derive(Debug)]
pub(super) struct KernelMapping {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is owned by this value alone, is not tied to a thread, and lives until it is dropped.
unsafe impl Send for KernelMapping {}
// SAFETY: all access through a shared reference is by atomic loads and stores.
unsafe impl Sync for KernelMapping {}

impl KernelMapping {
    pub(super) fn create(path: &Path, len: usize) -> Result<Self> {
        if len == 0 || len > isize::MAX as usize {
            return Err(Error::invalid(format!("a mapping of {len} bytes is not possible")).at_file(path));
        }
        let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::RDWR;
        let handle = Handle::open("cannot create a file", path, flags, Access::Buffered)?;
        let made = handle
            .allocate(len as u64)
            .and_then(|()| handle.write_zeros(len as u64))
            .and_then(|()| handle.sync(SyncKind::Data))
            .map_err(|e| handle.fail("cannot allocate a file", e));
        let mapped = made.and_then(|()| Self::map(&handle, 0, len));
        if mapped.is_err() {
            // The first error is the one to report; the file holds nothing.
            let _ = rustix::fs::unlink(path);
        }
        mapped
    }

    /// Maps a part of a file whose blocks are allocated: `offset` is a multiple of the page, `len` is positive.
    pub(super) fn map(handle: &Handle, offset: u64, len: usize) -> Result<Self> {
        if len == 0 || len > isize::MAX as usize {
            return Err(
                Error::invalid(format!("a mapping of {len} bytes is not possible")).at_file(&handle.path)
            );
        }
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice cannot overlap memory in use; `len` is positive
        // and not beyond `isize::MAX`.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &handle.fd, offset)
        };
        let start = start.map_err(|e| handle.fail("cannot map a file", e))?;
        let base = NonNull::new(start.cast::<u8>()).expect("a mapping is never at address zero");
        assert!((base.as_ptr() as usize).is_multiple_of(WORD), "a mapping starts at a page");
        Ok(KernelMapping { base, len })
    }

    /// Writes back what was stored, and flushes the device below: for a mapping of a raw device, all that was written to it
    /// by other ways before.
    pub(super) fn sync(&self) -> rustix::io::Result<()> {
        // SAFETY: this is the mapping made by `map`, whole, which lives as long as `self`.
        unsafe { rustix::mm::msync(self.base.as_ptr().cast(), self.len, rustix::mm::MsyncFlags::SYNC) }
    }

    fn check(&self, offset: usize, len: usize) {
        assert!(
            offset.checked_add(len).is_some_and(|end| end <= self.len),
            "access past the end of a mapping"
        );
    }

    /// The byte at `offset`.
    fn byte(&self, offset: usize) -> &AtomicU8 {
        self.check(offset, 1);
        // SAFETY: `offset` is inside the mapping, which lives as long as `self` and is only accessed by atomics.
        // (Words and bytes of one range are only mixed by callers that overlap, which the trait forbids.)
        unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset)) }
    }

    /// The word at `offset`, a multiple of [`WORD`].
    fn word(&self, offset: usize) -> &AtomicU64 {
        self.check(offset, WORD);
        assert!(offset.is_multiple_of(WORD), "words are aligned");
        // SAFETY: as for `byte`; the base is aligned to the page, so a multiple of the word is aligned to the word.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast::<u64>()) }
    }
}

/// How many bytes come before the first aligned word in a range.
fn bytes_before_word(offset: usize, len: usize) -> usize {
    (offset.next_multiple_of(WORD) - offset).min(len)
}

impl SharedMapping for KernelMapping {
    fn len(&self) -> usize {
        self.len
    }

    fn write(&self, offset: usize, data: &[u8]) {
        self.check(offset, data.len());
        let store_byte = |at: usize, value: u8| {
            self.byte(at).store(value, Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
        };
        let (head, rest) = data.split_at(bytes_before_word(offset, data.len()));
        let mut at = offset;
        for &value in head {
            store_byte(at, value);
            at += 1;
        }
        let (words, tail) = rest.as_chunks::<WORD>();
        for word in words {
            self.word(at).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            compiler_fence(Ordering::SeqCst);
            at += WORD;
        }
        for &value in tail {
            store_byte(at, value);
            at += 1;
        }
    }

    fn read(&self, offset: usize, buf: &mut [u8]) {
        self.check(offset, buf.len());
        let (head, rest) = buf.split_at_mut(bytes_before_word(offset, buf.len()));
        let mut at = offset;
        for value in head {
            *value = self.byte(at).load(Ordering::Relaxed);
            at += 1;
        }
        let (words, tail) = rest.as_chunks_mut::<WORD>();
        for word in words {
            *word = self.word(at).load(Ordering::Relaxed).to_ne_bytes();
            at += WORD;
        }
        for value in tail {
            *value = self.byte(at).load(Ordering::Relaxed);
            at += 1;
        }
    }
}

impl Drop for KernelMapping {
    fn drop(&mut self) {
        // SAFETY: this is the mapping made by `map`, whole, and no reference into it outlives `self`. A failure could
        // only mean that it is not a mapping; then there is nothing to give back.
        let _ = unsafe { rustix::mm::munmap(self.base.as_ptr().cast(), self.len) };
    }
}
