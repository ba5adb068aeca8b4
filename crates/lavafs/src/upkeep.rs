//! Upkeep: the compaction of the journal and the discards of free blocks, and the thread that does both in the background.
//!
//! The work is done in steps. On a simulated machine each commit takes one step; elsewhere a commit starts a thread, if there is
//! work and no thread. The thread rests after each step, for longer than the step took, so that the device and the processor are
//! free for the foreground. While a caller waits for the compaction, or unmounts the volume, no step is followed by a rest.
//!
//! The part owns two locks. That of the compaction is held during each of its steps, and the locks of the superblock, the journal
//! and the core may be taken under it. That of the thread is held while the thread is started.

use crate::compaction::Compaction;
use crate::journal::Journal;
use crate::layout::BLOCK;
use crate::volume::{Volume, count};
use base::Result;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank, try_lock};
use io::{Env, ThreadHandle};
use std::sync::Arc;

/// After a step of a compaction the thread that made it is idle for so many times as long as the step took: the device, and
/// the processor, are there for those who wait for them.
const REST: u64 = 4;
/// But no longer than this: a step may have waited itself.
const REST_MAX_NS: u64 = 5_000_000;
/// The longest sleep of the thread when only discards are wanted, which are not due: who unmounts waits for it.
const DISCARD_SLEEP_MAX_NS: u64 = 50_000_000;

/// See the module.
pub(crate) struct Upkeep {
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
    /// For a journal with so many blocks since the dump.
    pub(crate) fn new(since_dump: u64) -> Upkeep {
        Upkeep {
            compaction: Mutex::new(Compaction::default()),
            since_dump: AtomicU64::new(since_dump),
            has_thread: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            thread: Mutex::new(None),
        }
    }

    /// Blocks of journal since the dump, as of the last commit or step.
    pub(crate) fn since_dump(&self) -> u64 {
        self.since_dump.load(Ordering::Relaxed)
    }

    /// The journal has become longer, or was compacted. Its lock is held.
    pub(crate) fn note_journal(&self, journal: &Journal) {
        self.since_dump.store(journal.since_dump(), Ordering::Relaxed);
    }

    /// True while a compaction is under way. Waits for the end of its step.
    pub(crate) fn is_compacting(&self) -> bool {
        !lock(&self.compaction).is_idle()
    }

    /// True if the journal has grown so long that it should be compacted.
    fn wants_compaction(&self, volume: &Volume) -> bool {
        let since_dump = self.since_dump();
        let core = lock(&volume.core);
        let blocks = core.meta.volume_blocks();
        let at = (volume.options.compact_journal_at / BLOCK).min(blocks / 8).max(2);
        let dump = crate::core::dump_blocks(core.meta.dump_len());
        since_dump >= at.max(2 * dump)
            || (core.journal_is_short() && since_dump >= u64::from(core.journal_blocks) / 2)
    }

    /// One step: of the compaction under way, or of one that is due, or a discard.
    ///
    /// # Errors
    /// Those of the device, which have poisoned the volume.
    pub(crate) fn step(&self, volume: &Volume) -> Result<()> {
        let mut compaction = lock(&self.compaction);
        if compaction.is_idle() && !self.wants_compaction(volume) {
            drop(compaction);
            return self.discard(volume);
        }
        self.compact_some(&mut compaction, volume)
    }

    fn compact_some(&self, compaction: &mut Compaction, volume: &Volume) -> Result<()> {
        compaction.step(volume)?;
        self.note_journal(&lock(&volume.journal));
        Ok(())
    }

    /// A compaction from beginning to end, at the pace of those in the background; if one is under way, the rest of it.
    ///
    /// # Errors
    /// `Poisoned`; those of the device, which have poisoned the volume.
    pub(crate) fn compact(&self, volume: &Volume) -> Result<()> {
        volume.durability.check_sound()?;
        let step = || {
            let mut compaction = lock(&self.compaction);
            self.compact_some(&mut compaction, volume)?;
            Ok(compaction.is_idle())
        };
        while !self.rested(&volume.env, step)? {}
        Ok(())
    }

