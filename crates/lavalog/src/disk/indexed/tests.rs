use super::*;
use crate::disk::memory::{Stored, Written};
use crate::index_file::{IndexFile, IndexFileWriter, IndexHead};
use crate::lsn_set::LsnSet;
use datadriven::TestCase;
use std::path::Path;

fn head() -> IndexHead {
    IndexHead { number: 7, ltn: 3, group: Uid::from_words(3, 4), filled: 900, seqs: (1, 10_000) }
}

fn entry(log: LogId, lsn: Lsn) -> Entry {
    Entry { log, lsn, seq: 5, at: 4096 * (lsn % 1000), len: 100 }
}

fn set(lsns: &[Lsn]) -> LsnSet {
    let mut set = Builder::default();
    lsns.iter().for_each(|lsn| set.push(*lsn, 100).unwrap());
    set.build()
}

/// The index file of a script.
#[derive(Default)]
struct Script {
    bytes: Vec<u8>,
    finished: Option<FinishedFile>,
}

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn shown(e: &base::Error) -> String {
    assert!(e.file().is_some(), "{e}");
    format!("{e}\n")
}

fn numbers(text: &str) -> Vec<u64> {
    text.split([' ', ',']).filter_map(|n| n.parse().ok()).collect()
}

impl Script {
    fn run(&mut self, case: &mut TestCase) -> Outcome<String> {
        let input = std::mem::take(&mut case.input);
        let out = match &*case.directive {
            "write" => self.write(&input)?,
            "blocks" => {
                let (_, directory) = self.open()?;
                let block = |log: &LogRows| {
                    let block = |block: &Block| {
                        format!("log {}: a block at {}, {} B\n", log.log, block.offset, block.len)
                    };
                    log.blocks.iter().map(block).collect::<String>()
                };
                directory.logs.iter().map(block).collect()
            }
            "read-block" => self.read_block(case)?,
            "verify" | "read-rows" | "find" => self.against(case)?,
            other => return Err(format!("no command is called {other}").into()),
        };
        case.expect_empty()?;
        Ok(out)
    }

    fn open(&self) -> Result<(IndexFile, Directory)> {
        IndexFile::open(Stored::new(self.bytes.clone()), 7, Uid::from_words(1, 2))
    }

    /// Writes the records of the lines (log and LSN), without the refused ones.
    fn write(&mut self, input: &str) -> Outcome<String> {
        let file = Written::default();
        let mut writer = IndexFileWriter::new(file.boxed(), Path::new("f"), Uid::from_words(1, 2), head());
        let mut out = String::new();
        for line in input.lines() {
            let [log, lsn] = numbers(line)[..] else { return Err("a record is a log and an LSN".into()) };
            if let Err(e) = writer.add(&entry(log, lsn)) {
                out += &format!("{line}: {}", shown(&e));
            }
        }
        let finished = writer.finish()?;
        self.bytes = file.take();
        assert_eq!(self.open()?.1, finished.directory);
        for log in &finished.directory.logs {
            let lsns: Vec<u64> = log.lsns.runs().flat_map(|run| run.first..=run.last()).collect();
            out += &format!("log {}: {lsns:?}\n", log.log);
        }
        self.finished = Some(finished);
        Ok(out)
    }

    /// Reads a block of a log, possibly under the number of another log, or at a wrong position.
    fn read_block(&self, case: &mut TestCase) -> Outcome<String> {
        let (file, directory) = self.open()?;
        let of: LogId = case.take_arg("of")?;
        let block = directory.log(of).ok_or("there is no such log")?.blocks[0];
        let end = self.finished.as_ref().map_or(0, |finished| finished.len);
        let offset = match case.try_take_arg::<String>("at")?.as_deref() {
            None => block.offset,
            Some("footer") => end - 64,
            Some(text) => text.parse()?,
        };
        let read = file.block(case.take_arg("log")?, Block { offset, ..block });
        Ok(read.map_or_else(
            |e| shown(&e),
            |rows| format!("LSNs {:?}\n", rows.iter().map(|row| row.lsn).collect::<Vec<_>>()),
        ))
    }

    /// Checks the file against a directory with other LSNs or sequence numbers.
    fn against(&self, case: &mut TestCase) -> Outcome<String> {
        let (file, directory) = self.open()?;
        let good = directory.logs[0].clone();
        let lsns: Vec<Lsn> = case.try_take_args("lsns")?.unwrap_or_default();
        let lsns = if lsns.is_empty() { good.lsns.clone() } else { set(&lsns) };
        let seqs: Vec<u64> =
            case.try_take_args("sequences")?.unwrap_or_else(|| vec![good.seqs.0, good.seqs.1]);
        let log = LogRows { lsns, seqs: (seqs[0], seqs[1]), ..good };
        let mut taken = 0;
        let mut take = |_: &Entry| {
            taken += 1;
            Ok(())
        };
        let result = match &*case.directive {
            "verify" => file.verify(&Directory { logs: vec![log] }).map(drop),
            // Rows are returned only after the check against the directory.
            "read-rows" => file.each_of(&log, &mut take),
            _ => file.find(&log, case.take_arg("lsn")?).map(drop),
        };
        let told = result.map_or_else(|e| shown(&e), |()| "it agrees\n".into());
        Ok(if case.directive == "read-rows" { format!("rows: {taken}; {told}") } else { told })
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/disk/indexed/scripts", |file| {
        let mut script = Script::default();
        file.run(|case| script.run(case));
    });
}
