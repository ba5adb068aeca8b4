use super::*;
use crate::disk::memory::{PATH, Stored, Written};
use datadriven::TestCase;
use io::Rng;

fn uid() -> Uid {
    Uid::from_words(0x3333, 0x4444)
}

/// Log, LSN, sequence, bytes.
type Record = (LogId, Lsn, SeqNo, Vec<u8>);

fn some_records(rng: &mut Rng, logs: u64, count: u64, len_max: u64) -> Vec<Record> {
    let mut all = Vec::new();
    for log in 1..=logs {
        let mut lsn = rng.below(1000);
        for _ in 0..rng.below(count) {
            let mut bytes = vec![0; rng.below(len_max) as usize];
            rng.fill(&mut bytes);
            let bits = rng.range(1, 56);
            all.push((log * 100, lsn, rng.below(1 << bits), bytes));
            lsn += 1 + rng.below(3);
        }
    }
    all
}

fn write(records: &[Record]) -> (Vec<u8>, Vec<Entry>, FinishedFile) {
    let file = Written::default();
    let head = ColdHead { number: 9, generation: 2 };
    let mut writer = ColdFileWriter::new(file.boxed(), Path::new(PATH), uid(), head);
    let mut entries = Vec::new();
    for (log, lsn, seq, bytes) in records {
        let before = writer.bytes();
        let entry = writer.add(*log, *lsn, *seq, bytes).unwrap();
        assert_eq!((entry.at, writer.bytes() - before), (before, len_of(&entry)));
        entries.push(entry);
    }
    let finished = writer.finish().unwrap();
    (file.take(), entries, finished)
}

fn read_everything(bytes: Vec<u8>, records: &[Record], entries: &[Entry]) -> Result<()> {
    let (file, directory) = ColdFile::open(Stored::new(bytes), 9, uid())?;
    assert_eq!(file.head(), &ColdHead { number: 9, generation: 2 });
    assert_eq!(file.head().source(), Source::Cold(9));
    let mut all = file.records();
    for ((_, _, _, expected), entry) in records.iter().zip(entries) {
        let found = file.find(directory.log(entry.log).unwrap(), entry.lsn)?.unwrap();
        assert_eq!(found, *entry);
        let mut out = b"before".to_vec();
        file.read(&found, &mut out)?;
        assert!(out.strip_prefix(b"before") == Some(expected));
        let (next, bytes) = all.next()?.unwrap();
        assert!(next == *entry && bytes == expected);
    }
    assert!(all.next()?.is_none());
    file.verify(&directory).map(drop)
}

#[test]
fn everything_comes_back_and_a_record_is_one_read() {
    let mut rng = Rng::new(431);
    for (logs, count, len_max) in [(0, 1, 1), (1, 2, 9), (1, 900, 40), (30, 60, 2000), (2, 9, 400_000)] {
        let records = some_records(&mut rng, logs, count, len_max);
        let (bytes, entries, finished) = write(&records);
        assert_eq!(finished.len, bytes.len() as u64);
        read_everything(bytes.clone(), &records, &entries).unwrap();
        let stored = Stored::new(bytes);
        let (file, directory) = ColdFile::open(stored.clone(), 9, uid()).unwrap();
        assert_eq!((&directory, stored.reads()), (&finished.directory, 2));
        for (record, entry) in records.iter().zip(&entries).take(9) {
            let before = stored.reads();
            let mut out = Vec::new();
            file.read(entry, &mut out).unwrap();
            assert_eq!((&out, stored.reads()), (&record.3, before + 1));
        }
    }
}

#[test]
fn a_run_of_records_is_one_read_with_gaps_and_all() {
    let mut rng = Rng::new(432);
    let records = some_records(&mut rng, 4, 80, 300);
    let (bytes, entries, _) = write(&records);
    let stored = Stored::new(bytes);
    let (file, _) = ColdFile::open(stored.clone(), 9, uid()).unwrap();
    for _ in 0..200 {
        let from = rng.below(entries.len() as u64) as usize;
        let to = from + rng.below((entries.len() - from) as u64 + 1) as usize;
        let wanted: Vec<usize> = (from..to).filter(|_| !rng.one_in(3)).collect();
        let run: Vec<Entry> = wanted.iter().map(|&i| entries[i]).collect();
        let (before, mut seen) = (stored.reads(), 0);
        file.read_run(&run, &mut |entry, bytes| {
            let i = wanted[seen];
            assert!(*entry == entries[i] && bytes == records[i].3);
            seen += 1;
            Ok(())
        })
        .unwrap();
        assert_eq!((seen, stored.reads() - before), (run.len(), u64::from(!run.is_empty())));
    }
}

#[test]
fn every_flipped_bit_is_caught() {
    let records = some_records(&mut Rng::new(434), 3, 20, 40);
    let (bytes, entries, _) = write(&records);
    read_everything(bytes.clone(), &records, &entries).unwrap();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let e = read_everything(damaged, &records, &entries).expect_err("a flip that nothing noticed");
        let is_typed = matches!(e.kind(), ErrorKind::Corruption | ErrorKind::Unsupported);
        assert!(is_typed && e.file() == Some(Path::new(PATH)) && e.offset().is_some(), "bit {bit}: {e}");
    }
}

