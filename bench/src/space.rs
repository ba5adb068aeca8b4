//! The size of a store, sampled from outside: the allocated bytes of all files in its directory,
//! ten times per second, and twice as often with a limit. Once per second the engine reports the
//! parts of its space.

use crate::engine::Engine;
use crate::host::{now_ns, wait_until};
use crate::limit::{self, Watch};
use io::Env;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Sampling interval.
const SAMPLE_NS: u64 = 100_000_000;
/// A sample later than this shows that the process or its machine was suspended.
const SUSPENDED_NS: u64 = 1_000_000_000;
/// Interval of the timeline.
const TIMELINE_SECONDS: f64 = 1.0;

/// Allocated bytes of the files of a directory at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// Time since the start of the measured phase.
    pub seconds: f64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes by kind of file: the extension or, without one, the name of the directory inside the
    /// store.
    pub kinds: BTreeMap<String, u64>,
    /// Parts reported by the engine; only in the timeline.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, u64>,
    /// Waits of writers by cause, as reported by the engine; only in the timeline.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits_ns: BTreeMap<String, u64>,
    /// Client operations until the next entry; only in the timeline.
    #[serde(default)]
    pub ops: u64,
}

/// The samples of a run.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// The largest sample.
    pub peak: Space,
    /// One sample per second.
    pub timeline: Vec<Space>,
    /// Approximate time during which the process was suspended.
    pub suspended_ns: u64,
}

/// Samples until `stop`, and passes the samples to `watch`.
pub fn sample(dir: &Path, engine: &dyn Engine, watch: Option<&Watch>, stop: &AtomicBool) -> Samples {
    let start_ns = now_ns();
    let between_ns = watch.map_or(SAMPLE_NS, |_| limit::SAMPLE_NS);
    let mut samples = Samples::default();
    loop {
        let seconds = (now_ns() - start_ns) as f64 / 1e9;
        let space = Space { seconds, ..engine.allocated(dir) };
        if let Some(watch) = watch {
            watch.note(space.bytes);
        }
        if space.bytes > samples.peak.bytes {
            samples.peak = space.clone();
        }
        if samples.timeline.last().is_none_or(|last| seconds >= last.seconds + TIMELINE_SECONDS) {
            let parts = engine.space_parts().into_iter().collect();
            let waits_ns = engine.waits_ns().into_iter().collect();
            samples.timeline.push(Space { parts, waits_ns, ..space });
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
        // A late sample does not shorten the next interval, so that slow directory walks do not
        // dominate.
        let due_ns = now_ns() + between_ns;
        wait_until(due_ns);
        let late_ns = now_ns() - due_ns;
        samples.suspended_ns += if late_ns >= SUSPENDED_NS { late_ns } else { 0 };
    }
    samples
}

/// Samples until `stop` without calling the engine, and passes the samples to `watch`.
pub fn watch(dir: &Path, watch: &Watch, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        watch.note(allocated(dir).bytes);
        wait_until(now_ns() + limit::SAMPLE_NS);
    }
}

/// Returns the allocated bytes of all files below `dir`; a file with several names counts once.
/// Vanished files are skipped.
pub fn allocated(dir: &Path) -> Space {
    let mut space = Space::default();
    walk(dir, "other", &mut BTreeSet::new(), &mut space);
    space
}

/// Adds the files of the store in another directory to `space`.
pub fn add_beside(mut space: Space, dir: &Path) -> Space {
    walk(dir, "other", &mut BTreeSet::new(), &mut space);
    space
}

/// Same as [`allocated`], for a store in another environment; stores there have no subdirectories.
pub fn allocated_in(env: &Env, dir: &Path) -> Space {
    let mut space = Space::default();
    for entry in env.fs.list(dir).unwrap_or_default() {
        let kind = entry.name.rsplit_once('.').map_or("other", |(_, kind)| kind);
        space.bytes += entry.allocated;
        *space.kinds.entry(kind.to_owned()).or_default() += entry.allocated;
    }
    space
}

#[allow(clippy::disallowed_methods, reason = "walks directories of any engine")]
fn walk(dir: &Path, name: &str, seen: &mut BTreeSet<u64>, space: &mut Space) {
    use std::os::unix::fs::MetadataExt;
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        let Ok(metadata) = entry.metadata() else { continue };
        if metadata.is_dir() {
            walk(&path, &entry.file_name().to_string_lossy(), seen, space);
        } else if metadata.is_file() && (metadata.nlink() == 1 || seen.insert(metadata.ino())) {
            let bytes = metadata.blocks() * 512;
            space.bytes += bytes;
            let kind = path.extension().map_or(name.into(), |extension| extension.to_string_lossy());
            *space.kinds.entry(kind.into_owned()).or_default() += bytes;
        }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, clippy::disallowed_types, reason = "makes files that no engine wrote")]
mod tests {
    use super::*;

    #[test]
    fn files_count_once_and_by_kind() {
        let dir = std::env::temp_dir().join(format!("bench-space-test-{}", std::process::id()));
        std::fs::create_dir_all(dir.join("blobs")).unwrap();
        std::fs::write(dir.join("1.ksst"), [1; 5000]).unwrap();
        std::fs::hard_link(dir.join("1.ksst"), dir.join("2.ksst")).unwrap();
        std::fs::write(dir.join("CURRENT"), [1; 5000]).unwrap();
        std::fs::write(dir.join("blobs").join("7"), [1; 5000]).unwrap();
        // Some file systems allocate at writeback.
        for file in ["1.ksst", "CURRENT", "blobs/7"] {
            std::fs::File::open(dir.join(file)).unwrap().sync_all().unwrap();
        }
        let space = allocated(&dir);
        let twice = add_beside(space.clone(), &dir);
        assert!(
            twice.bytes == 2 * space.bytes && twice.kinds["ksst"] == 2 * space.kinds["ksst"],
            "{twice:?}"
        );
        std::fs::remove_dir_all(&dir).unwrap();
        assert_eq!(space.kinds.keys().collect::<Vec<_>>(), ["blobs", "ksst", "other"]);
        assert!(space.kinds.values().all(|bytes| (5000..100_000).contains(bytes)), "{space:?}");
        assert_eq!(space.bytes, space.kinds.values().sum::<u64>());
    }
}
