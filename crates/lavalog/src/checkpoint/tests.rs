use super::*;
use crate::disk::memory::{PATH, Stored, Written};
use datadriven::TestCase;
use io::Rng;

fn uid() -> Uid {
    Uid::from_words(0x5555, 0x6666)
}

fn head() -> CheckpointHead {
    CheckpointHead { number: 11, replay_from: 500, next_seq: 900, next_log: 40 }
}

fn some_logs(rng: &mut Rng, count: u64) -> Vec<SavedLog> {
    let mut id = 0;
    let mut log = |_| {
        id += 1 + rng.below(3);
        let mut seq = rng.below(1 << 30);
        let mut next_seq = || {
            seq += 1 + rng.below(1000);
            seq
        };
        let created = next_seq();
        let metadata = rng_bytes(created).map(|bytes| (next_seq(), bytes));
        let truncations = (0..created % 3).map(|i| (next_seq(), created * i)).collect();
        let last = (created % 5 > 0).then_some(created.wrapping_mul(3));
        let name = format!("log/{id}/{}", "x".repeat((created % 30) as usize));
        SavedLog { id, created, name, trimmed_below: created % 1000, last, metadata, truncations }
    };
    (0..count).map(&mut log).collect()
}

/// Metadata of half the logs.
fn rng_bytes(seed: u64) -> Option<Vec<u8>> {
    seed.is_multiple_of(2).then(|| vec![seed as u8; (seed % 70) as usize])
}

fn write(logs: &[SavedLog]) -> Vec<u8> {
    let file = Written::default();
    let mut writer = CheckpointWriter::new(file.boxed(), Path::new(PATH), uid(), head());
    logs.iter().for_each(|log| writer.add(log).unwrap());
    let len = writer.finish().unwrap();
    let bytes = file.take();
    assert_eq!(len, bytes.len() as u64);
    bytes
}

fn read(bytes: Vec<u8>) -> Result<(CheckpointHead, Vec<SavedLog>)> {
    let checkpoint = Checkpoint::open(Stored::new(bytes), 11, uid())?;
    let mut logs = Vec::new();
    checkpoint.each(&mut |log| {
        logs.push(log);
        Ok(())
    })?;
    assert_eq!(checkpoint.logs(), logs.len() as u64);
    assert_eq!(checkpoint.verify()?, checkpoint.file_len());
    Ok((*checkpoint.head(), logs))
}

#[test]
fn everything_comes_back() {
    let mut rng = Rng::new(441);
    for count in [0, 1, 2, 100, 5000] {
        let logs = some_logs(&mut rng, count);
        let (found, read) = read(write(&logs)).unwrap();
        assert!(read == logs);
        assert_eq!((found.number, found.replay_from), (11, 500));
    }
}

