//! An edit that was prepared before other edits has the same result as an unprepared one.

use super::*;
use crate::uses::reference_changes;

/// Random edits, each tried on a state, and then applied to one that other edits have changed
/// meanwhile, with the footing and without.
#[test]
fn precomputed_edits_equal_edits_applied_to_the_latest_state() {
    let (mut alone, mut beside, mut refused) = (0, 0, 0);
    for seed in 0..80 {
        let mut editor = Editor::new(seed);
        let mut state = State::empty(Uid::from_words(seed, 1), 1);
        for step in 0..150 {
            let tried = editor.edit(&state);
            let after = state.apply(&tried).unwrap();
            // Other edits use separate numbers and sequences.
            let beyond = vec![
                Record::Store(StoreRecord::NextFileNumber(state.store.next_file_number + 100)),
                Record::Store(StoreRecord::LastSeq(state.store.last_seq + 1000)),
            ];
            let mut now = state.apply(Edit(beyond)).unwrap();
            for _ in 0..editor.rng.below(7) {
                let others = editor.edit(&now);
                now = now.apply(&others).unwrap();
            }
            let mut again = tried.clone();
            for family in state.families.values() {
                if let Some(made) = after.families.get(&family.id) {
                    again.rest_on(&tried, family.id, &family.version, &made.version);
                }
            }
            let told = tried.0.iter().find_map(|record| match record {
                Record::References { family, changes } if !changes.is_empty() => Some(*family),
                _ => None,
            });
            let read = Edit::decode(&tried.encode()).unwrap();
            assert_eq!((&read, again.encode()), (&again, tried.encode()));
            match (now.apply(&again), now.apply(&read)) {
                (Ok(own), Ok(anew)) => {
                    assert_eq!(own, anew, "seed {seed} step {step}: {tried:?}");
                    own.verify().unwrap_or_else(|e| panic!("seed {seed} step {step}: {e}: {tried:?}"));
                    let sums = |state: &State, id| state.family(id).unwrap().version.references.clone();
                    let met = told.map(|id| sums(&now, id) != sums(&state, id));
                    alone += u64::from(met == Some(false));
                    beside += u64::from(met == Some(true));
                }
                (Err(own), Err(anew)) => {
                    assert_eq!(own.kind(), anew.kind(), "seed {seed} step {step}: {own} {anew}");
                    refused += 1;
                }
                (own, anew) => panic!("seed {seed} step {step}: {own:?} {anew:?} {tried:?}"),
            }
            state = if editor.rng.one_in(2) { now } else { after };
        }
    }
    println!("{alone} {beside} {refused}");
    assert!(alone > 300 && beside > 60 && refused > 100, "too thin: {alone} {beside} {refused}");
}

/// A blob id whose file another edit has removed meanwhile resolves nowhere, whatever the trial
/// found.
#[test]
fn a_blob_id_dropped_by_another_edit_is_detected() {
    let state =
        State::empty(Uid::default(), 1).apply(KvState::clone(&sample()).without_lists().snapshot()).unwrap();
    let added =
        state.apply(Edit(vec![Record::AddVsst { family: 0, meta: vsst(21, 150, 250, vec![]) }])).unwrap();
    let user = depends_on(table(40, 150, 250, (20, 20)), &[21]);
    let list = user.uses.list().unwrap().to_vec();
    let mut come = [user];
    let sums = Record::references(0, &mut come, []).unwrap();
    assert!(
        matches!(&sums, Record::References { changes, .. } if **changes == reference_changes([&list[..]], []))
    );
    let [user] = come;
    let tried = Edit(vec![Record::AddFile { family: 0, level: 0, meta: user }, sums]);
    let after = added.apply(&tried).unwrap();
    let gone = added.apply(Edit(vec![Record::RemoveVsst { family: 0, number: 21 }])).unwrap();
    let mut again = tried.clone();
    let version = |state: &State| state.family(0).unwrap().version.clone();
    again.rest_on(&tried, 0, &version(&added), &version(&after));
    assert_eq!(added.apply(&again).unwrap(), after);
    let e = gone.apply(&again).unwrap_err();
    assert!(e.message().contains("depends on value file (vSST) 21"), "{e}");
}

/// Edits with other changes of sums, or with equal changes from another edit, get no footing.
#[test]
fn a_precomputed_result_applies_only_to_the_same_edit() {
    let mut editor = Editor::new(3);
    let mut state = State::empty(Uid::default(), 1);
    let tells = |edit: &Edit| edit.0.iter().any(|r| matches!(r, Record::References { .. }));
    for _ in 0..300 {
        let tried = editor.edit(&state);
        let after = state.apply(&tried).unwrap();
        if tells(&tried) {
            let family = tried.0.iter().find_map(|r| match r {
                Record::References { family, .. } => Some(*family),
                _ => None,
            });
            let id = family.unwrap();
            let version = |state: &State| state.family(id).unwrap().version.clone();
            let rests = |edit: &Edit| {
                let mut edit = edit.clone();
                edit.rest_on(&tried, id, &version(&state), &version(&after));
                edit.0.iter().any(|r| matches!(r, Record::References { changes, .. } if changes.on_footing(&version(&state)).is_some()))
            };
            assert!(rests(&tried));
            assert!(!rests(&Edit::decode(&tried.encode()).unwrap()), "the same changes of somebody else");
            assert!(!tried.0.iter().any(|r| matches!(r, Record::References { changes, .. } if changes.on_footing(&version(&state)).is_some())));
        }
        state = after;
    }
}
