//! The devices under a volume: one, or two that are one line of bytes.
//!
//! [`Pair`] puts the capacity device behind the speed device ([`crate::geometry`]) and is a block device itself, so that whoever reads and
//! writes blocks need not know that there are two. What holds of a device holds of the pair: what is not synced may be
//! lost, of each by itself and in any order, and a sync that has returned covers every write before it. All that a crash
//! may leave of two devices could be left by one.
//!
//! **A sync goes where it is needed.** Each device counts the writes that have returned; a sync notes the count that it began with. A
//! device that has had no write since is left out. Who knows which devices he wrote to says so ([`Ground::sync_of`]): a file on the speed
//! device is synced while the capacity device writes what a compaction gave it.
//!
//! Invariant: `synced <= written`, and every write up to `synced` is durable. Both only grow.

use crate::geometry::{Role, Roles, SECOND_OFFSET, role_of, roles_of};
use crate::layout::Extent;
use base::sync::atomic::{AtomicU64, Ordering};
use base::{Error, ErrorKind, Result};
use io::{BlockDevice, Completions, DeviceQueue, PartialWrite, ReadRequest};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// What a volume is on.
///
/// ```
/// use io::sim::SimEnv;
/// use lavastore_lavafs::{Devices, FormatOptions, MountOptions, format_on, mount_on};
/// let machine = SimEnv::new(1);
/// let (speed, capacity) = (machine.device("/fast", 64 << 20)?, machine.device("/large", 256 << 20)?);
/// let devices = Devices::two(speed, capacity);
/// format_on(&machine.env(), &devices, &FormatOptions::default())?;
/// let fs = mount_on(&machine.env(), devices, MountOptions::default())?;
/// assert_eq!(fs.statistics().total_bytes, 320 << 20);
/// # Ok::<(), base::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Devices {
    pub(crate) first: Arc<dyn BlockDevice>,
    pub(crate) second: Option<Arc<dyn BlockDevice>>,
}

impl Devices {
    /// One device.
    pub fn one(device: Arc<dyn BlockDevice>) -> Devices {
        Devices { first: device, second: None }
    }

    /// Two. A volume that is there says itself which is which; only where one is made the order counts.
    pub fn two(speed: Arc<dyn BlockDevice>, capacity: Arc<dyn BlockDevice>) -> Devices {
        Devices { first: speed, second: Some(capacity) }
    }
}

/// A device of two, and how far it is durable.
#[derive(Debug)]
struct Half {
    device: Arc<dyn BlockDevice>,
    /// Writes that have returned.
    written: AtomicU64,
    /// Of which so many are durable.
    synced: AtomicU64,
}

impl Half {
    fn new(device: Arc<dyn BlockDevice>) -> Half {
        // What a process before us has left in the cache of the device counts as one.
        Half { device, written: AtomicU64::new(1), synced: AtomicU64::new(0) }
    }

