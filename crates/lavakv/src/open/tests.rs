//! Tests of opening and verification with logs that no store writes, though every checksum is
//! right.

use super::*;
use crate::Db;
use crate::batch::header;
use base::{HashMap, Uid};
use datadriven::TestCase;
use io::sim::{CrashKind, SimEnv};
use std::error::Error as StdError;
use store::commit::Durability;
use table::segment::{RecordReference, SegmentReference};

const DIR: &str = "/store";

fn options() -> Options {
    Options { memtable_bytes: 64 << 10, memory_bytes: 256 << 10, ..Options::default() }
        .expert(|expert| expert.log_group_bytes = 128 << 10)
}

/// Writes a change to the log only. The sequence number in the batch is `off` higher than that of
/// its record.
fn log(db: &Db, (nth, off): (u64, u64), kind: ValueKind, key: &[u8], value: &[u8]) {
    let engine = db.engine();
    let seq = engine.tree.snapshots.visible() + nth;
    let mut body = Vec::new();
    Change { kind, family: DEFAULT_FAMILY, key, value }.encode_into(&mut body);
    let head = header(seq + off, 1);
    engine.log.shared().put(TENANT, &[&head, &body], (seq, seq), Durability::Buffered).unwrap();
}

type Outcome<T> = std::result::Result<T, Box<dyn StdError>>;

/// The store of a script. After `kill` it runs on the machine after the crash.
struct Script {
    sim: SimEnv,
    db: Option<Db>,
    /// Files named by scripts.
    files: HashMap<String, u64>,
}

/// Prints an error without the paths of the machine, but with the name of the file.
fn shown(e: &Error) -> String {
    let file = e.file().map(|path| format!(" [{}]", path.display())).unwrap_or_default();
    format!("{}: {}{file}\n", e.kind().name(), e.message())
}

fn told(result: Result<()>) -> String {
    result.map_or_else(|e| shown(&e), |()| String::new())
}

impl Script {
    fn new(seed: u64) -> Script {
        let sim = SimEnv::new(seed);
        Script { sim, db: None, files: HashMap::default() }
    }

    fn db(&self) -> Outcome<&Db> {
        Ok(self.db.as_ref().ok_or("the store is not open")?)
    }

    fn run(&mut self, case: &mut TestCase) -> Outcome<String> {
        let out = match &*case.directive {
            "new" => {
                *self = Script::new(1);
                String::new()
            }
            "open" => self.open(case)?,
            "kill" => {
                let after = self.sim.crash(CrashKind::ProcessKill, 1);
                drop(self.db.take());
                self.sim = after;
                String::new()
            }
            "put" => {
                let (len, key): (Option<usize>, String) = (case.try_take_arg("len")?, case.take_arg("key")?);
                let value = match len {
                    Some(len) => vec![7; len],
                    None => case.take_arg::<String>("value")?.into_bytes(),
                };
                told(self.db()?.put(key.as_bytes(), &value))
            }
            "put-many" => {
                let (count, len): (u32, usize) = (case.take_arg("count")?, case.take_arg("len")?);
                let db = self.db()?;
                for nth in 0..count {
                    db.put(&nth.to_be_bytes(), &vec![1; len])?;
                }
                String::new()
            }
            "flush" => told(self.db()?.flush()),
            "get" => {
                let get = |key: String| match self.db()?.get(key.as_bytes()) {
                    Ok(Some(value)) if value.len() > 20 => Ok(format!("{key}: {} B\n", value.len())),
                    Ok(Some(value)) => Ok(format!("{key}: {}\n", String::from_utf8_lossy(&value))),
                    Ok(None) => Ok(format!("{key}: absent\n")),
                    Err(e) => Ok(format!("{key}: {}", shown(&e))),
                };
                case.take_args("keys")?.into_iter().map(get).collect::<Outcome<String>>()?
            }
            "verify" => self.db()?.verify()?.errors.iter().map(shown).collect(),
            "damaged-files" => self.db()?.damaged_files().into_iter().map(|of| of.file + "\n").collect(),
            "flushes" => format!("{}\n", if self.db()?.stats().flushes > 0 { "some" } else { "none" }),
            _ => self.meddle(case)?,
        };
        case.expect_empty()?;
        Ok(out)
    }

