//! The simulated block device: a file of the volume that is written in place.
//!
//! Writes, durable writes and syncs are those of an in-place file, so that the device has all its
//! crash states and faults. A discard is a pending write of zeros: a crash may show the old bytes
//! or the zeros. Making a device longer ([`super::SimEnv::lengthen_device`]) writes at its new end,
//! so a crash may revert the length until it was synced.

mod queue;

use super::disk::Change;
use super::disk_times::{DeviceModel, Work};
use super::fault::OpKind;
use super::file::OpenFile;
use super::fs::shown;
use super::world::SharedWorld;
use crate::device::{
    BlockDevice, Completions, DeviceQueue, Transfer, check_blocks, check_range, check_write, whole,
};
use crate::{BLOCK, Clock, PartialWrite, ReadRequest};
use base::sync::atomic::{AtomicU64, Ordering};
use base::{Error, Result};
use std::path::Path;
use std::sync::Arc;

#[derive(Debug)]
pub(super) struct SimDevice {
    handle: OpenFile,
    /// Grows by a measurement.
    len: AtomicU64,
}

impl SimDevice {
    pub(super) fn open(shared: &Arc<SharedWorld>, path: &Path, len: u64) -> Result<Self> {
        if !len.is_multiple_of(BLOCK as u64) {
            let why = format!("the length of a device must be a multiple of {BLOCK} bytes, not {len} bytes");
            return Err(Error::invalid(why).at_file(path));
        }
        shared.op(OpKind::OpenInPlace, &shown(path), (0, 0), |world, verdict| {
            verdict.all_or_nothing()?;
            world.check_handles(path)?;
            let (ino, len) = match world.disk.look_up(path)? {
                Some(_) => {
                    let ino = world.disk.file_at(path)?;
                    (ino, whole(world.disk.file(ino).live.len()))
                }
                None => {
                    let ino = world.make_file(path)?;
                    world.apply(Change::Preallocate { ino, len });
                    let (dir, _) = world.disk.parent(path)?;
                    world.apply(Change::SyncDir { dir });
                    (ino, len)
                }
            };
            Ok(SimDevice {
                handle: OpenFile::new(shared.clone(), world, ino, path),
                len: AtomicU64::new(len),
            })
        })
    }

    /// Gives the device of a name a timing model.
    pub(super) fn set_model(shared: &Arc<SharedWorld>, path: &Path, model: DeviceModel) -> Result<()> {
        let mut world = shared.lock();
        let ino = world.disk.file_at(path)?;
        let work = Work::new(model, world.seed ^ ino);
        world.devices.insert(ino, work);
        Ok(())
    }

    /// Returns the completion time of a request that arrives now; `None`: the device has no model,
    /// and calls cost as much as those of files.
    fn admit(&self, transfer: Transfer, len: u64) -> Option<u64> {
        let now_ns = self.handle.shared.clock.now_ns();
        let mut world = self.handle.shared.lock();
        world.devices.get_mut(&self.handle.ino).map(|work| work.admit(transfer, len, now_ns))
    }

    /// Waits for the transfer of a blocking call.
    fn pass(&self, transfer: Transfer, len: usize) {
        if let Some(done_ns) = self.admit(transfer, len as u64) {
            let clock = &self.handle.shared.clock;
            clock.advance(done_ns.saturating_sub(clock.now_ns()));
        }
    }

    /// Waits for a flush.
    fn flush(&self) {
        let flush_ns = self.model().map_or(0, |model| model.flush_ns);
        self.handle.shared.clock.advance(flush_ns);
    }

    fn model(&self) -> Option<DeviceModel> {
        self.handle.shared.lock().devices.get(&self.handle.ino).map(|work| *work.model())
    }

    /// Extends the device of a name to `len` bytes. The new part is zeros.
    pub(super) fn lengthen(shared: &Arc<SharedWorld>, path: &Path, len: u64) -> Result<()> {
        assert!(
            len.is_multiple_of(BLOCK as u64),
            "a device has whole blocks of {BLOCK} bytes, not {len} bytes"
        );
        shared.op(OpKind::Lengthen, &shown(path), (0, 0), |world, verdict| {
            verdict.all_or_nothing()?;
            let ino = world.disk.file_at(path)?;
            // Its last block, or the missing rest of it if a crash left a part of the extension.
            let offset = len.saturating_sub(BLOCK as u64).max(world.disk.file(ino).live.len());
            if offset < len {
                let data = vec![0u8; (len - offset) as usize].into();
                world.apply(Change::Write { ino, offset, data, durable: false });
            }
            Ok(())
        })
    }
}

impl BlockDevice for SimDevice {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }
    fn measure(&self) -> Result<u64> {
        let len = whole(self.handle.len()?);
        self.len.fetch_max(len, Ordering::AcqRel);
        Ok(len)
    }
    fn queue(self: Arc<Self>, _: Completions) -> Result<Box<dyn DeviceQueue>> {
        if self.model().is_none() {
            let costs = self.handle.shared.lock().costs;
            Self::set_model(&self.handle.shared, &self.handle.path, DeviceModel::of_costs(&costs))?;
        }
        Ok(Box::new(queue::SimQueue::new(self)))
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.pass(Transfer::Read, buf.len());
        self.handle.read(&mut [ReadRequest { offset, buf }])
    }
    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        let done_ns = requests.iter().filter_map(|r| self.admit(Transfer::Read, r.buf.len() as u64)).max();
        let clock = &self.handle.shared.clock;
        clock.advance(done_ns.unwrap_or(0).saturating_sub(clock.now_ns()));
        self.handle.read(requests)
    }
    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        check_write(data, offset, self.len());
        self.pass(Transfer::Write, data.len());
        self.handle.write(OpKind::WriteAt, offset, data)
    }
    fn write_durable(&self, data: &[u8], offset: u64) -> Result<()> {
        check_write(data, offset, self.len());
        self.pass(Transfer::Write, data.len());
        self.flush();
        self.handle.write(OpKind::WriteDurable, offset, data)
    }
    fn sync(&self) -> Result<()> {
        self.flush();
        self.handle.sync(OpKind::SyncData)
    }
    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        check_blocks(offset, len, self.len());
        self.handle.shared.op(OpKind::PunchHole, &self.handle.shown, (offset, len), |world, verdict| {
            verdict.all_or_nothing()?;
            world.apply(Change::Punch { ino: self.handle.ino, offset, len });
            Ok(())
        })
    }
    fn write_scratch(&self, data: &[u8], offset: u64) -> std::result::Result<(), PartialWrite> {
        check_range(data, offset, self.len());
        self.handle.write_scratch(offset, data)
    }
    fn path(&self) -> &Path {
        &self.handle.path
    }
}

#[cfg(test)]
mod tests;
