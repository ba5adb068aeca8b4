//! The only crate of LavaStore that calls the operating system.
//!
//! The crates above use an [`Env`]: a file system, a clock, randomness, and a way to start threads.
//! There are two:
//!
//! * [`Env::kernel`]: the machine itself (portable system calls, or io_uring where the kernel
//!   allows it).
//! * [`sim`]: simulated, seeded and single-threaded; it records every operation and can produce any
//!   legal crash state and any fault.
//!
//! [`timing`]: operation latencies, measured with that clock.
//!
//! An engine on an `Env` whose [`Env::spawner`] is `None` must not wait for another thread. It must
//! do the work that it would wait for (its scheduler runs a job instead of sleeping).

pub mod batch;
pub mod buf;
pub mod cancel;
pub mod clock;
pub mod descriptors;
pub mod device;
pub mod env;
pub mod fs;
pub mod kernel;
mod read_only;
mod read_queue;
mod readable;
mod rng;
pub mod sim;
pub mod timing;

pub use batch::read_files;
pub use buf::{AlignedBuf, PAGE};
pub use cancel::Cancel;
pub use clock::Clock;
pub use device::{
    BLOCK, BlockDevice, Completions, DeviceDone, DeviceQueue, DeviceRequest, DeviceWrite, Transfer,
};
pub use env::{Env, Priority, Spawner, ThreadHandle};
pub use fs::{
    Access, AppendFile, BLOCK_LEN_MIN, CreateOptions, DirEntry, FileLock, FileRead, FileSystem, FsSpace,
    InPlaceFile, Metadata, PacedFile, PartialWrite, Placement, ReadBegun, ReadConcurrencyLimiter, ReadCosts,
    ReadFile, ReadRequest, ScratchFile, SyncKind, Tiers, UnlimitedReadKind,
};
pub use read_only::open_in_place_read_only;
pub use read_queue::{Completed, ReadQueue, ReadQueues, ReadWaker, Wanted};
pub use readable::{is_unreadable, read_around};
pub use rng::Rng;
