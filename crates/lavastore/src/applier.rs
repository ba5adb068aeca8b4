//! Applies the records of a log to a state that needs no log of its own.
//!
//! The changes of a record and its LSN form one volatile batch, which is in no log. The LSN is a
//! key of a separate family, [`FAMILY`], so every batch spans at least two families. A flush of a
//! volatile batch over several families is atomic: all families rotate their memtables at one
//! moment, and one manifest edit adds their tables. After a crash the tables of all families
//! therefore hold the state after the same record, and the position names it. No record is applied
//! twice or skipped.
//!
//! A flush makes the log durable before its manifest edit, so the state is never ahead of its log.
//!
//! The position is not the minimum over families: records would be applied twice to a family that
//! is ahead of it. Raft groups with a family each keep their positions in their own families, so
//! that each one can be flushed without the others (`crates/openraft-lavalog`).

use crate::{Error, Family, Log, Lsn, Result, WriteBatch, WriteOptions};
use lavakv::process::Owned;

/// The family of positions: the log number (big-endian) maps to the LSN applied last
/// (little-endian). Log numbers are never reused, so a log that is created again under the same
/// name has no position.
pub(crate) const FAMILY: &str = "lavastore.applied";

/// Applies the records of a log to keys of the same store without logging them twice: for a state
/// that the log can rebuild, such as a replicated state machine.
/// [`Db::applier`](crate::Db::applier) makes it.
///
/// After a crash or a close, the state is that after some record: [`Applier::next_lsn`] is the next
/// LSN to apply. Recovery does not need records up to [`Applier::flushed_lsn`] any more
/// ([`Applier::trim_log`]). [`Db::flush`](crate::Db::flush) raises it to the LSN applied last.
///
/// Records are applied in LSN order by one thread at a time. A log has at most one applier; a
/// second one is refused as `Locked` until this one is dropped. The positions are in the family
/// `lavastore.applied`.
///
/// ```
/// use lavastore::WriteBatch;
/// # let db = lavastore::testing::store_with_logs();
/// let orders = db.logs()?.log("orders")?;
/// orders.append(1, "two apples")?;
/// let mut applier = db.applier(&orders)?;
/// let mut changes = WriteBatch::new();
/// changes.put("apples", "98");
/// applier.apply(1, &changes)?;
/// db.flush()?;
/// applier.trim_log()?;
/// assert_eq!(orders.first_lsn()?, None);
/// # Ok::<(), lavastore::Error>(())
/// ```
///
/// Two threads cannot apply with one applier:
///
/// ```compile_fail,E0596
/// fn shared(applier: &lavastore::Applier) -> lavastore::Result<()> {
///     applier.apply(1, &lavastore::WriteBatch::new())
/// }
/// ```
#[derive(Debug)]
#[must_use = "it applies nothing by itself"]
pub struct Applier {
    positions: Family,
    /// Excludes other appliers of the log.
    _alone: Owned<lavalog::Applying>,
    log: Log,
}

impl Applier {
    pub(crate) fn new(positions: Family, log: Log) -> Result<Applier> {
        Ok(Applier { positions, _alone: Owned::new(log.inner().applying()?), log })
    }

    fn key(&self) -> [u8; 8] {
        self.log.inner().id().to_be_bytes()
    }

    /// Writes the changes of a record together with its LSN, atomically, over any families.
    ///
    /// On return readers see all of them. The write is volatile: it waits for no device, and a
    /// crash may take it and all later ones. Like [`Db::write`](crate::Db::write) it may wait for
    /// memory or space, without a bound. LSNs may have gaps. Pass an empty batch for a record
    /// without changes.
    ///
    /// ```
    /// # use lavastore::WriteBatch;
    /// # let db = lavastore::testing::store_with_logs();
    /// # let mut applier = db.applier(&db.logs()?.log("orders")?)?;
    /// let mut changes = WriteBatch::new();
    /// changes.put("apples", "98");
    /// applier.apply(1, &changes)?;
    /// let again = applier.apply(1, &changes).unwrap_err();
    /// assert_eq!(again.kind(), lavastore::ErrorKind::InvalidArgument);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `InvalidArgument`: the LSN is below [`Applier::next_lsn`], or a family is of another
    ///   store.
    /// * `NotFound`: a family was dropped. `TooLarge`: beyond the [`limits`](crate::limits).
    /// * `NoSpace`: the limit or the volume is full. Make room and repeat.
    /// * `Corruption`, `Io`: the position cannot be read. Repeat after `Io`; repair after damage.
    /// * `ReadOnly`, `Closed`, `Forked`, `Poisoned`: the store cannot be written. Open it again.
    ///
    /// Nothing is applied after an error.
    pub fn apply(&mut self, lsn: Lsn, changes: &WriteBatch) -> Result<()> {
        if let Some(applied) = self.applied_lsn()?.filter(|applied| *applied >= lsn) {
            return Err(Error::invalid(format!(
                "record {lsn} is applied already, as all up to record {applied}: apply a later one"
            )));
        }
        let mut changes = changes.clone();
        changes.family(&self.positions).put(self.key(), lsn.to_le_bytes());
        self.positions.writing(&WriteOptions::volatile()).write(&changes)
    }