    fn open(&mut self, case: &mut TestCase) -> Outcome<String> {
        let options = match case.try_take_arg::<usize>("memtable-kib")? {
            Some(kib) => Options { memtable_bytes: kib << 10, memory_bytes: kib << 12, ..options() }
                .expert(|expert| expert.log_group_bytes = 256 << 10),
            None => options(),
        };
        Ok(match Db::open_in(self.sim.env(), DIR, options) {
            Ok(db) => {
                self.db = Some(db);
                String::new()
            }
            Err(e) => shown(&e),
        })
    }

    /// Runs commands that manipulate the store in ways no store does.
    fn meddle(&mut self, case: &mut TestCase) -> Outcome<String> {
        match &*case.directive {
            // Writes a change to the log only.
            "log" => return self.log(case),
            // Names the segment of a key whose reference is in memory.
            "name-file-of" => {
                let key: String = case.take_arg("key")?;
                let state = self.db()?.default_column_family().0.read_state();
                let found = state.active.get(key.as_bytes(), base::MAX_SEQ).ok_or("it is not in memory")?;
                let file = SegmentReference::decode(found.value)?.file;
                self.files.insert(case.take_arg("name")?, file);
            }
            "erase-file" => {
                let file = self.files[&case.take_arg::<String>("name")?];
                self.sim.erase(format!("{DIR}/{}", version::names::vsst(file)))?;
            }
            "remove-prepared-log" => {
                let env = self.sim.env();
                for entry in env.fs.list(Path::new(DIR))? {
                    if entry.name.ends_with(".log") && [32 << 10, 64 << 10].contains(&entry.len) {
                        env.fs.remove(&io::fs::join(Path::new(DIR), &entry.name))?;
                    }
                }
            }
            "fill-volume" => self.sim.set_capacity(Some(self.sim.used())),
            "empty-volume" => self.sim.set_capacity(None),
            // Appends a batch of another engine beside the keys.
            "append-beside" => {
                let log = self.db()?.engine().log.shared();
                return Ok(told(log.append(TENANT, &[b"batch"], (90, 90), Durability::Buffered).map(drop)));
            }
            "drop-default-family" => {
                let edit = Edit(vec![Record::DropFamily { id: DEFAULT_FAMILY }]);
                self.db()?.engine().files.manifest.commit(edit)?;
            }
            other => return Err(format!("no command is called {other}").into()),
        }
        Ok(String::new())
    }

    fn log(&mut self, case: &mut TestCase) -> Outcome<String> {
        let (db, key): (&Db, String) = (self.db()?, case.take_arg("key")?);
        let at = (case.try_take_arg("after")?.unwrap_or(1), case.try_take_arg("claims-more")?.unwrap_or(0));
        let uid = Uid::from_words(9, 9);
        let (kind, value) = match &*case.take_arg::<String>("kind")? {
            "value" => (ValueKind::Value, case.take_arg::<String>("value")?.into_bytes()),
            // A value beside the log, in the format of an earlier release, that refers to a table.
            "beside-log" => {
                let file = db.default_column_family().0.read_state().version.files(0)[0].number;
                let (offset, raw_len, stored_len, synced_bytes) = (0, 100, 200, 4000);
                let reference = RecordReference { file, uid, offset, raw_len, stored_len, synced_bytes };
                (ValueKind::PlacedReference, reference.encode().to_vec())
            }
            other => return Err(format!("no kind is called {other}").into()),
        };
        log(db, at, kind, key.as_bytes(), &value);
        Ok(String::new())
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/open/scripts", |file| {
        let mut script = Script::new(1);
        file.run(|case| script.run(case));
    });
}
