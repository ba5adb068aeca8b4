//! Repair of a store: its keys, and its logs if it has any.

use crate::{Cancel, Env, KeyRepairReport, LogOptions, LogRepairReport, Options, Result};
use std::path::Path;

/// How a store is repaired.
///
/// ```no_run
/// use lavastore::{Db, RepairOptions};
/// let dry_run = RepairOptions { dry_run: true, ..Default::default() };
/// let report = Db::repair("damaged", "repaired", &dry_run)?;
/// # Ok::<(), lavastore::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RepairOptions {
    /// Of the new store. Its families get the options that they had, as far as these are known.
    pub options: Options,
    /// Of the logs of the new store, if the damaged one has logs; as for [`Db::open_with_logs`](crate::Db::open_with_logs).
    pub logs: LogOptions,
    /// Reads everything, and writes nothing.
    pub dry_run: bool,
    /// The speed disk of the store is lost, and what is in its log alone with it. The repair of a store with a speed disk that is there is given
    /// both ([`Volumes::env`](crate::Volumes::env)).
    pub without_speed: bool,
    /// Ends the repair before its time: then nothing is left of the new store.
    pub cancel: Option<Cancel>,
}

/// What a repair did, and what it could not save. A batch of both engines is in the new store with both halves, or what is missing of
/// it is told: of the keys in one part, of the logs in the other.
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
    /// Of the keys.
    pub keys: KeyRepairReport,
    /// Of the logs; `None`: the store has none, nor has the new one.
    pub logs: Option<LogRepairReport>,
}

impl RepairReport {
    /// True if it is known that everything was saved, and that nothing older stands in the place of anything.
    ///
    /// ```
    /// assert!(lavastore::RepairReport::default().is_lossless());
    /// ```
    pub fn is_lossless(&self) -> bool {
        self.keys.is_lossless() && self.logs.as_ref().is_none_or(LogRepairReport::is_lossless)
    }

    /// How many things are lost, or may have come back. Ranges of which this is unknown do not count.
    ///
    /// ```
    /// assert_eq!(lavastore::RepairReport::default().losses(), 0);
    /// ```
    pub fn losses(&self) -> usize {
        self.keys.losses() + self.logs.as_ref().map_or(0, LogRepairReport::losses)
    }

    /// True if there was nothing of a store.
    ///
    /// ```
    /// assert!(lavastore::RepairReport::default().found_nothing());
    /// ```
    pub fn found_nothing(&self) -> bool {
        self.keys.found_nothing() && self.logs.as_ref().is_none_or(LogRepairReport::found_nothing)
    }
}

/// Repairs what is there.
pub(crate) fn repair(
    from: (&Env, &Path),
    into: (&Env, &Path),
    options: &RepairOptions,
) -> Result<RepairReport> {
    let mut logs = lavalog::RepairBeside::new(&options.logs)?;
    let RepairOptions { options: own, dry_run, without_speed, cancel, .. } = options.clone();
    let own = repair::RepairOptions { options: own, dry_run, without_speed, cancel };
    let keys = repair::repair_with_records(from, into, &own, &mut logs)?;
    Ok(RepairReport { keys, logs: logs.report() })
}
