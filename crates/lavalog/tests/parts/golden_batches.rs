//! The format of batches must not change by accident: golden batches must remain readable, and
//! writing must produce the same bytes.
//!
//! `LAVASTORE_BLESS=1 cargo test -p lavastore-lavalog --test parts golden_batches` rewrites the
//! files.

use lavastore_lavalog::ops::{Batch, Op, Ops};
use store::secondary_engine::{DecodedEmbeddedBatch, EmbeddedPrimaryBatch};

#[path = "../../../io/tests/golden_files/mod.rs"]
mod golden_files;

const GOLDEN: &[u8] = include_bytes!("../golden/batch-v1.bin");
/// A batch with an embedded batch of another engine, with and without operations of its own.
const JOINT: &[u8] = include_bytes!("../golden/batch-v2.bin");
const CARRIER: &[u8] = include_bytes!("../golden/batch-v2-carrier.bin");

/// An operation of each kind, and of each with omitted fields.
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
fn batch_encoding_is_unchanged() {
    let mut batch = Batch::new();
    for op in OPS {
        batch.push(*op).unwrap();
    }
    golden_files::check(env!("CARGO_MANIFEST_DIR"), &[("batch-v1.bin", batch.pieces().concat(), GOLDEN)]);
    let read: Vec<Op<'_>> = Ops::of(GOLDEN).unwrap().map(|read| read.unwrap().op).collect();
    assert_eq!(read, OPS);
}

#[test]
fn embedded_batch_encoding_is_unchanged() {
    let embedded = EmbeddedPrimaryBatch { seqs: (299, 300), pieces: &[b"header|", b"changes"] };
    let mut joint = Batch::carrying(&embedded).unwrap();
    let own = &OPS[1..5];
    for op in own {
        joint.push(*op).unwrap();
    }
    let carrier = Batch::carrying(&embedded).unwrap();
    assert_eq!((joint.count(), carrier.count()), (5, 1), "what is carried is an operation, the first");
    golden_files::check(
        env!("CARGO_MANIFEST_DIR"),
        &[
            ("batch-v2.bin", joint.pieces().concat(), JOINT),
            ("batch-v2-carrier.bin", carrier.pieces().concat(), CARRIER),
        ],
    );
    for (bytes, wanted) in [(JOINT, own), (CARRIER, &[])] {
        let read: Vec<_> = Ops::of(bytes).unwrap().map(|read| read.unwrap()).collect();
        assert!(read.iter().map(|read| read.op).eq(wanted.iter().copied()));
        assert!(read.iter().map(|read| read.index).eq(1..=wanted.len()), "operation 0 is what is carried");
        let DecodedEmbeddedBatch { last_seq, bytes: host, .. } =
            EmbeddedPrimaryBatch::read(bytes).unwrap().unwrap();
        assert_eq!((last_seq, host), (300, &b"header|changes"[..]));
    }
    assert_eq!(EmbeddedPrimaryBatch::read(GOLDEN).unwrap(), None);
}
