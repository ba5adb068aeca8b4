//! The sorted list of internal keys: a concurrent skiplist without removal.
//!
//! # Nodes
//!
//! A node is one piece of memory, so that a step of a search touches one place:
//!
//! ```text
//! prefix u64 | user key length and height u32 | value length u32 | links [AtomicPtr; height] | user key | trailer | value
//! ```
//!
//! A value longer than [`VALUE_INLINE_MAX`] is in a separate arena, and the node has its address
//! instead. The nodes of a memtable of 16 MB with values of 200 B then fit in 4 MB, and searches
//! cause far fewer cache and TLB misses.
//!
//! `prefix` is the first eight bytes of the user key as a big-endian number, padded with zeros. If
//! two prefixes differ, they decide (a shorter key is padded with the smallest byte, consistent
//! with the order of byte strings). Only equal prefixes need a comparison of the bytes. The encoded
//! internal key (user key and trailer) is contiguous, so a cursor returns it without a copy.
//!
//! Heights derive from a counter of inserts through a fixed hash (one node in four reaches the next
//! level): equal histories build equal lists.
//!
//! # Inserts
//!
//! As in Pugh's "Concurrent Maintenance of Skip Lists" (1990), restricted to insertion as in
//! LevelDB and RocksDB. An insert finds the neighbors on each level, then links from the bottom up,
//! one compare-and-swap per level. Where that fails, it continues from the predecessor, which is
//! still one because nothing is ever removed. `tails` keeps a late node of each level: keys that
//! arrive in order are appended without a search. A tail may be stale in any way (it is only a
//! hint), as long as it is a node of that level and before the key.
//!
//! # Why this is sound
//!
//! 1. *Every node pointer that is stored or returned is to an initialized node of this list's
//!    arenas*, which live as long as the list: a node is written completely (value and all links
//!    too) before the first `Release` exchange that publishes it, and nodes are never freed or
//!    moved alone.
//! 2. *Readers see it initialized*: links and tails are loaded with `Acquire`. A link that was
//!    copied into a new node (`Relaxed`) had been loaded with `Acquire` by the thread that then
//!    publishes the new node with `Release`. So any thread that reaches it through the new node is
//!    ordered after its initialization too.
//! 3. *Level bounds*: a node of height `h` is only linked on levels below `h`. Searches reach a
//!    node over a link of some level and read only links of that level and lower ones. `tails[l]`
//!    only holds nodes linked on level `l`.
//! 4. *After publication* only links change, and those are atomics. Header, key and value are plain
//!    memory that is only read; slices of it are returned for the life of a borrow of the list.
//! 5. All pointers into a node are derived from the arena's allocation (never from a reference to a
//!    part of the node), so each may reach the whole node.

use crate::arena::{ALIGN, Arena};
use crate::sync::{Acquire, AtomicPtr, AtomicUsize, Relaxed, Release};
use base::checksum::mix;
use base::key::{TRAILER_LEN, split};
use base::limits::{KEY_LEN_MAX, VALUE_LEN_MAX};
use std::cmp::Ordering;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::Arc;

#[cfg(not(all(loom, test)))]
const HEIGHT_MAX: usize = 14;
#[cfg(all(loom, test))]
const HEIGHT_MAX: usize = 2;

/// Longer values are separate from their node. At this length the address and the second access
/// cost more than they save.
const VALUE_INLINE_MAX: usize = 32;

/// First chunks of the two arenas: small, since most column families see few writes. Smaller still
/// in a memtable with a small budget, or the first entry alone would fill it.
const NODE_CHUNK_BYTES_FIRST: usize = 16 << 10;
const VALUE_CHUNK_BYTES_FIRST: usize = 32 << 10;

/// First chunks of a sparing list, one of a thousand that share a budget.
const SPARING_NODE_CHUNK_BYTES_FIRST: usize = 1 << 10;
const SPARING_VALUE_CHUNK_BYTES_FIRST: usize = 2 << 10;
/// In a sparing list a chunk is at most this part of the target size of the memtable. Write
/// throttling by memory needs small steps of growth, or the last writers would find no space left.
const CHUNKS_MIN: usize = 16;

/// One node in `1 << HEIGHT_BITS` reaches the next level.
const HEIGHT_BITS: u32 = 2;

/// Position of the height above the user key's length.
const HEIGHT_SHIFT: u32 = 24;
const KEY_LEN_MASK: u32 = (1 << HEIGHT_SHIFT) - 1;

