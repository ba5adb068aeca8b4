//! State of a [`super::SimEnv`]: the volume, the record of its operations, and the active faults.
//!
//! Every operation gets a number, in the order of their begins. An operation logs its effects as
//! [`Change`]s under its number; reads log nothing. Every [`CHECKPOINT_CHANGES`] changes, or as
//! many as there are files, the log keeps a copy of the volume (pointers to shared pages). So the
//! state at any number is a copy of the nearest earlier one plus a short replay.

use super::clock::{SimClock, SimEntropy};
use super::crash::CrashKind;
use super::disk::{Change, Disk, Ino, ROOT, Target};
use super::disk_times::Work;
use super::fault::{EMFILE, ENOSPC, EROFS, FaultPlan, OpKind, Verdict, os_error};
use super::{Costs, SimEnv};
use crate::descriptors::Descriptors;
use crate::{Clock, PAGE, Rng};
use base::sync::leaf::{Mutex, MutexGuard};
use base::sync::rank;
use base::{ErrorKind, HashMap, HashSet, Result};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Changes between two copies of the volume.
const CHECKPOINT_CHANGES: usize = 48;
/// Operations the trace keeps.
const TRACE_OPS_MAX: usize = 4096;

/// State shared by all handles of one environment.
pub(super) struct SharedWorld {
    /// The disk with its names and contents, the record, and the faults.
    pub(super) world: Mutex<World, rank::SimWorld>,
    pub(super) clock: Arc<SimClock>,
    pub(super) entropy: Arc<SimEntropy>,
    pub(super) descriptors: Arc<Descriptors>,
}

impl SharedWorld {
    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        // A test that panicked under the lock has failed anyway; other threads may still read the
        // state.
        base::sync::leaf::lock(&self.world)
    }

    /// Performs an operation: numbers it, charges it to the clock, applies the faults, and records
    /// its result.
    #[track_caller]
    pub(super) fn op<T>(
        &self,
        kind: OpKind,
        path: &Arc<str>,
        range: (u64, u64),
        body: impl FnOnce(&mut World, Verdict) -> Result<T>,
    ) -> Result<T> {
        self.op_of(None, kind, path, range, body)
    }

    /// As `op`, for a file. If the file is a device with its own timing model, the clock is not
    /// charged.
    #[track_caller]
    pub(super) fn op_of<T>(
        &self,
        ino: Option<Ino>,
        kind: OpKind,
        path: &Arc<str>,
        range: (u64, u64),
        body: impl FnOnce(&mut World, Verdict) -> Result<T>,
    ) -> Result<T> {
        #[cfg(feature = "sched")]
        base::sync::schedule::point(base::sync::schedule::Act::Io);
        let mut world = self.lock();
        if !ino.is_some_and(|ino| world.devices.contains_key(&ino)) {
            self.clock.advance(world.costs.of(kind, range.1));
        }
        let verdict = world.begin(kind, path, range, &self.clock);
        let result = body(&mut world, verdict);
        if let Err(error) = &result
            && let Some(entry) = world.trace.back_mut()
        {
            entry.failed = Some(error.kind());
        }
        result
    }
}

struct TraceEntry {
    op: u64,
    kind: OpKind,
    path: Arc<str>,
    range: (u64, u64),
    failed: Option<ErrorKind>,
}

#[derive(Clone)]
struct Logged {
    op: u64,
    change: Change,
}

#[derive(Clone)]
struct Checkpoint {
    /// Number of logged changes it contains.
    changes: usize,
    disk: Disk,
}

/// Total of open files.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Handles {
    pub(super) now: u64,
    /// Peak since the last query.
    pub(super) peak: u64,
    pub(super) max: Option<u64>,
}

pub(super) struct World {
    pub(super) seed: u64,
    pub(super) disk: Disk,
    /// Changes so far.
    changes: usize,
    /// False: changes are not logged, and no crash in the past can be made.
    pub(super) keeps_record: bool,
    log: Vec<Logged>,
    checkpoints: Vec<Checkpoint>,
    /// Clock after each operation.
    times_ns: Vec<u64>,
    next_ino: Ino,
    /// Open handles of each file.
    open: HashMap<Ino, u32>,
    pub(super) handles: Handles,
    /// Pages that open files have reserved, from their beginning.
    reserved: HashMap<Ino, u64>,
    /// Holders of locks.
    pub(super) locks: BTreeMap<Ino, String>,
    counts: BTreeMap<Arc<str>, [u64; OpKind::COUNT]>,
    trace: VecDeque<TraceEntry>,
    pub(super) faults: Vec<FaultPlan>,
    pub(super) faults_fired: u64,
    pub(super) rng: Rng,
    pub(super) capacity: Option<u64>,
    /// A directory, and the peak of the pages of its files.
    pub(super) watched: Option<(PathBuf, u64)>,
    pub(super) read_only: bool,
    /// Block length of files written in place.
    pub(super) block_len: usize,
    pub(super) costs: Costs,
    /// Devices with their own timing model.
    pub(super) devices: BTreeMap<Ino, Work>,
}

