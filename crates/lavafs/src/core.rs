//! What one lock protects: the metadata, the free blocks, and the operations that the journal has not got yet.
//!
//! An operation is applied to the metadata and put in line for the journal under the same hold of the lock, so that the
//! order of the line is the order of the changes. The *position* of an operation is how many have been in line before
//! it and itself; the journal tells up to which position it is durable.
//!
//! # When blocks are free again
//!
//! Blocks that an operation sets free may be handed out again only when (1) that operation is durable, because a crash
//! would otherwise give them back to their old file with new contents, and (2) nobody reads them: no handle of a removed
//! file is open, and no read is under way that looked its blocks up before a hole was made. Until then they are in
//! `freeing`.
//!
//! # Reserve
//!
//! Files never get the blocks that the journal needs to be dumped once, and before that to grow by as much and by a few
//! of its units ([`Core::reserve`]); nor are names made that could not be dumped. Once the journal has grown into what a
//! compaction needs, one is begun ([`Core::journal_is_short`]). So a full volume can always remove files. As long as the journal has some of
//! the reserve, what is removed would only make up for that; so whoever finds no room then has the journal compacted first
//! ([`crate::volume::Volume::allocate`]).

use crate::discard::Discards;
use crate::geometry::{Role, Roles, role_of, roles_of};
use crate::layout::{self, BLOCK, Extent};
use crate::meta::{Freed, Meta};
use crate::op::{Ino, Op};
use crate::space::{FreeSpace, Wish};
use base::sync::{RwLock, rank, read, write};
use base::{Error, ErrorKind, HashMap, Result};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

/// Bytes of operations in a part of a dump, about.
pub(crate) const DUMP_PART_LEN: usize = 256 << 10;

/// Operations in line for the journal, bytes, above which they are written although nobody asked for it; less where the
/// units of the journal are small.
const PENDING_LEN_MAX: usize = 512 << 10;

/// What the open handles of a file share.
#[derive(Debug)]
pub(crate) struct Live {
    pub ino: Ino,
    /// Where its blocks are: written under the lock of the core, read without it.
    state: RwLock<LiveState, rank::FsLive>,
}

#[derive(Clone, Debug)]
pub(crate) struct LiveState {
    pub extents: Arc<[Extent]>,
    /// Bytes that were written.
    pub size: u64,
    /// Bytes that may be read.
    pub readable: u64,
    /// No name leads to it: its blocks are free with the last handle.
    pub orphan: bool,
    /// Held by reads under way; replaced when a hole is made.
    token: Arc<()>,
    /// Those before, as far as they are held.
    older: Vec<Weak<()>>,
}

/// The blocks of a file for the time of a read.
pub(crate) struct ReadView {
    pub extents: Arc<[Extent]>,
    pub readable: u64,
    _token: Arc<()>,
}

impl Live {
    fn new(ino: Ino, extents: &[Extent], size: u64, readable: u64) -> Self {
        let state = LiveState {
            extents: extents.into(),
            size,
            readable,
            orphan: false,
            token: Arc::new(()),
            older: Vec::new(),
        };
        Live { ino, state: RwLock::new(state) }
    }

    /// A view that keeps the blocks in it from being handed out again.
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

    /// As many bytes were written.
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

    /// From now on no read sees the old blocks; what is still held by reads that do.
    fn retire_reads(&self) -> Vec<Weak<()>> {
        let mut state = write(&self.state);
        let old = std::mem::replace(&mut state.token, Arc::new(()));
        state.older.retain(|token| token.strong_count() > 0);
        state.older.push(Arc::downgrade(&old));
        state.older.clone()
    }
}

/// Blocks on their way back.
#[derive(Debug)]
struct Freeing {
    /// The operation that must be durable.
    position: u64,
    extents: Vec<Extent>,
    /// The reads that must have ended.
    reads: Vec<Weak<()>>,
    /// The removed file whose handles must be closed; all its blocks go.
    orphan: Option<Arc<Live>>,
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

/// See the module.
#[derive(Debug)]
pub(crate) struct Core {
    pub meta: Meta,
    pub free: FreeSpace,
    /// Operations in line for the journal, encoded.
    pub pending: Vec<u8>,
    /// Where the bytes are that claims among them speak of: these devices must be synced with the transaction that they go into.
    pub claims: Roles,
    /// How many operations have been in line.
    pub position: u64,
    /// Units of allocation.
    pub journal_blocks: u32,
    pub unit_blocks: u32,
    pub small_unit_blocks: u32,
    /// Holders of locks.
    pub locks: BTreeMap<Ino, String>,
    open: HashMap<Ino, Weak<Live>>,
    freeing: Vec<Freeing>,
    /// Blocks that files got on each device because there were too few on the other one.
    pub fallen_over: [u64; 2],
    /// Free blocks that the device has not been told of yet.
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

