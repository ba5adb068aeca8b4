//! Background maintenance: journal compaction and discards of free blocks, with their thread.
//!
//! The work consists of steps. In a simulation, each commit runs one step. Otherwise a commit
//! starts a thread if work is due and no thread runs. After each step the thread pauses for longer
//! than the step took, so that foreground work gets the device and the processor. No pauses occur
//! while a caller waits for the compaction or unmounts the volume.
//!
//! This module owns two locks. The compaction lock is held during each compaction step; the locks
//! of the superblock, the journal and the core may be taken under it. The thread lock is held while
//! the thread is started.

use crate::compaction::Compaction;
use crate::journal::Journal;
use crate::layout::BLOCK;
use crate::volume::{Volume, count};
use base::Result;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, lock, rank, try_lock};
use io::{Env, ThreadHandle};
use std::sync::Arc;

/// Length of the pause after a compaction step, as a multiple of the step duration. Other threads
/// use the device and the processor meanwhile.
const REST: u64 = 4;
/// Maximum pause, because a step may itself have waited.
const REST_MAX_NS: u64 = 5_000_000;
/// Maximum sleep of the thread until the next discard is allowed. An unmount waits for it.
const DISCARD_SLEEP_MAX_NS: u64 = 50_000_000;

/// Background maintenance; see the module documentation.
pub(crate) struct Upkeep {
    /// Current compaction, at most one. The lock is held during each of its steps.
    compaction: Mutex<Compaction, rank::FsCompaction>,
    /// Number of journal blocks since the dump, readable without the journal lock.
    since_dump: AtomicU64,
    /// True if a thread runs or is about to start.
    has_thread: AtomicBool,
    /// Number of callers that wait for the compaction.
    waiting: AtomicU64,
    /// Thread of the last compaction, to be joined.
    thread: Mutex<Option<Box<dyn ThreadHandle>>, rank::FsThread>,
}

impl Upkeep {
    /// Creates the state for a journal with `since_dump` blocks since the dump.
    pub(crate) fn new(since_dump: u64) -> Upkeep {
        Upkeep {
            compaction: Mutex::new(Compaction::default()),
            since_dump: AtomicU64::new(since_dump),
            has_thread: AtomicBool::new(false),
            waiting: AtomicU64::new(0),
            thread: Mutex::new(None),
        }
    }

    /// Returns the number of journal blocks since the dump, as of the last commit or step.
    pub(crate) fn since_dump(&self) -> u64 {
        self.since_dump.load(Ordering::Relaxed)
    }

    /// Records the new length of the journal. The caller holds its lock.
    pub(crate) fn note_journal(&self, journal: &Journal) {
        self.since_dump.store(journal.since_dump(), Ordering::Relaxed);
    }

    /// Returns true during a compaction. Waits for the end of its current step.
    pub(crate) fn is_compacting(&self) -> bool {
        !lock(&self.compaction).is_idle()
    }

    /// Returns true if the journal is long enough for a compaction.
    fn wants_compaction(&self, volume: &Volume) -> bool {
        let since_dump = self.since_dump();
        let core = lock(&volume.core);
        let blocks = core.meta.volume_blocks();
        let at = (volume.options.compact_journal_at / BLOCK).min(blocks / 8).max(2);
        let dump = crate::core::dump_blocks(core.meta.dump_len());
        since_dump >= at.max(2 * dump)
            || (core.journal_is_short() && since_dump >= u64::from(core.journal_blocks) / 2)
    }

    /// Runs one step: of the current compaction, of one that is due, or a discard.
    ///
    /// # Errors
    /// The errors of the device, which have poisoned the volume.
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

    /// Runs a whole compaction, or the rest of the current one, at the pace of background work.
    ///
    /// # Errors
    /// `Poisoned`; the errors of the device, which have poisoned the volume.
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

    /// Same as [`Upkeep::compact`] for a caller that waits for it: without pauses.
    ///
    /// # Errors
    /// The errors of [`Upkeep::compact`].
    pub(crate) fn compact_now(&self, volume: &Volume) -> Result<()> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let compacted = self.compact(volume);
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        compacted
    }

    /// Runs a background step and pauses after it.
    fn rested<T>(&self, env: &Env, step: impl FnOnce() -> Result<T>) -> Result<T> {
        let start_ns = env.clock.now_ns();
        let done = step()?;
        self.rest(env, start_ns);
        Ok(done)
    }

    /// Pauses after work that began at `start_ns`, unless a caller waits.
    pub(crate) fn rest(&self, env: &Env, start_ns: u64) {
        if self.waiting.load(Ordering::Relaxed) == 0 && !env.is_simulated() {
            let took_ns = env.clock.now_ns().saturating_sub(start_ns);
            env.clock.sleep_ns(took_ns.saturating_mul(REST).min(REST_MAX_NS));
        }
    }

    /// Discards one run of free blocks, if a discard is allowed now.
    fn discard(&self, volume: &Volume) -> Result<()> {
        let now_ns = volume.env.clock.now_ns();
        let Some(extent) = lock(&volume.core).begin_discard(now_ns) else { return Ok(()) };
        let told = volume.device.discard(extent.offset(), extent.len());
        let mut core = lock(&volume.core);
        core.end_discard(extent);
        match told {
            Ok(()) => count(&volume.counters.discarded_bytes, extent.len()),
            // Discards are hints: a device that rejects one gets no further discards.
            Err(_) => core.refuse_discards(volume.device.role_of(extent)),
        }
        Ok(())
    }

    /// Starts the thread if work is due and threads are available.
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
            // Without a thread, the journal grows until a thread is available.
            Err(_) => self.has_thread.store(false, Ordering::Release),
        }
    }

    /// Returns true if work is due.
    fn is_due(&self, volume: &Volume) -> bool {
        // An active step holds the lock, so no further thread is needed.
        let idle = try_lock(&self.compaction).is_none_or(|c| c.is_idle());
        !idle || self.wants_compaction(volume) || self.discard_wait_ns(volume).is_some()
    }

    /// Returns the time until the next discard is allowed, in nanoseconds. Returns `None` without
    /// pending discards, or if none is allowed yet while a caller waits or unmounts.
    fn discard_wait_ns(&self, volume: &Volume) -> Option<u64> {
        let core = lock(&volume.core);
        let discards = core.discards.as_ref().filter(|discards| !discards.is_empty())?;
        let wait_ns = discards.wait_ns(volume.env.clock.now_ns());
        (wait_ns == 0 || self.waiting.load(Ordering::Relaxed) == 0).then_some(wait_ns)
    }

    /// Sleeps if only discards are pending and none is allowed yet.
    fn wait_for_discard(&self, volume: &Volume) {
        let is_idle =
            try_lock(&self.compaction).is_some_and(|c| c.is_idle()) && !self.wants_compaction(volume);
        if let (true, Some(wait_ns)) = (is_idle, self.discard_wait_ns(volume)) {
            volume.env.clock.sleep_ns(wait_ns.min(DISCARD_SLEEP_MAX_NS));
        }
    }

    /// Joins the thread and finishes its compaction. From here on, no step is followed by a pause.
    ///
    /// # Errors
    /// The errors of [`Upkeep::compact`].
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
