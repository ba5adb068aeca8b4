//! Lock order: each lock has a rank, and a thread takes only locks of a higher rank than all that
//! it holds.
//!
//! Two threads that take the same two locks in different orders deadlock some day. With ranks one
//! thread suffices to find this: with debug assertions, each thread knows its locks, and panics
//! when it takes one out of order, with or without another thread. (Release builds have no ranks,
//! and no cost.) The rules:
//!
//! * A thread waits for a lock only while it holds nothing of the same or a higher rank. Several
//!   locks of one rank may be held only where the rank gives a reason.
//! * `try_lock` does not wait and may be called in any order; later locks must be above the lock it
//!   took.
//! * Waiting for a condition releases its lock and takes it again: nothing above it may be held
//!   meanwhile.
//! * Reading and writing are alike: a reader may wait for a writer who waits for readers.
//! * Leaves ([`super::leaf`]) are last: under a leaf a thread takes only leaves of a higher rank.
//! * A [`Turn`] is waited for like a lock though it is none: the right to write for all, for
//!   example. Its rank is below that of the lock under which it is assigned.
//! * Under loom nothing is checked: it runs all threads of a model in one, and finds deadlocks
//!   itself.
//!
//! Only this module defines the order; docs/locks.md shows the same list, and a test compares the
//! two.

#[cfg(all(debug_assertions, not(loom)))]
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
#[cfg(all(debug_assertions, not(loom)))]
use std::panic::Location;

/// A rank: the types of this module.
pub trait Ranked {
    /// Position in the order.
    const RANK: Rank;
}

/// Defines the rank types, the lowest first, each with its description; `together` says why several
/// may be held at once.
macro_rules! ranks {
    ($(#[doc = $guards:literal] $name:ident $(together $why:literal)?,)* leaves: $(#[doc = $leaf_guards:literal] $leaf:ident,)*) => {
        /// The ranks as values, in their order.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Rank {
            $(#[doc = $guards] $name,)*
            $(#[doc = $leaf_guards] $leaf,)*
        }

        impl Rank {
            /// All of them, the lowest first.
            pub const ALL: &[Rank] = &[$(Rank::$name,)* $(Rank::$leaf,)*];

            /// Returns the description of the guarded data.
            pub fn guards(self) -> &'static str {
                match self {
                    $(Rank::$name => $guards.trim_ascii(),)*
                    $(Rank::$leaf => $leaf_guards.trim_ascii(),)*
                }
            }

            /// Returns why several of this rank may be held at once; `None`: they may not.
            pub fn together(self) -> Option<&'static str> {
                match self {
                    $($(Rank::$name => Some($why),)?)*
                    _ => None,
                }
            }

            /// Returns true if only leaves are taken while it is held.
            pub const fn is_leaf(self) -> bool {
                matches!(self, $(Rank::$leaf)|*)
            }
        }

        $(ranks! { @type $guards $name })*
        $(ranks! { @type $leaf_guards $leaf })*
    };
    (@type $guards:literal $name:ident) => {
        #[doc = $guards]
        #[derive(Debug)]
        pub enum $name {}

        impl Ranked for $name {
            const RANK: Rank = Rank::$name;
        }
    };
}

