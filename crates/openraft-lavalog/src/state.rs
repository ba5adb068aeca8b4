//! The state machine of a group, stored in a column family. Keys that begin with byte 0 hold the
//! last applied log id and the membership. The changes of an entry form one batch with them, in one
//! family. So any flush has a state with its matching position, and volatile writes suffice.
//!
//! openraft purges the log only up to a snapshot. So after a crash the state is the newer of the
//! flushed state and the snapshot, and the log has the entries after it.
//!
//! A damaged snapshot does not damage the group if the log reaches back to the state: the snapshot
//! is removed, and a new one is taken. If a new snapshot has no space, the group continues with the
//! previous one or none, and keeps its log meanwhile.
//!
//! A snapshot is installed in three steps: it is loaded into a new family and flushed; it becomes
//! the group's snapshot; a durable write makes the new family the state. Readers see the old or the
//! new state, and a crash leaves one of them. After a crash between the last two steps, the
//! snapshot is newer than the state, and the next open installs it again.

use crate::record::{decode, encode};
use crate::snapshot::{Frames, SnapshotFile, Snapshots};
use base::sync::{RwLock, rank, read, write};
use lavastore::{Db, Error, ErrorKind, Family, Result, WriteBatch, WriteOptions};
use openraft::storage::{RaftStateMachine, Snapshot};
use openraft::{
    EntryPayload, LogId, OptionalSend, RaftSnapshotBuilder, RaftTypeConfig, SnapshotMeta, StorageError,
    StorageIOError, StoredMembership,
};
use std::sync::Arc;

const APPLIED: &[u8] = b"\0applied";
const MEMBERSHIP: &[u8] = b"\0membership";
/// First key of the application.
const FIRST_KEY: &[u8] = b"\x01";
/// Prefix of a key in the default family: with the name of a group, it stores the generation of the
/// group's family.
const GENERATION: &str = "raft/";

type Meta<C> = SnapshotMeta<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>;
type Applied<C> = (
    Option<LogId<<C as RaftTypeConfig>::NodeId>>,
    StoredMembership<<C as RaftTypeConfig>::NodeId, <C as RaftTypeConfig>::Node>,
);

/// The application of a group: turns requests into changes of its state, identically on every node.
pub trait Application<C: RaftTypeConfig>: Send + Sync + 'static {
    /// Applies a committed request. `state` reflects all earlier requests. A refused request needs
    /// a reply that says so; an error ends the node.
    ///
    /// # Errors
    /// Errors of reading the state.
    fn apply(&mut self, request: &C::D, state: &Family, changes: &mut Changes) -> Result<C::R>;
}

/// Changes by a request, applied atomically.
#[derive(Debug)]
pub struct Changes {
    family: Family,
    batch: WriteBatch,
    refused: Option<Error>,
}

impl Changes {
    fn of(family: &Family) -> Changes {
        Changes { family: family.clone(), batch: WriteBatch::new(), refused: None }
    }

    fn check(&mut self, key: &[u8]) {
        if key.first() == Some(&0) && self.refused.is_none() {
            let why = "keys with the first byte 0 are reserved in a Raft state: use other keys";
            self.refused = Some(Error::new(ErrorKind::InvalidArgument, why));
        }
    }

    /// Sets a key, which must not begin with byte 0.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> &mut Self {
        self.check(key.as_ref());
        self.batch.family(&self.family).put(key, value);
        self
    }

    /// Deletes a key.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> &mut Self {
        self.check(key.as_ref());
        self.batch.family(&self.family).delete(key);
        self
    }
}

/// Read access to the state of a group, in addition to openraft's state machine. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RaftGroupState {
    db: Db,
    /// Guards the current family, which changes when a snapshot is installed, and the reason for a
    /// missing snapshot.
    current: Arc<RwLock<Current, rank::Outside>>,
}

#[derive(Debug)]
struct Current {
    family: Family,
    not_taken: Option<Error>,
}

impl RaftGroupState {
    /// Returns the current family of the state. Keys that begin with byte 0 are internal.
    pub fn family(&self) -> Family {
        read(&self.current).family.clone()
    }

