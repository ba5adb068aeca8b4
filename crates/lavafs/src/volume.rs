//! Mounted volume: the shared state of all its files.
//!
//! Two parts own their state: [`Durability`] has the durable position and the poison of a failed
//! device, and [`Upkeep`] compacts the journal and discards free blocks in the background. The
//! volume itself commits operations and allocates blocks for files.
//!
//! Lock order (see `base::sync::rank`): the two locks of [`Upkeep`], `superblock`, `journal`,
//! `core`, then the state of one open file.

use crate::core::{Core, OpenFileState, is_no_space};
use crate::devices::VolumeDevices;
use crate::durability::Durability;
use crate::geometry::Role;
use crate::journal::Journal;
use crate::layout::{BLOCK, Extent};
use crate::op::Op;
use crate::pages::PageCache;
use crate::placement;
use crate::space::AllocationRequest;
use crate::superblock::{self, Superblock};
use crate::upkeep::Upkeep;
use base::sync::atomic::Ordering;
use base::sync::{Mutex, lock, rank, statistic};
use base::{Error, ErrorKind, Result, Uid};
use io::{Env, Placement};
use std::path::Path;
use std::sync::Arc;

/// Tunes a mount of a LavaFS volume: read-only access, discards, growth, a page cache. The volume
/// does not remember the options; the defaults suit a store.
#[derive(Clone, Copy, Debug)]
pub struct MountOptions {
    /// If true, the volume rejects all writes with `ReadOnly`, to inspect it. Default: false.
    pub read_only: bool,
    /// Write buffer of an append file, in bytes. A file created with a longer buffer uses that.
    /// Default: 512 KiB.
    pub write_buffer_len: usize,
    /// Journal size that triggers a compaction, in bytes (at most an eighth of the volume). A
    /// larger journal is compacted less often, and makes a mount longer. Default: 16 MiB.
    pub compact_journal_at: u64,
    /// If true, the device gets discards of freed blocks, for an SSD or a sparse image. Default:
    /// false.
    pub discard: bool,
    /// Maximum rate of discards, in bytes per second. A large discard delays other requests of the
    /// device. An unmount drops pending discards. Default: 256 MiB.
    pub discard_bytes_per_second: u64,
    /// If true, the mount grows the volume to the size of its devices
    /// ([`LavaFs::grow`](crate::LavaFs::grow)). Default: false.
    pub grow: bool,
    /// Size of the page cache for reads of up to 64 KiB, in bytes: 0 for none, otherwise at least
    /// 64 KiB, or the mount fails with `InvalidArgument`. A store with its own cache needs none.
    /// Default: 0.
    pub page_cache_bytes: u64,
}

impl Default for MountOptions {
    fn default() -> Self {
        MountOptions {
            read_only: false,
            write_buffer_len: 512 << 10,
            compact_journal_at: 16 << 20,
            discard: false,
            discard_bytes_per_second: 256 << 20,
            grow: false,
            page_cache_bytes: 0,
        }
    }
}

impl MountOptions {
    /// Rejects invalid options before anything is written.
    pub(crate) fn check(&self) -> Result<()> {
        PageCache::new(self.page_cache_bytes).map(|_| ())
    }
}

/// Counters of a volume since the mount.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub data_bytes: statistic::AtomicU64,
    pub read_bytes: statistic::AtomicU64,
    pub journal_commits: statistic::AtomicU64,
    pub compactions: statistic::AtomicU64,
    pub dump_bytes: statistic::AtomicU64,
    pub discarded_bytes: statistic::AtomicU64,
}

pub(crate) fn count(counter: &statistic::AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

/// Immutable part of the superblock.
#[derive(Debug)]
pub(crate) struct Identity {
    pub uid: Uid,
    pub key: Uid,
    /// True if the format supports claims.
    pub claims: bool,
}

/// A mounted volume; see the module documentation.
pub(crate) struct Volume {
    pub device: VolumeDevices,
    pub env: Env,
    pub options: MountOptions,
    pub identity: Identity,
    /// Names, files, free space, and pending operations of the journal.
    pub core: Mutex<Core, rank::FsCore>,
    /// Journal blocks and the place of the next transaction. Held during each journal write.
    pub journal: Mutex<Journal, rank::FsJournal>,
    /// Superblock as stored on the device.
    pub superblock: Mutex<Superblock, rank::FsSuperblock>,
    /// Page cache, if the mount enabled one.
    pub pages: Option<PageCache>,
    pub counters: Counters,
    pub durability: Durability,
    pub upkeep: Upkeep,
}

impl std::fmt::Debug for Volume {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LavaFS on {}", self.device.path().display())
    }
}

impl Volume {
    pub(crate) fn new(
        device: VolumeDevices,
        env: Env,
        options: MountOptions,
        superblock: Superblock,
        core: Core,
        journal: Journal,
    ) -> Result<Self> {
        Ok(Volume {
            pages: PageCache::new(options.page_cache_bytes)?,
            device,
            env,
            options,
            identity: Identity {
                uid: superblock.uid,
                key: superblock.key,
                claims: superblock.version >= superblock::VERSION_WITH_CLAIMS,
            },
            core: Mutex::new(core),
            superblock: Mutex::new(superblock),
            counters: Counters::default(),
            durability: Durability::default(),
            upkeep: Upkeep::new(journal.since_dump()),
            journal: Mutex::new(journal),
        })
    }

