//! Crashes and faults at every operation of whole sessions.

use super::*;
use io::Rng;
use io::sim::{CrashKind, FaultEffect, FaultPlan};
use std::collections::BTreeMap;

/// Every submitted state, by edit number, and the acknowledgements of commits.
#[derive(Default)]
struct History {
    states: BTreeMap<u64, State>,
    /// Operation count and edit number at each acknowledgement.
    acknowledged: Vec<(u64, u64)>,
}

/// Three sessions with commits, rolls and a confirming close. Except for the first seed, snapshots
/// are in pieces, of a length that each session draws. The last seed has the newest format.
fn run_sessions(sim: &SimEnv, seed: u64) -> History {
    let mut history = History::default();
    let mut editor = Editor::new(seed);
    for session in 0..3 {
        let manifest = match session {
            0 => {
                let format = if seed == 2 { StoreFormat::NEWEST } else { StoreFormat::OLDEST };
                let first = InitialState { format, ..InitialState::default() };
                Manifest::create(&sim.env(), DIR.as_ref(), first).unwrap()
            }
            _ => recover(sim).unwrap(),
        };
        if seed > 0 {
            manifest.files().sizes().set_piece_len(Rng::new(seed * 3 + session).range(30, 300));
        }
        let mut note = |state: State| {
            history.acknowledged.push((sim.op_count(), state.store.edit_number));
            history.states.insert(state.store.edit_number, state);
        };
        note(manifest.state());
        for step in 0..8 {
            note(manifest.commit(editor.edit(&manifest.state())).unwrap());
            if (step + session) % 4 == 3 {
                manifest.commits().roll().unwrap();
            }
        }
        manifest.commits().confirm().unwrap();
        note(manifest.state());
    }
    history
}

#[test]
fn every_crash_leaves_all_that_was_acknowledged() {
    let (mut recovered, mut torn, mut in_pieces) = (0, 0, 0);
    for seed in 0..3 {
        let sim = SimEnv::new(seed);
        let history = run_sessions(&sim, seed);
        let record = sim.record();
        for op in record.mutations() {
            for (kind, seeds) in [(CrashKind::ProcessKill, 1), (CrashKind::PowerLoss, 6)] {
                for crash_seed in 0..seeds {
                    let after = record.crash_at(op, kind, crash_seed);
                    let acknowledged = history.acknowledged.iter().filter(|(at, _)| *at <= op);
                    let acknowledged = acknowledged.map(|(_, edit)| *edit).max();
                    let what = format!("seed {seed} op {op} {kind:?} {crash_seed}");
                    let manifest = match recover(&after) {
                        Ok(manifest) => manifest,
                        Err(e) if e.kind() == ErrorKind::NotFound && acknowledged.is_none() => {
                            Manifest::create(&after.env(), DIR.as_ref(), InitialState::default())
                                .unwrap_or_else(|e| panic!("{what}: {e}"));
                            continue;
                        }
                        Err(e) => panic!("{what}: {e}\n{}", sim.trace()),
                    };
                    assert!(manifest.report().damaged.is_empty(), "{what}: {:?}", manifest.report());
                    let state = manifest.state();
                    assert!(
                        Some(state.store.edit_number) >= acknowledged,
                        "{what}: {} edits",
                        state.store.edit_number
                    );
                    assert_eq!(state, history.states[&state.store.edit_number], "{what}");
                    manifest.require_edit(acknowledged.unwrap_or(0)).unwrap();
                    recovered += 1;
                    let header = Header::decode(&after.read_file(file_in_use(&after)).unwrap()).unwrap();
                    in_pieces += u32::from(header.pieces > 1);
                    torn += u32::from(manifest.report().torn_bytes > 0);
                    if crash_seed == 1 {
                        go_on(&after, &manifest, &what);
                    }
                }
            }
        }
    }
    assert!(recovered > 1500 && torn > 20, "{recovered} recovered, {torn} with a torn tail");
    assert!(in_pieces > 500, "{in_pieces} of them from a snapshot in pieces");
}

/// Commits after a recovery, with crashes at each operation of the commit.
fn go_on(sim: &SimEnv, manifest: &Manifest, what: &str) {
    let start = sim.op_count();
    let before = manifest.state();
    let after = manifest.commit(Editor::new(99).edit(&before)).unwrap_or_else(|e| panic!("{what}: {e}"));
    let record = sim.record();
    for op in record.mutations().into_iter().filter(|op| *op >= start).chain([sim.op_count()]) {
        let again =
            recover(&record.crash_at(op, CrashKind::PowerLoss, op)).unwrap_or_else(|e| panic!("{what}: {e}"));
        let state = again.state();
        assert!(state == before && op < sim.op_count() || state == after, "{what}, then op {op}");
    }
}

/// Injects an error at every operation of a session, once and permanently. Acknowledged edits exist
/// after a reopen, edits that failed without poisoning do not, and after poisoning no edit is
/// acknowledged.
#[test]
fn every_fault_is_reported_and_loses_nothing() {
    let (mut poisoned, mut survived) = (0, 0);
    for effect in [FaultEffect::Eio, FaultEffect::NoSpace] {
        let kinds = [false, true].into_iter().flat_map(|it| [(it, u64::MAX), (it, 100)]);
        for ((sticky, piece_bytes), format) in
            kinds.flat_map(|kind| StoreFormat::ALL.map(|format| (kind, format)))
        {
            for nth in 0.. {
                let (sim, manifest) = new_store_in(nth, format);
                manifest.files().sizes().set_piece_len(piece_bytes);
                let mut editor = Editor::new(5);
                commit_some(&manifest, &mut editor, 3);
                let plan = FaultPlan::nth(nth, effect);
                sim.inject(if sticky { plan.sticky() } else { plan });
                let outcome = session_with_faults(&manifest, &mut editor);
                if sim.faults_fired() == 0 {
                    assert!(nth > 20);
                    break;
                }
                sim.clear_faults();
                check_outcome(&sim, manifest, outcome.clone(), &format!("{effect:?} {sticky} {nth}"));
                poisoned += u32::from(outcome.poisoned);
                survived += u32::from(!outcome.poisoned);
            }
        }
    }
    assert!(poisoned > 20 && survived > 20, "{poisoned} poisoned, {survived} survived");
}

