//! The write path: admit -> reserve -> log -> insert -> publish -> durable.
//!
//! * `write_path`: the steps of a write. `need`: what a write waits for, and how. `patience`: how long. `queue`: whose turn it is.
//! * `payment`, `throttle`: the price of a write, paid before it enters. `room`, `admission`: memory, level 0, log and space.
//! * `log`: into the log. `carry`: into a batch of a guest's. `insert`: into the memtables. `order`: what is on the way there. `freeze`: memtables that take no more.
//! * `large_value`: values that are in a file of their own before they are logged. `owned`: a write that no call waits for.

pub(crate) mod admission;
pub(crate) mod carry;
pub(crate) mod freeze;
pub(crate) mod insert;
pub(crate) mod large_value;
pub(crate) mod log;
pub(crate) mod need;
pub(crate) mod order;
pub(crate) mod owned;
pub(crate) mod patience;
pub(crate) mod payment;
pub(crate) mod queue;
pub(crate) mod room;
pub(crate) mod throttle;
pub(crate) mod write_path;
pub(crate) mod writer;

use crate::context::Context;
use crate::context::drain::Drain;
use crate::context::verdict::Gate;
use crate::files::Files;
use crate::files::log::Log;
use crate::large::Large;
use crate::tree::Tree;
use base::sync::{Mutex, MutexGuard, lock, rank, try_lock};
use base::{Error, Result};
use order::Order;
use std::sync::Arc;
use store::format::Feature;
use store::space::SpaceBudget;
use writer::Writer;

/// Everything that writes need.
pub(crate) struct WritePath {
    pub context: Arc<Context>,
    pub space: Arc<SpaceBudget>,
    pub files: Arc<Files>,
    pub tree: Arc<Tree>,
    pub log: Arc<Log>,
    pub large: Arc<Large>,
    pub drain: Arc<Drain>,
    /// The serialization point of all writes.
    writer: Mutex<Writer, rank::Writer>,
    /// What is on its way into the memtables: registered under the writer's lock, which may then be given up.
    order: Order,
    /// The rate of writers where they are slowed down for what all families share; paid before they take the writer's lock.
    gate: Arc<Gate>,
}

/// How often who waits for another write looks whether that is over, before it sleeps: to sleep takes longer. And how long it pauses between
/// two looks.
const LOOKS: usize = 64;
const PAUSES: usize = 4;

impl WritePath {
    pub fn new(tree: &Arc<Tree>, log: &Arc<Log>, large: &Arc<Large>, drain: &Arc<Drain>) -> WritePath {
        let memtables = tree.all_families().len() as u64;
        WritePath {
            context: tree.context.clone(),
            space: tree.space.clone(),
            files: tree.files.clone(),
            tree: tree.clone(),
            log: log.clone(),
            large: large.clone(),
            drain: drain.clone(),
            writer: Mutex::new(Writer::new(tree.snapshots.visible() + 1, memtables + 1)),
            order: Order::new(&tree.snapshots),
            gate: Arc::default(),
        }
    }

    /// Refuses an empty key where the format of the store has none: an earlier release could not open the store.
    pub fn check_empty_key(&self) -> Result<()> {
        let format = self.files.format();
        if format.allows(Feature::EmptyKeys) {
            return Ok(());
        }
        let needed = Feature::EmptyKeys.since();
        Err(Error::invalid(format!(
            "empty key: the store has format {format}, and empty keys need format {needed}: raise it with 'lava upgrade' or \
             Db::upgrade"
        )))
    }

    /// The writer's lock, for whoever does not write.
    pub fn lock(&self) -> MutexGuard<'_, Writer> {
        lock(&self.writer)
    }

    /// The same, if nobody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, Writer>> {
        try_lock(&self.writer)
    }

    /// The writer's lock, for a write.
    fn enter(&self) -> MutexGuard<'_, Writer> {
        for _ in 0..self.looks() {
            if let Some(writer) = self.try_lock() {
                return writer;
            }
            (0..PAUSES).for_each(|_| std::hint::spin_loop());
        }
        self.lock()
    }

    /// How often who waits for a few microseconds looks before it sleeps.
    fn looks(&self) -> usize {
        if self.context.env.is_simulated() { 1 } else { LOOKS }
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
