//! The order in which locks are taken: each has a rank, and a thread takes only locks of a higher rank than all that it holds.
//!
//! Two threads that take the same two locks in different orders stop for good, some day. With ranks one thread is enough
//! to find that: wherever debug assertions are on, each thread knows what it holds, and panics when it takes a lock out of
//! order, whether or not anybody is there to meet it. (Release builds know nothing of ranks, and pay nothing.) The rules:
//!
//! * A lock is waited for only by who holds nothing of its rank or above it. Several of one rank may be held only where the
//!   rank says why.
//! * `try_lock` waits for nobody and may be called in any order; what it took counts for what is taken after it.
//! * Waiting for a condition gives its lock up and takes it again: nothing above it may be held meanwhile.
//! * Reading and writing are alike: a reader may wait for a writer who waits for readers.
//! * Leaves ([`super::leaf`]) are last: inside of one nothing is taken but a leaf of a higher rank.
//! * A [`Turn`] is what others wait for though it is no lock: being the one who writes for all, say. Its rank is below that of
//!   the lock under which it is agreed upon.
//! * Under loom nothing is checked: it runs all threads of a model in one, and finds those that wait for one another itself.
//!
//! This is the one place that knows the order; docs/locks.md shows the same list, and a test compares the two.

#[cfg(all(debug_assertions, not(loom)))]
use std::cell::{Cell, RefCell};
use std::marker::PhantomData;
#[cfg(all(debug_assertions, not(loom)))]
use std::panic::Location;

/// What is a rank: the types of this module.
pub trait Ranked {
    /// Its place in the order.
    const RANK: Rank;
}

