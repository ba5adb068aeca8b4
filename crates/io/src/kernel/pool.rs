//! Aligned buffers kept for reuse.
//!
//! A direct read of an unaligned range goes through an aligned buffer. Allocating and zeroing one
//! for every point read costs more than the copy out of it, so some are kept: [`BYTES_KEPT_MAX`] in
//! all, as much as two windows of a scan have in flight. A buffer longer than a scan's read is
//! freed after use.

use crate::{AlignedBuf, PAGE};
use base::sync::leaf::Mutex;
use base::sync::rank;
use std::collections::VecDeque;

const BYTES_KEPT_MAX: usize = 4 << 20;
const BUFFER_LEN_KEPT_MAX: usize = (256 << 10) + 2 * PAGE;
/// Most buffers to check for a sufficient length.
const LOOKS_MAX: usize = 16;
/// Least capacity of a new buffer, so that most reads fit any buffer.
const BUFFER_LEN_MIN: usize = 4 * PAGE;

/// Free buffers, the most recently used last (its memory is the most likely to be in the CPU's
/// cache).
#[derive(Default)]
pub(super) struct BufPool {
    /// Free buffers.
    free: Mutex<Free, rank::KernelBuffers>,
}

#[derive(Default)]
struct Free {
    /// The most recently used is at the back.
    bufs: VecDeque<AlignedBuf>,
    /// Their total capacity.
    bytes: usize,
}

impl Free {
    /// Takes the most recently used buffer with `len` bytes.
    fn take(&mut self, len: usize) -> Option<AlignedBuf> {
        let last = self.bufs.iter().rev().take(LOOKS_MAX).position(|buf| buf.capacity() >= len)?;
        let buf = self.bufs.remove(self.bufs.len() - 1 - last)?;
        self.bytes -= buf.capacity();
        Some(buf)
    }
}

impl BufPool {
    /// Returns a buffer of `len` bytes. Its contents are left over from earlier use.
    pub(super) fn take(&self, len: usize) -> AlignedBuf {
        let found = base::sync::leaf::lock(&self.free).take(len);
        let mut buf = found.unwrap_or_else(|| AlignedBuf::zeroed(len.max(BUFFER_LEN_MIN)));
        buf.resize(len);
        buf
    }

    /// Returns a buffer to the pool.
    pub(super) fn put(&self, buf: AlignedBuf) {
        if buf.capacity() > BUFFER_LEN_KEPT_MAX {
            return;
        }
        let mut free = base::sync::leaf::lock(&self.free);
        free.bytes += buf.capacity();
        free.bufs.push_back(buf);
        while free.bytes > BYTES_KEPT_MAX
            && let Some(oldest) = free.bufs.pop_front()
        {
            free.bytes -= oldest.capacity();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pooled_buffers_are_reused_up_to_a_bound() {
        let pool = BufPool::default();
        let kept =
            || base::sync::leaf::lock(&pool.free).bufs.iter().map(AlignedBuf::capacity).collect::<Vec<_>>();
        let taken: Vec<_> = [20_480, 100, 262_144, 2 << 20].map(|len| pool.take(len)).into();
        assert_eq!(taken.iter().map(AlignedBuf::len).collect::<Vec<_>>(), [20_480, 100, 262_144, 2 << 20]);
        taken.into_iter().for_each(|buf| pool.put(buf));
        assert_eq!(kept(), [20_480, 16_384, 262_144], "the longest is let go");
        let again = pool.take(20_000);
        assert_eq!((again.len(), kept()), (20_000, vec![20_480, 16_384]), "the last that is long enough");
        drop(again);
        let none = pool.take(20_481);
        assert_eq!(kept(), [20_480, 16_384]);
        drop(none);
        let many: Vec<_> = (0..300).map(|_| pool.take(20_480)).collect();
        many.into_iter().for_each(|buf| pool.put(buf));
        let bytes: usize = kept().iter().sum();
        assert!(bytes <= BYTES_KEPT_MAX && bytes > BYTES_KEPT_MAX - 20_480, "{bytes}");
    }
}