    /// Rejects writes to a read-only or poisoned volume.
    pub(crate) fn check_writable(&self, path: &Path) -> Result<()> {
        if self.options.read_only {
            let why = "the volume is mounted read-only: mount it for writing";
            return Err(Error::new(ErrorKind::ReadOnly, why).at_file(path));
        }
        self.durability.check_sound().map_err(|e| e.at_file(path))
    }

    /// Makes all data written so far to the devices of a file durable.
    pub(crate) fn sync_devices_of(&self, extents: &[Extent]) -> Result<()> {
        self.durability.sync(&self.device, self.device.roles_of(extents))
    }

    /// Removes the cached pages of a written byte range.
    pub(crate) fn forget_pages(&self, live: &OpenFileState, offset: u64, len: u64) {
        if let Some(pages) = &self.pages {
            let first = offset / BLOCK;
            pages.forget(live.ino, first, offset.saturating_add(len).div_ceil(BLOCK) - first);
        }
    }

    // Journal.

    /// Queues an operation for the journal and returns its position.
    pub(crate) fn queue(&self, core: &mut Core, op: &Op) -> Result<u64> {
        self.durability.check_sound()?;
        core.queue(op)
    }

    /// Makes the operations up to `position` durable, together with all other pending ones.
    pub(crate) fn commit(self: &Arc<Self>, position: u64) -> Result<()> {
        self.durability.check_sound()?;
        if self.durability.is_durable(position) {
            return Ok(());
        }
        self.with_room(|journal| {
            if self.durability.is_durable(position) {
                return Ok(());
            }
            // The previous lock holder may have failed.
            self.durability.check_sound()?;
            self.commit_locked(journal, true)
        })?;
        self.after_commit()
    }

    /// Runs a commit. If the journal lacks space, compacts it and retries once.
    fn with_room(&self, commit: impl Fn(&mut Journal) -> Result<()>) -> Result<()> {
        match commit(&mut lock(&self.journal)) {
            Err(e) if is_no_space(&e) => {}
            done => return done,
        }
        self.upkeep.compact_now(self)?;
        commit(&mut lock(&self.journal))
    }

    fn commit_locked(&self, journal: &mut Journal, durable: bool) -> Result<()> {
        let result = journal.commit(&self.device, &self.core, durable);
        let committed = match result {
            // The commit was rejected before any write.
            Err(e) if is_no_space(&e) => return Err(e),
            result => self.durability.poisoned_by(result)?,
        };
        count(&self.counters.journal_commits, 1);
        self.upkeep.note_journal(journal);
        if committed.durable {
            self.durability.reach(committed.position);
        }
        Ok(())
    }

    /// Makes all pending operations durable.
    pub(crate) fn commit_all(self: &Arc<Self>) -> Result<()> {
        let position = lock(&self.core).position;
        // Includes transactions that were written without a sync, during or before this mount.
        self.with_room(|journal| {
            self.durability.check_sound()?;
            match self.durability.is_durable(position) && journal.durable() == journal.sequence() {
                true => Ok(()),
                false => self.commit_locked(journal, true),
            }
        })?;
        self.after_commit()
    }

    /// Writes the pending operations to the journal if they have become long.
    pub(crate) fn relieve(self: &Arc<Self>) -> Result<()> {
        if !lock(&self.core).is_pending_long() {
            return Ok(());
        }
        self.with_room(|journal| {
            self.durability.check_sound()?;
            self.commit_locked(journal, false)
        })?;
        self.after_commit()
    }

    fn after_commit(self: &Arc<Self>) -> Result<()> {
        self.reap()?;
        if self.env.is_simulated() {
            return self.upkeep.step(self);
        }
        self.upkeep.start(self);
        Ok(())
    }

    /// Frees the blocks that are no longer in use.
    pub(crate) fn reap(&self) -> Result<()> {
        let position = self.durability.position();
        self.durability.poisoned_by(lock(&self.core).reap(position))
    }

    // Space.

    /// Returns the preferred device of a file: the choice of its creator, or the choice by name.
    pub(crate) fn role_of(&self, path: &Path, placement: Placement) -> Role {
        match placement {
            Placement::Fast => Role::Fast,
            Placement::Capacity => Role::Capacity,
            Placement::ByName => placement::by_name(path),
        }
    }

    /// Allocates blocks for a file. If too few blocks are free, makes the journal durable or
    /// compacts it when that could free some.
    pub(crate) fn allocate(
        self: &Arc<Self>,
        blocks: u64,
        goal: Option<u32>,
        role: Role,
    ) -> Result<Vec<Extent>> {
        let wanted = u32::try_from(blocks).ok();
        if self.device.second().is_some()
            && let Some(extents) = self.allocate_there(wanted, goal, role)?
        {
            return Ok(extents);
        }
        let take = |core: &mut Core| {
            wanted.and_then(|blocks| core.allocate(blocks, goal, AllocationRequest::on(role)))
        };
        let extents = self.make_room_for(take)?;
        extents.ok_or_else(|| {
            let (wanted, free) = (blocks.saturating_mul(BLOCK), lock(&self.core).available() * BLOCK);
            crate::core::no_space(format!(
                "the file needs {wanted} more bytes, and {free} are free on the volume; remove files, or grow the volume (`lava fs grow`)"
            ))
        })
    }

