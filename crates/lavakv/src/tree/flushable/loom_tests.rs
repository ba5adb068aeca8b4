//! Every interleaving of a starting checkpoint, later writes, and a flush that picks memtables.

use super::*;
use base::ValueKind;
use base::sync::model::atomic::{AtomicU64, Ordering};
use base::sync::model::check;
use base::sync::model::loom::thread;
use version::Version;

#[test]
fn loom_a_flush_ceiling_is_respected_while_held() {
    check(3, || {
        let options = crate::context::options::Options::default();
        let (version, own) = (Arc::new(Version::new(1)), options.family.clone());
        let family = Arc::new(Family::new(1, "f".into(), own, version, 1, &options, Default::default()));
        let ceiling = Arc::new(AtomicU64::new(SeqNo::MAX));
        let write = |family: &Family, seq: SeqNo| {
            family.read_state().active.insert(seq, ValueKind::Value, &[seq as u8], b"v");
            family.rotate(seq + 1);
        };
        let writer = {
            let (family, ceiling) = (family.clone(), ceiling.clone());
            thread::spawn(move || {
                write(&family, 1);
                ceiling.store(1, Ordering::Release);
                write(&family, 2);
            })
        };
        let found = flushable([family], || ceiling.load(Ordering::Acquire));
        let highest = found.iter().flat_map(|(.., memtables)| memtables).filter_map(|m| m.seq_range());
        assert!(highest.map(|(_, high)| high).max().unwrap_or(0) <= 1, "the checkpoint has not ended");
        writer.join().unwrap();
    });
}
