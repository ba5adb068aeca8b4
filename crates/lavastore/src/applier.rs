//! A state that is made by applying the records of a log: it needs no log of its own.
//!
//! Each change is a volatile write, which is in no log, and one batch with the position of its record: a key in a family of its own,
//! [`FAMILY`]. So a batch has to do with two families at least, and what a volatile batch over several families asks of a flush is what
//! is needed here: all families are frozen at one moment and their tables come in one edit. After a crash the tables of all families
//! are as one record left them, and the position says which; nothing is applied twice and nothing left out.
//!
//! A flush makes the lane of records durable before its edit, so a state is never further than its log.
//!
//! The position is not the minimum over families: one that is ahead of it would have records applied to it twice. Groups of Raft, of
//! which each has its own family, keep their positions in these, so that one can be flushed without the others
//! (`crates/openraft-lavalog`).

use crate::{Error, Family, Log, Lsn, Result, WriteBatch, WriteOptions};
use lavakv::process::Owned;

/// The family with the positions: the number of a log, big-endian, leads to the LSN that was applied last, little-endian. A log has
/// its number for good, so one that is created again under the name of another has no position.
pub(crate) const FAMILY: &str = "lavastore.applied";

/// Applies the records of a log to the keys of its store; made by [`Db::applier`](crate::Db::applier).
///
/// After a crash, and after a close, the state is as some record left it: [`Applier::next_lsn`] says where to go on. Records below
/// [`Applier::flushed_lsn`] are not needed for that any more ([`Applier::trim_log`]); [`Db::flush`](crate::Db::flush) brings it up to
/// what was applied. Records are applied in the order of their LSNs, and by one thread at
/// a time: [`Applier::apply`] takes the applier for itself, and a log has one: as long as that lives another is refused as `Locked`. The
/// positions are in the family `lavastore.applied`.
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
    /// No other applier has the log.
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

    /// Writes what a record changes, with its LSN: both or neither, as a volatile write, over whatever families. A record that changes
    /// nothing is applied with an empty batch.
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
    /// `InvalidArgument` if this record or a later one was applied; those of [`Db::write`](crate::Db::write).
    pub fn apply(&mut self, lsn: Lsn, changes: &WriteBatch) -> Result<()> {
        if let Some(applied) = self.applied_lsn()?.filter(|applied| *applied >= lsn) {
            return Err(Error::invalid(format!(
                "record {lsn} is applied already: the state is at {applied}"
            )));
        }
        let mut changes = changes.clone();
        changes.family(&self.positions).put(self.key(), lsn.to_le_bytes());
        self.positions.writing(&WriteOptions::volatile()).write(&changes)
    }

    /// The record that was applied last.
    ///
    /// ```
    /// # let db = lavastore::testing::store_with_logs();
    /// let applier = db.applier(&db.logs()?.log("orders")?)?;
    /// assert_eq!(applier.applied_lsn()?, None);
    /// # Ok::<(), lavastore::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`Db::get`](crate::Db::get).
    pub fn applied_lsn(&self) -> Result<Option<Lsn>> {
        self.positions.get(self.key())?.map(|position| self.decode(&position)).transpose()
    }

    /// The first record that is to be applied next, if there is one of this LSN or above.
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
    /// Those of [`Applier::applied_lsn`].
    pub fn next_lsn(&self) -> Result<Lsn> {
        Ok(self.applied_lsn()?.map_or(0, |applied| applied.saturating_add(1)))
    }

    /// The last record whose changes survive whatever happens to this process and this machine: they are in tables.
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
    /// Those of [`Applier::applied_lsn`].
    pub fn flushed_lsn(&self) -> Result<Option<Lsn>> {
        let handle = self.positions.handle();
        let position = handle.kv().get_flushed(handle.inner(), &self.key())?;
        position.map(|position| self.decode(&position)).transpose()
    }

    /// Trims the log up to the last record that the state does not need any more, and returns that.
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
    /// Those of [`Applier::applied_lsn`] and [`Log::trim`].
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
                "the family `{FAMILY}` has a position that is no LSN: only an `Applier` may write there"
            );
            Error::new(crate::ErrorKind::Corruption, why)
        };
        position.try_into().map(Lsn::from_le_bytes).map_err(|_| damaged())
    }
}
