use super::*;
use crate::disk::memory::{PATH, Stored, Written};
use datadriven::TestCase;

fn uid() -> Uid {
    Uid::from_words(0x3333, 0x4444)
}

/// Log, LSN, sequence number, bytes.
type Record = (LogId, Lsn, SeqNo, Vec<u8>);

/// The cold file of a script.
#[derive(Default)]
struct Script {
    bytes: Vec<u8>,
    records: Vec<Record>,
    entries: Vec<Entry>,
}

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error>>;

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

    /// Writes the records of the lines: log, LSN and bytes. `unlisted` adds a record without a row.
    /// `wrong-head` adds a byte to the head of a record.
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

    /// Reads all records, or one of them by a modified entry.
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