impl World {
    pub(super) fn new(seed: u64, disk: Disk) -> Self {
        let files = disk.files.last_key_value().map_or(ROOT, |(&ino, _)| ino);
        let dirs = disk.dirs.last_key_value().map_or(ROOT, |(&ino, _)| ino);
        World {
            seed,
            checkpoints: vec![Checkpoint { changes: 0, disk: disk.clone() }],
            disk,
            changes: 0,
            keeps_record: true,
            log: Vec::new(),
            times_ns: Vec::new(),
            next_ino: files.max(dirs) + 1,
            open: HashMap::default(),
            handles: Handles::default(),
            reserved: HashMap::default(),
            locks: BTreeMap::new(),
            counts: BTreeMap::new(),
            trace: VecDeque::new(),
            faults: Vec::new(),
            faults_fired: 0,
            rng: Rng::new(seed ^ 0xfa17),
            capacity: None,
            watched: None,
            read_only: false,
            block_len: super::SECTOR,
            costs: Costs::default(),
            devices: BTreeMap::new(),
        }
    }

    fn begin(&mut self, kind: OpKind, path: &Arc<str>, range: (u64, u64), clock: &SimClock) -> Verdict {
        let op = self.op_count();
        self.times_ns.push(clock.now_ns());
        match self.counts.get_mut(path) {
            Some(counts) => counts[kind as usize] += 1,
            None => {
                let mut counts = [0; OpKind::COUNT];
                counts[kind as usize] = 1;
                self.counts.insert(path.clone(), counts);
            }
        }
        if self.trace.len() == TRACE_OPS_MAX {
            self.trace.pop_front();
        }
        self.trace.push_back(TraceEntry { op, kind, path: path.clone(), range, failed: None });
        let mut struck = None;
        for plan in &mut self.faults {
            let strike = plan.strikes(kind, path, clock.now_ns());
            struck = struck.or(strike);
        }
        if let Some(effect) = struck {
            self.faults_fired += 1;
            return Verdict::of(effect, kind, path);
        }
        if self.read_only && kind.mutates() {
            return Verdict::Refused(os_error(
                EROFS,
                &format!("{kind:?} on a read-only medium"),
                path.as_ref(),
            ));
        }
        Verdict::Go
    }

    /// Returns the number of operations begun.
    pub(super) fn op_count(&self) -> u64 {
        self.times_ns.len() as u64
    }

    /// Performs a change and logs it under the current operation.
    pub(super) fn apply(&mut self, change: Change) {
        if self.changes > 0 && self.changes.is_multiple_of(CHECKPOINT_CHANGES) {
            let open = &self.open;
            self.disk.sweep(|ino| open.contains_key(&ino));
            // A copy has a pointer for each file, and the names. With thousands of files, copies as
            // frequent as with few would make the history grow quadratically.
            let since = self.log.len() - self.checkpoints.last().map_or(0, |c| c.changes);
            if self.keeps_record && since >= self.disk.files.len() {
                self.checkpoints.push(Checkpoint { changes: self.log.len(), disk: self.disk.clone() });
            }
        }
        self.disk.apply(&change);
        self.changes += 1;
        if self.keeps_record {
            self.log.push(Logged { op: self.op_count() - 1, change });
        }
        self.look_at_watched();
    }

    /// Updates the peak of the watched directory; called after each change, and when the watch
    /// begins.
    pub(super) fn look_at_watched(&mut self) {
        if let Some((dir, peak_pages)) = &mut self.watched {
            let reserved = &self.reserved;
            let pages = self.disk.dir_pages(dir, |ino| reserved.get(&ino).copied().unwrap_or(0));
            *peak_pages = (*peak_pages).max(pages);
        }
    }

    pub(super) fn new_ino(&mut self) -> Ino {
        self.next_ino += 1;
        self.next_ino - 1
    }

    /// Refuses to open a file if the limit of open files is reached.
    pub(super) fn check_handles(&self, path: &Path) -> Result<()> {
        match self.handles.max.is_some_and(|max| self.handles.now >= max) {
            true => Err(os_error(EMFILE, "open one more file than there may be", path)),
            false => Ok(()),
        }
    }

