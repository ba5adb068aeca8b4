//! State under one lock: the metadata, the free blocks, and the operations not yet written to the
//! journal.
//!
//! An operation is applied to the metadata and queued for the journal under the same hold of the
//! lock. Therefore the queue order equals the order of the changes. The *position* of an operation
//! is its number in the queue order, counted from 1. The journal reports the position up to which
//! operations are durable.
//!
//! # Reuse of freed blocks
//!
//! Blocks freed by an operation are reused only under two conditions. (1) The operation is durable,
//! because a crash would otherwise return the blocks to their old file with new contents. (2) No
//! reader uses them: every handle of a removed file is closed, and every read that looked up the
//! blocks before a hole was punched has ended. Until then the blocks are in `freeing`.
//!
//! # Reserve
//!
//! A reserve keeps blocks from files ([`Core::reserve`]). It covers a dump of the metadata and,
//! before the dump, journal growth of the same size plus a few journal units. Names whose dump
//! would not fit are rejected. When the journal has used the reserve down to the needs of a
//! compaction, a compaction begins ([`Core::journal_is_short`]). Therefore a full volume can always
//! remove files. While the journal occupies a part of the reserve, removed files only refill the
//! reserve. Therefore an allocation that fails compacts the journal first
//! ([`crate::volume::Volume::allocate`]).

