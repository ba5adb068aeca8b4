//! Durability: up to which operation the journal is durable, and whether the devices can be trusted.
//!
//! **Poison.** After a failed sync, a failed durable write, or a failed write of the journal, the content of the device is
//! unknown. The first such error is kept, and from then on nothing is acknowledged: everything that would change
//! the volume or make it durable fails with `Poisoned`. Reads go on. The remedy is to mount again.

use crate::devices::Ground;
use crate::geometry::Roles;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{OnceLock, statistic};
use base::{Error, ErrorKind, Result};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    /// Operations up to here are durable.
    position: AtomicU64,
    /// The first failure after which the content of the device is unknown.
    poison: OnceLock<Error>,
    /// Syncs of the data of files.
    data_syncs: statistic::AtomicU64,
}

impl Durability {
    /// # Errors
    /// `Poisoned` after a failure.
    pub(crate) fn check_sound(&self) -> Result<()> {
        match self.poison.get() {
            None => Ok(()),
            Some(first) => Err(first.clone().with_kind(ErrorKind::Poisoned).context(
                "an earlier write or sync of the device failed, so what it holds is unknown; mount it again",
            )),
        }
    }

    pub(crate) fn is_poisoned(&self) -> bool {
        self.poison.get().is_some()
    }

    /// Remembers a failure after which nothing may be acknowledged. Lack of space and a passing error become `Io`: a caller takes
    /// these two for a refusal without effect, and tries again.
    pub(crate) fn poisoned_by<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(|e| {
            let failed = match e.kind() == ErrorKind::NoSpace || e.is_passing() {
                true => {
                    let why = "a write or sync of the device failed, so what it holds is unknown; mount the volume again";
                    Error::new(ErrorKind::Io, why).caused_by(e)
                }
                false => e,
            };
            self.poison.get_or_init(|| failed.clone());
            failed
        })
    }

    /// Makes all data durable that was written so far to some devices.
    ///
    /// # Errors
    /// `Poisoned`; those of the devices, which poison the volume.
    pub(crate) fn sync(&self, devices: &Ground, roles: Roles) -> Result<()> {
        self.check_sound()?;
        if roles.is_empty() {
            return Ok(());
        }
        self.data_syncs.fetch_add(1, Ordering::Relaxed);
        self.poisoned_by(devices.sync_of(roles))
    }

    /// Syncs of the data of files since the mount.
    pub(crate) fn data_syncs(&self) -> u64 {
        self.data_syncs.load(Ordering::Relaxed)
    }

    /// Operations up to this position are durable.
    pub(crate) fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    pub(crate) fn is_durable(&self, position: u64) -> bool {
        self.position() >= position
    }

    /// The journal became durable up to a position.
    pub(crate) fn reach(&self, position: u64) {
        self.position.fetch_max(position, Ordering::AcqRel);
    }
}
