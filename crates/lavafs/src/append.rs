//! Append-only files.
//!
//! An aligned buffer collects the bytes and is written when it is full. A sync writes the buffered
//! bytes, padded to a whole block. The unfinished last block stays in the buffer and is later
//! rewritten in place, together with the bytes that follow. The rewrite cannot harm bytes that are
//! already durable: a sector is written atomically, and its old and new contents begin with the
//! same bytes.
//!
//! A **data sync** makes the bytes durable. It writes the journal only if the file got new blocks
//! since the last commit. Therefore the size in the journal may be too small. After a crash, a
//! reader of such a file must find its end itself, up to the end of its blocks. A **full sync**
//! records the size as well.
//!
//! If a sync must write the journal anyway, and all unsynced bytes are in the buffer, one device
//! flush suffices. The sync first writes the bytes, then a *claim* to the journal: the size and a
//! hash of the bytes that were not durable before. One device sync makes both durable. If a crash
//! leaves the claim without the bytes, the journal replay detects the false claim and drops it with
//! its transaction. (Version 1 of the volume format has no claims.)
//!
//! Invariants: `synced <= on_device <= start + buffered`, where `start + buffered` is the length
//! seen by the caller. `start` is a multiple of the block size. A size is queued for the journal
//! only when all bytes before it are durable, or with a claim for the other bytes. Therefore a file
//! never shows the previous contents of its blocks below its size.

use crate::core::OpenFileState;
use crate::geometry::Role;
use crate::layout::{self, BLOCK, blocks_for};
use crate::op::{CLAIM_LEN_MAX, Op};
use crate::volume::{Volume, count};
use base::hash::key_hash;
use base::sync::lock;
use base::{Error, ErrorKind, Result};
use io::{AlignedBuf, AppendFile, SyncKind};
use std::path::PathBuf;
use std::sync::Arc;

/// Initial size of the buffer, in bytes. The buffer grows with its use.
const BUFFER_LEN_FIRST: usize = 16 << 10;

pub(crate) struct LavaAppendFile {
    volume: Arc<Volume>,
    live: Arc<OpenFileState>,
    path: PathBuf,
    buf: AlignedBuf,
    buffer_len_max: usize,
    buffered: usize,
    start: u64,
    on_device: u64,
    synced: u64,
    /// Last size that was queued for the journal.
    recorded: u64,
    /// Number of blocks of the file.
    allocated: u64,
    /// Number of blocks that the creator expects the file to need.
    expected: u64,
    /// If true, the file gets no more blocks than it needs.
    exact: bool,
    /// Preferred device for the blocks.
    role: Role,
    /// Position of the last operation on this file.
    position: u64,
    poison: Option<Error>,
}

/// Required durability of a write.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WriteDurability {
    Device,
    Media,
}

impl LavaAppendFile {
    pub(crate) fn new(
        volume: Arc<Volume>,
        live: Arc<OpenFileState>,
        path: PathBuf,
        position: u64,
        options: &io::CreateOptions,
    ) -> Self {
        let buffer_len_max =
            options.write_buffer_len.max(volume.options.write_buffer_len).max(BLOCK as usize);
        let buffer_len_max = buffer_len_max.next_multiple_of(BLOCK as usize);
        let role = volume.role_of(&path, options.placement);
        LavaAppendFile {
            volume,
            live,
            path,
            buf: AlignedBuf::zeroed(BUFFER_LEN_FIRST.min(buffer_len_max)),
            buffer_len_max,
            buffered: 0,
            start: 0,
            on_device: 0,
            synced: 0,
            recorded: 0,
            allocated: 0,
            expected: blocks_for(options.expected_len),
            exact: options.exact,
            role,
            position,
            poison: None,
        }
    }