/// The types, the lowest first, each with what it guards; `together` says why several may be held at once.
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

            /// What a lock of this rank guards.
            pub fn guards(self) -> &'static str {
                match self {
                    $(Rank::$name => $guards.trim_ascii(),)*
                    $(Rank::$leaf => $leaf_guards.trim_ascii(),)*
                }
            }

            /// Why several of this rank may be held at once; `None`: they may not.
            pub fn together(self) -> Option<&'static str> {
                match self {
                    $($(Rank::$name => Some($why),)?)*
                    _ => None,
                }
            }

            /// True if nothing but leaves is taken while it is held.
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
    /// What those who call the store guard by it: tests, and programs around it.
    Outside together "they are not the store's",
    /// A close: one at a time, to its end.
    Closing,
    /// The threads of the scheduler, or those of requests, while they are started or joined.
    Workers,
    /// Checkpoints, one at a time.
    Checkpoint,
    /// What it takes to begin the log, as long as there is no room for it.
    LogUnstarted,
    /// Requests: the order of writes that were submitted together, and who drives it.
    RequestOrder,
    /// Writer: the order of all writes, their sequences, and which memtables are frozen.
    Writer,
    /// LavaLog: the order of operations, from their check until they are applied.
    RecordOrder,
    /// Writer: who sleeps until a write that was logged is visible.
    Inserting,
    /// Admission: who looks at the limits for the writes that follow.
    Verdict,
    /// Simulation: the jobs under way and the choice among them. Who waits runs a step of one, the writer too.
    SimulatedJobs,
    /// Log groups: their preparation, one at a time.
    LogPreparing,
    /// Manifest: to commit an edit, which may be to wait for who writes.
    ManifestTurn,
    /// Manifest: accepted edits, who writes, what is durable.
    Manifest,
    /// Manifest: the names of its files.
    ManifestNames,
    /// What running jobs have claimed.
    InProgress,
    /// Compaction: which of its pieces wait, are at work, and are merged.
    CompactionPieces,
    /// LavaLog: who moves groups.
    RecordMoves,
    /// LavaLog: which logs have an applier.
    RecordAppliers,
    /// LavaLog: which groups are sealed soon, and which wait for another engine.
    RecordSeals,
    /// LavaLog: which groups carry batches of another engine.
    RecordCarried,
    /// LavaLog: what is storage, and what of it may be collected.
    RecordCollection,
    /// LavaLog: which index files are to be made again.
    RecordRemakes,
    /// LavaLog: what is known of all logs.
    Records,
    /// LavaLog: which file has the rows of what.
    RecordFiles,
    /// LavaLog: the bytes of the newest records.
    RecentRecords,
    /// Families: several that are frozen at once, whole, before a flush chooses among what is frozen.
    Freezing,
    /// All families, by number.
    Families,
    /// Family: its options.
    FamilyOptions,
    /// Family: its tables that cannot be read.
    SetAside,
    /// Family: key ranges in which no key is visible.
    EmptyRanges,
    /// Family: what reads see, its memtables and its version.
    ReadState,
    /// Families: what they ask of the space, in all.
    FamilySpace,
    /// Families: which have work for jobs, or changes that are in no table.
    FamilyWork,
    /// Memtable: range tombstones.
    RangeTombstones,
    /// Segments that memtables refer to.
    Segments,
    /// Registered snapshots.
    Snapshots,
    /// Open iterators.
    OpenIterators,
    /// What tables hold only because of snapshots.
    RetainedVersions,
    /// Names of values that running jobs need.
    Pins,
    /// Files to be removed.
    Obsolete,
    /// Files that are set aside, and why.
    Damaged,
    /// Files of values that are not to be collected, for the sake of damaged ones.
    Uncollected,
    /// Open tables and value files.
    TableCache,
    /// The lock of the directory, until the store is closed.
    DirectoryLock,
    /// Manifest: the state that everybody sees.
    ManifestPublished,
    /// Log groups: those that the log has let go of, and that are storage.
    LogStored,
    /// Log groups: those that are replayed, and how long the next one is.
    LogGroups,
    /// Log groups: files to be used again, and kept for a full disk.
    LogSpares,
    /// Log: since when nothing was written to it.
    LogIdle,
    /// Log: what each engine still needs of it.
    LogFloors,
    /// Log: the order of batches.
    LogOrder,
    /// Log: the right to write pages, which is waited for.
    LogToken,
    /// Log: the buffer from which pages are written.
    LogBuffer,
    /// Log: open pages, the ring of closed ones, the groups they go to.
    LogTail,
    /// Log: who has the right to write, who waits, the first failure.
    LogCommit,
    /// Log: what was read ahead while it is replayed.
    LogAhead,
    /// Replay: the changes that wait for a thread that puts them into memtables.
    ReplayLots,
    /// What is known later: whether it is, and whom to wake.
    Completion,
    /// Requests: those of a queue that are over.
    RequestsOver,
    /// Requests: what their threads have to do, and who sleeps.
    Reactor,
    /// Reads that threads do for one who goes on meanwhile.
    ReadQueue,
    /// Repair: what was met in damaged files.
    RepairHeard,
    /// How fast collections go.
    GcPace,
    /// When the next slowed-down write may go on.
    Pacer,
    /// Requests of other processes: those that were taken, and whether a thread serves them.
    Requested,
    /// Scheduler: nothing; who sleeps does so under it, so that no wake-up is lost.
    Parked,
    /// Health: what poisoned the store.
    HealthError,
    /// Health: what jobs met that passes by itself.
    HealthBusy,
    /// Syncs of the store's directory, one at a time.
    DirectorySync,
    /// Pacing: how many pieces of background work may be at the device, and how many are.
    Depth,
    /// Pacing: what reads of a disk cost, as far as was learnt.
    ReadCost,
    /// Space: what each file of the store occupies.
    Meter,
    /// LavaFS: its thread, while it is started or joined.
    FsThread,
    /// LavaFS: compaction of the journal, one at a time.
    FsCompaction,
    /// LavaFS: the superblock.
    FsSuperblock,
    /// LavaFS: the journal on the device.
    FsJournal,
    /// LavaFS: names, files, free space, operations in line for the journal.
    FsCore,
    /// LavaFS: where the blocks of an open file are.
    FsLive,
    /// What a test notes down where the store calls it.
    Noted,

    leaves:
    /// Stores and their caches of open files, which share the descriptors of the process.
    IdleFiles,
    /// LavaFS: one part of the page cache.
    FsPages,
    /// Cache: how much of the budget is for indexes.
    CacheShare,
    /// Cache: what was evicted not long ago.
    CacheGhosts,
    /// Kernel: lock files that this process holds.
    KernelLocks,
    /// Kernel: buffers for direct reads and writes.
    KernelBuffers,
    /// Kernel: rings of io_uring that nobody uses now.
    KernelRings,
    /// Kernel, in tests: all that is watched.
    KernelWatches,
    /// Kernel, in tests: what one watch saw.
    KernelWatch,
    /// Simulation: random numbers for those who ask the machine.
    SimEntropy,
    /// Simulation: what the first thread returned.
    SimReturned,
    /// Simulation: threads and whose turn it is.
    SimBaton,
    /// Simulation: whether a thread may go on.
    SimGate,
    /// Simulation: the disk.
    SimWorld,
    /// The bytes of a file in memory.
    MemoryFile,
}