    pub(super) fn opened(&mut self, ino: Ino) {
        *self.open.entry(ino).or_default() += 1;
        self.handles.now += 1;
        self.handles.peak = self.handles.peak.max(self.handles.now);
    }

    pub(super) fn closed(&mut self, ino: Ino) {
        self.handles.now -= 1;
        if let Some(count) = self.open.get_mut(&ino) {
            *count -= 1;
            if *count == 0 {
                self.open.remove(&ino);
                self.reserved.remove(&ino);
            }
        }
    }

    /// Returns the bytes of the volume in use.
    pub(super) fn used(&self) -> u64 {
        let used = self.disk.used_pages(|ino| self.open.contains_key(&ino));
        let ahead: u64 = self.reserved.keys().map(|ino| self.reserved_ahead(*ino)).sum();
        (used + ahead) * PAGE as u64
    }

    /// Returns the pages that a file has reserved and not filled.
    fn reserved_ahead(&self, ino: Ino) -> u64 {
        let reserved = self.reserved.get(&ino).copied().unwrap_or(0);
        reserved.saturating_sub(self.disk.file(ino).live.allocated_pages())
    }

    /// Reserves space for an open append file.
    pub(super) fn reserve(&mut self, ino: Ino, len: u64, path: &Path) -> Result<()> {
        let pages = len.div_ceil(PAGE as u64);
        let has = self.disk.file(ino).live.allocated_pages() + self.reserved_ahead(ino);
        let needed = pages.saturating_sub(has).saturating_mul(PAGE as u64);
        if self.free().is_some_and(|free| free < needed) {
            return Err(os_error(ENOSPC, "reserve room for a file", path));
        }
        let reserved = self.reserved.entry(ino).or_default();
        *reserved = pages.max(*reserved);
        self.look_at_watched();
        Ok(())
    }

    /// Releases the space that a file has reserved and not filled.
    pub(super) fn release(&mut self, ino: Ino) {
        self.reserved.remove(&ino);
    }

    /// Returns the free bytes; `None`: no limit.
    pub(super) fn free(&self) -> Option<u64> {
        self.capacity.map(|capacity| capacity.saturating_sub(self.used()))
    }

    /// Returns how many bytes of a write fit on the volume: pages that are holes need space.
    pub(super) fn room_for(&self, ino: Ino, offset: u64, len: usize) -> usize {
        let Some(mut free) = self.free() else { return len };
        let content = &self.disk.file(ino).live;
        let reserved = self.reserved.get(&ino).copied().unwrap_or(0);
        for (page, _, range) in super::content::pages_of(offset, len) {
            if content.page(page).is_none() && page >= reserved {
                if free < PAGE as u64 {
                    return range.start;
                }
                free -= PAGE as u64;
            }
        }
        len
    }

    pub(super) fn count_ops(&self, kind: Option<OpKind>, path_suffix: &str) -> u64 {
        let matching = self.counts.iter().filter(|(path, _)| path.ends_with(path_suffix));
        matching
            .map(|(_, counts)| match kind {
                Some(kind) => counts[kind as usize],
                None => counts.iter().sum(),
            })
            .sum()
    }

    pub(super) fn trace(&self) -> String {
        let mut text = String::new();
        for entry in &self.trace {
            let (offset, len) = entry.range;
            let _ = write!(text, "{:6} {:?} {}", entry.op, entry.kind, entry.path);
            if len > 0 {
                let _ = write!(text, " {offset}+{len}");
            }
            let _ = match entry.failed {
                Some(kind) => writeln!(text, " -> {}", kind.name()),
                None => writeln!(text),
            };
        }
        text
    }

    pub(super) fn record(&self) -> Record {
        Record {
            seed: self.seed,
            log: self.log.clone().into(),
            checkpoints: self.checkpoints.clone().into(),
            times_ns: self.times_ns.clone().into(),
        }
    }
}

/// Holds the history of a simulated run, to try crashes at every operation of it without running it
/// again. Cheap to clone, and independent of its machine.
#[derive(Clone)]
pub struct Record {
    seed: u64,
    log: Arc<[Logged]>,
    checkpoints: Arc<[Checkpoint]>,
    times_ns: Arc<[u64]>,
}

impl Record {
    /// Returns the number of operations recorded: the bound of a loop over [`Record::crash_at`].
    /// [`Record::mutations`] has fewer moments to try.
    pub fn op_count(&self) -> u64 {
        self.times_ns.len() as u64
    }