#[test]
fn the_largest_log_comes_back_and_larger_ones_are_refused() {
    let largest = SavedLog {
        id: LogId::MAX - 1,
        created: 0,
        name: "n".repeat(NAME_LEN_MAX),
        trimmed_below: Lsn::MAX,
        last: Some(LSN_MAX),
        metadata: Some((MAX_SEQ - 1, vec![7; METADATA_LEN_MAX])),
        truncations: vec![(0, Lsn::MAX), (MAX_SEQ, 0)],
    };
    assert_eq!(read(write(std::slice::from_ref(&largest))).unwrap().1, std::slice::from_ref(&largest));
    let mut writer = CheckpointWriter::new(Written::default().boxed(), Path::new(PATH), uid(), head());
    let good = || largest.clone();
    for bad in [
        SavedLog { id: LogId::MAX, ..good() },
        SavedLog { name: String::new(), ..good() },
        SavedLog { name: "n".repeat(NAME_LEN_MAX + 1), ..good() },
        SavedLog { last: Some(Lsn::MAX), ..good() },
        SavedLog { metadata: Some((1, vec![7; METADATA_LEN_MAX + 1])), ..good() },
        SavedLog { metadata: Some((MAX_SEQ + 1, vec![])), ..good() },
        SavedLog { created: MAX_SEQ + 1, ..good() },
        SavedLog { truncations: vec![(5, 1), (5, 0)], ..good() },
    ] {
        assert_eq!(writer.add(&bad).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
    writer.add(&SavedLog { id: 5, ..good() }).unwrap();
    assert_eq!(writer.add(&SavedLog { id: 5, ..good() }).unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn every_flipped_bit_is_caught() {
    let logs = some_logs(&mut Rng::new(442), 12);
    let bytes = write(&logs);
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let e = read(damaged).expect_err("a flip that nothing noticed");
        let is_typed = matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported);
        assert!(is_typed && e.file() == Some(Path::new(PATH)) && e.offset().is_some(), "bit {bit}: {e}");
    }
    for len in 0..bytes.len() {
        assert!(read(bytes[..len].to_vec()).unwrap_err().is_corruption(), "cut to {len}");
    }
    let open = |number, uid| Checkpoint::open(Stored::new(bytes.clone()), number, uid).unwrap_err();
    assert!(open(12, uid()).is_corruption() && open(11, Uid::default()).is_corruption());
}

/// A log: `5 name created=9 last=7 metadata=11 truncated=7.1,9.2`, where each truncation has its sequence and its LSN.
fn log(line: &str) -> SavedLog {
    let mut words = line.split_whitespace();
    let (id, name) = (words.next().unwrap().parse().unwrap(), words.next().unwrap().to_owned());
    let mut log = SavedLog { id, name, ..SavedLog::default() };
    for (field, value) in words.map(|word| word.split_once('=').unwrap()) {
        match field {
            "created" => log.created = value.parse().unwrap(),
            "last" => log.last = Some(value.parse().unwrap()),
            "metadata" => log.metadata = Some((value.parse().unwrap(), Vec::new())),
            "truncated" => {
                let truncation = |text: &str| {
                    let (seq, lsn) = text.split_once('.').unwrap();
                    (seq.parse().unwrap(), lsn.parse().unwrap())
                };
                log.truncations = value.split(',').map(truncation).collect();
            }
            other => panic!("a log has no {other}"),
        }
    }
    log
}

fn shown(result: Result<String>) -> String {
    result.unwrap_or_else(|e| e.to_string()) + "\n"
}

fn run(case: &mut TestCase) -> std::result::Result<String, Box<dyn std::error::Error>> {
    let lines: Vec<String> = case.input.lines().map(str::to_owned).collect();
    let out = match &*case.directive {
        // A checkpoint of these logs, written and read.
        "checkpoint" => {
            let logs: Vec<SavedLog> = lines.iter().map(|line| log(line)).collect();
            shown(read(write(&logs)).map(|(head, read)| {
                assert_eq!(read, logs);
                format!("next sequence {}, next log {}", head.next_seq, head.next_log)
            }))
        }
        // A frame of these logs, as the directory describes it.
        "frame" => {
            let (mut frame, mut least) = (Vec::new(), 0);
            for log in lines.iter().map(|line| log(line)) {
                put_log(&mut frame, &log, least);
                least = log.id + 1;
            }
            // The flags of the first log.
            frame[1] |= case.try_take_arg("first-flags")?.unwrap_or(0);
            let (next_seq, next_log) = (case.take_arg("next-sequence")?, case.take_arg("next-log")?);
            let head = CheckpointHead { next_seq, next_log, ..head() };
            let (count, behind) = (case.take_arg("logs")?, case.try_take_arg("behind-log")?);
            shown(decode_frame(&frame, count, behind, &head).map(|logs| format!("{} logs", logs.len())))
        }
        // A directory with frames of these lines, logs and bytes, in a file of 100 bytes of frames and two logs.
        "directory" => {
            let numbers = lines.iter().flat_map(|line| line.split_whitespace()).map(|n| n.parse().unwrap());
            let mut bytes = Vec::new();
            let all = [11, 500, 900, 40, lines.len() as u64].into_iter().chain(numbers);
            all.for_each(|n: u64| put_varint(&mut bytes, n));
            shown(
                decode_directory(&bytes, 100, 2)
                    .map(|(head, frames)| format!("{} frames, {head:?}", frames.len())),
            )
        }
        // A log of the numbers of a line, behind the log with the id before `least`.
        "log" => {
            let mut bytes = Vec::new();
            lines[0].split_whitespace().for_each(|n| match n.parse() {
                Ok(n) => put_varint(&mut bytes, n),
                Err(_) => put_bytes(&mut bytes, n.as_bytes()),
            });
            let least = case.try_take_arg("least")?;
            shown(take_log(&mut Reader::new(&bytes), least).map(|log| format!("{log:?}")))
        }
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/checkpoint/scripts", |file| file.run(run));
}