/// What the thread holds because of one guard; in release builds nothing.
#[derive(Debug)]
pub(super) struct Held {
    #[cfg(all(debug_assertions, not(loom)))]
    rank: Rank,
    /// It is the thread's own.
    own: PhantomData<*const ()>,
}

#[cfg(all(debug_assertions, not(loom)))]
type At = &'static Location<'static>;

#[cfg(all(debug_assertions, not(loom)))]
thread_local! {
    /// What the thread holds, and where it took it.
    static HELD: RefCell<Vec<(Rank, At)>> = const { RefCell::new(Vec::new()) };
    /// The thread may take no lock.
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// Has the calling thread panic at the next lock that it waits for, where debug assertions are on. For tests of child processes: a lock of
/// their parent may be held for ever.
pub fn forbid_locks() {
    #[cfg(all(debug_assertions, not(loom)))]
    FORBIDDEN.set(true);
}

#[cfg(all(debug_assertions, not(loom)))]
impl Held {
    /// What is about to be taken is held from now on.
    ///
    /// # Panics
    /// If it may not be taken now.
    #[track_caller]
    pub(super) fn take(rank: Rank) -> Held {
        if FORBIDDEN.try_with(Cell::get).unwrap_or(false) && !std::thread::panicking() {
            panic!("{rank:?} is taken at {} by a thread that may take no lock", Location::caller());
        }
        let out_of_order = HELD.try_with(|held| out_of_order(rank, &held.borrow())).ok().flatten();
        // A thread that panics already takes what it needs on its way out: an abort would say less.
        if let Some((highest, at)) = out_of_order.filter(|_| !std::thread::panicking()) {
            panic!(
                "{rank:?} is taken while {highest:?} is held (since {at}): locks are taken in the order of base::sync::rank"
            );
        }
        Held::tried(rank)
    }

    /// What was taken without waiting is held.
    #[track_caller]
    pub(super) fn tried(rank: Rank) -> Held {
        // Where the thread's own values are gone, nothing is known of it.
        let at = Location::caller();
        HELD.try_with(|held| held.borrow_mut().push((rank, at))).ok();
        Held { rank, own: PhantomData }
    }

    /// It is given up and taken again.
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

/// What is in the way of taking this, for one who holds those.
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

/// True if the thread holds a lock of this rank. Where nobody keeps count, in release builds and under loom, it is not known: false.
#[must_use]
pub fn holds<R: Ranked>() -> bool {
    #[cfg(all(debug_assertions, not(loom)))]
    let is_held = |held: &RefCell<Vec<(Rank, At)>>| held.borrow().iter().any(|(rank, _)| *rank == R::RANK);
    #[cfg(all(debug_assertions, not(loom)))]
    return HELD.try_with(is_held).unwrap_or(false);
    #[cfg(not(all(debug_assertions, not(loom))))]
    false
}

/// How many locks and turns the thread holds. Where nobody keeps count: 0.
#[must_use]
pub fn held() -> usize {
    #[cfg(all(debug_assertions, not(loom)))]
    return HELD.try_with(|held| held.borrow().len()).unwrap_or(0);
    #[cfg(not(all(debug_assertions, not(loom))))]
    0
}

/// A thread's wish to be the one who does something that others wait for, and then its being that one: from before it waits
/// until it is done.
#[must_use]
#[derive(Debug)]
pub struct Turn(#[allow(dead_code, reason = "for what its end does")] Held);

/// The thread waits for a turn of this rank from now on, or has it.
#[cfg_attr(all(debug_assertions, not(loom)), track_caller)]
#[inline]
pub fn turn<R: Ranked>() -> Turn {
    Turn(Held::take(R::RANK))
}

#[cfg(all(test, debug_assertions, not(loom)))]
mod tests;
