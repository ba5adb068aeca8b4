//! Durability: the journal position up to which operations are durable, and the trust in the
//! devices.
//!
//! **Poison.** The device content is unknown after a failed sync, a failed durable write, or a
//! failed write of the journal. The first such error is kept. From then on, every operation that
//! would change the volume or make it durable fails with `Poisoned`. Reads continue. A new mount is
//! the remedy.

use crate::devices::VolumeDevices;
use crate::geometry::Roles;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{OnceLock, statistic};
use base::{Error, ErrorKind, Result};

/// Durability of the volume; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    /// Position up to which operations are durable.
    position: AtomicU64,
    /// First failure that made the device content unknown.
    poison: OnceLock<Error>,
    /// Number of syncs of file data.
    data_syncs: statistic::AtomicU64,
}

/// Remedy after a failed write or sync of a device.
const REMOUNT: &str = "reads go on; to write again, unmount and mount the volume";

impl Durability {
    /// # Errors
    /// `Poisoned` after a failure.
    pub(crate) fn check_sound(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(first) => Err(first
                .clone()
                .with_kind(ErrorKind::Poisoned)
                .with_remedy(REMOUNT)
                .context("an earlier write or sync of the device failed, so its contents are unknown")),
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    /// Records a failure after which nothing may be acknowledged. `NoSpace` and transient errors
    /// become `Io`, because callers treat these two as rejections without effect and retry.
    pub(crate) fn poisoned_by<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| {
            let failed = match e.kind() == ErrorKind::NoSpace || e.is_passing() {
                true => {
                    let why = "a write or sync of the device failed, so its contents are unknown; mount \
                               the volume again";
                    Error::new(ErrorKind::Io, why).caused_by(e)
                }
                false => e,
            };
            self.poison.get_or_init(|| failed.clone());
            failed
        })
    }

    /// Makes all file data written so far to the given devices durable.
    ///
    /// # Errors
    /// `Poisoned`; the errors of the devices, which poison the volume.
    pub(crate) fn sync(&self, devices: &VolumeDevices, roles: Roles) -> Result<()> {
        self.check_sound()?;
        if roles.is_empty() {
            return Ok(());
        }
        self.data_syncs.fetch_add(1, Ordering::Relaxed);
        self.poisoned_by(devices.sync_of(roles))
    }

    /// Number of syncs of file data since the mount.
    pub(crate) fn data_syncs(&self) -> u64 {
        self.data_syncs.load(Ordering::Relaxed)
    }

    /// Position up to which operations are durable.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    pub(crate) fn is_durable(&self, position: u64) -> bool {
        self.position() >= position
    }

    /// Notes that the journal is durable up to `position`.
    pub(crate) fn reach(&self, position: u64) {
        self.position.fetch_max(position, Ordering::AcqRel);
    }
}
