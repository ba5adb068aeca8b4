//! The canaries: what is broken, and what must catch it.

mod files;
mod keys;
mod logs;

use super::seeded::Canary;

/// All of them.
pub(crate) fn canaries() -> impl Iterator<Item = &'static Canary> {
    [files::CANARIES, keys::CANARIES, logs::CANARIES].into_iter().flatten()
}