type Link = AtomicPtr<Node>;

/// The start of a node; links, key and value follow.
struct Node {
    prefix: Plain<u64>,
    key_len_and_height: u32,
    value_len: u32,
}

const LINKS: usize = size_of::<Node>();
const _: () = assert!(LINKS.is_multiple_of(align_of::<Link>()) && align_of::<Node>() <= ALIGN);
const _: () = assert!(KEY_LEN_MAX <= KEY_LEN_MASK as usize && VALUE_LEN_MAX <= u32::MAX as usize);

/// A plain word of a node. In the loom model, loom checks that its initialization happens before
/// every read.
#[cfg(not(all(loom, test)))]
struct Plain<T>(T);

#[cfg(not(all(loom, test)))]
impl<T: Copy> Plain<T> {
    fn new(value: T) -> Self {
        Plain(value)
    }
    fn get(&self) -> T {
        self.0
    }
}

#[cfg(all(loom, test))]
struct Plain<T>(loom::cell::UnsafeCell<T>);

#[cfg(all(loom, test))]
impl<T: Copy> Plain<T> {
    fn new(value: T) -> Self {
        Plain(loom::cell::UnsafeCell::new(value))
    }
    fn get(&self) -> T {
        // SAFETY: never written after its construction.
        self.0.with(|p| unsafe { *p })
    }
}

/// Returns the first eight bytes of a user key as a number.
fn prefix_of(user_key: &[u8]) -> u64 {
    let first = user_key.first_chunk::<8>();
    first.map_or_else(|| prefix_of_short(user_key), |first| u64::from_be_bytes(*first))
}

fn prefix_of_short(user_key: &[u8]) -> u64 {
    let mut padded = [0; 8];
    padded[..user_key.len()].copy_from_slice(user_key);
    u64::from_be_bytes(padded)
}

/// A position in the order of internal keys.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    prefix: u64,
    user_key: &'a [u8],
    trailer: u64,
}

impl<'a> Target<'a> {
    /// Returns the position of `(user_key, trailer)`.
    pub fn new(user_key: &'a [u8], trailer: u64) -> Self {
        Target { prefix: prefix_of(user_key), user_key, trailer }
    }

    /// Returns the position of an encoded internal key.
    pub fn encoded(key: &'a [u8]) -> Self {
        let (user_key, trailer) = split(key);
        Self::new(user_key, trailer)
    }
}

/// A node of a list that is borrowed for `'a`. Invariant: see 1 above.
#[derive(Clone, Copy)]
pub struct NodeRef<'a> {
    node: NonNull<Node>,
    list: PhantomData<&'a SkipList>,
}

impl<'a> NodeRef<'a> {
    /// # Safety
    ///
    /// `node` is null or points to an initialized node of a list that is borrowed for `'a`.
    unsafe fn from_raw(node: *mut Node) -> Option<Self> {
        NonNull::new(node).map(|node| NodeRef { node, list: PhantomData })
    }