#[derive(Clone)]
struct Outcome {
    last: State,
    /// States that may have become durable although their commit failed.
    perhaps: Vec<State>,
    poisoned: bool,
}

fn session_with_faults(manifest: &Manifest, editor: &mut Editor) -> Outcome {
    let mut outcome = Outcome { last: manifest.state(), perhaps: Vec::new(), poisoned: false };
    for step in 0..11 {
        let edit = if step == 10 { Edit::default() } else { editor.edit(&manifest.state()) };
        match manifest.commit(edit.clone()) {
            Ok(state) => {
                assert!(!outcome.poisoned, "acknowledged after poisoning");
                // An edit that failed earlier is superseded: it must be gone for good.
                outcome.perhaps.clear();
                outcome.last = state;
            }
            Err(e) if e.kind() == ErrorKind::Poisoned => outcome.poisoned = true,
            Err(_) => outcome.perhaps.push(outcome.last.apply(&edit).unwrap()),
        }
        assert_eq!(manifest.state().store.edit_number, outcome.last.store.edit_number);
        if step % 4 == 2 {
            let _ = manifest.commits().roll();
        }
    }
    match manifest.commit(Edit::default()) {
        Ok(state) => (outcome.last, outcome.perhaps) = (state, Vec::new()),
        Err(e) if e.kind() == ErrorKind::Poisoned => outcome.poisoned = true,
        // The fault happened here. The next attempt, which does not count, shows whether it
        // poisoned.
        Err(_) => {
            outcome.perhaps.push(outcome.last.apply(Edit::default()).unwrap());
            outcome.poisoned = manifest.commits().roll().is_err_and(|e| e.kind() == ErrorKind::Poisoned);
        }
    }
    outcome
}

fn check_outcome(sim: &SimEnv, manifest: Manifest, outcome: Outcome, what: &str) {
    if !outcome.poisoned {
        // The store continues without a reopen.
        manifest.commit(Edit::default()).unwrap_or_else(|e| panic!("{what}: {e}"));
    }
    let last = if outcome.poisoned { outcome.last.clone() } else { manifest.state() };
    drop(manifest);
    for kind in [CrashKind::ProcessKill, CrashKind::PowerLoss, CrashKind::PowerLoss] {
        for seed in 0..3 {
            let state = recover(&sim.crash(kind, seed)).unwrap_or_else(|e| panic!("{what}: {e}")).state();
            let known = state == last || outcome.poisoned && outcome.perhaps.contains(&state);
            assert!(known, "{what}: edit {} after {}", state.store.edit_number, last.store.edit_number);
        }
    }
}

/// A full disk fails commits with `NoSpace`. The store continues without a reopen once there is
/// space again.
#[test]
fn a_full_disk_is_recoverable() {
    let (sim, manifest) = new_store(11);
    let mut editor = Editor::new(11);
    commit_some(&manifest, &mut editor, 10);
    let before = manifest.state();
    let fault = FaultPlan::nth(0, FaultEffect::NoSpace).kinds(&[io::sim::OpKind::Append]);
    sim.inject(fault);
    let e = manifest.commit(editor.edit(&before)).unwrap_err();
    assert_eq!((e.kind(), sim.faults_fired()), (ErrorKind::NoSpace, 1));
    assert_eq!(manifest.state(), before);
    commit_some(&manifest, &mut editor, 3);
    let state = manifest.state();
    drop(manifest);
    assert_eq!(recover(&sim.crash(CrashKind::PowerLoss, 1)).unwrap().state(), state);
}

/// A failed sync of a commit ends all acknowledgement; a failed sync of a new file that is not
/// referenced yet does not.
#[test]
fn a_failed_sync_poisons_the_manifest() {
    for (kind, roll) in
        [(io::sim::OpKind::Sync, false), (io::sim::OpKind::Sync, true), (io::sim::OpKind::Rename, true)]
    {
        let (sim, manifest) = new_store(12);
        let mut editor = Editor::new(12);
        commit_some(&manifest, &mut editor, 3);
        sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[kind]));
        let attempt =
            || if roll { manifest.commits().roll() } else { manifest.commit(Edit::default()).map(|_| ()) };
        assert_eq!(attempt().unwrap_err().kind(), ErrorKind::Io);
        let next = manifest.commit(Edit(vec![Record::Store(StoreRecord::LastSeq(1))]));
        if roll && kind == io::sim::OpKind::Sync {
            next.unwrap();
        } else {
            assert_eq!(next.unwrap_err().kind(), ErrorKind::Poisoned);
            assert_eq!(manifest.commits().roll().unwrap_err().kind(), ErrorKind::Poisoned);
            assert_eq!(manifest.commit(Edit::default()).unwrap_err().kind(), ErrorKind::Poisoned);
        }
    }
}
