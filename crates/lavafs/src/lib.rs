//! LavaFS: a userspace append-only file system.

mod alloc;
mod append;
mod compaction;
mod core;
pub mod format;
mod fs;
pub mod fsck;
mod inplace;
mod journal;
pub mod layout;
mod meta;
mod mount;
pub mod op;
mod path;
mod read;
mod replay;
mod stats;
pub mod superblock;
pub mod transaction;
mod volume;

pub use format::{FormatOptions, format, occupant};
pub use fs::LavaFs;
pub use fsck::{dump_journal, fsck};
pub use mount::mount;
pub use stats::Statistics;
pub use volume::MountOptions;
