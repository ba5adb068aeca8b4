use super::*;
use datadriven::TestCase;

fn joined(batch: &Batch<'_>) -> Vec<u8> {
    batch.pieces().concat()
}

fn read(bytes: &[u8]) -> Result<Vec<OpRead<'_>>> {
    Ops::of(bytes)?.collect()
}

fn random_op<'a>(rng: &mut io::Rng, bytes: &'a [u8], lsn: &mut Lsn) -> Op<'a> {
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
fn batches_are_read_as_they_were_written_and_cut_ones_are_refused() {
    let mut rng = io::Rng::new(3);
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
            let body = op.bytes().unwrap_or_default();
            assert_eq!(&stored[offset..offset + body.len()], body, "the offset leads to the bytes");
        }
        // Cut at the end of an operation it is a shorter batch, anywhere else it is damaged.
        let ends: Vec<usize> =
            wanted.iter().map(|w| w.offset + w.op.bytes().map_or(0, <[u8]>::len)).collect();
        for cut in 0..stored.len() {
            match read(&stored[..cut]) {
                Ok(ops) => assert_eq!(ends[ops.len() - 1], cut),
                Err(e) => assert!(e.is_corruption() && !ends.contains(&cut), "{cut}: {e}"),
            }
        }
    }
}

#[test]
fn the_limits_are_kept_by_both_sides() {
    let long = vec![b'a'; limits::RECORD_LEN_MAX + 1];
    let name = |len: usize| std::str::from_utf8(&long[..len]).unwrap();
    let mut batch = Batch::new();
    batch.push(Op::Create { log: 1, name: name(limits::NAME_LEN_MAX) }).unwrap();
    batch.push(Op::SetMetadata { log: 1, bytes: &long[..limits::METADATA_LEN_MAX] }).unwrap();
    batch.push(Op::Append { log: 1, lsn: limits::LSN_MAX, bytes: &long[..limits::RECORD_LEN_MAX] }).unwrap();
    let whole = joined(&batch);
    assert_eq!(read(&whole).unwrap().len(), 3);
    for (op, kind) in [
        (Op::Create { log: 1, name: name(limits::NAME_LEN_MAX + 1) }, ErrorKind::TooLarge),
        (Op::SetMetadata { log: 1, bytes: &long[..limits::METADATA_LEN_MAX + 1] }, ErrorKind::TooLarge),
        (Op::Append { log: 1, lsn: 0, bytes: &long }, ErrorKind::TooLarge),
        (Op::Create { log: 1, name: "" }, ErrorKind::InvalidArgument),
        (Op::Append { log: 1, lsn: u64::MAX, bytes: b"" }, ErrorKind::InvalidArgument),
        // Each is within its own limit, the batch is not.
        (Op::Append { log: 1, lsn: 0, bytes: &long[..limits::RECORD_LEN_MAX] }, ErrorKind::TooLarge),
    ] {
        assert_eq!(batch.push(op).unwrap_err().kind(), kind);
        assert!(joined(&batch) == whole, "the batch is as it was");
    }
    // The same from a hostile writer.
    let mut hostile = vec![1, 3, 5];
    put_varint(&mut hostile, u64::MAX);
    hostile.push(0);
    assert!(read(&hostile).unwrap_err().is_corruption());
    let mut hostile = vec![1, 6, 5];
    put_varint(&mut hostile, limits::METADATA_LEN_MAX as u64 + 1);
    hostile.extend_from_slice(&long[..limits::METADATA_LEN_MAX + 1]);
    assert!(read(&hostile).unwrap_err().is_corruption());
    assert!(Ops::of(&vec![1; limits::BATCH_LEN_MAX + 1]).unwrap_err().is_corruption());
}