    /// Allocates blocks only on the preferred device. If too few blocks are free there, makes the
    /// journal durable when that could free some. A log that falls back because its predecessor is
    /// not quite removed would stay on the slow device for its whole life.
    fn allocate_there(
        self: &Arc<Self>,
        blocks: Option<u32>,
        goal: Option<u32>,
        role: Role,
    ) -> Result<Option<Vec<Extent>>> {
        let Some(blocks) = blocks else { return Ok(None) };
        let wish = AllocationRequest { role, falls_over: false };
        let take = || {
            let mut core = lock(&self.core);
            (core.allocate(blocks, goal, wish), core.has_freeing_on(role))
        };
        match take() {
            (None, true) => {
                self.commit_all()?;
                Ok(take().0)
            }
            (taken, _) => Ok(taken),
        }
    }

    /// Rejects new names if there is no space to record them.
    pub(crate) fn check_room(self: &Arc<Self>) -> Result<()> {
        let room = self.make_room_for(|core| (core.available() > 0).then_some(()))?;
        room.ok_or_else(|| {
            crate::core::no_space(
                "the volume is full, and takes no new names; nothing was changed: remove files, or grow the volume (`lava fs grow`)".into(),
            )
        })
    }

    /// Calls `take`. If it fails, first frees the blocks that wait for the durability of the
    /// journal, then compacts the journal, and retries. Returns `None` if that does not suffice.
    fn make_room_for<T>(self: &Arc<Self>, take: impl Fn(&mut Core) -> Option<T>) -> Result<Option<T>> {
        let taken = |volume: &Volume| take(&mut lock(&volume.core));
        if let Some(taken) = taken(self) {
            return Ok(Some(taken));
        }
        if lock(&self.core).has_freeing() {
            self.commit_all()?;
            if let Some(taken) = taken(self) {
                return Ok(Some(taken));
            }
        }
        if !self.journal_has_reserve() {
            return Ok(None);
        }
        self.upkeep.compact_now(self)?;
        Ok(taken(self))
    }

    /// Returns true if the journal holds blocks of the reserve that a compaction would free. Until
    /// then, freed blocks only refill the reserve, and no file can use them. A compaction that
    /// would free too little is not worth a dump.
    fn journal_has_reserve(&self) -> bool {
        let is_under_way = self.upkeep.is_compacting();
        let since_dump = self.upkeep.since_dump();
        let core = lock(&self.core);
        let is_long = since_dump >= u64::from(core.journal_blocks) / 2;
        core.free.blocks() < core.reserve() && (is_under_way || is_long)
    }

    /// Adds blocks to an open file that had `allocated` blocks and needs `needed`. Returns the
    /// position of the recording operation, or `None` if the file has no name.
    pub(crate) fn grow(
        self: &Arc<Self>,
        live: &OpenFileState,
        (allocated, needed): (u64, u64),
        exact: bool,
        role: Role,
    ) -> Result<Option<u64>> {
        let goal = live.extents().last().filter(|e| !e.is_hole()).and_then(|e| u32::try_from(e.end()).ok());
        let generous = lock(&self.core).growth(allocated, needed);
        let least = needed - allocated;
        let wanted = if exact { least } else { generous };
        let extents = match self.allocate(wanted, goal, role) {
            Err(e) if e.kind() == ErrorKind::NoSpace && wanted > least => self.allocate(least, goal, role)?,
            result => result?,
        };
        let mut core = lock(&self.core);
        if live.is_orphan() {
            core.extend_orphan(live, &extents);
            return Ok(None);
        }
        let queued = self.queue(&mut core, &Op::Extend { ino: live.ino, extents: extents.clone() });
        match queued {
            Ok(position) => Ok(Some(position)),
            Err(e) => {
                core.release(&extents)?;
                Err(e)
            }
        }
    }

    /// Makes all changes durable and records the end of the journal in the superblock.
    pub(crate) fn unmount(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.upkeep.end(self)?;
        // Same as `commit_all`, but without new background work.
        self.with_room(|journal| {
            self.durability.check_sound()?;
            self.commit_locked(journal, true)
        })?;
        self.note_reached()
    }

    /// Records in the superblock up to where the journal is durable. This may be less than the
    /// written part, because other threads may write during an unmount.
    pub(crate) fn note_reached(&self) -> Result<()> {
        let reached = lock(&self.journal).durable();
        let mut superblock = lock(&self.superblock);
        if superblock.reached >= reached {
            return Ok(());
        }
        let next = Superblock { generation: superblock.generation + 1, reached, ..superblock.clone() };
        self.durability.poisoned_by(superblock::write(&*self.device, &next))?;
        *superblock = next;
        Ok(())
    }
}
