use super::*;
use base::HashMap;
use datadriven::TestCase;
use io::sim::SimEnv;
use std::error::Error;

/// A directory with a meter, and the handles of a script.
struct Script {
    sim: SimEnv,
    fs: MeteredFs,
    handles: HashMap<String, Box<dyn AppendFile>>,
}

fn told(result: Result<()>) -> String {
    result.map_or_else(|e| format!("{}\n", e.kind().name()), |()| String::new())
}

impl Script {
    fn new() -> Script {
        let sim = SimEnv::new(1);
        let inner = sim.env().fs;
        inner.create_dir_all(Path::new("/store")).unwrap();
        inner.create_dir_all(Path::new("/other")).unwrap();
        let fs = MeteredFs { inner, meter: Arc::new(Meter::new(Path::new("/store"))) };
        Script { sim, fs, handles: HashMap::default() }
    }

    /// Returns the bytes of all files in the directory, or of those whose names end with `end`.
    fn listed(&self, end: &str) -> u64 {
        let all = self.fs.list(Path::new("/store")).unwrap().into_iter();
        all.filter(|e| e.name.ends_with(end)).map(|e| e.allocated).sum()
    }

    fn run(&mut self, case: &mut TestCase) -> std::result::Result<String, Box<dyn Error>> {
        let out = match &*case.directive {
            "new" => {
                *self = Script::new();
                String::new()
            }
            "set-ceiling" => {
                self.fs.meter.set_ceiling(case.take_arg("bytes")?);
                String::new()
            }
            "used" => {
                let meter = &self.fs.meter;
                let (listed, values) = (self.listed(""), self.listed(".vsst-1"));
                format!(
                    "counted {} B, listed {listed} B; values on the fast tier {} B, listed {values} B; refusals {}\n",
                    meter.used_bytes(),
                    meter.speed_value_bytes(),
                    meter.refusals()
                )
            }
            // An open begins with the existing files.
            "take-over" => {
                let meter = Meter::new(Path::new("/store"));
                meter.take_over(&self.fs.list(Path::new("/store"))?);
                format!(
                    "counted {} B, values on the fast tier {} B\n",
                    meter.used_bytes(),
                    meter.speed_value_bytes()
                )
            }
            "volume" => format!("{} B\n", self.sim.used()),
            _ => self.change(case)?,
        };
        case.expect_empty()?;
        Ok(out)
    }

    fn change(&mut self, case: &mut TestCase) -> std::result::Result<String, Box<dyn Error>> {
        let dir: String = case.try_take_arg("dir")?.unwrap_or_else(|| "store".into());
        let path = |name: &str| Path::new("/").join(&dir).join(name);
        let file: String = case.take_arg("file")?;
        let handle: String = case.try_take_arg("handle")?.unwrap_or_else(|| file.clone());
        let bytes: u64 = case.try_take_arg("bytes")?.unwrap_or(0);
        let (fs, handles) = (&self.fs, &mut self.handles);
        let open = handles.get_mut(&handle).ok_or("there is no such handle");
        Ok(told(match &*case.directive {
            "create" => {
                let expected_len = case.try_take_arg("expected")?.unwrap_or(0);
                let options = CreateOptions { expected_len, ..CreateOptions::default() };
                fs.create(&path(&file), &options).map(|made| drop(handles.insert(handle, made)))
            }
            "append" => open?.append(&vec![1; bytes as usize]),
            "reserve" => open?.reserve(bytes),
            "sync" => open?.sync(SyncKind::Full),
            "close" => {
                handles.remove(&handle);
                Ok(())
            }
            "create-in-place" => fs.create_in_place(&path(&file), bytes, Access::Direct).map(drop),
            "create-scratch" => fs.create_scratch(&path(&file), bytes as usize).map(drop),
            "rename" => fs.rename(&path(&file), &path(&case.take_arg::<String>("to")?)),
            "remove" => fs.remove(&path(&file)),
            other => return Err(format!("no command is called {other}").into()),
        }))
    }
}

#[test]
fn scripts() {
    datadriven::walk("src/volumes/metered_fs/scripts", |file| {
        let mut script = Script::new();
        file.run(|case| script.run(case));
    });
}
