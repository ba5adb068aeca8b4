//! Stores whose process died while files moved between two tiers.

use super::DIR;
use lavastore_lavakv::Env;
use lavastore_lavakv::io::{CreateOptions, SyncKind};
use lavastore_lavakv::sim::SimEnv;
use std::path::Path;

/// Puts the files of these names, from the fast tier's directory, into both directories. In `torn`,
/// if it is one of the two, they lack a part in the middle: unsynced data may be lost there, while
/// the end is intact.
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

/// Removes the manifest, which records the place of each file.
pub fn remove_manifest(env: &Env) {
    for entry in env.fs.list(Path::new(DIR)).unwrap() {
        if entry.name.starts_with("MANIFEST") || entry.name == "CURRENT" {
            env.fs.remove(&Path::new(DIR).join(entry.name)).unwrap();
        }
    }
}
