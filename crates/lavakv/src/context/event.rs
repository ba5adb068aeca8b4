//! Events: notifications about background work for a listener.

use base::Error;

/// Defines the causes, each with a name for statistics and metrics, and a description of the
/// condition that ends the wait.
macro_rules! causes {
    ($($(#[doc = $doc:literal])* $cause:ident = $name:literal, $waits_for:literal;)*) => {
        /// Names the bottleneck of a slowed or stalled writer, to decide which resource or option to
        /// raise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum StallCause {
            $($(#[doc = $doc])* $cause,)*
        }

        impl StallCause {
            /// All causes, in the order of the statistics, for tables and metrics.
            pub const ALL: [StallCause; [$($name),*].len()] = [$(StallCause::$cause),*];

            /// Returns a description of the condition that ends the wait.
            pub(crate) fn waits_for(self) -> &'static str {
                match self {
                    $(StallCause::$cause => $waits_for,)*
                }
            }

            /// Returns the stable name in statistics and metrics, such as `memory`.
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
    /// Memtables wait to be flushed: raise `memory_bytes`, or use a faster device.
    Memory = "memory", "memtables to be flushed";
    /// Level 0 waits for a compaction: the writes outrun the background threads or `io_budget`.
    L0 = "l0", "level 0 to be compacted";
    /// Levels below level 0 are above their targets: compaction is behind, as for `L0`.
    Levels = "levels", "the levels below level 0 to be compacted";
    /// The log waits for its next file to be prepared.
    Log = "log", "the log";
    /// Garbage of separated values waits for collection: raise `io_budget` or the space limit.
    Garbage = "garbage", "garbage to be collected";
    /// The space limit is near, or reached: delete data or raise the limit.
    Space = "space", "space";
}

/// Names a data file that is partly or completely unreadable, with the keys that may be lost, to
/// decide between a restore and a repair.
///
/// Reads of keys from `first_key` to `last_key` fail with `Corruption` if they need the file; all
/// other reads and all writes work. Background work skips the file.
#[derive(Clone, Debug)]
pub struct DamagedFile {
    /// Its name in the store's directory.
    pub file: String,
    /// The column family whose keys it has.
    pub family: String,
    /// True for a table: keys with small values, and references. False for a value file (vSST),
    /// which has separated values only.
    pub is_table: bool,
    /// The length it should have, bytes.
    pub bytes: u64,
    /// The smallest key that may be in it. With `last_key`, both included, the range to restore.
    pub first_key: Vec<u8>,
    /// The largest key that may be in it, included.
    pub last_key: Vec<u8>,
    /// The first error found in the file, with the offset; more parts may be damaged.
    pub error: Error,
}

/// Tells why measurements moved levels between the tiers ([`Event::FastTierLevelsChanged`]), to
/// judge the size and speed of the fast tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FastTierChangeReason {
    /// Work on the capacity tier waits longer than it would on the fast tier.
    CapacityIsBusy,
    /// Work on the fast tier waits longer than it would on the capacity tier, or delays the log.
    SpeedIsBusy,
    /// The fast tier has no room beside the space reserved for the log.
    NoRoom,
}

/// Notifies about background work, waits of writers, and damage, for logs and alarms.
///
/// Raise an alarm for `FileSetAside`, `LogDamaged`, `ReadUpToDamage` and `BackgroundError`; the
/// others are for diagnosis. Later releases may add events. [`crate::Statistics`] counts the same
/// without a listener.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A flush wrote data from memory to a table: writes of the family up to some moment no longer
    /// need the log.
    Flush {
        /// Column family.
        family: String,
        /// Bytes of the new table.
        output_bytes: u64,
    },
    /// A collection rewrote value files (vSSTs) without their garbage. The input is freed once no
    /// reader holds it.
    Gc {
        /// Column family.
        family: String,
        /// Bytes of the collected value files.
        input_bytes: u64,
        /// Bytes of the new value files.
        output_bytes: u64,
    },
    /// A compaction was installed: reads use its outputs from now on.
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
    /// A writer waited. Frequent stalls of one cause name the bottleneck;
    /// [`Event::StallOverBudget`] reports only the long ones.
    Stall {
        /// Reason for the wait.
        cause: StallCause,
        /// Duration of the wait, nanoseconds.
        wait_ns: u64,
    },
    /// The total wait of a write exceeded the stall budget ([`crate::Options::stall_budget`]); the
    /// write goes on. Sent once per write.
    StallOverBudget {
        /// Cause of its longest wait: the bottleneck.
        cause: StallCause,
        /// Its total wait so far, nanoseconds.
        wait_ns: u64,
    },
    /// An unreadable file was set aside: background work skips it from now on, and reads that need
    /// it fail. Sent once per file. Restore a checkpoint or repair the store.
    FileSetAside {
        /// The file, and its error.
        file: DamagedFile,
    },
    /// A log page, a value referenced only by the log, or the manifest is unreadable. Its content
    /// is still in memory: the memtables are flushed, and the manifest is rewritten. Examine the
    /// device.
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
    /// A background job failed, whether it is retried or not. Match on the kind: after `Io` the
    /// store may refuse writes as `Poisoned`; after `NoSpace` the job is retried.
    BackgroundError {
        /// Reason for the failure.
        error: Error,
    },
}

/// Receives the [`Event`]s of a store, for logs and alarms; set it as
/// [`Options::listener`](crate::Options::listener).
///
/// The store calls it on the thread that causes the event, which may be a writer: return quickly,
/// and do not call into the store. Several threads may call it at once. A panic of the listener is
/// caught and counted in `Statistics::listener_panics`; it does not affect the store.
pub trait EventListener: Send + Sync {
    /// Handles one event, after it happened. The caller, which may be a writer, waits for the
    /// return: hand long work to another thread.
    fn event(&self, event: &Event);
}

impl std::fmt::Debug for dyn EventListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("EventListener")
    }
}