    /// Returns the error of the last snapshot request if it failed for lack of space. The log is
    /// kept until a snapshot succeeds.
    pub fn snapshot_not_taken(&self) -> Option<Error> {
        read(&self.current).not_taken.clone()
    }
}

/// The state machine of a Raft group, created by [`Store::group`](crate::Store::group).
#[derive(Debug)]
pub struct StateMachine<C, A> {
    name: String,
    generation: u64,
    state: RaftGroupState,
    snapshots: Snapshots,
    application: A,
    types: std::marker::PhantomData<fn() -> C>,
}

fn family_name(name: &str, generation: u64) -> String {
    format!("{name}#{generation}")
}

fn drop_family(db: &Db, name: &str) -> Result<()> {
    match db.open_family(name) {
        Ok(family) => db.drop_family(&family),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
        Err(e) => Err(e),
    }
}

/// Reads the last applied log id and the membership.
fn applied<C: RaftTypeConfig>(get: impl Fn(&[u8]) -> Result<Option<lavastore::Value>>) -> Result<Applied<C>> {
    let last = get(APPLIED)?.map(|bytes| decode(&bytes)).transpose()?;
    let membership = get(MEMBERSHIP)?.map(|bytes| decode(&bytes)).transpose()?;
    Ok((last, membership.unwrap_or_default()))
}

impl<C, A> StateMachine<C, A>
where
    C: RaftTypeConfig<SnapshotData = SnapshotFile>,
    A: Application<C>,
{
    pub(crate) fn open(
        db: &Db,
        snapshots: Snapshots,
        name: &str,
        application: A,
        purged: Option<&LogId<C::NodeId>>,
    ) -> Result<Self> {
        let stored = db.get(format!("{GENERATION}{name}"))?;
        let generation: u64 = stored.map(|bytes| decode(&bytes)).transpose()?.unwrap_or(0);
        // Remove leftovers of complete and incomplete installations.
        if let Some(before) = generation.checked_sub(1) {
            drop_family(db, &family_name(name, before))?;
        }
        drop_family(db, &family_name(name, generation + 1))?;
        snapshots.clean()?;
        let family = db.family(&family_name(name, generation))?;
        let current = Arc::new(RwLock::new(Current { family, not_taken: None }));
        let state = RaftGroupState { db: db.clone(), current };
        let (name, types) = (name.to_owned(), std::marker::PhantomData);
        let mut machine = StateMachine { name, generation, state, snapshots, application, types };
        match machine.restore() {
            Err(e) if machine.snapshots.is_damage(&e) => machine.do_without(purged, e)?,
            restored => restored?,
        }
        Ok(machine)
    }

    /// Installs the snapshot if it is newer than the state.
    fn restore(&mut self) -> Result<()> {
        let Some((meta, frames)) = self.snapshots.current()? else { return Ok(()) };
        let meta: Meta<C> = decode(&meta)?;
        let family = self.state.family();
        if meta.last_log_id > applied::<C>(|key| family.get(key))?.0 {
            let loaded = self.load(&meta, frames)?;
            self.switch(loaded)?;
        }
        Ok(())
    }

    /// Replaces a damaged snapshot by a new one, if the log has all entries after the state.
    fn do_without(&mut self, purged: Option<&LogId<C::NodeId>>, damage: Error) -> Result<()> {
        let family = self.state.family();
        let last = applied::<C>(|key| family.get(key))?.0;
        if last.as_ref() < purged {
            return Err(damage);
        }
        // Remove the partially loaded family.
        drop_family(&self.state.db, &family_name(&self.name, self.generation + 1))?;
        self.snapshots.remove()?;
        if last.is_some() {
            self.builder().take()?;
        }
        Ok(())
    }

    fn builder(&self) -> SnapshotBuilder<C> {
        let (state, view) = (self.state.clone(), self.state.db.snapshot_named("a snapshot of Raft"));
        let family = state.family();
        SnapshotBuilder {
            family,
            view,
            state,
            snapshots: self.snapshots.clone(),
            types: std::marker::PhantomData,
        }
    }

    /// Returns a verified snapshot for sending. A damaged one is replaced by a new snapshot of the
    /// current state, which is at least as new.
    fn to_send(&self) -> Result<Option<Snapshot<C>>> {
        match self.snapshots.checked() {
            Err(e) if self.snapshots.is_damage(&e) => self.builder().build(),
            checked => {
                checked?.map(|(meta, frames)| snapshot_of(&self.snapshots, &meta, &frames)).transpose()
            }
        }
    }

    /// Returns read access to the state, for use after openraft takes the state machine.
    pub fn state(&self) -> RaftGroupState {
        self.state.clone()
    }

    /// Loads a snapshot into a new family and makes it durable.
    fn load(&self, meta: &Meta<C>, mut frames: Frames) -> Result<Family> {
        let db = &self.state.db;
        let name = family_name(&self.name, self.generation + 1);
        drop_family(db, &name)?;
        let family = db.family(&name)?;
        let volatile = WriteOptions::volatile();
        let mut batch = WriteBatch::new();
        batch.family(&family).put(MEMBERSHIP, encode(&meta.last_membership)?);
        if let Some(last) = &meta.last_log_id {
            batch.family(&family).put(APPLIED, encode(last)?);
        }
        loop {
            db.writing(&volatile).write(&batch)?;
            batch.clear();
            let more = frames.entries(&mut |key, value| {
                batch.family(&family).put(key, value);
            })?;
            if !more {
                break;
            }
        }
        db.flush()?;
        Ok(family)
    }

    /// Makes a loaded family the state.
    fn switch(&mut self, family: Family) -> Result<()> {
        let db = self.state.db.clone();
        let key = format!("{GENERATION}{}", self.name);
        db.writing(&WriteOptions::durable()).put(key, encode(&(self.generation + 1))?)?;
        write(&self.state.current).family = family;
        let before = family_name(&self.name, self.generation);
        self.generation += 1;
        drop_family(&db, &before)
    }

    fn install(&mut self, meta: &Meta<C>, sent: SnapshotFile) -> Result<()> {
        let part = self.snapshots.adopt(sent)?;
        let mut frames = self.snapshots.frames(&part)?;
        frames.meta()?;
        let loaded = self.load(meta, frames)?;
        self.snapshots.commit(&part, |_| Ok(true))?;
        self.switch(loaded)
    }
}