    fn wrote(&self) {
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    fn sync(&self) -> Result<()> {
        let written = self.written.load(Ordering::Acquire);
        if self.synced.load(Ordering::Acquire) >= written {
            return Ok(());
        }
        self.device.sync()?;
        self.synced.fetch_max(written, Ordering::AcqRel);
        Ok(())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Pair {
    speed: Half,
    capacity: Half,
}

impl Pair {
    fn half(&self, role: Role) -> &Half {
        match role {
            Role::Speed => &self.speed,
            Role::Capacity => &self.capacity,
        }
    }

    /// The device that has a byte, and where.
    fn at(&self, offset: u64) -> (&Half, u64) {
        match offset.checked_sub(SECOND_OFFSET) {
            None => (&self.speed, offset),
            Some(offset) => (&self.capacity, offset),
        }
    }

    fn sync_of(&self, roles: Roles) -> Result<()> {
        for role in Role::ALL.into_iter().filter(|role| roles.has(*role)) {
            self.half(role).sync()?;
        }
        Ok(())
    }
}

impl BlockDevice for Pair {
    /// The end of the line; between the two devices there is nothing.
    fn len(&self) -> u64 {
        SECOND_OFFSET + self.capacity.device.len()
    }

    fn measure(&self) -> Result<u64> {
        self.speed.device.measure()?;
        Ok(SECOND_OFFSET + self.capacity.device.measure()?)
    }

    fn queue(self: Arc<Self>, _: Completions) -> Result<Box<dyn DeviceQueue>> {
        Err(Error::new(ErrorKind::Unsupported, "two devices have no queue together; each has its own"))
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let (half, offset) = self.at(offset);
        half.device.read_at(buf, offset)
    }

    fn read_batch(&self, requests: &mut [ReadRequest<'_>]) -> Result<()> {
        let (mut low, mut high) = (Vec::new(), Vec::new());
        for request in requests {
            let buf = &mut *request.buf;
            match request.offset.checked_sub(SECOND_OFFSET) {
                None => low.push(ReadRequest { offset: request.offset, buf }),
                Some(offset) => high.push(ReadRequest { offset, buf }),
            }
        }
        for (half, requests) in [(&self.speed, &mut low), (&self.capacity, &mut high)] {
            if !requests.is_empty() {
                half.device.read_batch(requests)?;
            }
        }
        Ok(())
    }

    fn write_at(&self, data: &[u8], offset: u64) -> Result<()> {
        let (half, offset) = self.at(offset);
        let written = half.device.write_at(data, offset);
        half.wrote();
        written
    }

    fn write_durable(&self, data: &[u8], offset: u64) -> Result<()> {
        let (half, offset) = self.at(offset);
        half.device.write_durable(data, offset)
    }

    fn sync(&self) -> Result<()> {
        self.sync_of(Roles::ALL)
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        let (half, offset) = self.at(offset);
        half.device.discard(offset, len)
    }

    fn write_scratch(&self, data: &[u8], offset: u64) -> std::result::Result<(), PartialWrite> {
        let (half, offset) = self.at(offset);
        let written = half.device.write_scratch(data, offset);
        half.wrote();
        written
    }

    fn path(&self) -> &Path {
        self.speed.device.path()
    }
}

/// The devices of a volume, by their roles, as the one that their blocks make.
#[derive(Clone, Debug)]
pub(crate) struct Ground {
    all: Arc<dyn BlockDevice>,
    pair: Option<Arc<Pair>>,
}

impl Deref for Ground {
    type Target = dyn BlockDevice;

    fn deref(&self) -> &Self::Target {
        &*self.all
    }
}

impl Ground {
    pub(crate) fn one(device: Arc<dyn BlockDevice>) -> Ground {
        Ground { all: device, pair: None }
    }

    pub(crate) fn two(speed: Arc<dyn BlockDevice>, capacity: Arc<dyn BlockDevice>) -> Ground {
        let pair = Arc::new(Pair { speed: Half::new(speed), capacity: Half::new(capacity) });
        Ground { all: pair.clone(), pair: Some(pair) }
    }

    /// The device of a role. On a volume of one device that is the one.
    pub(crate) fn device(&self, role: Role) -> &dyn BlockDevice {
        match &self.pair {
            Some(pair) => &*pair.half(role).device,
            None => &*self.all,
        }
    }

    /// The second device, if there is one.
    pub(crate) fn second(&self) -> Option<&dyn BlockDevice> {
        self.pair.as_ref().map(|pair| &*pair.capacity.device)
    }

    /// The devices that there are.
    pub(crate) fn roles(&self) -> impl Iterator<Item = Role> {
        let has_second = self.pair.is_some();
        Role::ALL.into_iter().filter(move |role| *role == Role::Speed || has_second)
    }

    /// The device that a run is on.
    pub(crate) fn role_of(&self, extent: Extent) -> Role {
        role_of(self.pair.is_some(), extent)
    }

    /// The devices that a file is on.
    pub(crate) fn roles_of(&self, extents: &[Extent]) -> Roles {
        roles_of(self.pair.is_some(), extents)
    }

    /// Makes earlier writes to these devices durable.
    pub(crate) fn sync_of(&self, roles: Roles) -> Result<()> {
        match &self.pair {
            Some(pair) => pair.sync_of(roles),
            None => self.all.sync(),
        }
    }
}

#[cfg(test)]
mod tests;
