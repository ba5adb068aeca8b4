//! Tests with files that are sound but do not match the manifest.

use super::*;
use crate::{Db, Options};
use datadriven::TestCase;
use io::sim::SimEnv;
use std::error::Error as StdError;
use table::ReadCounters;
use version::{FileMeta, VsstMeta};

type Outcome = std::result::Result<String, Box<dyn StdError>>;

/// A store with one table and one value file.
struct Script {
    db: Db,
    table: Arc<FileMeta>,
    vsst: Arc<VsstMeta>,
}

fn shown<T>(result: Result<T>) -> String {
    let hidden = |message: &str| {
        let digits = message.chars().map(|c| if c.is_ascii_digit() { '#' } else { c });
        let mut text: Vec<char> = digits.collect();
        text.dedup_by(|a, b| (*a, *b) == ('#', '#'));
        text.into_iter().collect::<String>()
    };
    result.map_or_else(|e| format!("{}: {}\n", e.kind().name(), hidden(e.message())), |_| "it fits\n".into())
}

impl Script {
    fn new() -> Script {
        let db = Db::open_in(SimEnv::new(1).env(), "/store", Options::default()).unwrap();
        db.put(b"long", &[7; 4000]).unwrap();
        db.flush().unwrap();
        let version = db.default_column_family().0.read_state().version.clone();
        let (table, vsst) = (version.files(0)[0].clone(), version.vssts.values().next().unwrap().clone());
        Script { db, table, vsst }
    }

    /// Returns the description in the manifest: of one of both files, or a modified one.
    fn stated(&self, name: &str) -> Result<DataFile> {
        let (table, vsst) = (FileMeta::clone(&self.table), VsstMeta::clone(&self.vsst));
        Ok(match name {
            "table" => DataFile::Table(self.table.clone()),
            "value-file" => DataFile::Vsst(self.vsst.clone()),
            "longer-table" => DataFile::Table(Arc::new(FileMeta { len: table.len + 1, ..table })),
            "table-with-more-references" => {
                let list = self.db.engine().jobs.files.tables.dependencies(&self.table)?;
                let twice = list.iter().map(|d| Dependency { count: 2 * d.count, ..*d });
                let uses = twice.collect::<Vec<_>>().into();
                DataFile::Table(Arc::new(FileMeta { uses, ..table }))
            }
            "value-file-of-fewer-entries" => {
                DataFile::Vsst(Arc::new(VsstMeta { entries: vsst.entries - 1, ..vsst }))
            }
            other => panic!("no file is a {other}"),
        })
    }

    fn run(&self, case: &mut TestCase) -> Outcome {
        let engine = self.db.engine();
        let out = match &*case.directive {
            "check" => {
                let file = self.stated(&case.take_arg::<String>("file")?)?;
                let stated = self.stated(&case.take_arg::<String>("stated")?)?;
                let check = FileCheck::open(&engine.jobs, &file)?;
                shown(check.fits(&engine.jobs, &stated))
            }
            // The number of a file that is open as a table.
            "open-table-as-value-file" => {
                let as_vsst = VsstMeta { number: self.table.number, ..VsstMeta::clone(&self.vsst) };
                let opened = engine.jobs.files.tables.vsst(&as_vsst);
                assert!(opened.as_ref().is_err_and(|e| e.file().is_some()));
                shown(opened)
            }
            "read-merge-operand" => {
                let version = self.db.default_column_family().0.read_state().version.clone();
                let (entry, mut counters) = ((&b"merged"[..], 1, ValueKind::Merge), ReadCounters::default());
                shown(crate::read::fetch::content(&engine.tree, &version, entry, b"", true, &mut counters))
            }
            other => return Err(format!("no command is called {other}").into()),
        };
        case.expect_empty()?;
        Ok(out)
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/work/verify/walk/scripts", |file| {
        let script = Script::new();
        file.run(|case| script.run(case));
    });
}
