//! A mounted volume: what all its files share.
//!
//! Locks, in the order in which they may be taken (see `base::sync::rank`): `compaction`, `superblock`, `journal`, `core`, then the
//! state of one open file.
//!
//! **Poison.** After a failed sync, a failed durable write, or a failed write of the journal, nobody knows what the
//! device holds. The first such error is kept, and from then on nothing is acknowledged: everything that would change
//! the volume or make it durable fails with `Poisoned`. Reads go on. The remedy is to mount again.

use crate::compaction::Compaction;
use crate::core::{Core, Live, is_no_space};
use crate::devices::Ground;
use crate::geometry::{Role, Roles};
use crate::journal::Journal;
use crate::layout::{BLOCK, Extent};
use crate::op::Op;
use crate::pages::PageCache;
use crate::placement;
use crate::space::Wish;
use crate::superblock::{self, Superblock};
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, OnceLock, lock, rank, statistic, try_lock};
use base::{Error, ErrorKind, Result, Uid};
use io::{Env, Placement, ThreadHandle};
use std::path::Path;
use std::sync::Arc;

/// After a step of a compaction the thread that made it is idle for so many times as long as the step took: the device, and
/// the processor, are there for those who wait for them.
const REST: u64 = 4;
/// But no longer than this: a step may have waited itself.
const REST_MAX_NS: u64 = 5_000_000;
/// The longest sleep of the thread when only discards are wanted, which are not due: who unmounts waits for it.
const DISCARD_SLEEP_MAX_NS: u64 = 50_000_000;

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
    pub data_syncs: statistic::AtomicU64,
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

/// How far what is in line is safe, and whether it can be trusted any more.
#[derive(Debug, Default)]
struct Durable {
    /// Operations up to here are durable.
    position: AtomicU64,
    /// The first failure after which nobody knows what the device holds.
    poison: OnceLock<Error>,
}

/// Compaction of the journal, and who does it.
struct Upkeep {
    /// The compaction under way, one at a time; held during each of its steps.
    compaction: Mutex<Compaction, rank::FsCompaction>,
    /// Blocks of journal since the dump, for those who do not hold its lock.
    since_dump: AtomicU64,
    /// A thread compacts, or is about to.
    has_thread: AtomicBool,
    /// How many wait for the compaction.
    waiting: AtomicU64,
    /// The thread of the last compaction, to be joined.
    thread: Mutex<Option<Box<dyn ThreadHandle>>, rank::FsThread>,
}

