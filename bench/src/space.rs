//! The space that a store takes, seen from outside while it runs: the allocated bytes of all files in its directory,
//! ten times a second, and twice as often if there is a limit to be kept. The engine is not asked, except once a second for
//! what it says its space consists of.

use crate::engine::Engine;
use crate::host::{now_ns, wait_until};
use crate::limit::{self, Watch};
use io::Env;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

/// Between two looks.
const SAMPLE_NS: u64 = 100_000_000;
/// A look that comes so much too late tells that the whole process did not run: it was stopped, or its machine was.
const SUSPENDED_NS: u64 = 1_000_000_000;
/// Between two entries of the timeline.
const TIMELINE_SECONDS: f64 = 1.0;

/// Bytes allocated by the files of a directory at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Space {
    /// Since the measured phase began.
    pub seconds: f64,
    /// All files.
    pub bytes: u64,
    /// The same by kind of file: the extension of its name or, without one, the name of its directory inside the store.
    pub kinds: BTreeMap<String, u64>,
    /// What the engine says; only in the timeline.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parts: BTreeMap<String, u64>,
    /// How long writers had been made to wait, by cause, as the engine says; only in the timeline.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub waits_ns: BTreeMap<String, u64>,
    /// Operations that clients completed from then to the next entry; only in the timeline.
    #[serde(default)]
    pub ops: u64,
}

/// What was seen until the sampler was told to stop.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    /// The largest.
    pub peak: Space,
    /// One a second.
    pub timeline: Vec<Space>,
    /// How long the process was suspended, about.
    pub suspended_ns: u64,
}

/// Looks until `stop`, and tells `watch` what it sees.
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
        // After a late look the next one is due in full: a walk that takes long must not become all that happens.
        let due_ns = now_ns() + between_ns;
        wait_until(due_ns);
        let late_ns = now_ns() - due_ns;
        samples.suspended_ns += if late_ns >= SUSPENDED_NS { late_ns } else { 0 };
    }
    samples
}

/// Looks until `stop`, and tells `watch` what it sees; nothing is asked of the engine.
pub fn watch(dir: &Path, watch: &Watch, stop: &AtomicBool) {
    while !stop.load(Ordering::Relaxed) {
        watch.note(allocated(dir).bytes);
        wait_until(now_ns() + limit::SAMPLE_NS);
    }
}

/// Bytes allocated by all files below `dir`; a file with several names counts once. Files that vanish meanwhile are
/// left out.
pub fn allocated(dir: &Path) -> Space {
    let mut space = Space::default();
    walk(dir, "other", &mut BTreeSet::new(), &mut space);
    space
}

/// What a store has in another directory, added to `space`.
pub fn add_beside(mut space: Space, dir: &Path) -> Space {
    walk(dir, "other", &mut BTreeSet::new(), &mut space);
    space
}

/// The same of a store in an environment that is not the machine's; stores have no directories in them.
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
        // Some file systems allocate when they write back.
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
