//! How much room a store has: the volume and the limit, which both change while the store is open.

use super::Driver;
use crate::check::{Check, Doing, ensure};
use crate::machine::room;
use crate::plan;
use io::Rng;
use lavastore::SpaceLimit;
use std::time::Duration;

impl Driver {
    /// Bounds the volume, or no longer.
    pub fn set_capacity(&mut self, bytes: Option<u64>) -> Check {
        self.capacity = bytes;
        self.squeezed |= bytes.is_some();
        self.was_full |= bytes.is_some();
        room::set_capacity(&self.sim, bytes)
    }

    /// Calls may find no room from now on, without a bound on the volume, until [`Driver::has_room_again`].
    pub fn expects_refusals(&mut self) {
        (self.squeezed, self.was_full) = (true, true);
    }

    pub fn capacity(&self) -> Option<u64> {
        self.capacity
    }

    /// Gives the store time to notice that the volume has room: from then on nothing may fail.
    pub fn has_room_again(&mut self) -> Check {
        self.set_capacity(None)?;
        self.sim.advance_ns(2_000_000_000);
        ensure!(
            self.db().wait_idle(Duration::from_secs(60)),
            "it does not come to rest: {}",
            self.db().describe()
        );
        self.squeezed = false;
        Ok(())
    }

    /// Raises or lowers the limit of a store that has a tight one, also below its present use. From then on the files keep to the new
    /// limit, or to what the store and its reserve occupy now.
    pub(super) fn change_limit(&mut self, aside: &mut Rng) -> Check {
        if self.knobs.faults || self.squeezed || !plan::is_tight(&self.options) {
            return Ok(());
        }
        // Sizes follow the limit at the next open only. A limit that the reserve of the present sizes takes whole would admit deletes alone
        // until then.
        let least = 2 * plan::least_limit(&self.options);
        let used = self.db().space().doing(|| "space".into())?.total_bytes;
        let limit = match aside.below(5) {
            0 => SpaceLimit::Bytes(least),
            1 => SpaceLimit::Bytes(least.max(used / 2)),
            2 => SpaceLimit::Bytes(least.max(used)),
            3 => SpaceLimit::Bytes(least + used + (1 << 20)),
            _ => SpaceLimit::Ratio(1.05 + aside.unit()),
        };
        self.db().set_space_limit(Some(limit)).doing(|| format!("set the limit to {limit:?}"))?;
        self.options.space_limit = Some(limit);
        self.limit_changes += 1;
        room::watch(&self.sim);
        self.peak_max = self.peak_max(0)?;
        Ok(())
    }
}