impl Upkeep {
    fn new(since_dump: u64) -> Upkeep {
        Upkeep {
            compaction: Mutex::new(Compaction::default()),
            since_dump: AtomicU64::new(since_dump),
            has_thread: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            thread: Mutex::new(None),
        }
    }
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
    durable: Durable,
    upkeep: Upkeep,
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
            durable: Durable::default(),
            upkeep: Upkeep::new(journal.since_dump()),
            journal: Mutex::new(journal),
        })
    }

    // Poison.

    /// Refuses what may not be done any more, or not at all.
    pub(crate) fn check_writable(&self, path: &Path) -> Result<()> {
        if self.options.read_only {
            let why = "the volume is mounted for reading only";
            return Err(Error::new(ErrorKind::ReadOnly, why).at_file(path));
        }
        self.check_sound().map_err(|e| e.at_file(path))
    }

    pub(crate) fn check_sound(&self) -> Result<()> {
        match self.durable.poison.get() {
            None => Ok(()),
            Some(first) => Err(first.clone().with_kind(ErrorKind::Poisoned).context(
                "an earlier write or sync of the device failed, so what it holds is unknown; mount it again",
            )),
        }
    }

    /// Remembers a failure after which nothing may be acknowledged, and says so: whoever hears of no space, or of what passes by itself,
    /// takes it that nothing happened, and tries again.
    pub(crate) fn poisoned_by<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| {
            let failed = match e.kind() == ErrorKind::NoSpace || e.is_passing() {
                true => {
                    let why = "a write or sync of the device failed, so what it holds is unknown; mount the volume again";
                    Error::new(ErrorKind::Io, why).caused_by(e)
                }
                false => e,
            };
            self.durable.poison.get_or_init(|| failed.clone());
            failed
        })
    }

    /// Makes all data written so far to the devices of a file durable.
    pub(crate) fn sync_devices_of(&self, extents: &[Extent]) -> Result<()> {
        self.sync_devices(self.device.roles_of(extents))
    }

    pub(crate) fn sync_devices(&self, roles: Roles) -> Result<()> {
        self.check_sound()?;
        if roles.is_empty() {
            return Ok(());
        }
        count(&self.counters.data_syncs, 1);
        self.poisoned_by(self.device.sync_of(roles))
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
        self.check_sound()?;
        core.queue(op)
    }

    /// True if operations up to `position` are durable.
    pub(crate) fn is_durable(&self, position: u64) -> bool {
        self.durable.position.load(Ordering::Acquire) >= position
    }

    /// Makes operations up to `position` durable, together with everything else in line.
    pub(crate) fn commit(self: &Arc<Self>, position: u64) -> Result<()> {
        self.check_sound()?;
        if self.is_durable(position) {
            return Ok(());
        }
        self.with_room(|journal| {
            if self.is_durable(position) {
                return Ok(());
            }
            // Whoever held the lock may have failed.
            self.check_sound()?;
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
        self.compact_now()?;
        commit(&mut lock(&self.journal))
    }

    fn commit_locked(&self, journal: &mut Journal, durable: bool) -> Result<()> {
        let result = journal.commit(&self.device, &self.core, durable);
        let committed = match result {
            // Refused before anything was written.
            Err(e) if is_no_space(&e) => return Err(e),
            result => self.poisoned_by(result)?,
        };
        count(&self.counters.journal_commits, 1);
        self.upkeep.since_dump.store(journal.since_dump(), Ordering::Relaxed);
        if committed.durable {
            self.durable.position.fetch_max(committed.position, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Makes everything in line durable.
    pub(crate) fn commit_all(self: &Arc<Self>) -> Result<()> {
        let position = lock(&self.core).position;
        // Also what was written without being made durable, before this mount or in it.
        self.with_room(|journal| {
            self.check_sound()?;
            match self.is_durable(position) && journal.durable() == journal.sequence() {
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
            self.check_sound()?;
            self.commit_locked(journal, false)
        })?;
        self.after_commit()
    }

    fn after_commit(self: &Arc<Self>) -> Result<()> {
        self.reap()?;
        if self.env.is_simulated() {
            return self.compact_step();
        }
        self.start_compaction();
        Ok(())
    }

    /// Gives blocks back that nothing holds any more.
    pub(crate) fn reap(&self) -> Result<()> {
        let position = self.durable.position.load(Ordering::Acquire);
        self.poisoned_by(lock(&self.core).reap(position))
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
        self.compact_now()?;
        Ok(taken(self))
    }

    /// True if blocks that files do not get are in the journal, where a compaction would set them free: as long as they are, what is
    /// removed fills up the reserve, and nobody can use it. One that would set free too little is not worth a dump.
    fn journal_has_reserve(&self) -> bool {
        let is_under_way = !lock(&self.upkeep.compaction).is_idle();
        let since_dump = self.upkeep.since_dump.load(Ordering::Relaxed);
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

    // Upkeep.

    /// True if the journal has grown so long that it should be compacted.
    pub(crate) fn wants_compaction(&self) -> bool {
        let since_dump = self.upkeep.since_dump.load(Ordering::Relaxed);
        let core = lock(&self.core);
        let blocks = core.meta.volume_blocks();
        let at = (self.options.compact_journal_at / BLOCK).min(blocks / 8).max(2);
        let dump = crate::core::dump_blocks(core.meta.dump_len());
        since_dump >= at.max(2 * dump)
            || (core.journal_is_short() && since_dump >= u64::from(core.journal_blocks) / 2)
    }

    /// One step of the upkeep: of the compaction under way, or of one that is due, or a discard.
    pub(crate) fn compact_step(&self) -> Result<()> {
        let mut compaction = lock(&self.upkeep.compaction);
        if compaction.is_idle() && !self.wants_compaction() {
            drop(compaction);
            return self.discard_step();
        }
        self.step(&mut compaction)
    }

    fn step(&self, compaction: &mut Compaction) -> Result<()> {
        compaction.step(self)?;
        self.upkeep.since_dump.store(lock(&self.journal).since_dump(), Ordering::Relaxed);
        Ok(())
    }

    /// A compaction from beginning to end, at the pace of those in the background; if one is under way, the rest of it.
    pub(crate) fn compact(&self) -> Result<()> {
        self.check_sound()?;
        let step = || {
            let mut compaction = lock(&self.upkeep.compaction);
            self.step(&mut compaction)?;
            Ok(compaction.is_idle())
        };
        while !self.rested(step)? {}
        Ok(())
    }

    /// The same for somebody who waits for it.
    fn compact_now(&self) -> Result<()> {
        self.upkeep.waiting.fetch_add(1, Ordering::Relaxed);
        let compacted = self.compact();
        self.upkeep.waiting.fetch_sub(1, Ordering::Relaxed);
        compacted
    }

    /// Takes a step in the background, and a rest.
    fn rested<T>(&self, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let start_ns = self.env.clock.now_ns();
        let done = step()?;
        self.rest(start_ns);
        Ok(done)
    }

    /// Rests after work that began at `start_ns`, unless somebody waits for it.
    pub(crate) fn rest(&self, start_ns: u64) {
        if self.upkeep.waiting.load(Ordering::Relaxed) == 0 && !self.env.is_simulated() {
            let took_ns = self.env.clock.now_ns().saturating_sub(start_ns);
            self.env.clock.sleep_ns(took_ns.saturating_mul(REST).min(REST_MAX_NS));
        }
    }

    /// Tells the device of one run of free blocks, if that is due.
    pub(crate) fn discard_step(&self) -> Result<()> {
        let now_ns = self.env.clock.now_ns();
        let Some(extent) = lock(&self.core).begin_discard(now_ns) else { return Ok(()) };
        let told = self.device.discard(extent.offset(), extent.len());
        let mut core = lock(&self.core);
        core.end_discard(extent);
        match told {
            Ok(()) => count(&self.counters.discarded_bytes, extent.len()),
            // A hint: a device that does not take it is not told again.
            Err(_) => core.refuse_discards(self.device.role_of(extent)),
        }
        Ok(())
    }

    /// Starts a thread that compacts, if that is due and threads can be had.
    fn start_compaction(self: &Arc<Self>) {
        let Some(spawner) = self.env.spawner.clone() else { return };
        if self.durable.poison.get().is_some()
            || !self.wants_upkeep()
            || self.upkeep.has_thread.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let volume = self.clone();
        let body = move || {
            // A failure has poisoned the volume, and whoever writes next is told.
            let mut result = volume.rested(|| volume.compact_step());
            while result.is_ok() && volume.wants_upkeep() {
                volume.wait_for_discard();
                result = volume.rested(|| volume.compact_step());
            }
            volume.upkeep.has_thread.store(false, Ordering::Release);
        };
        let mut thread = lock(&self.upkeep.thread);
        if let Some(ended) = thread.take() {
            ended.join();
        }
        match spawner.spawn("lavafs-journal", io::Priority::Background, Box::new(body)) {
            Ok(handle) => *thread = Some(handle),
            // Without a thread the journal grows until one can be had.
            Err(_) => self.upkeep.has_thread.store(false, Ordering::Release),
        }
    }

    fn wants_upkeep(&self) -> bool {
        // While a step is under way, its lock is held: then there is no need for another thread.
        let idle = try_lock(&self.upkeep.compaction).is_none_or(|c| c.is_idle());
        !idle || self.wants_compaction() || self.discard_wait_ns().is_some()
    }

    /// How long the device may not be told of the next free blocks; `None`: there are none, or somebody waits who unmounts and they are not due.
    fn discard_wait_ns(&self) -> Option<u64> {
        let core = lock(&self.core);
        let discards = core.discards.as_ref().filter(|discards| !discards.is_empty())?;
        let wait_ns = discards.wait_ns(self.env.clock.now_ns());
        (wait_ns == 0 || self.upkeep.waiting.load(Ordering::Relaxed) == 0).then_some(wait_ns)
    }

    /// Sleeps while there is nothing to do but to tell of blocks, and it is too early for that.
    fn wait_for_discard(&self) {
        let is_idle =
            try_lock(&self.upkeep.compaction).is_some_and(|c| c.is_idle()) && !self.wants_compaction();
        if let (true, Some(wait_ns)) = (is_idle, self.discard_wait_ns()) {
            self.env.clock.sleep_ns(wait_ns.min(DISCARD_SLEEP_MAX_NS));
        }
    }

    /// Waits for the thread that compacts.
    pub(crate) fn join(&self) {
        let thread = lock(&self.upkeep.thread).take();
        if let Some(thread) = thread {
            thread.join();
        }
    }

    /// Makes everything durable, and says in the superblock how far the journal reaches.
    pub(crate) fn unmount(&self) -> Result<()> {
        if self.options.read_only {
            return Ok(());
        }
        // From here on, for good.
        self.upkeep.waiting.fetch_add(1, Ordering::Relaxed);
        self.join();
        if !lock(&self.upkeep.compaction).is_idle() {
            self.compact()?;
        }
        // As `commit_all`, but no upkeep is begun.
        self.with_room(|journal| {
            self.check_sound()?;
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
        self.poisoned_by(superblock::write(&*self.device, &next))?;
        *superblock = next;
        Ok(())
    }
}
