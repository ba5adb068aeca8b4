//! What files occupy, and how much they may.
//!
//! * `metered_fs`: counts every byte. `gauges`: what users of the space say of themselves.
//! * `sizes`: how long the pieces of a store are.
//! * `space_limit`: the budget, the reserve. `grant`: what a job may write.

pub(crate) mod gauges;
pub(crate) mod grant;
pub(crate) mod metered_fs;
pub(crate) mod sizes;
pub(crate) mod space_limit;
