//! Aligned buffers kept for reuse.
//!
//! A direct read of an unaligned range goes through an aligned buffer. Allocating and zeroing one for every point
//! read costs more than the copy out of it, so a few are kept. The pool holds at most [`BUFFERS_KEPT_MAX`] buffers of
//! at most [`BUFFER_LEN_KEPT_MAX`] bytes: 4 MiB; larger ones are freed after use.

use crate::{AlignedBuf, PAGE};
use base::sync::leaf::Mutex;
use base::sync::rank;

const BUFFERS_KEPT_MAX: usize = 32;
const BUFFER_LEN_KEPT_MAX: usize = 128 << 10;
/// A new buffer has at least this capacity, so that most reads fit whichever buffer comes first.
const BUFFER_LEN_MIN: usize = 4 * PAGE;

/// Free buffers, the most recently used last (its memory is the most likely to be in the CPU's cache).
#[derive(Default)]
pub(super) struct BufPool {
    /// Buffers that nobody uses.
    free: Mutex<Vec<AlignedBuf>, rank::KernelBuffers>,
}

impl BufPool {
    /// A buffer of `len` bytes. What they hold is left over from earlier use.
    pub(super) fn take(&self, len: usize) -> AlignedBuf {
        let found = base::sync::leaf::lock(&self.free).pop();
        let mut buf = match found {
            Some(buf) if buf.capacity() >= len => buf,
            _ => AlignedBuf::zeroed(len.max(BUFFER_LEN_MIN)),
        };
        buf.resize(len);
        buf
    }

    /// Takes a buffer back.
    pub(super) fn put(&self, buf: AlignedBuf) {
        if buf.capacity() > BUFFER_LEN_KEPT_MAX {
            return;
        }
        let mut free = base::sync::leaf::lock(&self.free);
        if free.len() < BUFFERS_KEPT_MAX {
            free.push(buf);
        }
    }
}