use crate::discard::Discards;
use crate::geometry::{Role, Roles, role_of, roles_of};
use crate::layout::{self, BLOCK, Extent};
use crate::meta::{Freed, Meta};
use crate::op::{Ino, Op};
use crate::space::{AllocationRequest, FreeSpace};
use base::sync::{RwLock, rank, read, write};
use base::{Error, ErrorKind, HashMap, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Remedy of damage in the metadata of a volume that a mount finds.
pub(crate) const FSCK: &str = "nothing was changed; run `lava fs fsck` to list the damage, then `lava fs fsck --repair`, which gives up the damaged part and keeps the rest";

/// Approximate size of the operations in a dump part, in bytes.
pub(crate) const DUMP_PART_LEN: usize = 256 << 10;

/// Maximum size of the pending operations, in bytes. Above it they are written without a request;
/// the limit is lower if the journal units are small.
const PENDING_LEN_MAX: usize = 512 << 10;

/// State shared by the open handles of a file.
#[derive(Debug)]
pub(crate) struct OpenFileState {
    pub ino: Ino,
    /// Extents and sizes. Written under the core lock, read without it.
    state: RwLock<LiveState, rank::FsLive>,
}

#[derive(Clone, Debug)]
pub(crate) struct LiveState {
    pub extents: Arc<[Extent]>,
    /// Number of written bytes.
    pub size: u64,
    /// Number of readable bytes.
    pub readable: u64,
    /// True if the file has no name: closing the last handle frees its blocks.
    pub orphan: bool,
    /// Token held by active reads. Replaced when a hole is punched.
    token: Arc<()>,
    /// Earlier tokens that reads still hold.
    older: Vec<Weak<()>>,
}

/// Extents of a file, held for the duration of a read.
pub(crate) struct ReadView {
    pub extents: Arc<[Extent]>,
    pub readable: u64,
    _token: Arc<()>,
}

impl OpenFileState {
    fn new(ino: Ino, extents: &[Extent], size: u64, readable: u64) -> Self {
        let state = LiveState {
            extents: extents.into(),
            size,
            readable,
            orphan: false,
            token: Arc::new(()),
            older: Vec::new(),
        };
        OpenFileState { ino, state: RwLock::new(state) }
    }

    /// Returns a view that prevents the reuse of its blocks.
    pub(crate) fn view(&self) -> ReadView {
        let state = read(&self.state);
        ReadView {
            extents: state.extents.clone(),
            readable: state.readable.max(state.size),
            _token: state.token.clone(),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        read(&self.state).size
    }

    /// Sets the number of written bytes.
    pub(crate) fn set_size(&self, size: u64) {
        write(&self.state).size = size;
    }

    pub(crate) fn is_orphan(&self) -> bool {
        read(&self.state).orphan
    }

    pub(crate) fn extents(&self) -> Arc<[Extent]> {
        read(&self.state).extents.clone()
    }

    fn set_extents(&self, extents: &[Extent]) {
        write(&self.state).extents = extents.into();
    }

    /// Makes the old blocks invisible to new reads. Returns the tokens of the reads that still see
    /// them.
    fn retire_reads(&self) -> Vec<Weak<()>> {
        let mut state = write(&self.state);
        let old = std::mem::replace(&mut state.token, Arc::new(()));
        state.older.retain(|token| token.strong_count() > 0);
        state.older.push(Arc::downgrade(&old));
        state.older.clone()
    }
}

/// Blocks that wait to become free.
#[derive(Debug)]
struct Freeing {
    /// Position of the operation that must be durable.
    position: u64,
    extents: Vec<Extent>,
    /// Tokens of the reads that must end.
    reads: Vec<Weak<()>>,
    /// Removed file whose handles must be closed. All its blocks become free.
    orphan: Option<Arc<OpenFileState>>,
}

impl Freeing {
    fn is_held(&self) -> bool {
        self.reads.iter().any(|token| token.strong_count() > 0)
            || self.orphan.as_ref().is_some_and(|live| Arc::strong_count(live) > 1)
    }

    fn all_extents(&self) -> Vec<Extent> {
        match &self.orphan {
            Some(live) => live.extents().iter().copied().filter(|e| !e.is_hole()).collect(),
            None => self.extents.clone(),
        }
    }
}

/// State under the core lock; see the module documentation.
#[derive(Debug)]
pub(crate) struct Core {
    pub meta: Meta,
    pub free: FreeSpace,
    /// Encoded operations that wait for the journal.
    pub pending: Vec<u8>,
    /// Devices that hold the bytes of pending claims. They must be synced with the transaction of
    /// these claims.
    pub claims: Roles,
    /// Number of operations queued so far.
    pub position: u64,
    /// Allocation unit of the journal, in blocks.
    pub journal_blocks: u32,
    pub unit_blocks: u32,
    pub small_unit_blocks: u32,
    /// Lock holders by file.
    pub locks: BTreeMap<Ino, String>,
    open: HashMap<Ino, Weak<OpenFileState>>,
    freeing: Vec<Freeing>,
    /// Number of blocks allocated to files on each device because the other device had too few.
    pub fallen_over: [u64; 2],
    /// Free blocks that await a discard.
    pub discards: Option<Discards>,
}

impl Core {
    pub(crate) fn new(
        meta: Meta,
        free: FreeSpace,
        units: (u32, u32, u32),
        discards: Option<Discards>,
    ) -> Self {
        Core {
            meta,
            free,
            pending: Vec::new(),
            claims: Roles::default(),
            position: 0,
            unit_blocks: units.0,
            small_unit_blocks: units.1,
            journal_blocks: units.2,
            locks: BTreeMap::new(),
            open: HashMap::default(),
            freeing: Vec::new(),
            fallen_over: [0; 2],
            discards,
        }
    }

    /// Number of blocks reserved from files.
    pub(crate) fn reserve(&self) -> u64 {
        2 * dump_copies_blocks(self.meta.dump_len()) + 4 * u64::from(self.journal_blocks)
    }

    /// Returns true if further journal growth would soon leave no space for its compaction. The
    /// compaction needs a dump, a unit for the switch, and another unit for concurrent commits.
    pub(crate) fn journal_is_short(&self) -> bool {
        let needed = dump_copies_blocks(self.meta.dump_len()) + 3 * u64::from(self.journal_blocks);
        self.free.blocks() <= needed + 2
    }

    /// Returns true if the pending operations should be written, so that no transaction exceeds a
    /// journal unit.
    pub(crate) fn is_pending_long(&self) -> bool {
        self.pending.len() >= PENDING_LEN_MAX.min(self.journal_blocks as usize * BLOCK as usize / 2)
    }

    /// Number of blocks that files may get now.
    pub(crate) fn available(&self) -> u64 {
        self.free.blocks().saturating_sub(self.reserve())
    }

    /// Number of blocks that become free when the journal is durable and their readers have ended.
    pub(crate) fn freeing_blocks(&self) -> u64 {
        self.freeing.iter().map(|f| layout::blocks_of(&f.all_extents())).sum()
    }

    /// Returns true if waiting for the journal could free blocks.
    pub(crate) fn has_freeing(&self) -> bool {
        self.freeing.iter().any(|f| !f.is_held())
    }

    /// Returns true if waiting for the journal could free blocks on this device of two.
    pub(crate) fn has_freeing_on(&self, role: Role) -> bool {
        let on = |f: &Freeing| roles_of(true, &f.all_extents()).has(role);
        self.freeing.iter().any(|f| !f.is_held() && on(f))
    }

    /// Applies an operation, queues it for the journal, and returns its position.
    ///
    /// # Errors
    /// The errors of [`Meta::apply`]; nothing has changed then.
    pub(crate) fn queue(&mut self, op: &Op) -> Result<u64> {
        let Freed { extents, gone } = self.meta.apply(op)?;
        op.encode(&mut self.pending);
        self.note_claim(op);
        self.position += 1;
        if let Some(live) = self.live_of(op)
            && let Some(node) = self.meta.nodes().get(live.ino)
        {
            live.set_extents(node.extents.as_slice());
        }
        let orphan = gone.and_then(|ino| self.open.remove(&ino)).and_then(|live| live.upgrade());
        if let Some(live) = &orphan {
            write(&live.state).orphan = true;
        }
        if extents.is_empty() && orphan.is_none() {
            return Ok(self.position);
        }
        let reads = match op {
            Op::Punch { ino, .. } | Op::Trim { ino, .. } => {
                self.live(*ino).map(|live| live.retire_reads()).unwrap_or_default()
            }
            _ => Vec::new(),
        };
        self.freeing.push(Freeing { position: self.position, extents, reads, orphan });
        Ok(self.position)
    }

    fn note_claim(&mut self, op: &Op) {
        if let Op::Claim { ino, .. } = op
            && let Some(node) = self.meta.nodes().get(*ino)
        {
            let on = roles_of(self.meta.geometry().is_two(), node.extents.as_slice());
            self.claims = self.claims.and(on);
        }
    }

    /// Returns the open file whose blocks the operation changes.
    fn live_of(&self, op: &Op) -> Option<Arc<OpenFileState>> {
        match op {
            Op::Extend { ino, .. } | Op::Trim { ino, .. } | Op::Punch { ino, .. } => self.live(*ino),
            _ => None,
        }
    }

    fn live(&self, ino: Ino) -> Option<Arc<OpenFileState>> {
        self.open.get(&ino)?.upgrade()
    }

    /// Returns the shared state of a file's handles. Creates it if no handle is open.
    pub(crate) fn open(&mut self, ino: Ino) -> Result<Arc<OpenFileState>> {
        if let Some(live) = self.live(ino) {
            return Ok(live);
        }
        let node = self.meta.nodes().get(ino).ok_or_else(|| {
            Error::not_found(format!(
                "the volume has no file with the number (inode) {ino}: open the file again by its path"
            ))
        })?;
        let live = Arc::new(OpenFileState::new(ino, node.extents.as_slice(), node.size, node.readable()));
        self.open.insert(ino, Arc::downgrade(&live));
        if self.open.len() > 64 && self.open.len().is_power_of_two() {
            self.open.retain(|_, live| live.strong_count() > 0);
        }
        Ok(live)
    }

    /// Returns the file size as seen by processes, in bytes.
    pub(crate) fn size_of(&self, ino: Ino) -> u64 {
        let recorded = self.meta.nodes().get(ino).map_or(0, |n| n.size);
        self.live(ino).map_or(recorded, |live| live.size())
    }

    /// Allocates blocks for a file. Returns `None`, without a change, if too few blocks are
    /// available.
    pub(crate) fn allocate(
        &mut self,
        blocks: u32,
        goal: Option<u32>,
        wish: AllocationRequest,
    ) -> Option<Vec<Extent>> {
        let reserve = self.reserve();
        let taken = self.free.allocate(blocks, goal, wish, reserve)?;
        if self.meta.geometry().is_two() {
            let other = wish.role.other();
            let there = taken.iter().filter(|e| role_of(true, **e) == other);
            self.fallen_over[other as usize] += there.map(|e| u64::from(e.blocks)).sum::<u64>();
        }
        Some(self.taken(taken))
    }

    /// Allocates blocks for the journal, from the reserve if necessary.
    pub(crate) fn allocate_journal(&mut self, blocks: u64) -> Result<Vec<Extent>> {
        let taken = self.free.allocate_any(blocks).ok_or_else(|| {
            let free = self.free.blocks();
            no_space(format!(
                "the journal of the volume needs {blocks} blocks of {BLOCK} bytes, but {free} are free; remove files, or grow the volume (`lava fs grow`)"
            ))
        })?;
        Ok(self.taken(taken))
    }

    /// Cancels the pending discards of allocated blocks.
    fn taken(&mut self, extents: Vec<Extent>) -> Vec<Extent> {
        if let Some(discards) = &mut self.discards {
            extents.iter().for_each(|&e| discards.forget(e));
        }
        extents
    }

    /// Adds blocks to an open file without a name. Nothing about the file is recorded in the
    /// journal.
    pub(crate) fn extend_orphan(&mut self, live: &OpenFileState, extents: &[Extent]) {
        let mut list = live.extents().to_vec();
        extents.iter().for_each(|&e| layout::push(&mut list, e));
        live.set_extents(&list);
    }

    /// Frees blocks that are referenced neither on the device nor in memory.
    pub(crate) fn release(&mut self, extents: &[Extent]) -> Result<()> {
        for &extent in extents {
            if !self.free.release(extent) {
                let why = format!(
                    "the blocks {extent} (first block, count) of the volume are freed twice: two files share them"
                );
                let remedy = "unmount the volume, and run `lava fs fsck`, then `lava fs fsck --repair`, which removes one of the files";
                return Err(Error::corruption(why).with_remedy(remedy));
            }
            if let Some(discards) = &mut self.discards {
                discards.note(extent);
            }
        }
        Ok(())
    }

    /// Sets the size of a device. The blocks that the volume gains become free.
    pub(crate) fn grow(&mut self, role: Role, blocks: u64) {
        let before = self.meta.geometry();
        self.meta.grow(role, blocks);
        for (old, new) in before.areas().zip(self.meta.geometry().areas()) {
            let more = Extent::new(old.end() as u32, new.blocks - old.blocks);
            let released = self.free.release(more);
            debug_assert!(released, "nothing behind the volume was free");
        }
    }

    /// Frees the blocks that may be reused when the journal is durable up to `position`.
    pub(crate) fn reap(&mut self, position: u64) -> Result<()> {
        let (ready, waiting) = std::mem::take(&mut self.freeing)
            .into_iter()
            .partition::<Vec<_>, _>(|f| f.position <= position && !f.is_held());
        self.freeing = waiting;
        ready.iter().try_for_each(|f| self.release(&f.all_extents()))
    }

    /// Returns a long run of free blocks whose discard is allowed now. The run is allocated until
    /// the discard ends.
    pub(crate) fn begin_discard(&mut self, now_ns: u64) -> Option<Extent> {
        let extent = self.discards.as_mut()?.take(now_ns)?;
        if self.free.claim(extent) { Some(extent) } else { None }
    }

    /// Stops the discards on a device that does not support them.
    pub(crate) fn refuse_discards(&mut self, role: Role) {
        match &mut self.discards {
            Some(discards) if self.meta.geometry().is_two() => discards.refuse(role),
            discards => *discards = None,
        }
    }

    /// Frees the blocks again after their discard.
    pub(crate) fn end_discard(&mut self, extent: Extent) {
        let released = self.free.release(extent);
        debug_assert!(released, "it was taken for the discard");
    }

    /// Returns the number of blocks by which a file grows that has `allocated` blocks and needs
    /// `needed`.
    pub(crate) fn growth(&self, allocated: u64, needed: u64) -> u64 {
        let (small, unit) = (u64::from(self.small_unit_blocks), u64::from(self.unit_blocks));
        let step = if allocated < unit { allocated.max(small) } else { unit };
        needed.max(allocated + step) - allocated
    }
}

/// Returns the number of blocks of a dump with `dump_len` bytes of operations.
pub(crate) fn dump_blocks(dump_len: u64) -> u64 {
    dump_len.div_ceil(BLOCK) + 2 * dump_len.div_ceil(DUMP_PART_LEN as u64) + 2
}

/// Returns the number of blocks of the two copies of such a dump.
pub(crate) fn dump_copies_blocks(dump_len: u64) -> u64 {
    2 * dump_blocks(dump_len)
}

/// Returns the error of a full volume.
pub(crate) fn no_space(why: String) -> Error {
    Error::new(ErrorKind::NoSpace, why)
}

/// Returns true for an error from [`no_space`], which precedes any write. The error of a full
/// device is different: it names the device.
pub(crate) fn is_no_space(error: &Error) -> bool {
    error.kind() == ErrorKind::NoSpace && error.file().is_none()
}

#[cfg(test)]
mod tests;
