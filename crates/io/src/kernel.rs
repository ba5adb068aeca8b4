//! The kernel environment: files, time, randomness and threads of the machine itself.
//!
//! Two engines do the file I/O:
//!
//! * **portable**: one blocking system call at a time. It is always available.
//! * **io_uring**: the same, except that [`crate::ReadFile::read_batch`] and [`crate::read_files`]
//!   keep many reads in flight. It is chosen after a test read through a real ring, because
//!   kernels, containers and system-call filters refuse it in different ways and at different
//!   moments. If the test fails, the portable engine is used.
//!
//! Single operations are plain system calls in both engines. In particular a durable write in place
//! is one `pwritev2(RWF_DSYNC)`. A ring hands the sync after such a write to a kernel thread, and
//! the caller waits for one more wake-up. With one 4 KiB direct write in flight (ext4 on a virtual
//! disk, engines alternating) `pwritev2` made 1.2 to 1.5 times as many writes per second. Spinning
//! on the ring instead of sleeping was slower still. More durable writes in flight need more
//! threads or longer writes. Where the file system refuses the flag, a write is followed by
//! `fdatasync`. For reads the ring pays: batches of 32 direct reads of 4 KiB were four times as
//! fast as single ones.
//!
//! The modules:
//!
//! - `calls`: the table of system calls, through which all others go
//! - `handle`: an open file with exact reads and writes, and direct access
//! - `append`, `read`, `inplace`, `scratch`: the four kinds of files; `block`: the unit of their
//!   direct writes
//! - `flights`: asynchronous transfers of one thread; `queue`: those that are reads of files
//! - [`device`]: raw devices and images; `flush`: their flush
//! - `fs`: names; `lock`: locks
//! - `uring`: rings; `pool`: aligned buffers
//! - `system`: clock, threads, entropy
//! - `process`: resources that a child of `fork` must not use
//! - `ffi`: system calls without a safe wrapper
//! - [`usage`]: counters of the process and of devices, for benchmarks; [`page_cache`]: eviction of
//!   a file

mod append;
mod block;
pub mod calls;
pub mod device;
mod ffi;
mod flights;
mod flush;
mod fs;
mod handle;
mod inplace;
mod lock;
pub mod page_cache;
mod pool;
mod process;
mod queue;
mod read;
mod scratch;
mod system;
mod uring;
pub mod usage;

#[cfg(test)]
mod tests;

pub(crate) use flights::{DEPTH as RING_DEPTH, RingEvent};
pub(crate) use queue::RingQueue;
pub(crate) use read::KernelReadFile;

use crate::Env;
use crate::descriptors::Descriptors;
use std::sync::Arc;

/// The descriptors of this process.
static DESCRIPTORS: process::PerProcess<Arc<Descriptors>> = process::PerProcess::new();

/// Engine of the file I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoEngine {
    /// io_uring where the kernel allows it, else portable.
    #[default]
    Auto,
    /// Blocking system calls only.
    Portable,
    /// io_uring; portable where the kernel refuses it (ask [`probe_io_uring`] to know).
    IoUring,
}

/// Options of the kernel environment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KernelOptions {
    /// Engine of the file I/O.
    pub engine: IoEngine,
}

impl Env {
    /// Returns the real machine with the best I/O interface that it offers, for calls that take an
    /// environment: file paths are those of the process. It needs no io_uring: without it the store
    /// uses ordinary system calls. For crash tests use a simulated machine (`SimEnv::env`). All
    /// results share the limit of open files of the process.
    ///
    /// ```
    /// let env = lavastore_io::Env::kernel();
    /// assert!(env.fs.exists(&std::env::temp_dir())?);
    /// # base::Result::<()>::Ok(())
    /// ```
    pub fn kernel() -> Env {
        Env::kernel_with(KernelOptions::default())
    }

    /// Returns the machine's own environment.
    pub fn kernel_with(options: KernelOptions) -> Env {
        process::watch();
        let rings = match options.engine {
            IoEngine::Portable => None,
            IoEngine::Auto | IoEngine::IoUring => uring::RingPool::probe().ok(),
        };
        Env {
            fs: Arc::new(fs::KernelFs::new(rings)),
            clock: Arc::new(system::KernelClock::new()),
            spawner: Some(Arc::<system::KernelSpawner>::default()),
            entropy: Arc::new(system::KernelEntropy),
            descriptors: DESCRIPTORS.get().clone(),
        }
    }
}

/// Checks whether the kernel lets this process use io_uring; the error gives the reason.
pub fn probe_io_uring() -> base::Result<()> {
    uring::RingPool::probe().map(|_| ()).map_err(|e| {
        base::Error::new(
            base::ErrorKind::Unsupported,
            "the system refuses io_uring: the portable engine is used",
        )
        .caused_by(e)
    })
}
