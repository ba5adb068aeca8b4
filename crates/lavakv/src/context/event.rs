//! What the engine tells a listener about its background work.

use base::Error;

/// Defines the causes: each with its name in statistics and metrics, and what a writer waits for, in words.
macro_rules! causes {
    ($($(#[doc = $doc:literal])* $cause:ident = $name:literal, $waits_for:literal;)*) => {
        /// Why a writer was slowed down or waited.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum StallCause {
            $($(#[doc = $doc])* $cause,)*
        }

        impl StallCause {
            /// All of them, in order.
            pub const ALL: [StallCause; [$($name),*].len()] = [$(StallCause::$cause),*];

            /// What somebody waits for, in words.
            pub(crate) fn waits_for(self) -> &'static str {
                match self {
                    $(StallCause::$cause => $waits_for,)*
                }
            }

            /// The name in statistics and metrics.
            ///
            /// ```
            /// assert_eq!(lavastore_lavakv::StallCause::Memory.name(), "memory");
            /// ```
            pub fn name(self) -> &'static str {
                match self {
                    $(StallCause::$cause => $name,)*
                }
            }
        }
    };
}

causes! {
    /// Memtables wait for flush.
    Memory = "memory", "memtables to be flushed";
    /// L0 waits for compaction.
    L0 = "l0", "level 0 to be compacted";
    /// Levels below it wait for compaction: they have more than their targets.
    Levels = "levels", "the levels below level 0 to be compacted";
    /// The log waits for a prepared group.
    Log = "log", "the log";
    /// Garbage waits for its collection.
    Garbage = "garbage", "garbage to be collected";
    /// The space limit is near, or reached.
    Space = "space", "space";
}

/// A table or value file that cannot be read, or not all of it.
#[derive(Clone, Debug)]
pub struct DamagedFile {
    /// Its name in the store's directory.
    pub file: String,
    /// The column family.
    pub family: String,
    /// True for a table: keys with small values, and references. False for a file of separated values.
    pub is_table: bool,
    /// The length it should have, bytes.
    pub bytes: u64,
    /// The smallest key that may be in it.
    pub first_key: Vec<u8>,
    /// The largest key that may be in it.
    pub last_key: Vec<u8>,
    /// What is wrong: where it was met first.
    pub error: Error,
}

/// Why other levels than before are to be on the speed disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpeedMove {
    /// Work waits longer on the capacity disk than it would on the speed disk.
    CapacityIsBusy,
    /// Work waits longer on the speed disk than it would on the capacity disk, or the log waits for it.
    SpeedIsBusy,
    /// There is no room on the speed disk beside what the log needs.
    NoRoom,
}

/// Something that happened.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A memtable became a table in L0.
    Flush {
        /// Column family.
        family: String,
        /// Bytes of the new table.
        output_bytes: u64,
    },
    /// vSSTs were collected.
    Gc {
        /// The family.
        family: String,
        /// Bytes of the vSSTs that were rewritten.
        input_bytes: u64,
        /// Bytes of those that took their place.
        output_bytes: u64,
    },
    /// A compaction was installed.
    Compaction {
        /// Column family.
        family: String,
        /// Level it took files from.
        level: usize,
        /// Level it wrote to.
        output_level: usize,
        /// Bytes read.
        input_bytes: u64,
        /// Bytes written.
        output_bytes: u64,
    },
    /// A writer waited.
    Stall {
        /// Why.
        cause: StallCause,
        /// How long.
        wait_ns: u64,
    },
    /// A write waited longer for the engine than the store's budget ([`crate::Options::stall_budget`]).
    StallOverBudget {
        /// What it waited for longest: the link of the chain that is short.
        cause: StallCause,
        /// What it had waited by then, all in all.
        wait_ns: u64,
    },
    /// A file that cannot be read was set aside: background work leaves it alone from now on. Told once for each file.
    FileSetAside {
        /// Which, and what is wrong with it.
        file: DamagedFile,
    },
    /// A page of the log, a value that only the log refers to, or the manifest cannot be read any more. What it holds is in
    /// memory: the memtables are flushed, the manifest is written anew.
    LogDamaged {
        /// Where, and what is wrong.
        error: Error,
    },
    /// The log or the manifest is damaged, and the store was opened for reading: it shows what is before the damage.
    ReadUpToDamage {
        /// What is wrong, and where.
        errors: Vec<Error>,
    },
    /// Other levels than before are to be on the speed disk (`ExpertOptions::speed_moving`).
    SpeedLevels {
        /// How many, from level 0 on, in thousandths: 2,500 are the first two levels and half of the tables of the next one.
        milli: u32,
        /// Why.
        why: SpeedMove,
    },
    /// The process may not have the descriptors for as many open files as [`crate::Options::open_files_max`] says. Told once, when the store is opened.
    OpenFilesBounded {
        /// Files that should stay open.
        asked: usize,
        /// Files that stay open.
        allowed: usize,
        /// Descriptors that the process may have (`ulimit -n`). The store uses at most half of them.
        limit: u64,
    },
    /// A background job failed.
    BackgroundError {
        /// Why.
        error: Error,
    },
}

/// Receives events, on the thread where they happen: return quickly, and do not call into the store.
///
/// A panic in it is caught, counted in `Statistics::listener_panics`, and does not disturb the engine.
pub trait EventListener: Send + Sync {
    /// Called after the event.
    fn event(&self, event: &Event);
}

impl std::fmt::Debug for dyn EventListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventListener")
    }
}
