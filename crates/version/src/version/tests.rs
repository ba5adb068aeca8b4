use super::*;
use crate::arbitrary::{Editor, user_key};
use crate::manifest::State;
use base::Uid;

/// Compares queries by binary search with a scan of every file.
#[test]
fn queries_agree_with_a_scan() {
    let mut editor = Editor::new(3);
    let mut state = State::empty(Uid::default(), 1);
    let mut answers = 0;
    for step in 0..600 {
        let edit = editor.edit(&state);
        state = state.apply(&edit).unwrap();
        if step % 5 != 0 {
            continue;
        }
        for family in state.families.values() {
            let version = &family.version;
            let (a, b) = (editor.rng.below(1100), editor.rng.below(1100));
            let (low, high) = (user_key(a.min(b)), user_key(a.max(b)));
            for level in 0..version.levels.len() {
                let meets = |f: &&Arc<FileMeta>, low: &[u8], high: &[u8]| {
                    f.smallest_user_key() <= high && f.largest_user_key() >= low
                };
                let scan: Vec<_> =
                    version.files(level).iter().filter(|f| meets(f, &low, &high)).cloned().collect();
                assert_eq!(version.overlapping(level, Some(&low), Some(&high)), scan);
                assert_eq!(version.overlapping(level, None, None), version.files(level).to_vec());
                let up: Vec<_> = version
                    .files(level)
                    .iter()
                    .filter(|f| f.largest_user_key() >= &low[..])
                    .cloned()
                    .collect();
                assert_eq!(version.overlapping(level, Some(&low), None), up);
                let bytes: u64 = version.files(level).iter().map(|f| f.len).sum();
                assert_eq!(version.level_bytes(level), bytes);
                let compensated: u64 =
                    version.files(level).iter().map(|f| f.raw_bytes + f.hidden_bytes).sum();
                assert_eq!(version.level_compensated_bytes(level), compensated);
            }
            let found: Vec<u64> = version.lookup(&low).map(|(_, f)| f.number).collect();
            let all = version.levels.iter().flatten().filter(|f| f.covers(&low)).map(|f| f.number);
            assert_eq!(found, all.collect::<Vec<_>>());
            assert!(version.files(0).is_sorted_by(|a, b| a.max_seq >= b.max_seq), "newest first");
            answers += found.len();
            assert_eq!(version.describe().lines().count() > 1, version.file_numbers().next().is_some());
        }
    }
    assert!(answers > 100);
}
