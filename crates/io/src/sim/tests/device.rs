use super::*;
use crate::device::BLOCK;
use std::collections::BTreeSet;

const LEN: u64 = 16 * BLOCK as u64;

fn first_bytes(sim: &SimEnv) -> [u8; 4] {
    let device = sim.device("/device", LEN).unwrap();
    let mut bytes = [[0]; 4];
    for (i, byte) in bytes.iter_mut().enumerate() {
        device.read_at(byte, (i * BLOCK) as u64).unwrap();
    }
    bytes.map(|[b]| b)
}

/// Returns a device whose first block is durable, the second synced, the third written, the fourth
/// discarded after a sync.
fn written() -> SimEnv {
    let sim = SimEnv::new(3);
    let device = sim.device("/device", LEN).unwrap();
    device.write_at(filled(1, 2).as_slice(), BLOCK as u64).unwrap();
    device.write_at(filled(1, 4).as_slice(), 3 * BLOCK as u64).unwrap();
    device.sync().unwrap();
    device.write_durable(filled(1, 1).as_slice(), 0).unwrap();
    device.write_at(filled(1, 3).as_slice(), 2 * BLOCK as u64).unwrap();
    device.discard(3 * BLOCK as u64, BLOCK as u64).unwrap();
    sim
}

#[test]
fn a_crash_keeps_durable_writes_and_may_lose_others() {
    let sim = written();
    assert_eq!(first_bytes(&sim), [1, 2, 3, 0]);
    let seen: BTreeSet<[u8; 4]> = power_losses(&sim).map(|after| first_bytes(&after)).collect();
    assert!(seen.iter().all(|bytes| bytes[..2] == [1, 2]), "{seen:?}");
    for third in [0, 3] {
        for fourth in [0, 4] {
            assert!(seen.contains(&[1, 2, third, fourth]), "never {third} and {fourth}");
        }
    }
    assert_eq!(first_bytes(&sim.crash(CrashKind::ProcessKill, 1)), [1, 2, 3, 0]);
}

#[test]
fn faults_apply_to_devices_as_to_files() {
    for (kind, effect) in [
        (OpKind::WriteAt, FaultEffect::Eio),
        (OpKind::WriteDurable, FaultEffect::Short),
        (OpKind::SyncData, FaultEffect::Eio),
        (OpKind::Read, FaultEffect::Eio),
        (OpKind::PunchHole, FaultEffect::Eio),
    ] {
        let sim = written();
        let device = sim.device("/device", LEN).unwrap();
        sim.inject(FaultPlan::nth(0, effect).kinds(&[kind]).path("device"));
        let failed = match kind {
            OpKind::WriteAt => device.write_at(filled(1, 9).as_slice(), 0),
            OpKind::WriteDurable => device.write_durable(filled(1, 9).as_slice(), 0),
            OpKind::SyncData => device.sync(),
            OpKind::Read => device.read_at(&mut [0], 0),
            _ => device.discard(0, BLOCK as u64),
        };
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Io, "{kind:?}");
        assert_eq!(sim.faults_fired(), 1);
    }
    let sim = written();
    let device = sim.device("/device", LEN).unwrap();
    sim.inject(FaultPlan::nth(0, FaultEffect::Misdirected).kinds(&[OpKind::WriteAt]));
    device.write_at(filled(1, 9).as_slice(), 0).unwrap();
    let bytes = sim.read_file("/device").unwrap();
    assert_eq!(bytes[0], 1);
    assert_eq!(bytes.iter().filter(|&&b| b == 9).count(), BLOCK, "the write went elsewhere");
}

#[test]
fn scratch_writes_survive_the_process() {
    let sim = written();
    let device = sim.device("/device", LEN).unwrap();
    device.write_scratch(b"xyz", 9 * BLOCK as u64 + 1).unwrap();
    let after = sim.crash(CrashKind::ProcessKill, 1);
    let mut found = [0; 3];
    after.device("/device", 0).unwrap().read_at(&mut found, 9 * BLOCK as u64 + 1).unwrap();
    assert_eq!(&found, b"xyz");
}

#[test]
fn device_growth_is_seen_on_measure_and_durable_after_sync() {
    let sim = written();
    let device = sim.device("/device", LEN).unwrap();
    sim.lengthen_device("/device", 2 * LEN).unwrap();
    assert_eq!((device.len(), device.measure().unwrap(), device.len()), (LEN, 2 * LEN, 2 * LEN));
    let lens = |sim: &SimEnv| -> BTreeSet<u64> {
        power_losses(sim).map(|after| after.device("/device", 0).unwrap().len()).collect()
    };
    let left = lens(&sim);
    assert!(left.contains(&LEN) && left.contains(&(2 * LEN)), "a crash may take it back: {left:?}");
    assert!(left.iter().all(|len| (LEN..=2 * LEN).contains(len)), "{left:?}");
    device.sync().unwrap();
    assert_eq!(lens(&sim), BTreeSet::from([2 * LEN]));
    // The same after a durable write at its end, with other writes unsynced.
    let sim = written();
    let device = sim.device("/device", LEN).unwrap();
    sim.lengthen_device("/device", 2 * LEN).unwrap();
    assert_eq!(device.measure().unwrap(), 2 * LEN);
    device.write_durable(filled(1, 0).as_slice(), 2 * LEN - BLOCK as u64).unwrap();
    assert_eq!(lens(&sim), BTreeSet::from([2 * LEN]));
    device.write_durable(filled(1, 8).as_slice(), 2 * LEN - BLOCK as u64).unwrap();
    assert_eq!(first_bytes(&sim), [1, 2, 3, 0], "what it held is there");
    let mut between = [9; 3];
    device.read_at(&mut between, LEN - 1).unwrap();
    assert_eq!(between, [0; 3]);
    // It never becomes shorter while it is open.
    sim.lengthen_device("/device", LEN).unwrap();
    assert_eq!((device.measure().unwrap(), device.len()), (2 * LEN, 2 * LEN));
    sim.inject(FaultPlan::nth(0, FaultEffect::Eio).kinds(&[OpKind::Metadata]));
    assert_eq!(device.measure().unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(sim.lengthen_device("/none", LEN).unwrap_err().kind(), ErrorKind::NotFound);
}

#[test]
#[should_panic(expected = "whole, aligned blocks")]
fn an_unaligned_write_is_a_bug_of_the_caller() {
    let device = SimEnv::new(1).device("/device", LEN).unwrap();
    let _ = device.write_at(&filled(1, 1).as_slice()[..512], 0);
}
