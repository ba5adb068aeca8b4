use super::*;
use datadriven::TestCase;
use std::error::Error as StdError;

fn joined(batch: &Batch<'_>) -> Vec<u8> {
    batch.pieces().concat()
}

fn read(bytes: &[u8]) -> Result<Vec<OpRead<'_>>> {
    Ops::of(bytes)?.collect()
}

type Outcome = std::result::Result<String, Box<dyn StdError>>;

/// Returns the bytes of a word: `x`, or `len=1024` of them.
fn bytes_of(word: &str) -> Vec<u8> {
    match word.strip_prefix("len=") {
        Some(len) => vec![b'a'; len.parse().unwrap()],
        None => word.as_bytes().to_vec(),
    }
}

/// Parses an operation like `append 1048576 1099511627776 x`, with the log first. `bytes` are those
/// of its last word.
fn op<'a>(line: &str, bytes: &'a [u8]) -> Op<'a> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (log, rest) = (words[1].parse().unwrap(), words.get(2).copied().unwrap_or_default());
    match words[0] {
        "create" => {
            Op::Create { log, name: if words.len() > 2 { std::str::from_utf8(bytes).unwrap() } else { "" } }
        }
        "delete" => Op::Delete { log },
        "append" => Op::Append { log, lsn: rest.parse().unwrap(), bytes },
        "trim-below" => Op::Trim { log, below: rest.parse().unwrap() },
        "truncate-after" => Op::TruncateAfter { log, lsn: rest.parse().unwrap() },
        "set-metadata" => Op::SetMetadata { log, bytes },
        other => panic!("no operation is called {other}"),
    }
}

/// Returns each line with the bytes of its last word.
fn bodies(input: &str) -> Vec<(&str, Vec<u8>)> {
    input
        .lines()
        .map(|line| (line, bytes_of(line.split_whitespace().next_back().unwrap_or_default())))
        .collect()
}

/// Pushes the operations of the lines, each `times` times. A refused one leaves the batch
/// unchanged. `behind` decodes the batch with an extra byte.
fn push(case: &mut TestCase) -> Outcome {
    let input = std::mem::take(&mut case.input);
    let (bodies, mut batch, mut out) = (bodies(&input), Batch::new(), String::new());
    let times: usize = case.try_take_arg("times")?.unwrap_or(1);
    for (line, bytes) in &bodies {
        for _ in 0..times {
            let before = (batch.count(), batch.len());
            if let Err(e) = batch.push(op(line, bytes)) {
                assert_eq!((batch.count(), batch.len()), before);
                out += &format!("{line}: {e}\n");
            }
        }
    }
    let mut stored = joined(&batch);
    assert_eq!(stored.len(), batch.len());
    if let Some(byte) = case.try_take_arg::<String>("behind")? {
        stored.push(u8::from_str_radix(&byte, 16)?);
    }
    let read = read(&stored).map(|ops| format!("{} operations in {} B", ops.len(), stored.len()));
    Ok(out + &read.unwrap_or_else(|e| e.to_string()) + "\n")
}

/// Makes a batch with the embedded pieces of another engine and the operations of the lines.
fn carry(case: &mut TestCase) -> Outcome {
    let seqs: Vec<u64> = case.take_args("sequences")?;
    let mut pieces: Vec<Vec<u8>> =
        case.take_args::<String>("pieces")?.into_iter().map(String::into_bytes).collect();
    pieces.extend(case.try_take_arg("and-bytes")?.map(|len| vec![0; len]));
    let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
    let mut batch = match Batch::carrying(&EmbeddedPrimaryBatch { seqs: (seqs[0], seqs[1]), pieces: &pieces })
    {
        Ok(batch) => batch,
        Err(e) => return Ok(format!("{e}\n")),
    };
    let mut out = format!("sequences taken by the batch alone: {}\n", batch.count());
    let alone = joined(&batch);
    assert!((1..alone.len()).all(|len| read(&alone[..len]).is_err()), "cut within the carried bytes");
    let bodies = bodies(&case.input);
    for (line, bytes) in &bodies {
        batch.push(op(line, bytes))?;
    }
    let both = joined(&batch);
    assert_eq!(both.len(), batch.len());
    let found = EmbeddedPrimaryBatch::read(&both)?.ok_or("nothing is carried")?;
    out +=
        &format!("carried up to sequence {}: {:?}\n", found.last_seq, String::from_utf8_lossy(found.bytes));
    for OpRead { index, op, offset } in read(&both)? {
        let body = op.bytes().unwrap_or_default();
        assert_eq!(&both[offset..offset + body.len()], body);
        out += &format!("operation {index}: {op:?}\n");
    }
    Ok(out)
}

fn run(case: &mut TestCase) -> Outcome {
    let out = match &*case.directive {
        // Prints the encoded batch of the operations of the lines.
        "encode" => {
            let (bodies, mut batch, mut out) = (bodies(&case.input), Batch::new(), String::new());
            for (line, bytes) in &bodies {
                let before = batch.len();
                batch.push(op(line, bytes))?;
                out += &format!("{line}: {} B\n", batch.len() - before);
            }
            let hex: Vec<String> = joined(&batch).iter().map(|byte| format!("{byte:02x}")).collect();
            out + &format!("{} in {} pieces\n", hex.join(" "), batch.pieces().len())
        }
        // Decodes the bytes of each line, in hex. `-` is no byte, `varint=7` a number, `len=7` this
        // many bytes.
        "decode" => {
            let bytes = |word: &str| match word.split_once('=') {
                Some(("varint", n)) => {
                    let mut out = Vec::new();
                    put_varint(&mut out, n.parse().unwrap());
                    out
                }
                Some(_) => bytes_of(word),
                None => vec![u8::from_str_radix(word, 16).unwrap()],
            };
            let decode = |line: &str| {
                let bytes: Vec<u8> =
                    line.split_whitespace().filter(|word| *word != "-").flat_map(bytes).collect();
                let ops = read(&bytes)
                    .map(|ops| format!("{:?}", ops.iter().map(|read| read.op).collect::<Vec<_>>()));
                format!("{line}: {}\n", ops.unwrap_or_else(|e| e.to_string()))
            };
            case.input.lines().map(decode).collect()
        }
        "push" => push(case)?,
        "carry" => carry(case)?,
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/ops/scripts", |file| file.run(run));
}
