//! Damage to any file of a store with both engines.

use crate::answers::{ask, names_a_file};
use crate::life::{Found, Life, open};
use crate::simulated;
use io::Rng;
use io::sim::{CrashKind, SimEnv};

/// Each flipped bit leads to an error that names a file, or has no effect; no batch loses one half.
#[test]
fn a_flipped_bit_in_any_file_never_yields_half_a_batch() {
    let (mut refused, mut damaged, mut harmless, mut cut) = (0, 0, 0, 0);
    for seed in 0..24 {
        let closed = seed % 3 > 0;
        let mut life = Life::new(SimEnv::new(seed), simulated, seed, Found::NOTHING);
        life.live(100);
        life.live_on(60, closed);
        let left = life.sim.crash(CrashKind::ProcessKill, seed);
        let mut rng = Rng::new(seed);
        for (path, len) in left.files().into_iter().filter(|(_, len)| *len > 0) {
            let sim = left.fork(rng.next_u64());
            sim.flip_bit(path, rng.below(len), rng.next_u64() as u32).unwrap();
            match open(&sim.env()) {
                Err(e) => {
                    names_a_file(&e, "open");
                    refused += 1;
                }
                Ok((db, logs)) => {
                    let answered = ask(&life, &db, &logs, closed);
                    damaged += u64::from(answered.damaged > 0);
                    harmless += u64::from(answered.damaged == 0);
                    cut += u64::from(answered.cut > 0);
                }
            }
        }
    }
    assert!(refused > 3 && damaged > 3 && harmless > 10, "{refused} {damaged} {harmless} {cut}");
}
