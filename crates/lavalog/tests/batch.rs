//! The batches of operations do not change by accident: one that was written once is still read, and still written, byte for byte.
//!
//! `LAVASTORE_BLESS=1 cargo test -p lavastore-lavalog --test batch` writes the file anew.

use lavastore_lavalog::ops::{Batch, Op, Ops};

#[path = "../../io/tests/golden_files/mod.rs"]
mod golden_files;

const GOLDEN: &[u8] = include_bytes!("golden/batch-v1.bin");

/// One of each kind, and of each that leaves something out.
const OPS: &[Op<'_>] = &[
    Op::Create { log: 7, name: "raft/1" },
    Op::Append { log: 7, lsn: 300, bytes: b"first" },
    Op::Append { log: 7, lsn: 301, bytes: b"second" },
    Op::Append { log: 7, lsn: 303, bytes: b"" },
    Op::SetMetadata { log: 7, bytes: b"vote 3" },
    Op::Trim { log: 5, below: 1 << 40 },
    Op::TruncateAfter { log: 200, lsn: 9 },
    Op::Append { log: 200, lsn: 10, bytes: b"again" },
    Op::Delete { log: 6 },
];

#[test]
fn a_batch_is_written_and_read_as_ever() {
    let mut batch = Batch::new();
    for op in OPS {
        batch.push(*op).unwrap();
    }
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &[("batch-v1.bin", batch.pieces().concat(), GOLDEN)]);
    let read: Vec<Op<'_>> = Ops::of(GOLDEN).unwrap().map(|read| read.unwrap().op).collect();
    assert_eq!(read, OPS);
}
