//! Table formats of LavaStore.
//!
//! A **kSST** holds keys with small values, tombstones, merge operands, and references to values
//! that are in vSSTs. It has two streams of blocks, each sorted by internal key and with its own
//! index and filter (the DTable of Scavenger+): inline entries ([`block`]) and references
//! ([`reference_block`]). Garbage collection reads only the reference stream, whose blocks are
//! small and cached with priority; a scan merges both.
//!
//! A **vSST** ([`vsst`]) holds separated values and an index of about two bytes per key: in key
//! order, or, in a value log file, in the order in which they were logged. A **segment**
//! ([`segment`]) holds one large value.
//!
//! * Writing: [`KsstBuilder`], [`VsstBuilder`]. Reading: [`Ksst`] and [`KsstIter`], [`Vsst`] and
//!   [`VsstKeys`]; checking: [`Ksst::verify`], [`Vsst::verify`]; listing: [`dump`].
//! * Formats: [`frame`] (every block), [`index`], [`filter`], [`properties`], [`sections`] (meta
//!   index), [`footer`]; the byte maps are `docs/format/ksst.md` and `docs/format/vsst.md`.
//!
//! Every byte of a file is under a checksum, masked with the file's uid and the block's offset.
//! Decoders accept hostile bytes: they return `Corruption`, never panic, and allocate nothing from
//! an unchecked size.

pub mod block;
mod builder;
pub mod compress;
pub mod cursor;
pub mod dump;
mod fields;
mod file;
pub mod filter;
pub mod footer;
pub mod frame;
pub mod index;
mod iterator;
mod key_prefix;
mod next_run;
mod notes;
mod options;
pub mod packed;
pub mod prefix;
pub mod properties;
mod readahead;
mod reader;
pub mod reference;
pub mod reference_block;
pub mod runs;
pub mod salvage;
pub mod sections;
pub mod segment;
mod sink;
pub mod source;
mod stream;
mod stream_builder;
mod stream_iter;
mod tail;
pub mod tombstone_block;
mod verify;
pub mod vsst;
mod waits;

pub use base::Dependency;
pub use builder::{FinishedTable, KsstBuilder, UnsyncedTable};
pub use file::BlockKind;
pub use iterator::KsstIter;
pub use key_prefix::KeyPrefix;
pub use options::{IterOptions, ReadCounters, SeekTarget, StoreNotes, TableIdentity, TableOptions};
pub use properties::{Properties, Retained};
pub use readahead::ScanBounds;
pub use reader::{FoundEntry, Ksst};
pub use reference::Reference;
pub use segment::{
    FinishedSegment, SegmentCheck, SegmentIdentity, SegmentReader, SegmentReference, SegmentWriter,
};
pub use source::{BlockRequest, Extent, FetchCost, FetchedBlocks, Source, Stop, Stopped};
pub use stream::UncachedReferences;
pub use verify::{CheckStep, TableCheck};
pub use vsst::{
    FinishedVsst, KeyEntry, Record, RecordLens, Vsst, VsstBuilder, VsstCheck, VsstKeys, VsstOptions,
    VsstProperties, dump_vsst,
};
