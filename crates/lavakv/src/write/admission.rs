//! Admission of writes: the rate at which they may enter, and the room that they need.
//!
//! A write passes three checks. None of them sleeps: it returns the condition to wait for ([`need::Need`]).
//!
//! 1. **The rate** ([`payment`]), before any lock. It follows from memory, level 0, levels, garbage and space ([`price`]); the last verdict on it holds for
//!    a while ([`crate::context::verdict`]).
//! 2. **Space** ([`space`]), under the writer's lock: only where a limit is set or the volume is nearly full.
//! 3. **Room** ([`room`]), under the writer's lock: memory, level 0 below its stop, and the length of the log. Full memtables are rotated here.
//!
//! A call waits as long as its [`patience`] allows.

pub(crate) mod need;
pub(crate) mod patience;
pub(crate) mod payment;
pub(crate) mod price;
pub(crate) mod room;
pub(crate) mod space;

use super::memtables::Memtables;
use crate::context::Context;
use crate::context::drain::Drain;
use crate::context::verdict::Gate;
use crate::files::log::Log;
use crate::tree::Tree;
use std::sync::Arc;
use store::space::SpaceBudget;

/// See the module.
pub(crate) struct Admission {
    context: Arc<Context>,
    space: Arc<SpaceBudget>,
    tree: Arc<Tree>,
    log: Arc<Log>,
    drain: Arc<Drain>,
    memtables: Arc<Memtables>,
    /// The rate of writers as far as memory and space limit it. Each family has a gate for its own limits.
    gate: Arc<Gate>,
}

impl Admission {
    pub fn new(
        tree: &Arc<Tree>,
        log: &Arc<Log>,
        drain: &Arc<Drain>,
        memtables: &Arc<Memtables>,
    ) -> Admission {
        Admission {
            context: tree.context.clone(),
            space: tree.space.clone(),
            tree: tree.clone(),
            log: log.clone(),
            drain: drain.clone(),
            memtables: memtables.clone(),
            gate: Arc::default(),
        }
    }
}
