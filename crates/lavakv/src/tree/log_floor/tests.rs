use super::*;
use crate::tree::family::Family;
use base::ValueKind;
use datadriven::TestCase;
use std::error::Error;
use std::sync::Arc;
use version::Version;

/// A family and the visible frontier.
struct Script {
    snapshots: Snapshots,
    family: Family,
}

impl Script {
    fn new() -> Script {
        let options = crate::context::options::Options::default();
        let (own, version) = (options.family.clone(), Arc::new(Version::new(1)));
        let family = Family::new(1, "f".into(), own, version, 1, &options, Default::default());
        Script { snapshots: Snapshots::default(), family }
    }

    fn write(&self, seq: SeqNo) {
        self.family.read_state().active.insert(seq, ValueKind::Value, b"key", b"v");
        self.snapshots.publish(seq);
    }

    fn run(&mut self, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
        let mut out = String::new();
        match &*case.directive {
            "write" => self.write(case.take_arg("sequence")?),
            "freeze" => self.family.rotate(case.take_arg("next-memtable")?),
            "flushed" => {
                let memtable = case.take_arg("memtable")?;
                self.family.install(Arc::new(Version::new(1)), None, &[memtable], 0);
            }
            // `then-write`: the sequence of a write between the read of the memtables and the end.
            "floor" => {
                let then_write: Option<SeqNo> = case.try_take_arg("then-write")?;
                let floor = log_floor(&self.snapshots, || {
                    let oldest = self.family.read_state().oldest_unflushed_seq();
                    then_write.iter().for_each(|seq| self.write(*seq));
                    oldest
                });
                out = format!("{floor}\n");
            }
            other => return Err(format!("no command is called {other}").into()),
        }
        case.expect_empty()?;
        Ok(out)
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/tree/log_floor/scripts", |file| {
        let mut script = Script::new();
        file.run(|case| script.run(case));
    });
}