    fn header(&self) -> &'a Node {
        // SAFETY: by the invariant an initialized node, of which only the links change, and those
        // are behind this part (4).
        unsafe { self.node.as_ref() }
    }

    fn height(&self) -> usize {
        (self.header().key_len_and_height >> HEIGHT_SHIFT) as usize
    }

    fn key_len(&self) -> usize {
        (self.header().key_len_and_height & KEY_LEN_MASK) as usize
    }

    fn links(&self) -> Links<'a> {
        // SAFETY: links follow the header, inside the node; the pointer keeps the provenance of the
        // allocation (5).
        let first = unsafe { self.node.as_ptr().byte_add(LINKS).cast::<Link>() };
        Links { first, list: PhantomData }
    }

    /// Returns `len` bytes that start `skip` bytes behind the links.
    ///
    /// # Safety
    /// They are inside key and value of the node.
    unsafe fn bytes(&self, skip: usize, len: usize) -> &'a [u8] {
        // SAFETY: by the contract inside the node and initialized; not written after publication
        // (4).
        unsafe {
            let start = self.node.as_ptr().cast::<u8>().add(LINKS + self.height() * size_of::<Link>() + skip);
            std::slice::from_raw_parts(start, len)
        }
    }

    /// Returns the user key.
    pub fn user_key(&self) -> &'a [u8] {
        // SAFETY: the user key comes first.
        unsafe { self.bytes(0, self.key_len()) }
    }

    /// Returns the encoded internal key.
    pub fn key(&self) -> &'a [u8] {
        // SAFETY: user key and trailer come first.
        unsafe { self.bytes(0, self.key_len() + TRAILER_LEN) }
    }

    /// Returns the trailer word of the internal key.
    pub fn trailer(&self) -> u64 {
        split(self.key()).1
    }

    /// Returns the value.
    pub fn value(&self) -> &'a [u8] {
        let len = self.header().value_len as usize;
        let skip = self.key_len() + TRAILER_LEN;
        if len <= VALUE_INLINE_MAX {
            // SAFETY: the value follows the internal key.
            return unsafe { self.bytes(skip, len) };
        }
        // SAFETY: the address of `len` initialized bytes of the value arena follows the internal
        // key, unaligned.
        unsafe {
            let address = self.bytes(skip, size_of::<*const u8>()).as_ptr().cast::<*const u8>();
            std::slice::from_raw_parts(address.read_unaligned(), len)
        }
    }

    /// Returns the next node.
    #[inline]
    fn next(self) -> Option<NodeRef<'a>> {
        // SAFETY: every node has level 0.
        unsafe { self.links().next(0) }
    }

    /// Compares this node's key with `target`.
    #[inline]
    fn compare(&self, target: &Target<'_>) -> Ordering {
        let prefix = self.header().prefix.get();
        if prefix != target.prefix {
            return prefix.cmp(&target.prefix);
        }
        let key = self.user_key();
        let order = match (key.get(8..), target.user_key.get(8..)) {
            (Some(rest), Some(target_rest)) => rest.cmp(target_rest),
            _ => key.cmp(target.user_key),
        };
        order.then_with(|| target.trailer.cmp(&self.trailer()))
    }
}

/// Bytes of a cache line.
const LINE_LEN: usize = 64;
/// Cache lines of a value to prefetch. The processor finds the following ones by itself.
#[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
const LINES_MAX: usize = 4;

/// Prefetches the first cache lines of these bytes. No other effect.
#[inline]
fn fetch(bytes: *const [u8]) {
    #[cfg(all(target_arch = "x86_64", not(any(miri, loom))))]
    for line in 0..bytes.len().div_ceil(LINE_LEN).min(LINES_MAX) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint, which does not access the address, for any address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(bytes.cast::<i8>().wrapping_add(line * LINE_LEN)) };
    }
    #[cfg(not(all(target_arch = "x86_64", not(any(miri, loom)))))]
    let _ = bytes;
}

/// The links of a node or of the head. Invariant: as [`NodeRef`].
#[derive(Clone, Copy)]
struct Links<'a> {
    first: *const Link,
    list: PhantomData<&'a SkipList>,
}

impl<'a> Links<'a> {
    /// # Safety
    ///
    /// The node has this level (3); the head has all below [`HEIGHT_MAX`].
    #[inline]
    unsafe fn at(&self, level: usize) -> &'a Link {
        // SAFETY: by the contract one of the links that were initialized with the node or the head.
        unsafe { &*self.first.add(level) }
    }

    /// Returns the next node of the level.
    ///
    /// # Safety
    /// As [`Links::at`].
    #[inline]
    unsafe fn next(&self, level: usize) -> Option<NodeRef<'a>> {
        // SAFETY: by the contract; links hold null or published nodes of the list (1), and
        // `Acquire` makes them visible (2).
        unsafe { NodeRef::from_raw(self.at(level).load(Acquire)) }
    }
}

/// Neighbors of a position on one level.
#[derive(Clone, Copy)]
struct Gap<'a> {
    before: Links<'a>,
    after: Option<NodeRef<'a>>,
}

fn as_raw(node: Option<NodeRef<'_>>) -> *mut Node {
    node.map_or(ptr::null_mut(), |n| n.node.as_ptr())
}

/// The concurrent skiplist.
pub struct SkipList {
    head: [Link; HEIGHT_MAX],
    tails: [Link; HEIGHT_MAX],
    /// The greatest height of a node so far; a hint for the start of a search.
    height: AtomicUsize,
    len: AtomicUsize,
    seed: u64,
    nodes: Arena,
    values: Arena,
}

