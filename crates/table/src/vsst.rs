//! vSST (the RTable of Scavenger+): separated values, in key order, with an index that costs about
//! 2.3 bytes a key.
//!
//! ```text
//! records | dense partitions: keys and lengths | index frames | directory | properties | meta index | footer
//! ```
//!
//! * A [`record`] holds one value, compressed alone, with its whole key. One request of exactly the
//!   length in the reference reads it. Its checksum is its last word, masked with uid and offset,
//!   so garbage collection verifies a record once and copies it verbatim.
//! * The *dense partitions* repeat keys and lengths without the values. Point reads never load
//!   them. Garbage collection reads them in sequence to learn which records it must look up,
//!   without reading the values (lazy read).
//! * The *index* finds a record by comparing a few bits: crit-bit blocks of up to 128 keys with
//!   Elias-Fano offsets, in frames of about 4 KB that are cached with priority. A crit-bit search
//!   is blind: it finds the only record that may have the key, and the record proves whether it
//!   does. The reference proved that the key exists, so a mismatch means damage.
//!
//! Keys are pairs of user key and sequence, unique in a file; the kind is in the kSST. Byte map:
//! `docs/format/vsst.md`.

mod builder;
mod dense;
mod dense_index;
mod dump;
mod index;
mod keys;
mod properties;
mod reader;
pub mod record;
pub mod salvage;
mod verify;

pub use builder::{FinishedVsst, RecordLens, VsstBuilder, VsstOptions};
pub use dump::dump_vsst;
pub use keys::{KeyEntry, VsstKeys};
pub use properties::VsstProperties;
pub use reader::Vsst;
pub use record::Record;
pub use verify::VsstCheck;
