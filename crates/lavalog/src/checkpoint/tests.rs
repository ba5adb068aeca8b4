use super::*;
use crate::disk::memory::{PATH, Stored, Written};
use datadriven::TestCase;

fn uid() -> Uid {
    Uid::from_words(0x5555, 0x6666)
}

fn head() -> CheckpointHead {
    CheckpointHead { number: 11, replay_from: 500, next_seq: 900, next_log: 40 }
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

/// Parses a log: `5 name created=9 last=7 metadata=11 truncated=7.1,9.2`. Each truncation has its
/// sequence number and its LSN.
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
        // Writes a checkpoint of these logs and reads it back.
        "checkpoint" => {
            let logs: Vec<SavedLog> = lines.iter().map(|line| log(line)).collect();
            shown(read(write(&logs)).map(|(head, read)| {
                assert_eq!(read, logs);
                format!("next sequence {}, next log {}", head.next_seq, head.next_log)
            }))
        }
        // Encodes these logs as a frame and decodes it against the directory.
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
        // A directory with frames of these numbers (logs and bytes), in a file with 100 bytes of
        // frames and two logs.
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
        // A log encoded from the numbers of a line, after the log with the id before `least`.
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
