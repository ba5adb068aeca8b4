use super::*;
use base::ValueKind;
use datadriven::TestCase;
use std::cell::Cell;
use std::error::Error;
use version::Version;

fn family() -> Arc<Family> {
    let options = crate::context::options::Options::default();
    let version = Arc::new(Version::new(1));
    let own = options.family.clone();
    Arc::new(Family::new(1, "f".into(), own, version, 1, &options, Default::default()))
}

fn write_and_freeze(family: &Family, seq: SeqNo) {
    family.read_state().active.insert(seq, ValueKind::Value, b"key", b"v");
    family.rotate(seq + 1);
}

/// The sequences in the flushable memtables of the family.
fn shown(found: &[Flushable]) -> String {
    let Some((oldest, _, memtables)) = found.first() else { return "nothing\n".into() };
    let highest = memtables.iter().filter_map(|memtable| memtable.seq_range()).map(|(_, high)| high).max();
    format!("sequences {oldest} to {}\n", highest.unwrap())
}

fn run(of: &mut Arc<Family>, case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let out = match &*case.directive {
        "write-and-freeze" => {
            write_and_freeze(of, case.take_arg("sequence")?);
            String::new()
        }
        // `ceiling`: the sequence of a checkpoint.
        "flushable" => {
            let ceiling = case.try_take_arg("ceiling")?.unwrap_or(SeqNo::MAX);
            shown(&flushable([of.clone()], || ceiling))
        }
        // Runs the steps of the lines while the families are read: `write-and-freeze 1`,
        // `ceiling 1`.
        "flushable-while" => {
            let ceiling = Cell::new(SeqNo::MAX);
            let families = std::iter::once_with(|| {
                for line in case.input.lines() {
                    let (step, seq) = line.split_once(' ').unwrap();
                    match step {
                        "write-and-freeze" => write_and_freeze(of, seq.parse().unwrap()),
                        "ceiling" => ceiling.set(seq.parse().unwrap()),
                        other => panic!("no step is called {other}"),
                    }
                }
                of.clone()
            });
            shown(&flushable(families, || ceiling.get()))
        }
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

#[test]
fn scripts() {
    datadriven::walk("src/tree/flushable/scripts", |file| {
        let mut family = family();
        file.run(|case| run(&mut family, case));
    });
}