/// Returns the length of the first chunk for a list of about `bytes` bytes: one in `part`, within
/// limits.
fn share(bytes: usize, part: usize, most: usize) -> usize {
    (bytes / part).clamp(512, most)
}

impl SkipList {
    /// Returns an empty list; `seed` varies the heights.
    pub fn new(seed: u64) -> Self {
        Self::with_arenas(seed, Arena::new(NODE_CHUNK_BYTES_FIRST), Arena::new(VALUE_CHUNK_BYTES_FIRST))
    }

    /// Returns an empty list for about `bytes` bytes.
    pub fn for_bytes(seed: u64, bytes: usize) -> Self {
        let nodes = share(bytes, 32, NODE_CHUNK_BYTES_FIRST);
        let values = share(bytes, 16, VALUE_CHUNK_BYTES_FIRST);
        Self::with_arenas(seed, Arena::new(nodes), Arena::new(values))
    }

    /// As [`SkipList::for_bytes`], for one of many that share a budget: it allocates little more
    /// than its contents.
    pub fn sparing(seed: u64, bytes: usize) -> Self {
        let nodes = share(bytes, 32, SPARING_NODE_CHUNK_BYTES_FIRST);
        let values = share(bytes, 16, SPARING_VALUE_CHUNK_BYTES_FIRST);
        let most = bytes / CHUNKS_MIN;
        Self::with_arenas(seed, Arena::sparing(nodes, most), Arena::sparing(values, most))
    }

    fn with_arenas(seed: u64, nodes: Arena, values: Arena) -> Self {
        SkipList {
            head: std::array::from_fn(|_| Link::new(ptr::null_mut())),
            tails: std::array::from_fn(|_| Link::new(ptr::null_mut())),
            height: AtomicUsize::new(1),
            len: AtomicUsize::new(0),
            seed,
            nodes,
            values,
        }
    }

    /// Returns the number of entries, including those being inserted.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Returns the bytes of the arenas.
    pub fn bytes(&self) -> usize {
        self.nodes.bytes() + self.values.bytes()
    }

