//! Snapshot files. Byte map: `docs/format/raft-snapshot.md`.
//!
//! A group has one snapshot, `ID.snapshot`, named after the number of its log, and *parts*:
//! unfinished files `ID.UID.part`. Each part has a unique name, so concurrent writers do not
//! conflict. A finished part is synced and renamed over the snapshot, and the directory is synced.
//! So there is always one complete snapshot or none. A reader of the previous snapshot keeps
//! reading the open file. A snapshot never replaces a newer one, however late it is finished; a
//! damaged snapshot is always replaced. Dropping the handle of an unused part removes it; opening
//! the group removes parts left by a crash.

use crate::groups::InUse;
use base::codec::{Reader, put_bytes, put_u32};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result, Uid, checksum};
use io::{Access, AppendFile, CreateOptions, Env, FileSystem, ReadFile, SyncKind};
use std::fmt;
use std::io::SeekFrom;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

/// Length of the identity at the start of the file, bytes.
const HEAD: u64 = 16;
/// Bytes before the payload of a frame: its length and its checksum.
const FRAME_HEAD: u64 = 8;
/// Size at which a frame of entries is closed, bytes; a single entry may be longer.
const FRAME_BYTES: usize = 64 << 10;
/// Maximum length of a frame.
const FRAME_MAX: usize = 64 << 20;
const META: u8 = 0;
const ENTRIES: u8 = 1;
const END: u8 = 2;

/// The directory with the snapshots of a node.
#[derive(Clone, Debug)]
pub(crate) struct SnapshotDir {
    env: Env,
    dir: PathBuf,
}

impl SnapshotDir {
    pub fn open(env: &Env, dir: &Path) -> Result<SnapshotDir> {
        env.fs.create_dir_all(dir)?;
        Ok(SnapshotDir { env: env.clone(), dir: dir.to_owned() })
    }

    pub fn of(&self, group: u64, in_use: Arc<InUse>) -> Snapshots {
        Snapshots { place: self.clone(), group, turn: Arc::new(Mutex::new(())), _in_use: in_use }
    }
}

/// The snapshot of one group.
#[derive(Clone, Debug)]
pub(crate) struct Snapshots {
    place: SnapshotDir,
    group: u64,
    /// Serializes the comparison of snapshots and the rename.
    turn: Arc<Mutex<(), rank::Outside>>,
    _in_use: Arc<InUse>,
}

/// An unfinished file, removed on drop unless it was renamed.
pub(crate) struct Part {
    fs: Arc<dyn FileSystem>,
    path: PathBuf,
}

impl Drop for Part {
    fn drop(&mut self) {
        // A renamed file no longer exists under this name. If removal fails, opening the group
        // removes the file.
        if self.fs.exists(&self.path).unwrap_or(false) {
            let _ = self.fs.remove(&self.path);
        }
    }
}

impl Snapshots {
    fn path(&self) -> PathBuf {
        self.place.dir.join(format!("{}.snapshot", self.group))
    }

    /// Removes the parts left by a crash.
    pub fn clean(&self) -> Result<()> {
        let (fs, begins) = (&self.place.env.fs, format!("{}.", self.group));
        for entry in fs.list(&self.place.dir)? {
            if entry.name.starts_with(&begins) && entry.name.ends_with(".part") {
                fs.remove(&self.place.dir.join(&entry.name))?;
            }
        }
        Ok(())
    }

    fn create(&self) -> Result<(Part, Box<dyn AppendFile>)> {
        let fs = self.place.env.fs.clone();
        let path = self.place.dir.join(format!("{}.{:?}.part", self.group, self.place.env.new_uid()));
        let file = fs.create(&path, &CreateOptions::default())?;
        Ok((Part { fs, path }, file))
    }

    /// Creates a file for a snapshot sent by the leader.
    pub fn receive(&self) -> Result<SnapshotFile> {
        let (part, file) = self.create()?;
        Ok(SnapshotFile { at: 0, side: Side::Writing(file, part) })
    }

    /// Creates a writer of a snapshot that begins with `meta`.
    pub fn build(&self, meta: &[u8]) -> Result<Writer> {
        let (part, file) = self.create()?;
        Writer::begin(file, part, self.place.env.new_uid(), meta)
    }

    /// Makes a received snapshot a durable part, by copying it if necessary.
    pub fn adopt(&self, sent: SnapshotFile) -> Result<Part> {
        match sent.side {
            Side::Writing(mut file, part) if Arc::ptr_eq(&part.fs, &self.place.env.fs) => {
                file.sync(SyncKind::Full)?;
                Ok(part)
            }
            _ => self.copy(&sent),
        }
    }

    fn copy(&self, sent: &SnapshotFile) -> Result<Part> {
        let (from, len) = sent.opened()?;
        let (part, mut to) = self.create()?;
        let mut at = 0;
        while at < len {
            let mut piece = vec![0; (len - at).min(1 << 20) as usize];
            from.read_at(&mut piece, at)?;
            to.append(&piece)?;
            at += piece.len() as u64;
        }
        to.sync(SyncKind::Full)?;
        Ok(part)
    }

