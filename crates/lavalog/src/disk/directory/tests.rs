use super::*;
use datadriven::TestCase;
use io::Rng;
use std::error::Error as StdError;

/// Makes a directory of records with occasional gaps in their LSNs, and blocks of made-up lengths
/// from offset 100 on. Returns it with the end of the blocks.
fn some_directory(rng: &mut Rng, logs: u64, records: u64) -> (Directory, u64) {
    let (mut directory, mut log, mut end) = (Directory::default(), 0, 100);
    for _ in 0..logs {
        log += 1 + rng.below(3);
        let (mut lsn, mut lsns, mut blocks) = (rng.below(50), Builder::default(), Vec::new());
        for i in 0..1 + rng.below(records) {
            if i % 256 == 0 {
                let len = 9 + rng.below(1000) as u32;
                blocks.push(Block { first: lsn, offset: end, len });
                end += u64::from(len);
            }
            lsns.push(lsn, rng.below(2000) as u32).unwrap();
            lsn += if rng.one_in(20) { 2 + rng.below(1 << 40) } else { 1 };
        }
        let low = rng.below(1 << 30);
        directory.logs.push(LogRows { log, seqs: (low, low + rng.below(99)), lsns: lsns.build(), blocks });
    }
    (directory, end)
}

type Outcome = std::result::Result<String, Box<dyn StdError>>;

/// The directory of a script, encoded, with the end of its blocks.
#[derive(Default)]
struct Script {
    directory: Directory,
    bytes: Vec<u8>,
    blocks_end: u64,
}

/// Decodes a directory without a head and with blocks from offset 0 on. Each line has the numbers
/// of a log.
fn decode(case: &mut TestCase) -> Outcome {
    let logs: Vec<&str> = case.input.lines().collect();
    let mut out = vec![0, logs.len() as u8, 0];
    logs.iter().flat_map(|log| log.split_whitespace()).for_each(|n| put_varint(&mut out, n.parse().unwrap()));
    let decoded = Directory::decode(&out, case.take_arg("blocks-end")?).map(|(_, directory)| {
        let log = |log: &LogRows| {
            let runs: Vec<String> = log.lsns.runs().map(|run| format!("{run:?}")).collect();
            format!("log {}, sequences {:?}: {}\n", log.log, log.seqs, runs.join(", "))
        };
        directory.logs.iter().map(log).collect::<String>()
    });
    Ok(decoded.unwrap_or_else(|e| format!("{e}\n")))
}

/// Makes the logs of the lines (an id and LSNs) with records of maximum length, all sequence
/// numbers, and one block of 30 bytes each.
fn largest(input: &str) -> Directory {
    let log = |(line, offset): (&str, u64)| {
        let mut numbers = line.split_whitespace().map(|n| n.parse().unwrap());
        let (log, mut builder) = (numbers.next().unwrap(), Builder::default());
        numbers.for_each(|lsn| builder.push(lsn, crate::limits::RECORD_LEN_MAX as u32).unwrap());
        let lsns = builder.build();
        let blocks = vec![Block { first: lsns.first().unwrap(), offset, len: 30 }];
        LogRows { log, seqs: (0, MAX_SEQ), lsns, blocks }
    };
    Directory { logs: input.lines().zip((0..).step_by(30)).map(log).collect() }
}

impl Script {
    fn run(&mut self, case: &mut TestCase) -> Outcome {
        let out = match &*case.directive {
            "decode" => decode(case)?,
            "largest" => {
                let directory = largest(&case.input);
                let blocks_end = 30 * directory.logs.len() as u64;
                self.encode(directory, 0, blocks_end)
            }
            // For each number of logs in a list.
            "random" => {
                let (mut rng, records) = (Rng::new(case.take_arg("seed")?), case.take_arg("records")?);
                let logs: Vec<u64> = case.take_args("logs")?;
                let mut out = String::new();
                for logs in logs[0]..=*logs.last().unwrap_or(&0) {
                    let (directory, blocks_end) = some_directory(&mut rng, logs, records);
                    out += &self.encode(directory, 100, blocks_end);
                    out += &self.read(&self.bytes, self.blocks_end);
                }
                out
            }
            "read" => {
                let longer = if case.take_flag("with-another-byte")? { &[0][..] } else { &[] };
                let blocks_end = self.blocks_end + case.try_take_arg::<u64>("later-end")?.unwrap_or(0)
                    - case.try_take_arg::<u64>("earlier-end")?.unwrap_or(0);
                self.read(&[&self.bytes, longer].concat(), blocks_end)
            }
            "read-cut" => {
                for len in 0..self.bytes.len() {
                    let e = Directory::decode(&self.bytes[..len], self.blocks_end).unwrap_err();
                    assert!(e.is_corruption(), "cut to {len}: {e}");
                }
                format!("corruption at each of {} lengths\n", self.bytes.len())
            }
            "blocks" => self.directory.logs.iter().map(blocks).collect(),
            other => return Err(format!("no command is called {other}").into()),
        };
        case.expect_empty()?;
        Ok(out)
    }

    fn encode(&mut self, directory: Directory, blocks_begin: u64, blocks_end: u64) -> String {
        self.bytes = directory.encode(b"head", blocks_begin);
        (self.directory, self.blocks_end) = (directory, blocks_end);
        let (logs, Size { records, .. }) = (self.directory.logs.len(), self.directory.size());
        format!("{logs} logs, {records} records: {} B\n", self.bytes.len())
    }

    /// Decodes the directory and looks up each log in it.
    fn read(&self, bytes: &[u8], blocks_end: u64) -> String {
        match Directory::decode(bytes, blocks_end) {
            Err(e) => format!("{e}\n"),
            Ok((head, read)) => {
                assert_eq!((head, &read), (&b"head"[..], &self.directory));
                assert_eq!(read.size(), read.logs.iter().map(|log| log.lsns.size()).sum());
                assert!(self.directory.logs.iter().all(|log| read.log(log.log) == Some(log)));
                let has_last = self.directory.logs.last().is_some_and(|log| log.log == LogId::MAX);
                assert_eq!(read.log(LogId::MAX).is_some(), has_last);
                "it comes back\n".into()
            }
        }
    }
}

/// Prints the blocks of a log. Checks that each LSN is in the block of its rank, and that other
/// LSNs have no block.
fn blocks(log: &LogRows) -> String {
    let lsns: Vec<u64> = log.lsns.runs().flat_map(|run| run.first..=run.last()).collect();
    for (i, lsn) in lsns.iter().enumerate() {
        assert_eq!(log.block_of(*lsn), Some(log.blocks[i / 256]));
        let has_next = lsns.binary_search(&(lsn + 1)).is_ok();
        assert_eq!(log.block_of(lsn + 1).is_some(), has_next);
    }
    assert_eq!(log.block_of(lsns[0].wrapping_sub(1)), None);
    format!("log {}: {} records in {} blocks\n", log.log, lsns.len(), log.blocks.len())
}

#[test]
fn scripts() {
    datadriven::walk("src/disk/directory/scripts", |file| {
        let mut script = Script::default();
        file.run(|case| script.run(case));
    });
}