    /// Returns the numbers of the operations that changed the volume, ascending: the useful moments
    /// for a crash. [`Record::barriers`] has still fewer. (A crash during any other operation
    /// leaves the same as one just before the next of these.)
    pub fn mutations(&self) -> Vec<u64> {
        let mut ops: Vec<u64> = self.log.iter().map(|logged| logged.op).collect();
        ops.dedup();
        ops
    }

    /// Returns those of the mutations that make something durable or remove a name: syncs of files
    /// and directories, durable writes, removals. A crash between two of these can leave nothing
    /// new, only less.
    pub fn barriers(&self) -> Vec<u64> {
        let is_barrier = |change: &Change| {
            matches!(
                change,
                Change::Sync { .. }
                    | Change::SyncDir { .. }
                    | Change::Write { durable: true, .. }
                    | Change::Remove { .. }
            )
        };
        let mut ops: Vec<u64> = self.log.iter().filter(|l| is_barrier(&l.change)).map(|l| l.op).collect();
        ops.dedup();
        ops
    }

    /// Returns the numbers of the operations that changed a file with a name that contains `part`,
    /// ascending. A file counts under every name that it ever had. Use them for crashes around one
    /// kind of file; without such a file the list is empty.
    pub fn changes_of(&self, part: &str) -> Vec<u64> {
        let mut files = HashSet::default();
        let first = self.checkpoints.first().map(|c| &c.disk);
        for (name, target) in first.into_iter().flat_map(|d| d.dirs.values()).flat_map(|d| &d.live) {
            if let Target::File(ino) = target
                && name.contains(part)
            {
                files.insert(*ino);
            }
        }
        let mut ops = Vec::new();
        for Logged { op, change } in self.log.iter() {
            let named = match change {
                Change::MakeFile { name, ino, .. } => Some((name, *ino)),
                Change::Link { name, target: Target::File(ino), .. } => Some((name, *ino)),
                Change::Rename { to, target: Target::File(ino), .. } => Some((to, *ino)),
                _ => None,
            };
            if let Some((_, ino)) = named.filter(|(name, _)| name.contains(part)) {
                files.insert(ino);
            }
            if change.file().or(named.map(|(_, ino)| ino)).is_some_and(|ino| files.contains(&ino)) {
                ops.push(*op);
            }
        }
        ops.dedup();
        ops
    }

    /// Returns a new machine on the volume after a crash in operation `op`, with operations `0..op`
    /// complete. By the seed, operation `op` is not begun, half done, or done except for its
    /// promise. Beyond the end no operation is interrupted. The seed also selects the state that
    /// the crash leaves. The cost is a replay of part of the history, in memory.
    pub fn crash_at(&self, op: u64, kind: CrashKind, seed: u64) -> SimEnv {
        self.crash(op, kind, seed, true)
    }

    /// As [`Record::crash_at`], but operation `op` had not begun: operations `0..op` are complete.
    pub fn crash_before(&self, op: u64, kind: CrashKind, seed: u64) -> SimEnv {
        self.crash(op, kind, seed, false)
    }

    fn crash(&self, op: u64, kind: CrashKind, seed: u64, interrupted: bool) -> SimEnv {
        let mut rng = Rng::new(seed ^ op.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let complete = self.log.partition_point(|logged| logged.op < op);
        let checkpoint = self.checkpoints.partition_point(|c| c.changes <= complete) - 1;
        let Checkpoint { changes, disk } = &self.checkpoints[checkpoint];
        let mut disk = disk.clone();
        self.log[*changes..complete].iter().for_each(|logged| disk.apply(&logged.change));
        let under_way = self.log[complete..].iter().take_while(|logged| logged.op == op).count();
        if interrupted && under_way > 0 {
            let done = complete + rng.below(under_way as u64) as usize;
            self.log[complete..done].iter().for_each(|logged| disk.apply(&logged.change));
            if let Some(change) = self.log[done].change.interrupted(&disk, kind, &mut rng) {
                disk.apply(&change);
            }
        }
        let time_ns = (op as usize).min(self.times_ns.len()).checked_sub(1).map(|i| self.times_ns[i]);
        restarted(&disk, kind, self.seed, seed, time_ns.unwrap_or(0), &mut rng)
    }
}

/// Returns a new environment on the result of a crash of `disk`.
pub(super) fn restarted(
    disk: &Disk,
    kind: CrashKind,
    run_seed: u64,
    seed: u64,
    time_ns: u64,
    rng: &mut Rng,
) -> SimEnv {
    let after = disk.crashed(kind, rng);
    let new_seed = Rng::new(run_seed.rotate_left(17) ^ seed ^ rng.next_u64()).next_u64();
    SimEnv::on(new_seed, after, time_ns + super::RESTART_NS)
}
