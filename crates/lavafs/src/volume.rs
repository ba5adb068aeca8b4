//! A mounted volume: what all its files share.
//!
//! Two parts own state of their own: [`Durability`] has the durable position and the poison of a failed device, and [`Upkeep`]
//! compacts the journal and discards free blocks in the background. The volume itself commits operations and gives blocks to files.
//!
//! Locks, in the order in which they may be taken (see `base::sync::rank`): the two of the upkeep, `superblock`, `journal`, `core`,
//! then the state of one open file.

use crate::core::{Core, Live, is_no_space};
use crate::devices::Ground;
use crate::durability::Durability;
use crate::geometry::Role;
use crate::journal::Journal;
use crate::layout::{BLOCK, Extent};
use crate::op::Op;
use crate::pages::PageCache;
use crate::placement;
use crate::space::Wish;
use crate::superblock::{self, Superblock};
use crate::upkeep::Upkeep;
use base::sync::atomic::Ordering;
use base::sync::{Mutex, lock, rank, statistic};
use base::{Error, ErrorKind, Result, Uid};
use io::{Env, Placement};
use std::path::Path;
use std::sync::Arc;

/// How a volume is mounted.
#[derive(Clone, Copy, Debug)]
pub struct MountOptions {
    /// Refuse everything that would write.
    pub read_only: bool,
    /// Bytes an append file collects before it writes; more if the file is created with a longer buffer.
    pub write_buffer_len: usize,
    /// Bytes of journal after which it is compacted (or an eighth of the volume, if that is less).
    pub compact_journal_at: u64,
    /// Tell the device of blocks that become free.
    pub discard: bool,
    /// Of how many bytes a second at most: a device that is told of much at once has little time for others. What is not told yet when the volume
    /// is unmounted is not told any more.
    pub discard_bytes_per_second: u64,
    /// Take in what the device has become longer by ([`LavaFs::grow`](crate::LavaFs::grow)).
    pub grow: bool,
    /// Bytes of a page cache for reads of up to 64 KiB; 0 for none, which is right for a store with a cache of its own, or 64 KiB at least.
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
    /// Refuses what cannot be, before anything is written.
    pub(crate) fn check(&self) -> Result<()> {
        PageCache::new(self.page_cache_bytes).map(|_| ())
    }
}

/// Counters of a volume since it was mounted.
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

/// What the superblock says once and for all.
#[derive(Debug)]
pub(crate) struct Identity {
    pub uid: Uid,
    pub key: Uid,
    /// The format knows claims.
    pub claims: bool,
}

/// See the module.
pub(crate) struct Volume {
    pub device: Ground,
    pub env: Env,
    pub options: MountOptions,
    pub identity: Identity,
    /// Names, files, free space, and operations that are in line for the journal.
    pub core: Mutex<Core, rank::FsCore>,
    /// The blocks of the journal and where its next transaction goes: whoever writes one holds it.
    pub journal: Mutex<Journal, rank::FsJournal>,
    /// The superblock as it is on the device.
    pub superblock: Mutex<Superblock, rank::FsSuperblock>,
    /// Blocks of files in memory, if that was asked for.
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
        device: Ground,
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

    /// Refuses what may not be done any more, or not at all.
    pub(crate) fn check_writable(&self, path: &Path) -> Result<()> {
        if self.options.read_only {
            let why = "the volume is mounted for reading only";
            return Err(Error::new(ErrorKind::ReadOnly, why).at_file(path));
        }
        self.durability.check_sound().map_err(|e| e.at_file(path))
    }

    /// Makes all data written so far to the devices of a file durable.
    pub(crate) fn sync_devices_of(&self, extents: &[Extent]) -> Result<()> {
        self.durability.sync(&self.device, self.device.roles_of(extents))
    }

    /// Bytes of a file were written.
    pub(crate) fn forget_pages(&self, live: &Live, offset: u64, len: u64) {
        if let Some(pages) = &self.pages {
            let first = offset / BLOCK;
            pages.forget(live.ino, first, offset.saturating_add(len).div_ceil(BLOCK) - first);
        }
    }

    // The journal.

    /// Puts an operation in line; its position.
    pub(crate) fn queue(&self, core: &mut Core, op: &Op) -> Result<u64> {
        self.durability.check_sound()?;
        core.queue(op)
    }

