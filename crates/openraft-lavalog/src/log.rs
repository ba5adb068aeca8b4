//! Raft log storage in a LavaLog log.
//!
//! The entry with index `i` is the record with LSN `i + 1`. So there is an LSN before the first
//! entry, after which all entries can be truncated. The metadata of the log contains the vote, the
//! last committed and the last purged log id.
//!
//! All writes go to one lane and become durable in order. So only two writes wait: a vote, and the
//! callback of an append, which a task calls after the completion of its last record. If a power
//! failure loses a truncation, a purge or a committed id, nothing after it was durable.

use crate::groups::InUse;
use crate::record::{decode, encode};
use lavastore::{Error, Log, LogBatch, LogStore, Lsn, WriteOptions};
use openraft::storage::{LogFlushed, RaftLogStorage};
use openraft::{
    AsyncRuntime, LogId, LogState, NodeId, OptionalSend, RaftLogId, RaftLogReader, RaftTypeConfig,
    StorageError, StorageIOError, Vote,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::marker::PhantomData;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

/// Size at which a batch of appended entries is closed, bytes; a single entry may be longer.
const BATCH_BYTES: usize = 4 << 20;
/// Maximum bytes of entries per read for replication; a single entry may be longer.
const READ_BYTES: usize = 1 << 20;

/// The metadata of the log.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
#[serde(bound = "")]
struct LogMetadata<N: NodeId> {
    vote: Option<Vote<N>>,
    committed: Option<LogId<N>>,
    purged: Option<LogId<N>>,
}

impl<N: NodeId> Default for LogMetadata<N> {
    fn default() -> Self {
        LogMetadata { vote: None, committed: None, purged: None }
    }
}

/// The log storage of a Raft group, created by [`Store::group`](crate::Store::group).
#[derive(Debug)]
pub struct LogStorage<C: RaftTypeConfig> {
    log: Log,
    store: LogStore,
    meta: LogMetadata<C::NodeId>,
    _in_use: Arc<InUse>,
}

/// Reader of a group's log entries.
#[derive(Clone, Debug)]
pub struct LogReader<C> {
    log: Log,
    types: PhantomData<fn() -> C>,
}

fn lsn_of(index: u64) -> Lsn {
    index.saturating_add(1)
}

impl<C: RaftTypeConfig> LogStorage<C> {
    pub(crate) fn open(store: LogStore, name: &str, in_use: Arc<InUse>) -> lavastore::Result<LogStorage<C>> {
        let log = store.log(name)?;
        let meta = log.metadata()?.map(|bytes| decode(&bytes)).transpose()?.unwrap_or_default();
        Ok(LogStorage { log, store, meta, _in_use: in_use })
    }

    /// Returns the number of the LavaLog log.
    pub(crate) fn id(&self) -> u64 {
        self.log.id()
    }

    /// Returns the last purged log id.
    pub(crate) fn purged(&self) -> Option<&LogId<C::NodeId>> {
        self.meta.purged.as_ref()
    }

    fn reader(&self) -> LogReader<C> {
        LogReader { log: self.log.clone(), types: PhantomData }
    }

    /// Replaces the metadata and, in the same batch, trims the log if requested.
    fn write_meta(&mut self, meta: LogMetadata<C::NodeId>, trim: Option<Lsn>) -> lavastore::Result<()> {
        let bytes = encode(&meta)?;
        let mut batch = LogBatch::new();
        if let Some(below) = trim {
            batch.trim(&self.log, below);
        }
        self.store.write_with(batch.set_metadata(&self.log, &bytes), &WriteOptions::buffered())?;
        self.meta = meta;
        Ok(())
    }
}

/// Reads the entries of a range up to about `bytes_max` bytes.
fn entries<E: DeserializeOwned>(
    log: &Log,
    range: (Bound<Lsn>, Bound<Lsn>),
    bytes_max: usize,
) -> lavastore::Result<Vec<E>> {
    let (mut out, mut len) = (Vec::new(), 0);
    for record in log.scan(range) {
        let (_, bytes) = record?;
        len += bytes.len();
        out.push(decode(&bytes)?);
        if len >= bytes_max {
            break;
        }
    }
    Ok(out)
}

fn lsns(range: &impl RangeBounds<u64>) -> (Bound<Lsn>, Bound<Lsn>) {
    (range.start_bound().map(|&index| lsn_of(index)), range.end_bound().map(|&index| lsn_of(index)))
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogReader<C>
where
    C::Entry: DeserializeOwned,
{
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        Ok(entries(&self.log, lsns(&range), usize::MAX).map_err(|e| StorageIOError::read_logs(&e))?)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        Ok(entries(&self.log, lsns(&(start..end)), READ_BYTES).map_err(|e| StorageIOError::read_logs(&e))?)
    }
}

impl<C: RaftTypeConfig> RaftLogReader<C> for LogStorage<C>
where
    C::Entry: DeserializeOwned,
{
    async fn try_get_log_entries<R: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: R,
    ) -> Result<Vec<C::Entry>, StorageError<C::NodeId>> {
        self.reader().try_get_log_entries(range).await
    }
}