impl<C, A> RaftStateMachine<C> for StateMachine<C, A>
where
    C: RaftTypeConfig<SnapshotData = SnapshotFile, Entry = openraft::Entry<C>>,
    C::R: Default,
    A: Application<C>,
{
    type SnapshotBuilder = SnapshotBuilder<C>;

    async fn applied_state(&mut self) -> std::result::Result<Applied<C>, StorageError<C::NodeId>> {
        let family = self.state.family();
        Ok(applied::<C>(|key| family.get(key)).map_err(|e| StorageIOError::read_state_machine(&e))?)
    }

    async fn apply<I>(&mut self, entries: I) -> std::result::Result<Vec<C::R>, StorageError<C::NodeId>>
    where
        I: IntoIterator<Item = C::Entry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let (family, volatile) = (self.state.family(), WriteOptions::volatile());
        let mut replies = Vec::new();
        for entry in entries {
            // An entry sees the changes of the previous one, so each entry is a batch.
            let mut one = || -> Result<C::R> {
                let mut changes = Changes::of(&family);
                let mut reply = C::R::default();
                match &entry.payload {
                    EntryPayload::Blank => {}
                    EntryPayload::Normal(request) => {
                        reply = self.application.apply(request, &family, &mut changes)?;
                    }
                    EntryPayload::Membership(membership) => {
                        let stored = StoredMembership::new(Some(entry.log_id.clone()), membership.clone());
                        changes.batch.family(&family).put(MEMBERSHIP, encode(&stored)?);
                    }
                }
                changes.refused.map_or(Ok(()), Err)?;
                changes.batch.family(&family).put(APPLIED, encode(&entry.log_id)?);
                self.state.db.writing(&volatile).write(&changes.batch)?;
                Ok(reply)
            };
            replies.push(one().map_err(|e| StorageIOError::apply(entry.log_id.clone(), &e))?);
        }
        Ok(replies)
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder<C> {
        self.builder()
    }

    async fn begin_receiving_snapshot(
        &mut self,
    ) -> std::result::Result<Box<SnapshotFile>, StorageError<C::NodeId>> {
        Ok(Box::new(self.snapshots.receive().map_err(|e| StorageIOError::write_snapshot(None, &e))?))
    }

    async fn install_snapshot(
        &mut self,
        meta: &Meta<C>,
        snapshot: Box<SnapshotFile>,
    ) -> std::result::Result<(), StorageError<C::NodeId>> {
        let signature = Some(meta.signature());
        Ok(self.install(meta, *snapshot).map_err(|e| StorageIOError::write_snapshot(signature, &e))?)
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> std::result::Result<Option<Snapshot<C>>, StorageError<C::NodeId>> {
        Ok(self.to_send().map_err(|e| StorageIOError::read_snapshot(None, &e))?)
    }
}

fn snapshot_of<C>(snapshots: &Snapshots, meta: &[u8], frames: &Frames) -> Result<Snapshot<C>>
where
    C: RaftTypeConfig<SnapshotData = SnapshotFile>,
{
    Ok(Snapshot { meta: decode(meta)?, snapshot: Box::new(snapshots.sent(frames)) })
}

/// Writes a snapshot of the state at one moment to a file.
#[derive(Debug)]
pub struct SnapshotBuilder<C> {
    family: Family,
    view: lavastore::Snapshot,
    state: RaftGroupState,
    snapshots: Snapshots,
    types: std::marker::PhantomData<fn() -> C>,
}

impl<C> SnapshotBuilder<C>
where
    C: RaftTypeConfig<SnapshotData = SnapshotFile>,
{
    fn build(&self) -> Result<Option<Snapshot<C>>> {
        let view = self.view.family(&self.family);
        let (last_log_id, last_membership) = applied::<C>(|key| view.get(key))?;
        let snapshot_id = format!("{}", self.view.sequence());
        let meta: Meta<C> = SnapshotMeta { last_log_id, last_membership, snapshot_id };
        let mut writer = self.snapshots.build(&encode(&meta)?)?;
        for entry in view.range(FIRST_KEY..) {
            let (key, value) = entry?;
            writer.add(&key, &value)?;
        }
        let part = writer.finish()?;
        self.snapshots
            .commit(&part, |present| Ok(decode::<Meta<C>>(present)?.last_log_id <= meta.last_log_id))?;
        self.present()
    }

    fn present(&self) -> Result<Option<Snapshot<C>>> {
        let found = self.snapshots.current()?;
        found.map(|(meta, frames)| snapshot_of(&self.snapshots, &meta, &frames)).transpose()
    }

    /// Takes a snapshot, or stores the error if there is no space.
    fn take(&self) -> Result<Option<Snapshot<C>>> {
        let built = match self.build() {
            // The family was dropped by a concurrent installation, whose snapshot replaces this
            // one.
            Err(e) if e.kind() == ErrorKind::NotFound => self.present(),
            built => built,
        };
        let (taken, not_taken) = match built {
            Err(e) if e.kind() == ErrorKind::NoSpace => (self.present(), Some(e)),
            built => (built, None),
        };
        write(&self.state.current).not_taken = not_taken;
        taken
    }
}

impl<C> RaftSnapshotBuilder<C> for SnapshotBuilder<C>
where
    C: RaftTypeConfig<SnapshotData = SnapshotFile>,
{
    async fn build_snapshot(&mut self) -> std::result::Result<Snapshot<C>, StorageError<C::NodeId>> {
        let taken = self.take().map_err(|e| StorageIOError::write_snapshot(None, &e))?;
        if taken.is_none() && self.state.snapshot_not_taken().is_some() {
            // An error would end the node. An empty snapshot is older than any other, and openraft
            // ignores it.
            return Ok(Snapshot { meta: Meta::<C>::default(), snapshot: Box::new(SnapshotFile::nothing()) });
        }
        let missing = || {
            Error::not_found("the snapshot of a Raft group was removed during its creation: take another one")
        };
        Ok(taken.ok_or_else(missing).map_err(|e| StorageIOError::read_snapshot(None, &e))?)
    }
}