    /// Runs a step that changes the file. The first failure poisons the file. A full volume is
    /// detected before any change, but the file may then hold only a part of the appended data.
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(first) = &self.poison {
            return Err(first
                .clone()
                .with_kind(ErrorKind::Poisoned)
                .context("an earlier write or sync of this file failed, so its contents are unknown"));
        }
        let result = self
            .volume
            .check_writable(&self.path)
            .and_then(|()| step(self))
            .map_err(|e| e.at_file(&self.path));
        if let Err(e) = &result {
            self.poison = Some(e.clone());
        }
        result
    }

    /// Ensures that the file has blocks for `len` bytes.
    fn allocate(&mut self, len: u64) -> Result<()> {
        let needed = blocks_for(len);
        if needed <= self.allocated {
            return Ok(());
        }
        let hinted = self.expected > needed;
        let grown = match hinted {
            true => self.grow(self.expected, true),
            false => self.grow(needed, self.exact),
        };
        let grown = match grown {
            // The expected size is only a hint: drop it if the volume lacks the space.
            Err(e) if hinted && e.kind() == ErrorKind::NoSpace => {
                self.expected = 0;
                self.grow(needed, self.exact)
            }
            grown => grown,
        };
        self.grew(grown?);
        Ok(())
    }

    fn grow(&self, needed: u64, exact: bool) -> Result<Option<u64>> {
        self.volume.grow(&self.live, (self.allocated, needed), exact, self.role)
    }

    /// Updates the state after the file got blocks. `position` is the operation that records them.
    fn grew(&mut self, position: Option<u64>) {
        if let Some(position) = position {
            self.position = position;
        }
        self.allocated = layout::blocks_of(&self.live.extents());
    }

    /// Writes the buffer, padded to whole blocks. An unfinished last block stays in the buffer.
    fn write_buffer(&mut self, reach: WriteDurability) -> Result<()> {
        let len = self.len();
        let padded = self.buffered.next_multiple_of(BLOCK as usize);
        self.allocate(len)?;
        self.buf.as_mut_slice()[self.buffered..padded].fill(0);
        let pieces = layout::pieces(&self.live.extents(), self.start, padded as u64);
        // A durable write suffices only if no bytes before the buffer need a sync.
        let alone = reach == WriteDurability::Media && self.synced >= self.start && pieces.len() == 1;
        for (now, offset) in layout::cut(&pieces, &self.buf.as_slice()[..padded]) {
            let offset = offset.ok_or_else(|| {
                Error::invalid(
                    "the file was not closed when blocks at its end were freed (punched): close a file before you punch it",
                )
                .with_remedy("the file takes no more writes")
            })?;
            match alone {
                true => self.volume.durability.poisoned_by(self.volume.device.write_durable(now, offset))?,
                false => self.volume.device.write_at(now, offset)?,
            }
        }
        if self.on_device > self.start {
            // The unfinished last block was written before. No other block of this write can be in
            // the page cache.
            self.volume.forget_pages(&self.live, self.start, 1);
        }
        count(&self.volume.counters.data_bytes, padded as u64);
        if reach == WriteDurability::Media {
            if !alone {
                self.volume.sync_devices_of(&self.live.extents())?;
            }
            self.synced = len;
        }
        let whole = self.buffered - self.buffered % BLOCK as usize;
        self.buf.as_mut_slice().copy_within(whole..padded, 0);
        self.start += whole as u64;
        self.buffered -= whole;
        self.on_device = len;
        self.live.set_size(len);
        Ok(())
    }

    fn append_bytes(&mut self, mut data: &[u8]) -> Result<()> {
        while !data.is_empty() {
            if self.buffered == self.buf.len() && self.buf.len() < self.buffer_len_max {
                let wanted = (self.buf.len() * 2).max(self.buffered + data.len());
                self.buf.resize(wanted.min(self.buffer_len_max).next_multiple_of(BLOCK as usize));
            }
            let room = self.buf.len() - self.buffered;
            let (now, later) = data.split_at(room.min(data.len()));
            self.buf.as_mut_slice()[self.buffered..][..now.len()].copy_from_slice(now);
            self.buffered += now.len();
            data = later;
            if self.buffered == self.buffer_len_max {
                self.write_buffer(WriteDurability::Device)?;
            }
        }
        Ok(())
    }

    /// Makes all bytes durable, without the journal.
    fn sync_data(&mut self) -> Result<()> {
        if self.on_device < self.len() {
            return self.write_buffer(WriteDurability::Media);
        }
        if self.synced < self.on_device {
            self.volume.sync_devices_of(&self.live.extents())?;
            self.synced = self.on_device;
        }
        Ok(())
    }

    /// Returns true if all bytes that are not durable are in the buffer, and few enough for a
    /// claim.
    fn can_claim(&self) -> bool {
        self.volume.identity.claims
            && self.start <= self.synced
            && (1..=CLAIM_LEN_MAX).contains(&(self.len() - self.synced))
    }

    /// Returns true if a sync of this kind must write the journal.
    fn needs_journal(&self, kind: SyncKind) -> bool {
        kind == SyncKind::Full
            || blocks_for(self.len()) > self.allocated
            || !self.volume.durability.is_durable(self.position)
    }

    /// Writes the buffer and makes it durable together with the file size.
    fn sync_with_claim(&mut self) -> Result<()> {
        let (from, size) = (self.synced, self.len());
        let bytes = &self.buf.as_slice()[(from - self.start) as usize..self.buffered];
        let op = Op::Claim { ino: self.live.ino, size, from, hash: key_hash(bytes) };
        if self.on_device < size {
            self.write_buffer(WriteDurability::Device)?;
        }
        {
            let mut core = lock(&self.volume.core);
            if self.live.is_orphan() {
                drop(core);
                return self.volume.commit_all();
            }
            self.position = self.volume.queue(&mut core, &op)?;
        }
        self.volume.commit(self.position)?;
        (self.synced, self.recorded) = (size, size);
        Ok(())
    }

    /// Queues the size for the journal. All bytes before it are durable.
    fn record_size(&mut self, closed: bool) -> Result<()> {
        let mut core = lock(&self.volume.core);
        if self.live.is_orphan() || (self.recorded == self.synced && !closed) {
            return Ok(());
        }
        let op = Op::Size { ino: self.live.ino, size: self.synced, closed };
        self.position = self.volume.queue(&mut core, &op)?;
        self.recorded = self.synced;
        Ok(())
    }

    /// Finishes a file that does not grow any more: syncs, records the size and trims unused
    /// blocks.
    fn close(&mut self) -> Result<()> {
        if self.synced < self.on_device {
            self.volume.sync_devices_of(&self.live.extents())?;
            self.synced = self.on_device;
        }
        self.record_size(true)?;
        let blocks = blocks_for(self.on_device);
        let mut core = lock(&self.volume.core);
        if self.allocated > blocks && !self.live.is_orphan() {
            self.volume.queue(&mut core, &Op::Trim { ino: self.live.ino, blocks })?;
        }
        Ok(())
    }
}