    /// Blocks that files do not get.
    pub(crate) fn reserve(&self) -> u64 {
        2 * dump_copies_blocks(self.meta.dump_len()) + 4 * u64::from(self.journal_blocks)
    }

    /// True if the journal can grow by a few units only before there is no room for its compaction, which needs a dump, a
    /// unit to switch to, and another for what is committed meanwhile.
    pub(crate) fn journal_is_short(&self) -> bool {
        let needed = dump_copies_blocks(self.meta.dump_len()) + 3 * u64::from(self.journal_blocks);
        self.free.blocks() <= needed + 2
    }

    /// True if the line is so long that it should be written: no transaction is to need more than a unit of the journal.
    pub(crate) fn is_pending_long(&self) -> bool {
        self.pending.len() >= PENDING_LEN_MAX.min(self.journal_blocks as usize * BLOCK as usize / 2)
    }

    /// Blocks that files may get now.
    pub(crate) fn available(&self) -> u64 {
        self.free.blocks().saturating_sub(self.reserve())
    }

    /// Blocks that are free as soon as the journal is durable and nobody reads them.
    pub(crate) fn freeing_blocks(&self) -> u64 {
        self.freeing.iter().map(|f| layout::blocks_of(&f.all_extents())).sum()
    }

    /// True if waiting for the journal could make room.
    pub(crate) fn has_freeing(&self) -> bool {
        self.freeing.iter().any(|f| !f.is_held())
    }

    /// True if that could make room on one of two devices.
    pub(crate) fn has_freeing_on(&self, role: Role) -> bool {
        let on = |f: &Freeing| roles_of(true, &f.all_extents()).has(role);
        self.freeing.iter().any(|f| !f.is_held() && on(f))
    }

    /// Applies an operation and puts it in line; its position.
    ///
    /// # Errors
    /// Those of [`Meta::apply`]: nothing has changed then.
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

    /// The open file whose blocks an operation changes.
    fn live_of(&self, op: &Op) -> Option<Arc<Live>> {
        match op {
            Op::Extend { ino, .. } | Op::Trim { ino, .. } | Op::Punch { ino, .. } => self.live(*ino),
            _ => None,
        }
    }

    fn live(&self, ino: Ino) -> Option<Arc<Live>> {
        self.open.get(&ino)?.upgrade()
    }

    /// The shared state of a file's handles, made if there is none.
    pub(crate) fn open(&mut self, ino: Ino) -> Result<Arc<Live>> {
        if let Some(live) = self.live(ino) {
            return Ok(live);
        }
        let node =
            self.meta.nodes().get(ino).ok_or_else(|| Error::not_found(format!("there is no file {ino}")))?;
        let live = Arc::new(Live::new(ino, node.extents.as_slice(), node.size, node.readable()));
        self.open.insert(ino, Arc::downgrade(&live));
        if self.open.len() > 64 && self.open.len().is_power_of_two() {
            self.open.retain(|_, live| live.strong_count() > 0);
        }
        Ok(live)
    }

    /// Bytes of a file as processes see them.
    pub(crate) fn size_of(&self, ino: Ino) -> u64 {
        let recorded = self.meta.nodes().get(ino).map_or(0, |n| n.size);
        self.live(ino).map_or(recorded, |live| live.size())
    }

    /// Takes blocks for a file. `None` if there are not as many; nothing has changed then.
    pub(crate) fn allocate(&mut self, blocks: u32, goal: Option<u32>, wish: Wish) -> Option<Vec<Extent>> {
        let reserve = self.reserve();
        let taken = self.free.allocate(blocks, goal, wish, reserve)?;
        if self.meta.geometry().is_two() {
            let other = wish.role.other();
            let there = taken.iter().filter(|e| role_of(true, **e) == other);
            self.fallen_over[other as usize] += there.map(|e| u64::from(e.blocks)).sum::<u64>();
        }
        Some(self.taken(taken))
    }