    /// Returns the LSN of the record applied last, to tell how far the state has come; `None` if no
    /// record was applied. [`Applier::next_lsn`] is where to continue. [`Applier::flushed_lsn`]
    /// says up to where recovery needs no record.
    ///
    /// Changes up to it are visible, and may be lost in a crash. After a crash it is the last
    /// record whose changes survived.
    ///
    /// ```
    /// # let db = lavastore::testing::store_with_logs();
    /// let applier = db.applier(&db.logs()?.log("orders")?)?;
    /// assert_eq!(applier.applied_lsn()?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: the position is damaged, or another writer changed its family. Drop the
    ///   families of the state and the family `lavastore.applied`, and apply the log from its first
    ///   record.
    /// * `NotFound`: the family `lavastore.applied` was dropped. Make another applier, which begins
    ///   at 0.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    pub fn applied_lsn(&self) -> Result<Option<Lsn>> {
        self.positions.get(self.key())?.map(|position| self.decode(&position)).transpose()
    }

    /// Returns the lowest LSN that may be applied next, one above [`Applier::applied_lsn`]: start
    /// the scan of the log there. 0 if no record of the log was ever applied. The call reads one
    /// key, which may read the device after an open.
    ///
    /// ```
    /// # let db = lavastore::testing::store_with_logs();
    /// let mut applier = db.applier(&db.logs()?.log("orders")?)?;
    /// applier.apply(7, &lavastore::WriteBatch::new())?;
    /// assert_eq!(applier.next_lsn()?, 8);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: the position is damaged, or another writer changed its family. Drop the
    ///   families of the state and the family `lavastore.applied`, and apply the log from its first
    ///   record.
    /// * `NotFound`: the family `lavastore.applied` was dropped. Make another applier, which begins
    ///   at 0.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    pub fn next_lsn(&self) -> Result<Lsn> {
        Ok(self.applied_lsn()?.map_or(0, |applied| applied.saturating_add(1)))
    }

    /// Returns the LSN of the last record whose changes survive a loss of power, to decide which
    /// records must be kept; `None` if there is none.
    ///
    /// [`Db::flush`](crate::Db::flush) raises it to the LSN applied last; the flushes that the
    /// store makes by itself raise it too. Recovery needs no record up to it.
    /// [`Applier::applied_lsn`] counts records in memory as well. The call reads tables only, and
    /// may read the device.
    ///
    /// ```
    /// # let db = lavastore::testing::store_with_logs();
    /// let mut applier = db.applier(&db.logs()?.log("orders")?)?;
    /// applier.apply(7, &lavastore::WriteBatch::new())?;
    /// assert_eq!(applier.flushed_lsn()?, None);
    /// db.flush()?;
    /// assert_eq!(applier.flushed_lsn()?, Some(7));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: the position is damaged, or another writer changed its family. Drop the
    ///   families of the state and the family `lavastore.applied`, and apply the log from its first
    ///   record.
    /// * `NotFound`: the family `lavastore.applied` was dropped. Make another applier, which begins
    ///   at 0.
    /// * `Io`: the system refused a read. Repeat the call.
    /// * `Closed`, `Forked`: this handle is of no use any more. Open the store again.
    pub fn flushed_lsn(&self) -> Result<Option<Lsn>> {
        let handle = self.positions.handle();
        let position = handle.kv().get_flushed(handle.inner(), &self.key())?;
        position.map(|position| self.decode(&position)).transpose()
    }

    /// Trims the log up to [`Applier::flushed_lsn`], to free its space, and returns that LSN.
    ///
    /// Call it from time to time; [`Log::trim`] trims to another LSN. `None`: nothing was flushed,
    /// and nothing is trimmed. The trim is buffered: after a loss of power some of the records may
    /// be there again. Background collection frees the space later.
    ///
    /// ```
    /// # let db = lavastore::testing::store_with_logs();
    /// let orders = db.logs()?.log("orders")?;
    /// orders.append(1, "two apples")?;
    /// let mut applier = db.applier(&orders)?;
    /// applier.apply(1, &lavastore::WriteBatch::new())?;
    /// assert_eq!(applier.trim_log()?, None, "the state is in memory only");
    /// db.flush()?;
    /// assert_eq!(applier.trim_log()?, Some(1));
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// * `Corruption`: the position is damaged. Restore or [repair](crate::Db::repair) the store.
    /// * `NotFound`: the log was deleted, or the family `lavastore.applied` was dropped.
    /// * `NoSpace`: there is no room even for trims. Make room on the volume and repeat.
    /// * `ReadOnly`, `Closed`, `Forked`: this handle cannot write. Open the store for writing.
    /// * `Io`, `Poisoned`: a read or a write failed. Close and reopen the store.
    ///
    /// No record above the returned LSN is removed, also after an error.
    pub fn trim_log(&self) -> Result<Option<Lsn>> {
        let flushed = self.flushed_lsn()?;
        if let Some(lsn) = flushed {
            self.log.trim(lsn.saturating_add(1))?;
        }
        Ok(flushed)
    }

    fn decode(&self, position: &[u8]) -> Result<Lsn> {
        let damaged = || {
            let why = format!(
                "the column family `{FAMILY}` has an applied position of {} bytes, not the 8 of an LSN: \
                 only an `Applier` may write there",
                position.len()
            );
            Error::new(crate::ErrorKind::Corruption, why)
        };
        position.try_into().map(Lsn::from_le_bytes).map_err(|_| damaged())
    }
}
