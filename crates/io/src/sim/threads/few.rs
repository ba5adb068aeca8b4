//! A machine that runs out of threads.

use crate::{Env, Priority, Spawner, ThreadHandle};
use base::sync::{Mutex, lock, rank};
use base::{Error, ErrorKind, Result};
use std::sync::Arc;

#[derive(Debug)]
struct Few {
    spawner: Arc<dyn Spawner>,
    /// How many more threads may be started. Locked only for the count.
    left: Mutex<u64, rank::Noted>,
}

impl Spawner for Few {
    fn spawn(
        &self,
        name: &str,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> Result<Box<dyn ThreadHandle>> {
        let mut left = lock(&self.left);
        *left = left.checked_sub(1).ok_or_else(|| Error::new(ErrorKind::Busy, "no more threads"))?;
        drop(left);
        self.spawner.spawn(name, priority, body)
    }
}

/// Returns an environment in which only `threads` threads can be started.
pub fn with_few(env: &Env, threads: u64) -> Env {
    let few = |spawner| Arc::new(Few { spawner, left: Mutex::new(threads) }) as Arc<dyn Spawner>;
    Env { spawner: env.spawner.clone().map(few), ..env.clone() }
}