    /// Takes blocks for the journal, also from the reserve.
    pub(crate) fn allocate_journal(&mut self, blocks: u64) -> Result<Vec<Extent>> {
        let taken = self.free.allocate_any(blocks).ok_or_else(|| {
            let free = self.free.blocks();
            no_space(format!("the journal needs {blocks} blocks and {free} are free; remove files"))
        })?;
        Ok(self.taken(taken))
    }

    /// The device is not told of these blocks any more.
    fn taken(&mut self, extents: Vec<Extent>) -> Vec<Extent> {
        if let Some(discards) = &mut self.discards {
            extents.iter().for_each(|&e| discards.forget(e));
        }
        extents
    }

    /// Blocks for an open file that no name leads to: nothing about it is recorded.
    pub(crate) fn extend_orphan(&mut self, live: &Live, extents: &[Extent]) {
        let mut list = live.extents().to_vec();
        extents.iter().for_each(|&e| layout::push(&mut list, e));
        live.set_extents(&list);
    }

    /// Gives blocks back that nothing refers to any more, on the device or in memory.
    pub(crate) fn release(&mut self, extents: &[Extent]) -> Result<()> {
        for &extent in extents {
            if !self.free.release(extent) {
                return Err(Error::corruption(format!("the blocks {extent} were free already")));
            }
            if let Some(discards) = &mut self.discards {
                discards.note(extent);
            }
        }
        Ok(())
    }

    /// A device has so many blocks from now on; those that the volume gets are free.
    pub(crate) fn grow(&mut self, role: Role, blocks: u64) {
        let before = self.meta.geometry();
        self.meta.grow(role, blocks);
        for (old, new) in before.areas().zip(self.meta.geometry().areas()) {
            let more = Extent::new(old.end() as u32, new.blocks - old.blocks);
            let released = self.free.release(more);
            debug_assert!(released, "nothing behind the volume was free");
        }
    }

    /// Gives back what may be handed out again, now that the journal is durable up to `position`.
    pub(crate) fn reap(&mut self, position: u64) -> Result<()> {
        let (ready, waiting) = std::mem::take(&mut self.freeing)
            .into_iter()
            .partition::<Vec<_>, _>(|f| f.position <= position && !f.is_held());
        self.freeing = waiting;
        ready.iter().try_for_each(|f| self.release(&f.all_extents()))
    }

    /// A long run of free blocks that the device may be told of now, taken out of the free ones for that time.
    pub(crate) fn begin_discard(&mut self, now_ns: u64) -> Option<Extent> {
        let extent = self.discards.as_mut()?.take(now_ns)?;
        if self.free.claim(extent) { Some(extent) } else { None }
    }

    /// A device does not take what it is told.
    pub(crate) fn refuse_discards(&mut self, role: Role) {
        match &mut self.discards {
            Some(discards) if self.meta.geometry().is_two() => discards.refuse(role),
            discards => *discards = None,
        }
    }

    /// The device has been told.
    pub(crate) fn end_discard(&mut self, extent: Extent) {
        let released = self.free.release(extent);
        debug_assert!(released, "it was taken for the discard");
    }

    /// How many blocks a file should get next that has `allocated` of them and needs `needed`.
    pub(crate) fn growth(&self, allocated: u64, needed: u64) -> u64 {
        let (small, unit) = (u64::from(self.small_unit_blocks), u64::from(self.unit_blocks));
        let step = if allocated < unit { allocated.max(small) } else { unit };
        needed.max(allocated + step) - allocated
    }
}

/// Blocks of a dump of so many bytes of operations.
pub(crate) fn dump_blocks(dump_len: u64) -> u64 {
    dump_len.div_ceil(BLOCK) + 2 * dump_len.div_ceil(DUMP_PART_LEN as u64) + 2
}

/// Blocks of the two copies of such a dump.
pub(crate) fn dump_copies_blocks(dump_len: u64) -> u64 {
    2 * dump_blocks(dump_len)
}

/// The volume is full.
pub(crate) fn no_space(why: String) -> Error {
    Error::new(ErrorKind::NoSpace, why)
}

/// True of an error by [`no_space`], before which nothing was written. A device that is full is another: it names itself.
pub(crate) fn is_no_space(error: &Error) -> bool {
    error.kind() == ErrorKind::NoSpace && error.file().is_none()
}

#[cfg(test)]
mod tests;