    /// Opens the frames of a part.
    pub fn frames(&self, part: &Part) -> Result<Frames> {
        Frames::open(&*self.place.env.fs, &part.path)
    }

    /// Makes a synced part the snapshot. Returns false if `is_older`, called with the meta of the
    /// current snapshot, forbids the replacement.
    pub fn commit(&self, part: &Part, is_older: impl FnOnce(&[u8]) -> Result<bool>) -> Result<bool> {
        let _turn = lock(&self.turn);
        let fs = &self.place.env.fs;
        let present = match self.current() {
            Err(e) if self.is_damage(&e) => None,
            present => present?,
        };
        if let Some((meta, _)) = present
            && !is_older(&meta)?
        {
            return Ok(false);
        }
        fs.rename(&part.path, &self.path())?;
        fs.sync_dir(&self.place.dir)?;
        Ok(true)
    }

    /// Returns true if the error is damage of the snapshot itself.
    pub fn is_damage(&self, error: &Error) -> bool {
        error.kind() == ErrorKind::Corruption && error.file() == Some(&self.path())
    }

    /// Removes a damaged snapshot. No snapshot may be created concurrently.
    pub fn remove(&self) -> Result<()> {
        self.place.env.fs.remove(&self.path())?;
        self.place.env.fs.sync_dir(&self.place.dir)
    }

    /// Opens the snapshot, if there is one. Returns its meta and the following frames.
    pub fn current(&self) -> Result<Option<(Vec<u8>, Frames)>> {
        if !self.place.env.fs.exists(&self.path())? {
            return Ok(None);
        }
        let mut frames = Frames::open(&*self.place.env.fs, &self.path())?;
        Ok(Some((frames.meta()?, frames)))
    }

    /// Opens the snapshot after reading and verifying all of it.
    pub fn checked(&self) -> Result<Option<(Vec<u8>, Frames)>> {
        let Some((meta, mut frames)) = self.current()? else { return Ok(None) };
        while frames.entries(&mut |_, _| ())? {}
        Ok(Some((meta, frames)))
    }

    /// Returns the bytes of a snapshot for sending.
    pub fn sent(&self, frames: &Frames) -> SnapshotFile {
        SnapshotFile { at: 0, side: Side::Reading(frames.file.clone(), frames.len) }
    }
}

pub(crate) struct Writer {
    file: Box<dyn AppendFile>,
    part: Part,
    uid: Uid,
    entries: Vec<u8>,
    count: u64,
}

impl Writer {
    fn begin(mut file: Box<dyn AppendFile>, part: Part, uid: Uid, meta: &[u8]) -> Result<Writer> {
        file.append(&uid.0)?;
        let mut writer = Writer { file, part, uid, entries: Vec::new(), count: 0 };
        writer.frame(META, meta)?;
        Ok(writer)
    }

    fn frame(&mut self, kind: u8, body: &[u8]) -> Result<()> {
        if body.len() >= FRAME_MAX {
            let why = format!(
                "a snapshot of Raft cannot hold an entry of {} bytes: store smaller values",
                body.len()
            );
            return Err(Error::new(ErrorKind::TooLarge, why));
        }
        let mut payload = vec![kind];
        payload.extend_from_slice(body);
        let mut head = Vec::new();
        put_u32(&mut head, payload.len() as u32);
        put_u32(&mut head, checksum::stored(&payload, self.uid, self.file.len()));
        self.file.append(&head)?;
        self.file.append(&payload)
    }

    /// Adds an entry, in ascending order of keys.
    pub fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        put_bytes(&mut self.entries, key);
        put_bytes(&mut self.entries, value);
        self.count += 1;
        if self.entries.len() >= FRAME_BYTES { self.end_frame() } else { Ok(()) }
    }

    fn end_frame(&mut self) -> Result<()> {
        let entries = std::mem::take(&mut self.entries);
        if entries.is_empty() { Ok(()) } else { self.frame(ENTRIES, &entries) }
    }

    /// Finishes the file and makes it durable.
    pub fn finish(mut self) -> Result<Part> {
        self.end_frame()?;
        let count = self.count.to_le_bytes();
        self.frame(END, &count)?;
        self.file.sync(SyncKind::Full)?;
        Ok(self.part)
    }
}

/// Reads a snapshot frame by frame.
pub(crate) struct Frames {
    file: Arc<dyn ReadFile>,
    uid: Uid,
    at: u64,
    len: u64,
    count: u64,
}

impl Frames {
    fn open(fs: &dyn FileSystem, path: &Path) -> Result<Frames> {
        let file = fs.open(path, Access::Buffered)?;
        let (len, mut uid) = (file.len()?, [0; 16]);
        file.read_at(&mut uid, 0)?;
        Ok(Frames { file, uid: Uid(uid), at: HEAD, len, count: 0 })
    }

    fn damaged(&self, what: &str) -> Error {
        let why = format!("a snapshot of Raft is damaged: {what}");
        Error::corruption(why).at_file(self.file.path()).at_offset(self.at)
    }

