//! An environment: all operations on the outside world.

use crate::descriptors::Descriptors;
use crate::{Clock, FileSystem};
use base::Result;
use std::fmt;
use std::sync::Arc;

/// Priority of a thread for the operating system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    /// Priority of the process.
    Foreground,
    /// Lower CPU and I/O priority.
    Background,
}

/// A running thread.
pub trait ThreadHandle: Send {
    /// Waits for its end. Returns true if it ended without a panic.
    fn join(self: Box<Self>) -> bool;
}

/// Starts threads.
pub trait Spawner: Send + Sync + fmt::Debug {
    /// Starts `body` in a thread of its own.
    fn spawn(
        &self,
        name: &str,
        priority: Priority,
        body: Box<dyn FnOnce() + Send>,
    ) -> Result<Box<dyn ThreadHandle>>;

    /// Returns true if the system refused a lower priority to a thread of [`Priority::Background`]:
    /// it then runs at the priority of the process.
    fn refused_priority(&self) -> bool {
        false
    }
}

/// Selects the machine below a store, for calls that end in `_in`: files, clock, randomness and
/// threads. Cheap to clone.
///
/// [`Env::kernel`] is the real machine, and the default of all other calls. A simulated one serves
/// crash tests; a volume of LavaFS and a store on two disks have environments of their own. A
/// program passes it on, and rarely needs its fields.
#[derive(Clone, Debug)]
pub struct Env {
    /// Files and directories; paths are those of the machine, or start at the root of a volume.
    pub fs: Arc<dyn FileSystem>,
    /// Time, for waits, deadlines and statistics.
    pub clock: Arc<dyn Clock>,
    /// Threads; `None` in simulation, where the caller's thread is the only one.
    pub spawner: Option<Arc<dyn Spawner>>,
    /// Random numbers for identities of files, and seeds.
    pub entropy: Arc<dyn Entropy>,
    /// Open stores that share the file descriptors of the process.
    pub descriptors: Arc<Descriptors>,
}

/// A source of seeds and uids.
pub trait Entropy: Send + Sync + fmt::Debug {
    /// Returns 64 bits: unpredictable on the kernel, a function of the seed in simulation.
    fn next_u64(&self) -> u64;
}

impl Env {
    /// Returns a new random generator with a seed of the environment: reproducible on a simulated
    /// machine. It is not for cryptography.
    pub fn rng(&self) -> crate::Rng {
        crate::Rng::new(self.entropy.next_u64())
    }

    /// Returns a new random identity, for a file of a store; two calls never agree in practice.
    pub fn new_uid(&self) -> base::Uid {
        base::Uid::from_words(self.entropy.next_u64(), self.entropy.next_u64())
    }

    /// Returns true if there are no other threads, as on a simulated machine. Background work then
    /// runs on the caller's thread, within its calls of the store.
    pub fn is_simulated(&self) -> bool {
        self.spawner.is_none()
    }
}
