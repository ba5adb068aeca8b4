//! The promise of a write.

/// Chooses the failures that an acknowledged write survives, per store or per write.
///
/// Every write is visible to all readers on return, whatever its durability. After a loss of power
/// the log keeps a prefix of the buffered writes, and never a later write without the earlier ones.
/// A batch is there whole or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Durability {
    /// Survives a loss of power. Each write waits for the device; concurrent writers share one
    /// device write. For data that must not be lost once acknowledged, such as payments.
    Durable,
    /// Survives the death of the process, but not of the machine. The write waits for no device.
    /// With the defaults at most the last ten seconds of writes are at risk, until the next durable
    /// write or sync. For data that can be made again.
    Buffered,
    /// Survives neither until it is flushed or the store is closed: the write is in no log. For
    /// state that another log can rebuild. Logs refuse this durability.
    Volatile,
}

/// The consequences of each level. The engine uses these and compares no levels, so that a new
/// level is defined here.
impl Durability {
    /// Returns true if the write is in the log, and so survives the death of the process: false for
    /// `Volatile` only.
    ///
    /// ```
    /// use lavastore_wal::Durability;
    /// assert!(Durability::Buffered.is_logged() && !Durability::Volatile.is_logged());
    /// ```
    #[inline]
    pub fn is_logged(self) -> bool {
        matches!(self, Durability::Durable | Durability::Buffered)
    }

    /// Returns true if the write is acknowledged only when the device has it, and so blocks for the
    /// device: true for `Durable` only.
    ///
    /// ```
    /// use lavastore_wal::Durability;
    /// assert!(Durability::Durable.waits_for_device() && !Durability::Buffered.waits_for_device());
    /// ```
    #[inline]
    pub fn waits_for_device(self) -> bool {
        matches!(self, Durability::Durable)
    }

    /// Returns true if the write survives the process but not yet the machine when it is
    /// acknowledged: true for `Buffered` only.
    ///
    /// ```
    /// use lavastore_wal::Durability;
    /// assert!(Durability::Buffered.is_staged() && !Durability::Durable.is_staged());
    /// ```
    #[inline]
    pub fn is_staged(self) -> bool {
        self.is_logged() && !self.waits_for_device()
    }
}

#[cfg(test)]
mod tests {
    use super::Durability::{self, Buffered, Durable, Volatile};

    #[test]
    fn each_durability_level_has_its_properties() {
        let consequences = |level: Durability| match level {
            Durable => (true, true, false),
            Buffered => (true, false, true),
            Volatile => (false, false, false),
        };
        for level in [Durable, Buffered, Volatile] {
            let found = (level.is_logged(), level.waits_for_device(), level.is_staged());
            assert_eq!(found, consequences(level), "{level:?}");
        }
    }
}
