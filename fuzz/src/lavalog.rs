//! The log engine: its operations.

use lavalog::ops::{Batch, OpRead, Ops};

const GOLDEN_BATCH: &[u8] = include_bytes!("../../crates/lavalog/tests/golden/batch-v1.bin");
const GOLDEN_JOINT: &[u8] = include_bytes!("../../crates/lavalog/tests/golden/batch-v2.bin");

/// A batch of operations. What can be read can be written, and is read as the same again.
pub fn log_batch(data: &[u8]) {
    let Ok(ops) = Ops::of(data).and_then(|ops| ops.collect::<base::Result<Vec<OpRead<'_>>>>()) else {
        return;
    };
    if ops.is_empty() {
        // What is carried for another engine may come without any operation of this one.
        return;
    }
    let mut batch = Batch::new();
    let Ok(offsets) = ops.iter().map(|read| batch.push(read.op)).collect::<base::Result<Vec<_>>>() else {
        // What was read may be spelled longer than it is written, but never shorter.
        panic!("operations within the limits of a batch are refused");
    };
    let written = batch.pieces().concat();
    let again: Vec<_> = Ops::of(&written).expect("a batch").map(|op| op.expect("an operation")).collect();
    assert!(again.iter().map(|read| read.op).eq(ops.iter().map(|read| read.op)));
    assert!(again.iter().map(|read| read.offset).eq(offsets));
}

/// The golden batches, and one that carries a byte of another engine's and has nothing of its own.
pub fn log_batch_seeds() -> Vec<Vec<u8>> {
    vec![GOLDEN_BATCH.to_vec(), GOLDEN_JOINT.to_vec(), vec![2, 6, 1, 1]]
}