    /// Makes operations up to `position` durable, together with everything else in line.
    pub(crate) fn commit(self: &Arc<Self>, position: u64) -> Result<()> {
        self.durability.check_sound()?;
        if self.durability.is_durable(position) {
            return Ok(());
        }
        self.with_room(|journal| {
            if self.durability.is_durable(position) {
                return Ok(());
            }
            // Whoever held the lock may have failed.
            self.durability.check_sound()?;
            self.commit_locked(journal, true)
        })?;
        self.after_commit()
    }

    /// Runs a commit; where the journal finds no room for itself it is compacted, and the commit tried once more.
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
            // Refused before anything was written.
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

    /// Makes everything in line durable.
    pub(crate) fn commit_all(self: &Arc<Self>) -> Result<()> {
        let position = lock(&self.core).position;
        // Also what was written without being made durable, before this mount or in it.
        self.with_room(|journal| {
            self.durability.check_sound()?;
            match self.durability.is_durable(position) && journal.durable() == journal.sequence() {
                true => Ok(()),
                false => self.commit_locked(journal, true),
            }
        })?;
        self.after_commit()
    }

    /// Writes the line to the journal if it has become long.
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

    /// Gives blocks back that nothing holds any more.
    pub(crate) fn reap(&self) -> Result<()> {
        let position = self.durability.position();
        self.durability.poisoned_by(lock(&self.core).reap(position))
    }

    // Room.

    /// Which device a file of a name should be on, where its creator has no wish of his own.
    pub(crate) fn role_of(&self, path: &Path, placement: Placement) -> Role {
        match placement {
            Placement::Speed => Role::Speed,
            Placement::Capacity => Role::Capacity,
            Placement::ByName => placement::by_name(path),
        }
    }

    /// Blocks for a file. If there are not enough, but some would be free were the journal durable, or shorter, it is made so.
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
        let take = |core: &mut Core| wanted.and_then(|blocks| core.allocate(blocks, goal, Wish::on(role)));
        let extents = self.make_room_for(take)?;
        extents.ok_or_else(|| {
            let (wanted, free) = (blocks.saturating_mul(BLOCK), lock(&self.core).available() * BLOCK);
            crate::core::no_space(format!(
                "{wanted} bytes are needed and {free} are free on the volume; remove files, or use a larger one"
            ))
        })
    }

    /// Blocks on the device that the file should be on, if those are enough that are free, or would be were the journal durable: a
    /// log that falls over because its predecessor is not quite gone would be on the slow device for as long as it lives.
    fn allocate_there(
        self: &Arc<Self>,
        blocks: Option<u32>,
        goal: Option<u32>,
        role: Role,
    ) -> Result<Option<Vec<Extent>>> {
        let Some(blocks) = blocks else { return Ok(None) };
        let wish = Wish { role, falls_over: false };
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

    /// Refuses new names when there is no room to record them.
    pub(crate) fn check_room(self: &Arc<Self>) -> Result<()> {
        let room = self.make_room_for(|core| (core.available() > 0).then_some(()))?;
        room.ok_or_else(|| {
            crate::core::no_space("the volume is full; remove files, or use a larger one".into())
        })
    }

    /// Takes room, and where there is none, what can be had: blocks that are free once the journal is durable, then those by which the
    /// journal has grown. `None`: that is not enough.
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

    /// True if blocks that files do not get are in the journal, where a compaction would set them free: as long as they are, what is
    /// removed fills up the reserve, and nobody can use it. One that would set free too little is not worth a dump.
    fn journal_has_reserve(&self) -> bool {
        let is_under_way = self.upkeep.is_compacting();
        let since_dump = self.upkeep.since_dump();
        let core = lock(&self.core);
        let is_long = since_dump >= u64::from(core.journal_blocks) / 2;
        core.free.blocks() < core.reserve() && (is_under_way || is_long)
    }

    /// Adds blocks to an open file, which had `allocated` of them and needs `needed`. The position of the operation that
    /// records it, unless the file has no name any more.
    pub(crate) fn grow(
        self: &Arc<Self>,
        live: &Live,
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

    /// Makes everything durable, and says in the superblock how far the journal reaches.
    pub(crate) fn unmount(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        self.upkeep.end(self)?;
        // As `commit_all`, but no upkeep is begun.
        self.with_room(|journal| {
            self.durability.check_sound()?;
            self.commit_locked(journal, true)
        })?;
        self.note_reached()
    }

    /// Says in the superblock how far the journal is durable, which may be less than is written: others may write while a
    /// volume is being unmounted.
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
