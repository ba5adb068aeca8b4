//! The devices of a volume: one device, or two in one address space.
//!
//! [`Pair`] maps the capacity device after the speed device ([`crate::geometry`]) and is a block
//! device itself, so that callers need not distinguish the two. The guarantees of a device hold for
//! the pair. Unsynced writes may be lost, on each device independently and in any order. A
//! completed sync covers every earlier write. A single device could be left in every state in which
//! a crash leaves the pair.
//!
//! **Selective sync.** Each device counts its completed writes. A sync records the count at its
//! start, and skips a device without a write since the last sync. A caller that knows the devices
//! of its writes names them ([`VolumeDevices::sync_of`]). Therefore a file on the speed device is
//! synced while the capacity device writes the output of a compaction.
//!
//! Invariant: `synced <= written`, and the first `synced` writes are durable. Both only grow.

use crate::geometry::{Role, Roles, SECOND_OFFSET, role_of, roles_of};
use crate::layout::Extent;
use base::sync::atomic::{AtomicU64, Ordering};
use base::{Error, ErrorKind, Result};
use io::{BlockDevice, Completions, DeviceQueue, PartialWrite, ReadRequest};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// Names the one or two devices of a volume, for calls that end in `_on`.
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
    /// Returns a single device, for programs that handle both cases.
    pub fn one(device: Arc<dyn BlockDevice>) -> Devices {
        Devices { first: device, second: None }
    }

    /// Returns two devices, the fast one first. The order matters only when a volume is made; an
    /// existing volume identifies its devices.
    pub fn two(speed: Arc<dyn BlockDevice>, capacity: Arc<dyn BlockDevice>) -> Devices {
        Devices { first: speed, second: Some(capacity) }
    }
}

/// One device of two, and its durability.
#[derive(Debug)]
struct Half {
    device: Arc<dyn BlockDevice>,
    /// Number of completed writes.
    written: AtomicU64,
    /// Number of durable writes.
    synced: AtomicU64,
}

impl Half {
    fn new(device: Arc<dyn BlockDevice>) -> Half {
        // Count the unknown writes of an earlier process, which may be in the device cache, as one.
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

/// Two devices as one block device; see the module documentation.
#[derive(Debug)]
pub(crate) struct Pair {
    speed: Half,
    capacity: Half,
}

impl Pair {
    fn half(&self, role: Role) -> &Half {
        match role {
            Role::Fast => &self.speed,
            Role::Capacity => &self.capacity,
        }
    }

    /// Returns the device that holds the byte at `offset`, and the offset on that device.
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
    /// End of the address space. The range between the two devices holds nothing.
    fn len(&self) -> u64 {
        SECOND_OFFSET + self.capacity.device.len()
    }

    fn measure(&self) -> Result<u64> {
        self.speed.device.measure()?;
        Ok(SECOND_OFFSET + self.capacity.device.measure()?)
    }

    fn queue(self: Arc<Self>, _: Completions) -> Result<Box<dyn DeviceQueue>> {
        Err(Error::new(
            ErrorKind::Unsupported,
            "a pair of devices has no common queue; use the queue of each device",
        ))
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

/// The devices of a volume: by role, and as one block device.
#[derive(Clone, Debug)]
pub(crate) struct VolumeDevices {
    all: Arc<dyn BlockDevice>,
    pair: Option<Arc<Pair>>,
}

impl Deref for VolumeDevices {
    type Target = dyn BlockDevice;

    fn deref(&self) -> &Self::Target {
        &*self.all
    }
}

impl VolumeDevices {
    pub(crate) fn one(device: Arc<dyn BlockDevice>) -> VolumeDevices {
        VolumeDevices { all: device, pair: None }
    }

    pub(crate) fn two(speed: Arc<dyn BlockDevice>, capacity: Arc<dyn BlockDevice>) -> VolumeDevices {
        let pair = Arc::new(Pair { speed: Half::new(speed), capacity: Half::new(capacity) });
        VolumeDevices { all: pair.clone(), pair: Some(pair) }
    }

    /// Returns the device with this role. The device of a one-device volume has every role.
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

    /// Returns the roles of the existing devices.
    pub(crate) fn roles(&self) -> impl Iterator<Item = Role> {
        let has_second = self.pair.is_some();
        Role::ALL.into_iter().filter(move |role| *role == Role::Fast || has_second)
    }

    /// Returns the device of an extent.
    pub(crate) fn role_of(&self, extent: Extent) -> Role {
        role_of(self.pair.is_some(), extent)
    }

    /// Returns the devices of a file's extents.
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