    fn head(&self) -> Links<'_> {
        Links { first: self.head.as_ptr(), list: PhantomData }
    }

    /// Adds an entry.
    ///
    /// # Panics
    /// If the key or value is over the limits, or the internal key is already in the list.
    pub fn insert(&self, user_key: &[u8], trailer: u64, value: &[u8]) {
        let target = Target::new(user_key, trailer);
        let node = self.new_node(&target, value);
        let height = node.height();
        let mut gaps = [Gap { before: self.head(), after: None }; HEIGHT_MAX];
        let gaps = &mut gaps[..height];
        if !self.find_at_end(&target, gaps) {
            let mut report = |level, gap| gaps.get_mut(level).into_iter().for_each(|slot| *slot = gap);
            self.descend(&target, |order| order == Ordering::Less, &mut report);
        }
        for (level, gap) in gaps.iter().enumerate() {
            self.link(node, &target, level, *gap);
        }
    }

    /// Writes the node of an entry, with empty links, and counts it; it is not reachable yet.
    fn new_node(&self, target: &Target<'_>, value: &[u8]) -> NodeRef<'_> {
        let key = target.user_key;
        assert!(key.len() <= KEY_LEN_MAX, "a key of {} bytes", key.len());
        assert!(value.len() <= VALUE_LEN_MAX, "a value of {} bytes", value.len());
        let height = height_of(self.len.fetch_add(1, Relaxed) as u64 ^ self.seed);
        if self.height.load(Relaxed) < height {
            self.height.fetch_max(height, Relaxed);
        }
        let apart = (value.len() > VALUE_INLINE_MAX).then(|| self.new_value(value));
        let value_part_len = if apart.is_some() { size_of::<*const u8>() } else { value.len() };
        let links_len = height * size_of::<Link>();
        let start = self.nodes.alloc(LINKS + links_len + key.len() + TRAILER_LEN + value_part_len).as_ptr();
        let header = Node {
            prefix: Plain::new(target.prefix),
            key_len_and_height: key.len() as u32 | (height as u32) << HEIGHT_SHIFT,
            value_len: value.len() as u32,
        };
        // SAFETY: the piece has exactly the length of the parts written here one after the other.
        // It is aligned to `ALIGN`, which is enough for header and links, and only this thread
        // knows it.
        unsafe {
            start.cast::<Node>().write(header);
            let links = start.add(LINKS).cast::<Link>();
            (0..height).for_each(|level| links.add(level).write(Link::new(ptr::null_mut())));
            let bytes = start.add(LINKS + links_len);
            bytes.copy_from_nonoverlapping(key.as_ptr(), key.len());
            let bytes = bytes.add(key.len());
            bytes.copy_from_nonoverlapping(target.trailer.to_le_bytes().as_ptr(), TRAILER_LEN);
            let bytes = bytes.add(TRAILER_LEN);
            match apart {
                Some(address) => bytes.cast::<*const u8>().write_unaligned(address),
                None => bytes.copy_from_nonoverlapping(value.as_ptr(), value.len()),
            }
            NodeRef { node: NonNull::new_unchecked(start.cast()), list: PhantomData }
        }
    }

    /// Copies a long value to its arena.
    fn new_value(&self, value: &[u8]) -> *const u8 {
        let start = self.values.alloc(value.len()).as_ptr();
        // SAFETY: a fresh piece of that length.
        unsafe { start.copy_from_nonoverlapping(value.as_ptr(), value.len()) };
        start
    }

    /// Links `node`, whose key is `target`, into one level, in or behind `gap`.
    fn link(&self, node: NodeRef<'_>, target: &Target<'_>, level: usize, mut gap: Gap<'_>) {
        debug_assert!(level < node.height());
        loop {
            let after = as_raw(gap.after);
            if let Some(after) = gap.after {
                let order = after.compare(target);
                assert!(order == Ordering::Greater, "an internal key was inserted twice");
            }
            // SAFETY: the node has the level, and so has `gap.before`, a node found on it or the
            // head (3).
            let exchanged = unsafe {
                node.links().at(level).store(after, Relaxed);
                gap.before.at(level).compare_exchange(after, node.node.as_ptr(), Release, Relaxed)
            };
            if exchanged.is_ok() {
                break;
            }
            // SAFETY: as above.
            gap = unsafe { walk(gap.before, level, target) };
        }
        if gap.after.is_none() {
            self.tails[level].store(node.node.as_ptr(), Release);
        }
    }

    /// Finds the gaps of a key after the last one by starting from the tails. Returns false if the
    /// key is not after it.
    fn find_at_end<'a>(&'a self, target: &Target<'_>, gaps: &mut [Gap<'a>]) -> bool {
        for (level, gap) in gaps.iter_mut().enumerate() {
            // SAFETY: tails are null or nodes of this list (1, 2).
            let tail = unsafe { NodeRef::from_raw(self.tails[level].load(Acquire)) };
            let before = match tail {
                Some(tail) if tail.compare(target) == Ordering::Less => tail.links(),
                // This level is empty, but lower ones are not: the new node is the highest one.
                None if level > 0 => self.head(),
                _ => return false,
            };
            // SAFETY: a tail of a level is linked on it; the head has every level (3).
            *gap = unsafe { walk(before, level, target) };
        }
        true
    }

    /// Searches from the top: on each level advances while `is_before(order of the next node and
    /// target)`, then reports the gap. Returns the gap on the lowest level.
    #[inline]
    fn descend<'a>(
        &'a self,
        target: &Target<'_>,
        is_before: impl Fn(Ordering) -> bool,
        mut report: impl FnMut(usize, Gap<'a>),
    ) -> Gap<'a> {
        let mut gap = Gap { before: self.head(), after: None };
        for level in (0..self.height.load(Relaxed)).rev() {
            // The node after the gap of the level above is known to be behind the target, and is
            // not compared again.
            let behind = as_raw(gap.after);
            loop {
                // SAFETY: `before` is the head, or a node reached on this level or a higher one
                // (3).
                let next = unsafe { gap.before.next(level) };
                match next {
                    Some(node) if as_raw(next) != behind && is_before(node.compare(target)) => {
                        gap.before = node.links();
                    }
                    _ => {
                        gap.after = next;
                        break;
                    }
                }
            }
            report(level, gap);
        }
        gap
    }

    /// Returns the first node at or after `target`.
    #[inline]
    pub fn first_from(&self, target: &Target<'_>) -> Option<NodeRef<'_>> {
        self.descend(target, |order| order == Ordering::Less, |_, _| ()).after
    }

    /// Returns the last node before `target`, or at it if `inclusive`.
    fn last_until(&self, target: &Target<'_>, inclusive: bool) -> Option<NodeRef<'_>> {
        let gap = self.descend(
            target,
            |order| order == Ordering::Less || inclusive && order == Ordering::Equal,
            |_, _| (),
        );
        self.owner(gap.before)
    }

    fn first(&self) -> Option<NodeRef<'_>> {
        // SAFETY: the head has level 0.
        unsafe { self.head().next(0) }
    }

    fn last(&self) -> Option<NodeRef<'_>> {
        let mut before = self.head();
        for level in (0..self.height.load(Relaxed)).rev() {
            // SAFETY: `before` is the head, or a node reached on this level or a higher one (3).
            while let Some(next) = unsafe { before.next(level) } {
                before = next.links();
            }
        }
        self.owner(before)
    }

    /// Returns the node that has these links; `None` for the head.
    fn owner<'a>(&'a self, links: Links<'a>) -> Option<NodeRef<'a>> {
        if ptr::eq(links.first, self.head.as_ptr()) {
            return None;
        }
        // SAFETY: links are the head's or are `LINKS` bytes behind the start of a node of this
        // list, and carry the provenance of the whole allocation (5).
        unsafe { NodeRef::from_raw(links.first.byte_sub(LINKS).cast_mut().cast::<Node>()) }
    }
}

