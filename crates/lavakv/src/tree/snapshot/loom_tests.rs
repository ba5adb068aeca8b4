//! Every interleaving of publishing writers, new snapshots, jobs that list the sequences to keep,
//! and reads that pin a read state during rotation and flush.
//!
//! The reader is the thread that loom runs second: from there it explores all values that a load
//! may return.

use super::*;
use crate::context::options::Options;
use crate::tree::family::Family;
use base::ValueKind;
use base::sync::model::check;
use base::sync::model::loom::thread;
use version::Version;

/// True if a job with `list` keeps the older of two versions with the sequences `seq` and
/// `seq + 1`. One of the list's sequences must lie between them.
fn job_keeps(list: &[SeqNo], seq: SeqNo) -> bool {
    list.contains(&seq)
}

/// Each job that starts while a snapshot is held keeps the versions that the snapshot sees.
#[test]
fn loom_a_job_keeps_the_versions_of_a_snapshot() {
    check(3, || {
        let registry = Arc::new(Snapshots::default());
        registry.publish(1);
        let job = {
            let registry = registry.clone();
            thread::spawn(move || registry.for_job())
        };
        let reader = {
            let registry = registry.clone();
            thread::spawn(move || Snapshot::take(&registry, "", 0))
        };
        registry.publish(2);
        registry.publish(3);
        let (list, snapshot) = (job.join().unwrap(), reader.join().unwrap());
        let seq = snapshot.sequence();
        let frontier = *list.last().unwrap();
        assert!(seq >= frontier || job_keeps(&list, seq), "{seq} of {list:?}");
        assert!(registry.for_job().contains(&seq));
        drop(snapshot);
        assert_eq!(registry.for_job(), [3]);
    });
}

/// A read sees everything up to its sequence, wherever rotation and flush have moved it meanwhile.
#[test]
fn loom_a_read_sees_all_up_to_its_sequence() {
    check(2, || {
        let options = Options::default();
        let version = Arc::new(Version::new(1));
        let family =
            Family::new(1, "f".into(), options.family.clone(), version, 1, &options, Default::default());
        let (family, registry) = (Arc::new(family), Arc::new(Snapshots::default()));
        let put = |family: &Family, registry: &Snapshots, seq: SeqNo| {
            family.read_state().active.insert(seq, ValueKind::Value, &[seq as u8], b"v");
            registry.publish(seq);
        };
        put(&family, &registry, 1);
        let reader = {
            let (family, registry) = (family.clone(), registry.clone());
            thread::spawn(move || {
                let (read_state, seq) = crate::tree::family::pin_at(&registry, &family);
                let tables = [&read_state.active].into_iter().chain(&read_state.frozen);
                let found: Vec<bool> =
                    (1..=seq).map(|s| tables.clone().any(|m| m.get(&[s as u8], seq).is_some())).collect();
                assert!(found.iter().all(|found| *found), "{found:?}");
            })
        };
        put(&family, &registry, 2);
        family.rotate(2);
        put(&family, &registry, 3);
        reader.join().unwrap();
        assert_eq!(registry.visible(), 3);
    });
}
