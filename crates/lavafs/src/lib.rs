//! LavaFS: a userspace append-only file system on a raw block device or an image file.
//!
//! It implements [`io::FileSystem`], so that everything that runs on the kernel's files runs on it. It knows what the
//! engine needs and no more: files written once from front to back, files of fixed length written in place, memory that
//! outlives the process, counted links, locks, holes; directories are prefixes of names.
//!
//! What it is for: the device writes about one byte for a byte appended. A data sync of an append is one durable write;
//! the journal is written only when the file got new blocks. All metadata is in memory, some tens of bytes a file.
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
//! # How it works
//!
//! * [`superblock`]: two slots, which lead to a dump of the metadata ([`layout`] says where things are).
//! * [`transaction`], [`op`]: what the journal is written in. `replay` reads it, `journal` writes it, `compaction`
//!   replaces it by a dump while it grows on.
//! * `meta` (`directories` and `nodes`: names and files, in maps of `chunks`), `alloc` (free blocks), `discard` (those that the device is told of), `core` (both under one lock, with the operations that wait for the
//!   journal, and the blocks that wait to be free again).
//! * `append`, `inplace`, `read`, [`LavaFs`]: the files. `volume`: their common state, with `durability` (the durable position, and the
//!   poison of a failed device) and `upkeep` (compaction and discards in the background). [`mod@mount`], [`mod@format`],
//!   [`mod@fsck`], `grow`.
//!
//! `docs/format/lavafs.md` has the byte maps and the argument why a crash loses nothing that was promised. The nearest
//! relative is BlueFS of Ceph; the system is described in *LavaStore* (PVLDB 17(12), 2024).
//!
//! # What a crash leaves
//!
//! The journal is one line of transactions, so the names after a crash are those of one moment, at or after the last
//! sync that covered them. Death of the process alone is like a loss of power to names and sizes that no sync had covered
//! (a kernel would have kept them); writes in place and to scratch files survive it. A sync of the device that fails may take
//! any of them with it that was not durable yet, whichever file the sync was for: they share the device's cache.

mod alloc;
mod append;
mod bond;
mod chunks;
mod compaction;
mod core;
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
