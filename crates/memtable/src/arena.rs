//! Arena: memory that is allocated in pieces and freed all at once.
//!
//! # Algorithm
//!
//! A piece comes from the current chunk by a `fetch_add` on its fill mark. When a piece does not
//! fit, the thread allocates a new chunk and tries to make it the current one by compare-and-swap;
//! the loser of a race frees its chunk and uses the winner's. The first chunk is small and each one
//! doubles up to a limit. A piece larger than a quarter of the next chunk gets its own chunk in a
//! second list. So at most a quarter of a chunk is left unused at its end.
//!
//! A *sparing* arena is for one of a thousand memtables that share a budget, where unused memory of
//! one is missing for the others. It begins with a smaller chunk, and each chunk is half as large
//! as all earlier ones together. Large pieces count, so pieces of one length soon come from chunks.
//! At most a third of the memory is unused.
//!
//! # Why this is sound
//!
//! 1. *Pieces are disjoint and in bounds.* `fetch_add` gives each caller a range of the chunk that
//!    no other caller gets. The range is returned only if it ends within the chunk. Fill marks do
//!    not overflow: the mark is read first, so it passes the end of its chunk by at most one piece
//!    for each thread. All sizes are rounded up to [`ALIGN`] and chunks start aligned to it, so
//!    every piece is aligned.
//! 2. *Pieces live as long as the arena.* Chunks are only pushed to the two lists and only freed in
//!    `drop`, which has exclusive access to the arena. There is no removal, hence no ABA.
//! 3. *Headers are visible before use.* A chunk's header is written before the chunk is published
//!    with `Release`, and found through an `Acquire` load. In `drop`, the owner's exclusive access
//!    orders everything before it.

use crate::sync::{Acquire, AtomicPtr, AtomicUsize, Relaxed, Release};
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::{self, NonNull};

/// Alignment of every piece.
pub const ALIGN: usize = 8;

/// Limit of the chunk size, header included.
const CHUNK_BYTES_MAX: usize = 1 << 20;

/// The start of a chunk; its pieces follow.
struct Chunk {
    /// The chunk pushed before, or null.
    previous: *mut Chunk,
    /// Bytes of the whole allocation.
    len: usize,
    /// Offset of the first free byte; beyond `len` when the chunk is full.
    used: AtomicUsize,
}

const HEADER: usize = size_of::<Chunk>().next_multiple_of(ALIGN);

/// Memory allocated in pieces.
pub struct Arena {
    /// The chunk for small pieces, and through `previous` all earlier ones.
    current: AtomicPtr<Chunk>,
    /// Chunks that hold one large piece each.
    large: AtomicPtr<Chunk>,
    /// Bytes of all chunks.
    bytes: AtomicUsize,
    chunk_bytes_first: usize,
    growth: Growth,
}

/// Growth of the chunks after the first.
enum Growth {
    /// Each is twice as long as the one before, up to [`CHUNK_BYTES_MAX`].
    Doubling,
    /// Half of all earlier chunks together, up to this many bytes.
    Sparing(usize),
}