#[test]
fn operations_are_limited_in_number() {
    let mut batch = Batch::new();
    for _ in 0..limits::OPS_MAX {
        batch.push(Op::Delete { log: 1 }).unwrap();
    }
    assert_eq!(batch.push(Op::Delete { log: 1 }).unwrap_err().kind(), ErrorKind::TooLarge);
    let mut bytes = joined(&batch);
    assert_eq!(read(&bytes).unwrap().len(), limits::OPS_MAX);
    bytes.push(SAME_LOG | kind::DELETE);
    assert!(read(&bytes).unwrap_err().is_corruption());
}

#[test]
fn a_batch_that_carries_another_engines_is_read_as_two() {
    let carried = Carried { seqs: (7, 9), pieces: &[b"head", b"and body"] };
    let mut batch = Batch::carrying(&carried).unwrap();
    assert_eq!(batch.count(), 1, "what is carried takes a sequence");
    let alone = joined(&batch);
    assert_eq!(read(&alone).unwrap(), []);
    let offset = batch.push(Op::Append { log: 3, lsn: 4, bytes: b"record" }).unwrap();
    let both = joined(&batch);
    assert_eq!(both.len(), batch.len());
    let found = Carried::read(&both).unwrap().unwrap();
    assert_eq!((found.last_seq, found.bytes), (9, &b"headand body"[..]));
    let ops = read(&both).unwrap();
    assert_eq!((ops.len(), ops[0].index, ops[0].offset), (1, 1, offset));
    assert_eq!(&both[offset..offset + 6], b"record");
    // Cut within what is carried, it is damaged.
    assert!((1..alone.len()).all(|len| read(&alone[..len]).is_err()));
    let bytes = vec![0; limits::BATCH_LEN_MAX];
    let too_long = Carried { seqs: (1, 1), pieces: &[b"", &bytes] };
    let error = Batch::carrying(&too_long).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert!(error.message().contains("of another engine: make several"), "{error}");
}

/// An operation of a line: `append 1048576 1099511627776 x`, the log first.
fn op(line: &str) -> Op<'_> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (log, rest) = (words[1].parse().unwrap(), words.get(2).copied().unwrap_or_default());
    match words[0] {
        "create" => Op::Create { log, name: rest },
        "delete" => Op::Delete { log },
        "append" => Op::Append { log, lsn: rest.parse().unwrap(), bytes: words[3].as_bytes() },
        "trim-below" => Op::Trim { log, below: rest.parse().unwrap() },
        "truncate-after" => Op::TruncateAfter { log, lsn: rest.parse().unwrap() },
        "set-metadata" => Op::SetMetadata { log, bytes: rest.as_bytes() },
        other => panic!("no operation is called {other}"),
    }
}

fn run(case: &mut TestCase) -> std::result::Result<String, String> {
    match &*case.directive {
        // The bytes of a batch with the operations of the lines.
        "encode" => {
            let (mut batch, mut out) = (Batch::new(), String::new());
            for line in case.input.lines() {
                let before = batch.len();
                batch.push(op(line)).map_err(|e| e.to_string())?;
                out += &format!("{line}: {} B\n", batch.len() - before);
            }
            let hex: Vec<String> = joined(&batch).iter().map(|byte| format!("{byte:02x}")).collect();
            Ok(out + &format!("{} in {} pieces\n", hex.join(" "), batch.pieces().len()))
        }
        // The operations in the bytes of each line, in hex; `-` is no byte.
        "decode" => {
            let decode = |line: &str| {
                let bytes: Vec<u8> = line
                    .split_whitespace()
                    .filter(|hex| *hex != "-")
                    .map(|hex| u8::from_str_radix(hex, 16).unwrap())
                    .collect();
                let ops = read(&bytes)
                    .map(|ops| format!("{:?}", ops.iter().map(|read| read.op).collect::<Vec<_>>()));
                format!("{line}: {}\n", ops.unwrap_or_else(|e| e.to_string()))
            };
            Ok(case.input.lines().map(decode).collect())
        }
        other => Err(format!("no command is called {other}")),
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/ops/scripts", |file| file.run(run));
}