/// Advances from `before` on one level to the gap of `target`.
///
/// # Safety
/// `before` has the level, and comes before `target`.
unsafe fn walk<'a>(mut before: Links<'a>, level: usize, target: &Target<'_>) -> Gap<'a> {
    loop {
        // SAFETY: by the contract, and then a node found on this level.
        match unsafe { before.next(level) } {
            Some(node) if node.compare(target) == Ordering::Less => before = node.links(),
            after => return Gap { before, after },
        }
    }
}

/// Returns the height of the `n`th node.
fn height_of(n: u64) -> usize {
    let x = mix(n.wrapping_add(0x9e37_79b9_7f4a_7c15));
    HEIGHT_MAX.min(1 + (x.trailing_zeros() / HEIGHT_BITS) as usize)
}

/// A position in a list, which it keeps alive.
pub struct Cursor {
    list: Arc<SkipList>,
    /// Null or a node of `list`.
    node: *mut Node,
}

// SAFETY: the pointer is into memory that the `Arc` beside it owns, and nodes are shared between
// threads anyway (4).
unsafe impl Send for Cursor {}
// SAFETY: a shared cursor only reads.
unsafe impl Sync for Cursor {}

impl Cursor {
    /// Returns a cursor without a position.
    pub fn new(list: Arc<SkipList>) -> Self {
        Cursor { list, node: ptr::null_mut() }
    }

    /// Returns the present node.
    #[inline]
    pub fn node(&self) -> Option<NodeRef<'_>> {
        // SAFETY: the field's invariant; `list` is borrowed through `self`.
        unsafe { NodeRef::from_raw(self.node) }
    }

    /// Moves to the first node.
    pub fn first(&mut self) {
        self.node = as_raw(self.list.first());
    }

    /// Moves to the last node.
    pub fn last(&mut self) {
        self.node = as_raw(self.list.last());
    }

    /// Moves to the first node at or after `target`.
    pub fn seek(&mut self, target: &Target<'_>) {
        self.node = as_raw(self.list.first_from(target));
    }

    /// Moves to the last node at or before `target`.
    pub fn seek_for_prev(&mut self, target: &Target<'_>) {
        self.node = as_raw(self.list.last_until(target, true));
    }

    /// Moves forward; behind the last node there is no position. In key order each node is a cache
    /// miss, and so is its value, so this prefetches the following nodes.
    #[inline]
    pub fn next(&mut self) {
        let next = self.node().and_then(NodeRef::next);
        if let Some(after) = next.and_then(NodeRef::next) {
            fetch(after.value());
            if let Some(second) = after.next() {
                fetch(ptr::slice_from_raw_parts(second.node.as_ptr().cast(), LINE_LEN));
            }
        }
        self.node = as_raw(next);
    }

    /// Moves backward, by a search, since links only lead forward.
    pub fn prev(&mut self) {
        let before = self.node().and_then(|n| self.list.last_until(&Target::encoded(n.key()), false));
        self.node = as_raw(before);
    }
}

mod held;
pub use held::Held;

#[cfg(all(test, loom))]
mod loom_tests;
#[cfg(all(test, not(loom)))]
mod tests;