/// A cold file of a script.
#[derive(Default)]
struct Script {
    bytes: Vec<u8>,
    records: Vec<Record>,
    entries: Vec<Entry>,
}

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The writer of a cold file.
fn writer() -> (Written, ColdFileWriter) {
    let (file, head) = (Written::default(), ColdHead { number: 9, generation: 1 });
    let writer = ColdFileWriter::new(file.boxed(), Path::new(PATH), uid(), head);
    (file, writer)
}

fn shown(e: &Error) -> String {
    assert_eq!(e.file(), Some(Path::new(PATH)), "{e}");
    format!("{e}\n")
}

impl Script {
    fn run(&mut self, case: &mut TestCase) -> Outcome<String> {
        let input = std::mem::take(&mut case.input);
        let out = match &*case.directive {
            "write" => self.write(case, &input)?,
            "damage" => {
                let (entry, byte) =
                    (self.entries[case.take_arg::<usize>("record")?], case.take_arg::<u64>("byte")?);
                self.bytes[(entry.at + byte) as usize] ^= 0x40;
                String::new()
            }
            "open" => self.open().map_or_else(|e| shown(&e), |(file, _)| format!("{:?}\n", file.head())),
            "verify" => {
                let (file, directory) = self.open()?;
                file.verify(&directory).map_or_else(|e| shown(&e), |_| "it is sound\n".into())
            }
            "read" => self.read(case)?,
            "read-run" => {
                let run: Vec<Entry> =
                    case.take_args::<usize>("records")?.iter().map(|n| self.entries[*n]).collect();
                let read = self.open()?.0.read_run(&run, &mut |_, _| Ok(()));
                read.map_or_else(|e| shown(&e), |()| "it is read\n".into())
            }
            other => return Err(format!("no command is called {other}").into()),
        };
        case.expect_empty()?;
        Ok(out)
    }

    fn open(&self) -> Result<(ColdFile, Directory)> {
        ColdFile::open(Stored::new(self.bytes.clone()), 9, uid())
    }

    /// Writes the records of the lines: log, LSN and bytes. `unlisted`: also one without a row. `wrong-head`: with a byte behind the head.
    fn write(&mut self, case: &mut TestCase, input: &str) -> Outcome<String> {
        let (file, mut writer) = writer();
        self.records.clear();
        self.entries.clear();
        let mut out = String::new();
        for (line, seq) in input.lines().zip(1..) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (log, lsn) = (words[0].parse()?, words[1].parse()?);
            let bytes = match words[2].strip_prefix("len=") {
                Some(len) => vec![0; len.parse()?],
                None => words[2].as_bytes().to_vec(),
            };
            let before = writer.bytes();
            match writer.add(log, lsn, seq, &bytes) {
                Ok(entry) => {
                    self.entries.push(entry);
                    self.records.push((log, lsn, seq, bytes));
                }
                Err(e) => {
                    assert_eq!(writer.bytes(), before);
                    out += &format!("{line}: {e}\n");
                }
            }
        }
        if case.take_flag("unlisted")? {
            let unlisted = Entry { log: 5, lsn: 99, seq: 99, at: writer.bytes(), len: 1 };
            let mut head = Vec::new();
            put_head(&mut head, &unlisted);
            writer.output.frame(&[&head, b"b"])?;
        }
        if case.take_flag("wrong-head")? {
            let ColdFileWriter { output, indexing, .. } = writer;
            let end = output.offset();
            indexing.finish(output, FileKind::Cold, &[9, 1, 0], end)?;
        } else {
            let size = writer.finish()?.directory.size();
            out += &format!("{} records, {} B\n", size.records, size.bytes);
        }
        self.bytes = file.take();
        Ok(out)
    }

    /// Reads the records, or one of them by an entry that is changed.
    fn read(&self, case: &mut TestCase) -> Outcome<String> {
        let (file, _) = self.open()?;
        let read = |entry: &Entry, record: &Record| {
            let mut out = Vec::new();
            match file.read(entry, &mut out) {
                Ok(()) if out == record.3 => format!("{}: {} B\n", record.1, out.len()),
                Ok(()) => format!("{}: other bytes\n", record.1),
                Err(e) => {
                    assert!(out.is_empty() && e.offset() == Some(entry.at), "{e}");
                    format!("{}: {}", record.1, shown(&e))
                }
            }
        };
        let Some(nth) = case.try_take_arg::<usize>("record")? else {
            return Ok(self
                .entries
                .iter()
                .zip(&self.records)
                .map(|(entry, record)| read(entry, record))
                .collect());
        };
        let mut entry = self.entries[nth];
        entry.log = case.try_take_arg("log")?.unwrap_or(entry.log);
        entry.lsn = case.try_take_arg("lsn")?.unwrap_or(entry.lsn);
        entry.seq = case.try_take_arg("sequence")?.unwrap_or(entry.seq);
        entry.len = case.try_take_arg("len")?.unwrap_or(entry.len);
        entry.at = case.try_take_arg("at")?.unwrap_or(entry.at);
        entry.at += case.try_take_arg::<u64>("later")?.unwrap_or(0);
        if let Some(other) = case.try_take_arg::<usize>("at-record")? {
            entry.at = self.entries[other].at;
        }
        if case.take_flag("at-end")? {
            entry.at = self.bytes.len() as u64;
        }
        Ok(read(&entry, &self.records[nth]))
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/cold/scripts", |file| {
        let mut script = Script::default();
        file.run(|case| script.run(case));
    });
}
