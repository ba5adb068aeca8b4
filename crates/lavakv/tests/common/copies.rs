//! Stores whose files were on their way between two disks when the process died.

use super::DIR;
use lavastore_lavakv::Env;
use lavastore_lavakv::io::{CreateOptions, SyncKind};
use lavastore_lavakv::sim::SimEnv;
use std::path::Path;

/// Has the files of these names in the directory of the speed disk in both directories. In `torn`, if it is one of the two, they lack a part in the middle:
/// what was not synced may be lost there, and the end be whole.
pub fn put_twice(sim: &SimEnv, speed_dir: &str, names: &[String], torn: &str) {
    for name in names {
        let whole = sim.read_file(Path::new(speed_dir).join(name)).unwrap();
        for (dir, name) in [(speed_dir, name.as_str()), (DIR, name.trim_end_matches("-1"))] {
            let mut bytes = whole.clone();
            if dir == torn {
                let middle = bytes.len() / 3;
                bytes[middle..middle + 512].fill(0);
            }
            let (fs, path) = (sim.env().fs, Path::new(dir).join(name));
            let _ = fs.remove(&path);
            let mut copy = fs.create(&path, &CreateOptions::default()).unwrap();
            copy.append(&bytes).unwrap();
            copy.sync(SyncKind::Full).unwrap();
        }
    }
}

/// Removes what says of each file of a store where it is.
pub fn remove_manifest(env: &Env) {
    for entry in env.fs.list(Path::new(DIR)).unwrap() {
        if entry.name.starts_with("MANIFEST") || entry.name == "CURRENT" {
            env.fs.remove(&Path::new(DIR).join(entry.name)).unwrap();
        }
    }
}