// SAFETY: an arena owns its chunks; the raw pointers in it are not tied to a thread.
unsafe impl Send for Arena {}
// SAFETY: shared access goes through atomics; see 1 to 3 above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Returns an arena without memory, whose first chunk will have `bytes`.
    pub fn new(bytes: usize) -> Self {
        Self::growing(bytes, Growth::Doubling)
    }

    /// Returns a sparing arena. No chunk has more than `bytes_max`, or [`CHUNK_BYTES_MAX`].
    pub fn sparing(bytes: usize, bytes_max: usize) -> Self {
        Self::growing(bytes, Growth::Sparing(bytes_max.clamp(bytes, CHUNK_BYTES_MAX).next_multiple_of(ALIGN)))
    }

    fn growing(bytes: usize, growth: Growth) -> Self {
        assert!(bytes > HEADER && bytes <= CHUNK_BYTES_MAX);
        Arena {
            current: AtomicPtr::new(ptr::null_mut()),
            large: AtomicPtr::new(ptr::null_mut()),
            bytes: AtomicUsize::new(0),
            chunk_bytes_first: bytes.next_multiple_of(ALIGN),
            growth,
        }
    }

    /// Returns the bytes allocated from the system, which only increase: a chunk counts once it
    /// belongs to the arena.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Allocates a piece of `len` bytes, aligned to [`ALIGN`], not initialized, valid until the
    /// arena is dropped.
    pub fn alloc(&self, len: usize) -> NonNull<u8> {
        assert!(len <= isize::MAX as usize / 2, "a piece of {len} bytes");
        let len = len.next_multiple_of(ALIGN);
        let mut current = self.current.load(Acquire);
        loop {
            // SAFETY: null, or a published chunk of a live arena (2, 3): its header is initialized
            // and shared.
            if let Some(header) = unsafe { current.as_ref() }
                && header.used.load(Relaxed) + len <= header.len
            {
                let start = header.used.fetch_add(len, Relaxed);
                if start + len <= header.len {
                    // SAFETY: `start..start + len` is in the allocation and `fetch_add` gave it
                    // only to this call (1). The pointer is derived from the allocation's own, not
                    // from the reference to the header.
                    return unsafe { NonNull::new_unchecked(current.cast::<u8>().add(start)) };
                }
            }
            let chunk_bytes = self.next_chunk_bytes(current);
            if len > (chunk_bytes - HEADER) / 4 {
                return self.alloc_large(len);
            }
            let fresh = new_chunk(chunk_bytes, current, 0);
            match self.current.compare_exchange(current, fresh, Release, Acquire) {
                Ok(_) => {
                    self.bytes.fetch_add(chunk_bytes, Relaxed);
                    current = fresh;
                }
                Err(winner) => {
                    // SAFETY: the exchange failed, so `fresh` was never published and is not used
                    // again.
                    unsafe { free(fresh) };
                    current = winner;
                }
            }
        }
    }

    fn next_chunk_bytes(&self, current: *mut Chunk) -> usize {
        match self.growth {
            Growth::Sparing(most) => {
                let grown = (self.bytes() / 2).next_multiple_of(ALIGN);
                grown.clamp(self.chunk_bytes_first, most)
            }
            Growth::Doubling if current.is_null() => self.chunk_bytes_first,
            Growth::Doubling => {
                // SAFETY: not null, so a published chunk of this arena (2, 3); `len` never changes.
                let len = unsafe { (*current).len };
                (len * 2).min(CHUNK_BYTES_MAX)
            }
        }
    }

    fn alloc_large(&self, len: usize) -> NonNull<u8> {
        let chunk = new_chunk(HEADER + len, self.large.load(Relaxed), len);
        self.bytes.fetch_add(HEADER + len, Relaxed);
        loop {
            // SAFETY: `chunk` is not published yet, so only this thread knows it.
            let previous = unsafe { (*chunk).previous };
            match self.large.compare_exchange(previous, chunk, Release, Relaxed) {
                Ok(_) => break,
                // SAFETY: as above, the exchange failed.
                Err(now) => unsafe { (*chunk).previous = now },
            }
        }
        // SAFETY: the chunk has `HEADER + len` bytes and its mark is full, so the piece belongs to
        // this call alone.
        unsafe { NonNull::new_unchecked(chunk.cast::<u8>().add(HEADER)) }
    }
}

/// Returns a new chunk of which `taken` bytes are used, not published.
fn new_chunk(len: usize, previous: *mut Chunk, taken: usize) -> *mut Chunk {
    let layout = layout(len);
    // SAFETY: `len` is more than the header, hence not zero.
    let chunk = unsafe { alloc(layout) }.cast::<Chunk>();
    if chunk.is_null() {
        handle_alloc_error(layout);
    }
    // SAFETY: freshly allocated, aligned for `Chunk` by `layout`, and larger than it.
    unsafe { chunk.write(Chunk { previous, len, used: AtomicUsize::new(HEADER + taken) }) };
    chunk
}

/// Frees a chunk; returns its length.
///
/// # Safety
///
/// The chunk came from `new_chunk`, and nothing uses it or its pieces any more.
unsafe fn free(chunk: *mut Chunk) -> usize {
    // SAFETY: by the contract the header is initialized, not shared, and the layout is the one of
    // the allocation.
    unsafe {
        let len = (*chunk).len;
        ptr::drop_in_place(chunk);
        dealloc(chunk.cast(), layout(len));
        len
    }
}

