//! Files written from front to back.
//!
//! Bytes collect in an aligned buffer, which is written when it is full. A sync writes what there is, padded to a whole
//! block; the last, unfinished block stays in the buffer and is written again, in place, with what follows. That is safe
//! for what was durable before: sectors are written whole, and old and new sector begin with the same bytes.
//!
//! A **data sync** makes the bytes durable, and the journal only if the file got new blocks since. So the size that the
//! journal knows may lag behind, and whoever reads such a file after a crash looks for its end himself, up to the end of
//! its blocks. A **full sync** records the size as well.
//!
//! A sync that must write the journal anyway, of bytes that are all in the buffer, needs one flush of the device and not two:
//! the bytes are written, then a *claim*, which is their size and a hash of those that were not durable before, and one
//! sync of the device makes both durable. If a crash leaves the claim without the bytes, the replay of the journal sees
//! that it is not true and drops it with its transaction. (Volumes of version 1 know no claims.)
//!
//! Invariants: `synced <= on_device <= start + buffered`, the length seen by the caller; `start` is a multiple of the
//! block. A size goes in line for the journal only when all bytes before it are durable, or with a claim for those that are
//! not: so below its size a file never shows what its blocks held before.

use crate::core::Live;
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

/// What the buffer is given first; it grows with its use.
const BUFFER_LEN_FIRST: usize = 16 << 10;

pub(crate) struct LavaAppendFile {
    volume: Arc<Volume>,
    live: Arc<Live>,
    path: PathBuf,
    buf: AlignedBuf,
    buffer_len_max: usize,
    buffered: usize,
    start: u64,
    on_device: u64,
    synced: u64,
    /// The size that went in line for the journal.
    recorded: u64,
    /// Blocks of the file.
    allocated: u64,
    /// Blocks that its creator expects it to have.
    expected: u64,
    /// It gets no more blocks than it needs.
    exact: bool,
    /// Where its blocks should be.
    role: Role,
    /// The last operation on this file.
    position: u64,
    poison: Option<Error>,
}

/// How far a write goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reach {
    Device,
    Media,
}

impl LavaAppendFile {
    pub(crate) fn new(
        volume: Arc<Volume>,
        live: Arc<Live>,
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

    /// Runs a step that changes the file; its first failure poisons. A full volume is found before anything is changed,
    /// but what the caller appended is then not all taken.
    fn guarded(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(first) = &self.poison {
            return Err(first.clone().with_kind(ErrorKind::Poisoned).context(
                "an earlier write or sync of this file failed, so what it holds is unknown; reopen the store",
            ));
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

    /// Makes sure that the file has blocks for `len` bytes.
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
            // A hint: where there is no room for all of it, it is forgotten.
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

    /// The file got blocks; where that is recorded.
    fn grew(&mut self, position: Option<u64>) {
        if let Some(position) = position {
            self.position = position;
        }
        self.allocated = layout::blocks_of(&self.live.extents());
    }

    /// Writes the buffer, padded to whole blocks. The last block, if unfinished, stays in it.
    fn write_buffer(&mut self, reach: Reach) -> Result<()> {
        let len = self.len();
        let padded = self.buffered.next_multiple_of(BLOCK as usize);
        self.allocate(len)?;
        self.buf.as_mut_slice()[self.buffered..padded].fill(0);
        let pieces = layout::pieces(&self.live.extents(), self.start, padded as u64);
        // Alone only if nothing before the buffer waits for a sync.
        let alone = reach == Reach::Media && self.synced >= self.start && pieces.len() == 1;
        for (now, offset) in layout::cut(&pieces, &self.buf.as_slice()[..padded]) {
            let offset = offset.ok_or_else(|| {
                Error::invalid("blocks of a file that is still written were punched out of it")
            })?;
            match alone {
                true => self.volume.durability.poisoned_by(self.volume.device.write_durable(now, offset))?,
                false => self.volume.device.write_at(now, offset)?,
            }
        }
        if self.on_device > self.start {
            // The last block was written before, unfinished; no other one can have been read.
            self.volume.forget_pages(&self.live, self.start, 1);
        }
        count(&self.volume.counters.data_bytes, padded as u64);
        if reach == Reach::Media {
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
                self.write_buffer(Reach::Device)?;
            }
        }
        Ok(())
    }

    /// Makes all bytes durable, not the journal.
    fn sync_data(&mut self) -> Result<()> {
        if self.on_device < self.len() {
            return self.write_buffer(Reach::Media);
        }
        if self.synced < self.on_device {
            self.volume.sync_devices_of(&self.live.extents())?;
            self.synced = self.on_device;
        }
        Ok(())
    }

    /// True if all bytes that are not durable are in the buffer, and few enough for a claim.
    fn can_claim(&self) -> bool {
        self.volume.identity.claims
            && self.start <= self.synced
            && (1..=CLAIM_LEN_MAX).contains(&(self.len() - self.synced))
    }

    /// True if a sync of this kind will have to write the journal.
    fn needs_journal(&self, kind: SyncKind) -> bool {
        kind == SyncKind::Full
            || blocks_for(self.len()) > self.allocated
            || !self.volume.durability.is_durable(self.position)
    }

    /// Writes the buffer, and makes it durable together with its size.
    fn sync_with_claim(&mut self) -> Result<()> {
        let (from, size) = (self.synced, self.len());
        let bytes = &self.buf.as_slice()[(from - self.start) as usize..self.buffered];
        let op = Op::Claim { ino: self.live.ino, size, from, hash: key_hash(bytes) };
        if self.on_device < size {
            self.write_buffer(Reach::Device)?;
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

    /// Puts the size in line, all of which is durable.
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

    /// What is left to do when the file will not grow any more.
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
        // A refusal changes nothing, so it does not poison.
        let grown = self.grow(needed, true);
        self.grew(grown.map_err(|e| e.at_file(&self.path))?);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.start + self.buffered as u64
    }

    fn flush(&mut self) -> Result<()> {
        self.guarded(|f| if f.on_device < f.len() { f.write_buffer(Reach::Device) } else { Ok(()) })
    }

    fn sync(&mut self, kind: SyncKind) -> Result<()> {
        self.guarded(|f| {
            if f.live.is_orphan() {
                // Its last name went, perhaps not yet for good: a crash must not bring the file back without the bytes
                // that are synced now.
                return f.volume.commit_all();
            }
            if f.can_claim() && f.needs_journal(kind) {
                return f.sync_with_claim();
            }
            f.sync_data()?;
            // When the journal must be written anyway, the size costs nothing.
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
        // Whatever failed, all bytes before `on_device` were written; if it was a sync, the volume is not sound.
        if self.volume.durability.check_sound().is_ok() {
            // Nobody waits for this to be durable: after a failure, or a crash, the file is one that was not closed.
            let _ = self.close();
        }
    }
}
