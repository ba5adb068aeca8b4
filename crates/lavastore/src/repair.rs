//! Repair of a store with its keys and its logs.

use crate::{Cancel, Env, KeyRepairReport, LogOptions, LogRepairReport, Options, Result};
use std::path::Path;

/// Chooses how [`Db::repair`](crate::Db::repair) salvages a damaged store: a dry run to learn the
/// losses first, the options of the new store, cancellation. The default repairs all of it.
///
/// ```no_run
/// use lavastore::{Db, RepairOptions};
/// let dry_run = RepairOptions { dry_run: true, ..Default::default() };
/// let report = Db::repair("damaged", "repaired", &dry_run)?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Options of the new store, such as its durability and cache. Its families keep their former
    /// options as far as these are known. Default: [`Options::default`]. A value out of range fails
    /// the repair with `InvalidArgument`.
    pub options: Options,
    /// Options of the logs of the new store, if the damaged one has logs; as for
    /// [`Db::open_with_logs`](crate::Db::open_with_logs). Without logs they are checked and not
    /// used. Default: [`LogOptions::default`].
    pub logs: LogOptions,
    /// Reads everything and writes nothing, to learn the losses first; the report is the same, and
    /// it costs a read of the whole store. Default: false.
    pub dry_run: bool,
    /// Repairs although the fast tier of the store is lost: the data that only it had, such as its
    /// log, is lost too. If the fast tier exists, pass both directories instead
    /// ([`Volumes::env`](crate::Volumes::env)). Default: false.
    pub without_fast_tier: bool,
    /// Cancels a long repair, which then fails with `Cancelled`; no part of the new store is left,
    /// and the damaged one is unchanged. To continue, repeat the repair from its beginning.
    /// Default: none.
    pub cancel: Option<Cancel>,
}

/// Tells after [`Db::repair`](crate::Db::repair) whether the new store may replace the damaged one:
/// salvaged and lost data, for keys and for logs.
///
/// Begin with [`RepairReport::is_lossless`], then list the losses, or ask for the outcome of one
/// key ([`KeyRepairReport::outcome`]) or one record ([`LogRepairReport::outcome`]). Of a batch over
/// keys and logs, the new store has both halves, or the report names the missing half under its
/// engine.
///
/// ```no_run
/// use lavastore::{Db, RepairOptions, RepairReport};
/// let RepairReport { keys, logs } = Db::repair("damaged", "repaired", &RepairOptions::default())?;
/// for lost in &keys.lost {
///     println!("lost: {lost}");
/// }
/// for log in logs.iter().flat_map(|logs| &logs.logs) {
///     println!("{}: {} records", log.name, log.records);
/// }
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RepairReport {
    /// Result for the keys: families, lost ranges, damaged files.
    pub keys: KeyRepairReport,
    /// Result for the logs: records, gaps, damaged files. `None` if the store has none.
    pub logs: Option<LogRepairReport>,
}

impl RepairReport {
    /// Returns true if everything is known to be salvaged in its newest version, so that the new
    /// store may replace the damaged one without a restore. Damage that cost no data does not
    /// count, and ranges with an unknown outcome do: the answer is then false.
    ///
    /// ```
    /// assert!(lavastore::RepairReport::default().is_lossless());
    /// ```
    pub fn is_lossless(&self) -> bool {
        self.keys.is_lossless() && self.logs.as_ref().is_none_or(LogRepairReport::is_lossless)
    }

    /// Returns the number of losses and of possibly resurrected older versions, for a summary:
    /// ranges and batches, not keys. Ranges with an unknown outcome do not count, so 0 does not
    /// mean lossless: see [`RepairReport::is_lossless`].
    ///
    /// ```
    /// assert_eq!(lavastore::RepairReport::default().losses(), 0);
    /// ```
    pub fn losses(&self) -> usize {
        self.keys.losses() + self.logs.as_ref().map_or(0, LogRepairReport::losses)
    }

    /// Returns true if no trace of a store was found: the path was probably wrong.
    /// [`RepairReport::is_lossless`] is true then as well, so check this first.
    ///
    /// ```
    /// assert!(lavastore::RepairReport::default().found_nothing());
    /// ```
    pub fn found_nothing(&self) -> bool {
        self.keys.found_nothing() && self.logs.as_ref().is_none_or(LogRepairReport::found_nothing)
    }
}

/// Repairs the keys, and the logs if there are any.
pub(crate) fn repair(
    from: (&Env, &Path),
    into: (&Env, &Path),
    options: &RepairOptions,
) -> Result<RepairReport> {
    let mut logs = lavalog::SecondaryLogRepair::new(&options.logs)?;
    let RepairOptions { options: own, dry_run, without_fast_tier, cancel, .. } = options.clone();
    let own = repair::RepairOptions { options: own, dry_run, without_fast_tier, cancel };
    let keys = repair::repair_with_records(from, into, &own, &mut logs)?;
    Ok(RepairReport { keys, logs: logs.report() })
}
