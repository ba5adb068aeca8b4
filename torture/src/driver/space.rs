//! The available space: the volume and the limit both change while the store is open.

use super::Driver;
use crate::check::{Check, Doing, ensure};
use crate::machine::room;
use crate::plan;
use io::Rng;
use lavastore::SpaceLimit;
use std::time::Duration;

impl Driver {
    /// Bounds the volume, or removes the bound.
    pub fn set_capacity(&mut self, bytes: Option<u64>) -> Check {
        self.capacity = bytes;
        self.squeezed |= bytes.is_some();
        self.was_full |= bytes.is_some();
        room::set_capacity(&self.sim, bytes)
    }

    /// Allows refusals for lack of space, without a bound on the volume, until
    /// [`Driver::has_room_again`].
    pub fn expects_refusals(&mut self) {
        (self.squeezed, self.was_full) = (true, true);
    }

    pub fn capacity(&self) -> Option<u64> {
        self.capacity
    }

    /// Gives the store time to notice the free space: from then on no call may fail.
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

    /// Changes a tight limit, also below the present use. From then on the files stay below the new
    /// limit, or below the present use plus the reserve.
    pub(super) fn change_limit(&mut self, aside: &mut Rng) -> Check {
        if self.knobs.faults || self.squeezed || !plan::is_tight(&self.options) {
            return Ok(());
        }
        // Sizes follow the limit only at the next open. If the reserve for the present sizes
        // exceeded the limit, the store would admit only deletes until then.
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