impl AppendFile for LavaAppendFile {
    fn append(&mut self, data: &[u8]) -> Result<()> {
        self.guarded(|f| f.append_bytes(data))
    }

    fn reserve(&mut self, len: u64) -> Result<()> {
        if let Some(first) = &self.poison {
            return Err(first.clone().with_kind(ErrorKind::Poisoned));
        }
        self.volume.check_writable(&self.path)?;
        let needed = blocks_for(len);
        if needed <= self.allocated {
            return Ok(());
        }
        // A rejected reservation changes nothing, so it does not poison the file.
        let grown = self.grow(needed, true);
        self.grew(grown.map_err(|e| e.at_file(&self.path))?);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.start + self.buffered as u64
    }

    fn flush(&mut self) -> Result<()> {
        self.guarded(|f| if f.on_device < f.len() { f.write_buffer(WriteDurability::Device) } else { Ok(()) })
    }

    fn sync(&mut self, kind: SyncKind) -> Result<()> {
        self.guarded(|f| {
            if f.live.is_orphan() {
                // The last name of the file was removed, perhaps not durably yet. A crash must not
                // bring the file back without the bytes of this sync.
                return f.volume.commit_all();
            }
            if f.can_claim() && f.needs_journal(kind) {
                return f.sync_with_claim();
            }
            f.sync_data()?;
            // If the journal must be written anyway, recording the size costs nothing.
            if kind == SyncKind::Full || !f.volume.durability.is_durable(f.position) {
                f.record_size(false)?;
                f.volume.commit(f.position)?;
            }
            Ok(())
        })
    }
}

impl Drop for LavaAppendFile {
    fn drop(&mut self) {
        // Even after a failure, all bytes before `on_device` were written. After a failed sync, the
        // volume is not sound.
        if self.volume.durability.check_sound().is_ok() {
            // No caller depends on the durability of this close. After a failure or a crash, the
            // file counts as not closed.
            let _ = self.close();
        }
    }
}
