//! LavaFS: a userspace append-only file system on a raw block device or an image file.
//!
//! LavaFS implements [`io::FileSystem`], so that all code for kernel files runs on it. It supports
//! only the needs of the engine: append-only files, in-place files of fixed length, scratch memory
//! that outlives the process, hard links, locks and holes. Directories are prefixes of names.
//!
//! Its purpose: the device writes about one byte for each appended byte. A data sync of an append
//! is one durable write; the journal is written only when the file got new blocks. All metadata is
//! in memory, some tens of bytes per file.
//!
//! ```
//! use io::{CreateOptions, SyncKind, sim::SimEnv};
//! use lavastore_lavafs::{FormatOptions, MountOptions, format, mount};
//! let machine = SimEnv::new(1).env();
//! let device = SimEnv::new(1).device("/disk", 64 << 20)?;
//! format(&machine, &*device, &FormatOptions::default())?;
//!
//! let env = mount(&machine, device, MountOptions::default())?.into_env();
//! let mut file = env.fs.create("/planets".as_ref(), &CreateOptions::default())?;
//! file.append(b"earth")?;
//! file.sync(SyncKind::Data)?;
//! env.fs.sync_dir("/".as_ref())?;
//! assert_eq!(env.fs.read_all("/planets".as_ref(), 100)?, b"earth");
//! # Ok::<(), base::Error>(())
//! ```
//!
//! # Structure
//!
//! * [`superblock`]: two slots, which refer to a dump of the metadata ([`layout`] defines the
//!   places).
//! * [`transaction`], [`op`]: the contents of the journal. `replay` reads it, and `journal` writes
//!   it. `compaction` replaces it by a dump while it continues to grow.
//! * `meta` (`directories` and `nodes`: names and files, in maps of `chunks`), `alloc` (free
//!   blocks), `discard` (free blocks that await a discard). `core` combines both under one lock,
//!   with the pending journal operations and the blocks that wait to become free.
//! * `append`, `inplace`, `read`, [`LavaFs`]: the files. `volume`: their common state, with
//!   `durability` (the durable position, and the poison of a failed device) and `upkeep`
//!   (compaction and discards in the background). [`mod@mount`], [`mod@format`], [`mod@fsck`],
//!   `grow`.
//!
//! `docs/format/lavafs.md` has the byte layouts and the proof that a crash loses no acknowledged
//! change. The closest relative is BlueFS of Ceph. The system is described in *LavaStore* (PVLDB
//! 17(12), 2024).
//!
//! # State after a crash
//!
//! The journal is one sequence of transactions, so the names after a crash are those of one moment,
//! at or after the last sync that covered them. The death of the process alone acts like a power
//! loss on names and sizes that no sync covered (a kernel would have kept them). In-place and
//! scratch writes survive it. A failed device sync may lose any write that was not durable yet,
//! whichever file was synced, because all files share the cache of the device.

mod alloc;
mod append;
mod chunks;
mod compaction;
mod core;
mod device_pairing;
mod devices;
mod discard;
mod durability;
pub mod format;
mod fs;
pub mod fsck;
pub mod geometry;
mod grow;
mod inplace;
mod journal;
pub mod layout;
mod meta;
pub mod mount;
pub mod op;
mod pages;
mod path;
mod placement;
mod read;
mod replay;
mod salvage;
mod space;
mod stats;
pub mod superblock;
pub mod transaction;
mod upkeep;
mod volume;

pub use devices::Devices;
pub use format::{FormatOptions, format, format_on, occupant};
pub use fs::LavaFs;
pub use fsck::{dump_journal, dump_journal_on, fsck, fsck_on};
pub use geometry::Role;
pub use mount::{mount, mount_on};
pub use pages::{PAGE_CACHE_BYTES_MIN, PageCacheStatistics};
pub use stats::{DeviceStatistics, Statistics};
pub use volume::MountOptions;