    /// The same for a caller that waits for it.
    ///
    /// # Errors
    /// As [`Upkeep::compact`].
    pub(crate) fn compact_now(&self, volume: &Volume) -> Result<()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let compacted = self.compact(volume);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        compacted
    }

    /// Takes a step in the background, and a rest.
    fn rested<T>(&self, env: &Env, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let start_ns = env.clock.now_ns();
        let done = step()?;
        self.rest(env, start_ns);
        Ok(done)
    }

    /// Rests after work that began at `start_ns`, unless a caller waits for it.
    pub(crate) fn rest(&self, env: &Env, start_ns: u64) {
        if self.waiting.load(Ordering::Relaxed) == 0 && !env.is_simulated() {
            let took_ns = env.clock.now_ns().saturating_sub(start_ns);
            env.clock.sleep_ns(took_ns.saturating_mul(REST).min(REST_MAX_NS));
        }
    }

    /// Tells the device of one run of free blocks, if that is due.
    fn discard(&self, volume: &Volume) -> Result<()> {
        let now_ns = volume.env.clock.now_ns();
        let Some(extent) = lock(&volume.core).begin_discard(now_ns) else { return Ok(()) };
        let told = volume.device.discard(extent.offset(), extent.len());
        let mut core = lock(&volume.core);
        core.end_discard(extent);
        match told {
            Ok(()) => count(&volume.counters.discarded_bytes, extent.len()),
            // A hint: a device that does not take it is not told again.
            Err(_) => core.refuse_discards(volume.device.role_of(extent)),
        }
        Ok(())
    }

    /// Starts the thread, if there is work and threads can be had.
    pub(crate) fn start(&self, volume: &Arc<Volume>) {
        let Some(spawner) = volume.env.spawner.clone() else { return };
        if volume.durability.is_poisoned()
            || !self.is_due(volume)
            || self.has_thread.swap(true, Ordering::AcqRel)
        {
            return;
        }
        let volume = volume.clone();
        let body = move || {
            let upkeep = &volume.upkeep;
            // A failure has poisoned the volume: the next write fails.
            let mut result = upkeep.rested(&volume.env, || upkeep.step(&volume));
            while result.is_ok() && upkeep.is_due(&volume) {
                upkeep.wait_for_discard(&volume);
                result = upkeep.rested(&volume.env, || upkeep.step(&volume));
            }
            upkeep.has_thread.store(false, Ordering::Release);
        };
        let mut thread = lock(&self.thread);
        if let Some(ended) = thread.take() {
            ended.join();
        }
        match spawner.spawn("lavafs-journal", io::Priority::Background, Box::new(body)) {
            Ok(handle) => *thread = Some(handle),
            // Without a thread the journal grows until one can be had.
            Err(_) => self.has_thread.store(false, Ordering::Release),
        }
    }

    /// True if there is work for the thread.
    fn is_due(&self, volume: &Volume) -> bool {
        // While a step is under way, its lock is held: then there is no need for another thread.
        let idle = try_lock(&self.compaction).is_none_or(|c| c.is_idle());
        !idle || self.wants_compaction(volume) || self.discard_wait_ns(volume).is_some()
    }

    /// How long the device may not be told of the next free blocks. `None` if there are none, or if they are not due while a caller
    /// waits or unmounts.
    fn discard_wait_ns(&self, volume: &Volume) -> Option<u64> {
        let core = lock(&volume.core);
        let discards = core.discards.as_ref().filter(|discards| !discards.is_empty())?;
        let wait_ns = discards.wait_ns(volume.env.clock.now_ns());
        (wait_ns == 0 || self.waiting.load(Ordering::Relaxed) == 0).then_some(wait_ns)
    }

    /// Sleeps while there is nothing to do but to tell of blocks, and it is too early for that.
    fn wait_for_discard(&self, volume: &Volume) {
        let is_idle =
            try_lock(&self.compaction).is_some_and(|c| c.is_idle()) && !self.wants_compaction(volume);
        if let (true, Some(wait_ns)) = (is_idle, self.discard_wait_ns(volume)) {
            volume.env.clock.sleep_ns(wait_ns.min(DISCARD_SLEEP_MAX_NS));
        }
    }

    /// Waits for the thread, and ends the compaction that it left. From here on no step is followed by a rest.
    ///
    /// # Errors
    /// As [`Upkeep::compact`].
    pub(crate) fn end(&self, volume: &Volume) -> Result<()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            thread.join();
        }
        if self.is_compacting() {
            self.compact(volume)?;
        }
        Ok(())
    }
}