ranks! {
    /// Data of the callers of the store: tests, and programs around it.
    Outside together "they are not the store's",
    /// A close, until its end.
    Closing,
    /// Threads of the scheduler or of requests, during their start and join.
    Workers,
    /// Checkpoints, one at a time.
    Checkpoint,
    /// Prepared transactions that are in no hand of a program.
    PreparedTransactions,
    /// Parameters of the start of the log, until there is space for it.
    LogUnstarted,
    /// Requests: the order of writes submitted together, and their driver.
    RequestOrder,
    /// Writer: the order of all writes, their sequences, and the frozen memtables.
    Writer,
    /// LavaLog: the order of operations, from their check until they are applied.
    RecordOrder,
    /// Row locks: their holders and waiters.
    RowLocks,
    /// Writer: waiters for a logged write to become visible.
    Inserting,
    /// Admission: the check of the limits for the following writes.
    CachedLimit,
    /// Simulation: running jobs and the choice among them; a waiting thread runs a step of one.
    SimulatedJobs,
    /// Log groups: their preparation, one at a time.
    LogPreparing,
    /// Manifest: the commit of an edit, which may wait for the writer.
    ManifestTurn,
    /// Manifest: accepted edits, the writer, the durable end.
    Manifest,
    /// Manifest: the names of its files.
    ManifestNames,
    /// Inputs claimed by running jobs.
    InProgress,
    /// Compaction: its waiting, running and merged subcompactions.
    CompactionPieces,
    /// LavaLog: the moves of groups.
    RecordMoves,
    /// LavaLog: the logs that have an applier.
    RecordAppliers,
    /// LavaLog: the groups that are sealed soon, and those that wait for another engine.
    RecordSeals,
    /// LavaLog: the groups with batches of another engine.
    RecordCarried,
    /// LavaLog: the storage groups, and those that may be collected.
    RecordCollection,
    /// LavaLog: the index files to be rebuilt.
    RecordRemakes,
    /// LavaLog: the state of all logs.
    Records,
    /// LavaLog: the file of each row.
    RecordFiles,
    /// LavaLog: the bytes of the newest records.
    RecentRecords,
    /// Families: an atomic freeze of several memtables, before a flush chooses among them.
    Freezing,
    /// All families, by number.
    Families,
    /// Family: its options.
    FamilyOptions,
    /// Family: its unreadable tables.
    SetAside,
    /// Family: key ranges in which no key is visible.
    EmptyRanges,
    /// Family: the read state, its memtables and its version.
    ReadState,
    /// Families: their total space requirements.
    SpaceDemand,
    /// Families: those with work for jobs, or with changes that are in no table.
    FamilyWork,
    /// Memtable: range tombstones.
    RangeTombstones,
    /// Segments that memtables refer to.
    Segments,
    /// Registered snapshots.
    Snapshots,
    /// Open iterators.
    OpenIterators,
    /// Entries that tables keep only for snapshots.
    RetainedVersions,
    /// Names of values that running jobs need.
    Pins,
    /// Files to be removed.
    Obsolete,
    /// Files that are set aside, and why.
    Damaged,
    /// Value files that are not to be collected, because of damaged ones.
    Uncollected,
    /// Open tables and value files.
    TableCache,
    /// The lock of the directory, until the store is closed.
    DirectoryLock,
    /// Manifest: the published state.
    ManifestPublished,
    /// Log groups: those that the log has released, and storage groups.
    LogStored,
    /// Log groups: those that are replayed, and the length of the next one.
    LogGroups,
    /// Log groups: files for reuse, and the reserve for a full disk.
    LogSpares,
    /// Log: the start of its idle time.
    LogIdle,
    /// Log: the floor of each engine.
    LogFloors,
    /// Log: the order of batches.
    LogOrder,
    /// Log: the right to write pages, as a turn.
    LogToken,
    /// Log: the buffer from which pages are written.
    LogBuffer,
    /// Log: open pages, the tail buffer, and their groups.
    LogTail,
    /// Log: the holder of the right to write, the waiters, the first failure.
    LogCommit,
    /// Log: windows read ahead by replay.
    LogAhead,
    /// Replay: the changes that wait for a thread that inserts them into memtables.
    ReplayLots,
    /// Completion: the result, and the waker.
    Completion,
    /// Requests: the completed ones of a queue.
    RequestsOver,
    /// Requests: the work of their threads, and the sleepers.
    Reactor,
    /// Asynchronous reads that threads run.
    ReadQueue,
    /// Repair: the findings in damaged files.
    RepairHeard,
    /// Repair: the merge operands of the present key.
    RepairOperands,
    /// The rate of collections.
    GcPace,
    /// The time when the next slowed write may continue.
    WriteRateLimiter,
    /// Requests of other processes: the accepted ones, and whether a thread serves them.
    Requested,
    /// Scheduler: nothing; threads sleep under it, so that no wake-up is lost.
    Parked,
    /// Health: the error that poisoned the store.
    HealthError,
    /// Health: the transient errors of jobs.
    HealthBusy,
    /// Syncs of the store's directory, one at a time.
    DirectorySync,
    /// Pacing: the limit and the number of background reads and writes at the device.
    Depth,
    /// Pacing: the measured costs of reads of a disk.
    ReadCost,
    /// Space: the bytes of each file of the store.
    Meter,
    /// LavaFS: its thread, during its start and join.
    FsThread,
    /// LavaFS: compaction of the journal, one at a time.
    FsCompaction,
    /// LavaFS: the superblock.
    FsSuperblock,
    /// LavaFS: the journal on the device.
    FsJournal,
    /// LavaFS: names, files, free space, operations queued for the journal.
    FsCore,
    /// LavaFS: the block map of an open file.
    FsLive,
    /// Notes of a test in a callback of the store.
    Noted,

    leaves:
    /// Stores and their caches of open files, which share the descriptors of the process.
    IdleFiles,
    /// LavaFS: one part of the page cache.
    FsPages,
    /// Cache: the share of the budget for indexes.
    CacheShare,
    /// Cache: recently evicted keys.
    CacheGhosts,
    /// Kernel: lock files that this process holds.
    KernelLocks,
    /// Kernel: buffers for direct reads and writes.
    KernelBuffers,
    /// Kernel: free io_uring rings.
    KernelRings,
    /// Kernel, in tests: all watches.
    KernelWatches,
    /// Kernel, in tests: the events of one watch.
    KernelWatch,
    /// Simulation: random numbers for callers of the machine.
    SimEntropy,
    /// Simulation: the result of the first thread.
    SimReturned,
    /// Simulation: threads, and the holder of the baton.
    SimBaton,
    /// Simulation: whether a thread may run.
    SimGate,
    /// Simulation: the disk.
    SimWorld,
    /// The bytes of a file in memory.
    MemoryFile,
}

