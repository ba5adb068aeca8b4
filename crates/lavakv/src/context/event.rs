//! Events: notifications about background work for a listener.

use base::Error;

/// Defines the causes, each with a name for statistics and metrics, and a description of the
/// condition that ends the wait.
macro_rules! causes {
    ($($(#[doc = $doc:literal])* $cause:ident = $name:literal, $waits_for:literal;)*) => {
        /// Reason for a slowed or stalled writer.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum StallCause {
            $($(#[doc = $doc])* $cause,)*
        }

        impl StallCause {
            /// All causes, in order.
            pub const ALL: [StallCause; [$($name),*].len()] = [$(StallCause::$cause),*];

            /// Returns a description of the condition that ends the wait.
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
    /// Memtables wait to be flushed.
    Memory = "memory", "memtables to be flushed";
    /// Level 0 waits for a compaction.
    L0 = "l0", "level 0 to be compacted";
    /// Levels below level 0 are above their targets.
    Levels = "levels", "the levels below level 0 to be compacted";
    /// The log waits for a prepared group.
    Log = "log", "the log";
    /// Garbage waits for collection.
    Garbage = "garbage", "garbage to be collected";
    /// The space limit is near, or reached.
    Space = "space", "space";
}

/// A data file that is partly or completely unreadable, with the keys that may be lost.
///
/// Reads of keys from `first_key` to `last_key` fail if they need the file; all other reads work.
#[derive(Clone, Debug)]
pub struct DamagedFile {
    /// Its name in the store's directory.
    pub file: String,
    /// The column family.
    pub family: String,
    /// True for a table: keys with small values, and references. False for a file of separated
    /// values.
    pub is_table: bool,
    /// The length it should have, bytes.
    pub bytes: u64,
    /// The smallest key that may be in it.
    pub first_key: Vec<u8>,
    /// The largest key that may be in it.
    pub last_key: Vec<u8>,
    /// The first error found in the file.
    pub error: Error,
}

/// Reason for a change of the levels on the fast tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastTierChangeReason {
    /// Work on the capacity tier waits longer than it would on the fast tier.
    CapacityIsBusy,
    /// Work on the fast tier waits longer than it would on the capacity tier, or delays the log.
    SpeedIsBusy,
    /// The fast tier has no room beside the space reserved for the log.
    NoRoom,
}

/// A notification about background work, waits of writers, and damage, for logs and alarms.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A flush wrote data from memory to a table.
    Flush {
        /// Column family.
        family: String,
        /// Bytes of the new table.
        output_bytes: u64,
    },
    /// A collection rewrote value files.
    Gc {
        /// The family.
        family: String,
        /// Bytes of the collected value files.
        input_bytes: u64,
        /// Bytes of the new value files.
        output_bytes: u64,
    },
    /// A compaction was installed.
    Compaction {
        /// Column family.
        family: String,
        /// Level of the inputs.
        level: usize,
        /// Level of the outputs.
        output_level: usize,
        /// Bytes read.
        input_bytes: u64,
        /// Bytes written.
        output_bytes: u64,
    },
    /// A writer waited.
    Stall {
        /// Reason for the wait.
        cause: StallCause,
        /// Duration of the wait.
        wait_ns: u64,
    },
    /// The total wait of a write exceeded the stall budget ([`crate::Options::stall_budget`]).
    StallOverBudget {
        /// Cause of its longest wait: the bottleneck.
        cause: StallCause,
        /// Its total wait so far.
        wait_ns: u64,
    },
    /// An unreadable file was set aside: background work skips it from now on. Sent once per file.
    FileSetAside {
        /// The file, and its error.
        file: DamagedFile,
    },
    /// A log page, a value referenced only by the log, or the manifest is unreadable. Its content
    /// is still in memory: the memtables are flushed, and the manifest is rewritten.
    LogDamaged {
        /// The location and the reason.
        error: Error,
    },
    /// The log or the manifest is damaged, and the store was opened for reading: it shows the data
    /// before the damage.
    ReadUpToDamage {
        /// The damage, and its locations.
        errors: Vec<Error>,
    },
    /// The levels on the fast tier have changed (`ExpertOptions::fast_tier_adaptive`).
    FastTierLevelsChanged {
        /// Levels on the fast tier, from level 0 on, in thousandths: 2,500 is the first two levels
        /// and half of the tables of the next.
        milli: u32,
        /// Reason for the change.
        why: FastTierChangeReason,
    },
    /// The descriptor limit of the process is too low for [`crate::Options::open_files_max`]. Sent
    /// once, when the store is opened.
    OpenFilesBounded {
        /// Number of files that should stay open.
        asked: usize,
        /// Number of files that stay open.
        allowed: usize,
        /// Descriptor limit of the process (`ulimit -n`). The store uses at most half of it.
        limit: u64,
    },
    /// A background job failed.
    BackgroundError {
        /// Reason for the failure.
        error: Error,
    },
}

/// Receives the [`Event`]s of a store; set it as [`Options::listener`](crate::Options::listener).
///
/// The store calls it on the thread that causes the event, which may be a writer: return quickly,
/// and do not call into the store. A panic of the listener is caught and counted in
/// `Statistics::listener_panics`; it does not affect the store.
pub trait EventListener: Send + Sync {
    /// Called after the event.
    fn event(&self, event: &Event);
}

impl std::fmt::Debug for dyn EventListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventListener")
    }
}
