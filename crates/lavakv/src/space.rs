//! What files occupy, and how much they may.
//!
//! * `metered_fs`: counts every byte.
//! * `space_limit`: the budget, the reserve, admission.

pub(crate) mod metered_fs;
pub(crate) mod space_limit;
