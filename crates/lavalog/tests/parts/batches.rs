//! Batches of operations.

use base::Result;
use io::Rng;
use lavalog::Lsn;
use lavalog::ops::{Batch, Op, OpRead, Ops};

fn joined(batch: &Batch<'_>) -> Vec<u8> {
    batch.pieces().concat()
}

fn read(bytes: &[u8]) -> Result<Vec<OpRead<'_>>> {
    Ops::of(bytes)?.collect()
}

/// Returns the bytes of an operation, which the batch contains unchanged.
fn bytes_of<'a>(op: &Op<'a>) -> &'a [u8] {
    match *op {
        Op::Create { name, .. } => name.as_bytes(),
        Op::Append { bytes, .. } | Op::SetMetadata { bytes, .. } => bytes,
        _ => b"",
    }
}

fn random_op<'a>(rng: &mut Rng, bytes: &'a [u8], lsn: &mut Lsn) -> Op<'a> {
    let log = rng.below(3) << rng.below(60);
    let bytes = &bytes[..rng.below(300) as usize];
    *lsn = if rng.one_in(3) { rng.next_u64() >> rng.range(1, 64) } else { *lsn + 1 };
    match rng.below(8) {
        0 => Op::Create { log, name: ["a", "é", "a/longer/name"][rng.below(3) as usize] },
        1 => Op::Delete { log },
        2 => Op::Trim { log, below: *lsn },
        3 => Op::TruncateAfter { log, lsn: *lsn },
        4 => Op::SetMetadata { log, bytes },
        _ => Op::Append { log, lsn: *lsn, bytes },
    }
}

#[test]
fn batches_round_trip_and_truncated_ones_are_refused() {
    let mut rng = Rng::new(3);
    let mut bytes = [0; 300];
    rng.fill(&mut bytes);
    for _ in 0..300 {
        let (mut batch, mut wanted, mut lsn) = (Batch::new(), Vec::new(), 0);
        for index in 0..rng.range(1, 30) as usize {
            let op = random_op(&mut rng, &bytes, &mut lsn);
            let offset = batch.push(op).unwrap();
            wanted.push(OpRead { index, op, offset });
        }
        let stored = joined(&batch);
        assert_eq!((stored.len(), wanted.len()), (batch.len(), batch.count()));
        let found = read(&stored).unwrap();
        assert_eq!(found, wanted);
        for OpRead { op, offset, .. } in found {
            let body = bytes_of(&op);
            assert_eq!(&stored[offset..offset + body.len()], body, "the offset leads to the bytes");
        }
        // A batch cut at the end of an operation is a shorter batch. Any other cut is damage.
        let ends: Vec<usize> = wanted.iter().map(|w| w.offset + bytes_of(&w.op).len()).collect();
        for cut in 0..stored.len() {
            match read(&stored[..cut]) {
                Ok(ops) => assert_eq!(ends[ops.len() - 1], cut),
                Err(e) => assert!(e.is_corruption() && !ends.contains(&cut), "{cut}: {e}"),
            }
        }
    }
}
