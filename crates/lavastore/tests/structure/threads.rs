//! Synchronization of threads.

use crate::sources::{all, root};
use std::fs;

/// Synchronization primitives come from `base::sync`, where campaigns control the schedule (see
/// there for the three kinds). Tests may use the standard library's types for themselves.
#[test]
fn threads_synchronize_by_base_sync() {
    /// The kernel side, the simulated machine, and the memory-order model of the skiplist.
    const OTHERWISE: &[&str] = &["crates/base/", "crates/io/", "crates/memtable/src/sync.rs"];
    /// Leaf locks: no thread waits while it holds one.
    const LEAVES: &[&str] = &["crates/base/", "crates/io/", "crates/cache/"];
    let root = root();
    for path in all() {
        let shown = path.strip_prefix(&root).unwrap().to_str().unwrap().to_owned();
        let is_test = shown.contains("tests") || !shown.contains("/src/") || !shown.starts_with("crates/");
        let is = |list: &[&str]| list.iter().any(|prefix| shown.starts_with(prefix));
        if is_test {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        let code = text.lines().filter(|l| !l.trim_start().starts_with("//"));
        for line in code {
            let standard = |allowed: &dyn Fn(&str) -> bool| {
                line.split("std::sync::").skip(1).any(|after| {
                    let names =
                        after.trim_start_matches('{').split(['}', ';', '(', '<', ')']).next().unwrap();
                    names.split(',').any(|n| !allowed(n.split("::").next().unwrap().trim()))
                })
            };
            let shared = |name: &str| matches!(name, "Arc" | "Weak");
            assert!(!standard(&shared) || is(OTHERWISE), "{shown}: take it from base::sync: {line}");
            let no_lock = |name: &str| !matches!(name, "Mutex" | "RwLock" | "Condvar");
            assert!(
                !standard(&no_lock) || shown.starts_with("crates/base/"),
                "{shown}: this lock has no rank: take it from base::sync: {line}"
            );
            let leaf = line.contains("sync::leaf");
            assert!(
                !leaf || is(LEAVES),
                "{shown}: a lock of base::sync::leaf is seen by no schedule: {line}"
            );
        }
        let relaxed_only = text.contains("sync::statistic::") && !text.contains("sync::atomic::");
        let stronger = ["Ordering::Acquire", "Ordering::Release", "AcqRel", "SeqCst"];
        let found = stronger.iter().find(|order| text.contains(**order));
        assert!(
            !relaxed_only || found.is_none(),
            "{shown}: a statistic needs no {found:?}: use base::sync::atomic"
        );
    }
}