/// Record of a lock that the thread holds through one guard; empty in release builds.
#[derive(Debug)]
pub(super) struct Held {
    #[cfg(all(debug_assertions, not(loom)))]
    rank: Rank,
    /// Not `Send`: the record belongs to its thread.
    own: PhantomData<*const ()>,
}

#[cfg(all(debug_assertions, not(loom)))]
type At = &'static Location<'static>;

#[cfg(all(debug_assertions, not(loom)))]
thread_local! {
    /// Locks that the thread holds, and where it took them.
    static HELD: RefCell<Vec<(Rank, At)>> = const { RefCell::new(Vec::new()) };
    /// The thread may take no lock.
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Makes the calling thread panic at the next lock that it waits for, where debug assertions are
/// on. For tests of child processes, where a lock of the parent may be held forever.
pub fn forbid_locks() {
    #[cfg(all(debug_assertions, not(loom)))]
    FORBIDDEN.set(true);
}

#[cfg(all(debug_assertions, not(loom)))]
impl Held {
    /// Records a lock that is about to be taken.
    ///
    /// # Panics
    /// If the lock may not be taken now.
    #[track_caller]
    pub(super) fn take(rank: Rank) -> Held {
        if FORBIDDEN.try_with(Cell::get).unwrap_or(false) && !std::thread::panicking() {
            panic!("{rank:?} is taken at {} by a thread that may take no lock", Location::caller());
        }
        let out_of_order = HELD.try_with(|held| out_of_order(rank, &held.borrow())).ok().flatten();
        // A panicking thread may take any lock while it unwinds: an abort would hide the first
        // panic.
        if let Some((highest, at)) = out_of_order.filter(|_| !std::thread::panicking()) {
            panic!(
                "{rank:?} is taken while {highest:?} is held (since {at}): locks are taken in the order of base::sync::rank"
            );
        }
        Held::tried(rank)
    }

    /// Records a lock that was taken without waiting.
    #[track_caller]
    pub(super) fn tried(rank: Rank) -> Held {
        // After the drop of the thread's local values nothing is recorded.
        let at = Location::caller();
        HELD.try_with(|held| held.borrow_mut().push((rank, at))).ok();
        Held { rank, own: PhantomData }
    }

    /// Records a lock that is released and taken again.
    #[track_caller]
    pub(super) fn again(self) -> Held {
        let rank = self.rank;
        drop(self);
        Held::take(rank)
    }
}

#[cfg(all(debug_assertions, not(loom)))]
impl Drop for Held {
    fn drop(&mut self) {
        HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(last) = held.iter().rposition(|(rank, _)| *rank == self.rank) {
                held.remove(last);
            }
        })
        .ok();
    }
}

/// Returns the held lock that forbids taking this rank.
#[cfg(all(debug_assertions, not(loom)))]
fn out_of_order(rank: Rank, held: &[(Rank, At)]) -> Option<(Rank, At)> {
    let highest = held.iter().copied().max_by_key(|(rank, _)| *rank)?;
    let allowed = highest.0 < rank || (highest.0 == rank && rank.together().is_some());
    (!allowed).then_some(highest)
}

#[cfg(not(all(debug_assertions, not(loom))))]
impl Held {
    #[inline(always)]
    pub(super) fn take(_: Rank) -> Held {
        Held { own: PhantomData }
    }
    #[inline(always)]
    pub(super) fn tried(_: Rank) -> Held {
        Held { own: PhantomData }
    }
    #[inline(always)]
    pub(super) fn again(self) -> Held {
        self
    }
}

/// Returns true if the thread holds a lock of this rank; always false in release builds and under
/// loom, where nothing is recorded.
#[must_use]
pub fn holds<R: Ranked>() -> bool {
    #[cfg(all(debug_assertions, not(loom)))]
    let is_held = |held: &RefCell<Vec<(Rank, At)>>| held.borrow().iter().any(|(rank, _)| *rank == R::RANK);
    #[cfg(all(debug_assertions, not(loom)))]
    return HELD.try_with(is_held).unwrap_or(false);
    #[cfg(not(all(debug_assertions, not(loom))))]
    false
}

/// Returns how many locks and turns the thread holds; 0 where nothing is recorded.
#[must_use]
pub fn held() -> usize {
    #[cfg(all(debug_assertions, not(loom)))]
    return HELD.try_with(|held| held.borrow().len()).unwrap_or(0);
    #[cfg(not(all(debug_assertions, not(loom))))]
    0
}

/// A turn: the exclusive right to do some work that other threads wait for. It counts from before
/// the wait until the work is done.
#[must_use]
#[derive(Debug)]
pub struct Turn(#[allow(dead_code, reason = "for what its end does")] Held);

/// Records that the thread waits for a turn of this rank from now on, or has it.
#[cfg_attr(all(debug_assertions, not(loom)), track_caller)]
#[inline]
pub fn turn<R: Ranked>() -> Turn {
    Turn(Held::take(R::RANK))
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests;