fn layout(len: usize) -> Layout {
    const { assert!(align_of::<Chunk>() <= 16 && 16 % ALIGN == 0) };
    match Layout::from_size_align(len, 16) {
        Ok(layout) => layout,
        Err(_) => unreachable!("lengths are bounded in alloc"),
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let mut freed = 0;
        for list in [&self.current, &self.large] {
            let mut chunk = list.load(Acquire);
            while !chunk.is_null() {
                // SAFETY: exclusive access to the arena, hence to all its chunks, each of which is
                // in one list once. Pieces are not used after the arena by the contract of `alloc`.
                unsafe {
                    let previous = (*chunk).previous;
                    freed += free(chunk);
                    chunk = previous;
                }
            }
        }
        debug_assert_eq!(self.bytes(), freed, "every byte counted is freed");
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const FIRST: usize = 16 << 10;

    #[test]
    fn pieces_are_disjoint_aligned_and_counted() {
        let arena = Arena::new(FIRST);
        assert_eq!(arena.bytes(), 0, "an unused arena costs nothing");
        let mut pieces = Vec::new();
        let mut x = 1u64;
        for i in 0..3000u64 {
            x = x.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let len = if i % 500 == 7 { 300_000 } else { (x >> 33) as usize % 700 + 1 };
            let piece = arena.alloc(len);
            assert_eq!(piece.as_ptr() as usize % ALIGN, 0);
            // SAFETY: the piece has `len` bytes and belongs to this test.
            unsafe { piece.as_ptr().write_bytes(i as u8, len) };
            pieces.push((piece, len, i as u8));
        }
        for (piece, len, byte) in &pieces {
            // SAFETY: written above; the arena lives.
            let bytes = unsafe { std::slice::from_raw_parts(piece.as_ptr(), *len) };
            assert!(bytes.iter().all(|b| b == byte));
        }
        let asked: usize = pieces.iter().map(|p| p.1).sum();
        assert!(arena.bytes() >= asked && arena.bytes() < asked + asked / 4 + CHUNK_BYTES_MAX);
    }

    #[test]
    fn chunks_start_small() {
        let arena = Arena::new(FIRST);
        arena.alloc(100);
        assert_eq!(arena.bytes(), FIRST);
        arena.alloc(16 << 20);
        assert_eq!(arena.bytes(), FIRST + (16 << 20) + HEADER);
        arena.alloc(100);
        assert_eq!(arena.bytes(), FIRST + (16 << 20) + HEADER, "a large piece leaves the chunk");
    }

    /// At most a third is unused, beside the first chunk and the quarter at the end of each.
    #[test]
    fn chunks_grow_with_allocated_bytes() {
        for len in [8, 200, 600, 5000] {
            let arena = Arena::sparing(1 << 10, CHUNK_BYTES_MAX);
            for n in 1..2000 {
                arena.alloc(len);
                let (asked, taken) = (n * (len + HEADER), arena.bytes());
                assert!(taken <= asked * 2 + (1 << 10), "{n} pieces of {len}: {taken}");
            }
        }
    }

    /// The memory taken rises in small steps.
    #[test]
    fn chunk_length_is_bounded() {
        let arena = Arena::sparing(1 << 10, 4 << 10);
        let mut before = 0;
        for _ in 0..1000 {
            arena.alloc(100);
            assert!(arena.bytes() - before <= 4 << 10);
            before = arena.bytes();
        }
    }

    /// Pieces that are long beside the first chunk soon come from chunks.
    #[test]
    fn long_allocations_eventually_share_chunks() {
        let arena = Arena::sparing(1 << 10, CHUNK_BYTES_MAX);
        for _ in 0..100 {
            arena.alloc(5000);
        }
        let before = arena.bytes();
        for _ in 0..5 {
            arena.alloc(5000);
        }
        let grew = arena.bytes() - before;
        assert!(grew == 0 || grew > 20_000, "one of its own has {grew}");
    }
}