    /// Reads the next frame. Returns its kind and its body.
    fn frame(&mut self) -> Result<(u8, Vec<u8>)> {
        let mut head = [0; FRAME_HEAD as usize];
        self.file.read_at(&mut head, self.at)?;
        let mut reader = Reader::new(&head);
        let (len, sum) = (reader.u32()? as usize, reader.u32()?);
        let end = self.at + FRAME_HEAD + len as u64;
        if len == 0 || len > FRAME_MAX || end > self.len {
            return Err(
                self.damaged("the length of a frame is 0, above its limit, or past the end of the file")
            );
        }
        let mut payload = vec![0; len];
        self.file.read_at(&mut payload, self.at + FRAME_HEAD)?;
        checksum::verify(&payload, self.uid, self.at, sum).map_err(|e| e.at_file(self.file.path()))?;
        self.at = end;
        let kind = payload.remove(0);
        Ok((kind, payload))
    }

    /// Reads the meta frame, which comes first.
    pub fn meta(&mut self) -> Result<Vec<u8>> {
        match self.frame()? {
            (META, body) => Ok(body),
            _ => Err(self.damaged("its first frame is not the metadata frame")),
        }
    }

    /// Calls `each` for the entries of the next frame. Returns false at the end, after verifying
    /// the number of entries.
    pub fn entries(&mut self, each: &mut dyn FnMut(&[u8], &[u8])) -> Result<bool> {
        let (kind, body) = self.frame()?;
        let mut reader = Reader::new(&body);
        let here = |e: Error| e.at_file(self.file.path());
        match kind {
            ENTRIES => {
                while !reader.is_empty() {
                    let key = reader.bytes().map_err(here)?;
                    each(key, reader.bytes().map_err(here)?);
                    self.count += 1;
                }
                Ok(true)
            }
            END if reader.u64()? == self.count && self.at == self.len => Ok(false),
            _ => Err(self.damaged("its last frame is not a valid end frame")),
        }
    }
}

/// A snapshot in transfer between nodes, as openraft reads and writes it. It is written
/// sequentially; bytes sent twice are written once.
pub struct SnapshotFile {
    at: u64,
    side: Side,
}

enum Side {
    Writing(Box<dyn AppendFile>, Part),
    Reading(Arc<dyn ReadFile>, u64),
    /// Placeholder for a snapshot that was not taken.
    Nothing,
}

impl SnapshotFile {
    /// Creates the placeholder for a snapshot that was not taken. It is never sent.
    pub(crate) fn nothing() -> SnapshotFile {
        SnapshotFile { at: 0, side: Side::Nothing }
    }

    fn opened(&self) -> Result<(Arc<dyn ReadFile>, u64)> {
        match &self.side {
            Side::Reading(file, len) => Ok((file.clone(), *len)),
            Side::Writing(written, part) => Ok((part.fs.open(&part.path, Access::Buffered)?, written.len())),
            Side::Nothing => Err(Error::not_found("the Raft group has no snapshot: take one first")),
        }
    }

    fn len(&self) -> u64 {
        match &self.side {
            Side::Writing(file, _) => file.len(),
            Side::Reading(_, len) => *len,
            Side::Nothing => 0,
        }
    }
}

impl AsyncRead for SnapshotFile {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let (file, len) = self.opened().map_err(std::io::Error::other)?;
        let n = (buf.remaining() as u64).min(len.saturating_sub(self.at)) as usize;
        file.read_at(buf.initialize_unfilled_to(n), self.at).map_err(std::io::Error::other)?;
        buf.advance(n);
        self.at += n as u64;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for SnapshotFile {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        let this = &mut *self;
        let Side::Writing(file, _) = &mut this.side else {
            return Poll::Ready(Err(std::io::ErrorKind::PermissionDenied.into()));
        };
        // The sender repeats a chunk after a lost reply; skip the bytes already written.
        let seen = file.len().saturating_sub(this.at).min(bytes.len() as u64) as usize;
        file.append(&bytes[seen..]).map_err(std::io::Error::other)?;
        this.at += bytes.len() as u64;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        match &mut self.side {
            Side::Writing(file, _) => Poll::Ready(file.flush().map_err(std::io::Error::other)),
            Side::Reading(..) | Side::Nothing => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        self.poll_flush(context)
    }
}

impl AsyncSeek for SnapshotFile {
    fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> std::io::Result<()> {
        let len = self.len();
        let at = match to {
            SeekFrom::Start(at) => Some(at),
            SeekFrom::End(by) => len.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        // Seeking past the end would leave a hole.
        self.at = at.filter(|at| *at <= len).ok_or(std::io::ErrorKind::InvalidInput)?;
        Ok(())
    }

    fn poll_complete(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<u64>> {
        Poll::Ready(Ok(self.at))
    }
}

impl fmt::Debug for SnapshotFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match &self.side {
            Side::Writing(_, part) => part.path.as_path(),
            Side::Reading(file, _) => file.path(),
            Side::Nothing => Path::new("nothing"),
        };
        write!(f, "SnapshotFile({} at {})", path.display(), self.at)
    }
}

#[cfg(test)]
mod tests;