impl<C: RaftTypeConfig> RaftLogStorage<C> for LogStorage<C>
where
    C::Entry: Serialize + DeserializeOwned,
{
    type LogReader = LogReader<C>;

    async fn get_log_state(&mut self) -> Result<LogState<C>, StorageError<C::NodeId>> {
        let last = || -> lavastore::Result<Option<C::Entry>> {
            // Without a first LSN the log is empty, and the last LSN is that of a purged entry.
            let (Some(_), Some(last)) = (self.log.first_lsn()?, self.log.last_lsn()?) else {
                return Ok(None);
            };
            self.log.read(last)?.map(|bytes| decode(&bytes)).transpose()
        };
        let last = last().map_err(|e| StorageIOError::read_logs(&e))?;
        let purged = self.meta.purged.clone();
        let last_log_id = last.map(|entry| entry.get_log_id().clone()).or_else(|| purged.clone());
        Ok(LogState { last_purged_log_id: purged, last_log_id })
    }

    async fn get_log_reader(&mut self) -> LogReader<C> {
        self.reader()
    }

    async fn save_vote(&mut self, vote: &Vote<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let meta = LogMetadata { vote: Some(vote.clone()), ..self.meta.clone() };
        let written = encode(&meta)
            .and_then(|bytes| self.store.write_async(LogBatch::new().set_metadata(&self.log, &bytes)));
        let durable = written.map_err(|e| StorageIOError::write_vote(&e))?;
        self.meta = meta;
        Ok(durable.await.map_err(|e| StorageIOError::write_vote(&e))?)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote<C::NodeId>>, StorageError<C::NodeId>> {
        Ok(self.meta.vote.clone())
    }

    async fn save_committed(
        &mut self,
        committed: Option<LogId<C::NodeId>>,
    ) -> Result<(), StorageError<C::NodeId>> {
        let meta = LogMetadata { committed, ..self.meta.clone() };
        Ok(self.write_meta(meta, None).map_err(|e| StorageIOError::write(&e))?)
    }

    async fn read_committed(&mut self) -> Result<Option<LogId<C::NodeId>>, StorageError<C::NodeId>> {
        Ok(self.meta.committed.clone())
    }

    async fn append<I>(&mut self, entries: I, callback: LogFlushed<C>) -> Result<(), StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut encoded = Vec::new();
        // A purge is permanent: entries below it are never requested, and the log would refuse
        // them.
        let purged = self.meta.purged.as_ref().map(|purged| purged.index);
        for entry in entries {
            if purged.is_some_and(|purged| entry.get_log_id().index <= purged) {
                continue;
            }
            let bytes = encode(&entry).map_err(|e| StorageIOError::write_logs(&e))?;
            encoded.push((lsn_of(entry.get_log_id().index), bytes));
        }
        let last =
            append_all(&self.store, &self.log, &encoded).map_err(|e| StorageIOError::write_logs(&e))?;
        // The only call of the callback. The last record becomes durable after all earlier ones.
        drop(<C::AsyncRuntime as AsyncRuntime>::spawn(async move {
            let durable = match last {
                Some(last) => last.await,
                None => Ok(()),
            };
            callback.log_io_completed(durable.map_err(std::io::Error::other));
        }));
        Ok(())
    }

    async fn truncate(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let buffered = WriteOptions::buffered();
        let cut = self.log.writing(&buffered).truncate_after(log_id.index);
        Ok(cut.map_err(|e| StorageIOError::write_logs(&e))?)
    }

    async fn purge(&mut self, log_id: LogId<C::NodeId>) -> Result<(), StorageError<C::NodeId>> {
        let below = lsn_of(log_id.index).saturating_add(1);
        let meta = LogMetadata { purged: Some(log_id), ..self.meta.clone() };
        Ok(self.write_meta(meta, Some(below)).map_err(|e| StorageIOError::write_logs(&e))?)
    }
}

/// Appends records in batches. Returns the completion of the last one.
fn append_all(
    store: &LogStore,
    log: &Log,
    records: &[(Lsn, Vec<u8>)],
) -> Result<Option<lavastore::Completion>, Error> {
    let (mut last, mut from) = (None, 0);
    while from < records.len() {
        let (mut batch, mut len) = (LogBatch::new(), 0);
        for (lsn, bytes) in &records[from..] {
            if len > 0 && len + bytes.len() > BATCH_BYTES {
                break;
            }
            len += bytes.len();
            batch.append(log, *lsn, bytes);
        }
        from += batch.len();
        last = Some(store.write_async(&batch)?);
    }
    Ok(last)
}
