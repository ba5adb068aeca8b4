use super::*;
use io::sim::threads::Plan;
use io::sim::{CrashKind, OpKind, SimEnv};
use io::{AlignedBuf, Priority};

const BLOCK: usize = 4096;

fn pair(sim: &SimEnv) -> VolumeDevices {
    let device = |name| sim.device(name, 64 * BLOCK as u64).unwrap();
    VolumeDevices::two(device("/fast"), device("/large"))
}

fn block(fill: u8) -> AlignedBuf {
    let mut block = AlignedBuf::zeroed(BLOCK);
    block.as_mut_slice().fill(fill);
    block
}

#[test]
fn offsets_select_the_device_and_position() {
    let sim = SimEnv::new(1);
    let ground = pair(&sim);
    ground.write_at(block(1).as_slice(), 3 * BLOCK as u64).unwrap();
    ground.write_at(block(2).as_slice(), SECOND_OFFSET + 3 * BLOCK as u64).unwrap();
    ground.write_durable(block(3).as_slice(), SECOND_OFFSET + 9 * BLOCK as u64).unwrap();
    ground.write_scratch(&[4; 5], SECOND_OFFSET).unwrap();
    let found = |name: &str, at: usize| sim.read_file(name).unwrap()[at * BLOCK];
    assert_eq!([found("/fast", 3), found("/large", 3), found("/large", 9), found("/large", 0)], [1, 2, 3, 4]);
    let (mut a, mut b, mut c) = ([0; 2], [0; 2], [0; 2]);
    let at = |n: u64| n * BLOCK as u64;
    ground
        .read_batch(&mut [
            ReadRequest { offset: SECOND_OFFSET + at(3), buf: &mut a },
            ReadRequest { offset: at(3) - 1, buf: &mut b },
            ReadRequest { offset: SECOND_OFFSET, buf: &mut c },
        ])
        .unwrap();
    assert_eq!([a, b, c], [[2, 2], [0, 1], [4, 4]]);
    ground.discard(SECOND_OFFSET + at(3), at(1)).unwrap();
    assert_eq!([found("/fast", 3), found("/large", 3)], [1, 0]);
    sim.lengthen_device("/fast", 99 * BLOCK as u64).unwrap();
    ground.measure().unwrap();
    assert_eq!(ground.device(Role::Fast).len(), 99 * BLOCK as u64);
    assert_eq!(ground.roles().collect::<Vec<_>>(), Role::ALL);
    let e = ground.all.clone().queue(Completions::Simulated).unwrap_err();
    assert_eq!(
        (e.kind(), e.message()),
        (ErrorKind::Unsupported, "a pair of devices has no common queue; use the queue of each device")
    );
}

#[test]
fn only_requested_dirty_devices_are_synced() {
    let sim = SimEnv::new(1);
    let ground = pair(&sim);
    let syncs = || ["/fast", "/large"].map(|name| sim.count_ops(Some(OpKind::SyncData), name));
    ground.sync_of(Roles::ALL).unwrap();
    assert_eq!(syncs(), [1, 1], "somebody before may have written");
    ground.sync_of(Roles::ALL).unwrap();
    assert_eq!(syncs(), [1, 1], "nothing was written since");
    ground.write_at(block(1).as_slice(), SECOND_OFFSET).unwrap();
    ground.sync_of(Roles::only(Role::Fast)).unwrap();
    assert_eq!(syncs(), [1, 1], "nobody asked for that device");
    ground.write_scratch(b"x", 0).unwrap();
    ground.sync().unwrap();
    assert_eq!(syncs(), [2, 2]);
    ground.write_durable(block(1).as_slice(), 0).unwrap();
    ground.sync().unwrap();
    assert_eq!(syncs(), [2, 2], "a durable write covers itself");
}

/// Threads write and sync under random schedules. After a sync returns, the earlier writes of its
/// thread are durable, even if another thread performed the sync.
#[test]
fn a_sync_covers_all_earlier_writes() {
    for seed in 0..60 {
        let sim = SimEnv::new(seed);
        let ground = pair(&sim);
        let machine = sim.clone();
        let ran = sim.run_threads(&Plan::new(seed), move |env| {
            let spawner = env.spawner.clone().unwrap();
            let threads = (0..3u64).map(|n| {
                let (ground, machine) = (ground.clone(), machine.clone());
                let body = move || {
                    for round in 0..3 {
                        let nth = n * 3 + round;
                        let at = SECOND_OFFSET + nth * BLOCK as u64;
                        ground.write_at(block(nth as u8 + 1).as_slice(), at).unwrap();
                        ground.sync_of(Roles::ALL).unwrap();
                        let left = machine.crash(CrashKind::PowerLoss, seed).read_file("/large").unwrap();
                        assert_eq!(
                            u64::from(left[nth as usize * BLOCK]),
                            nth + 1,
                            "thread {n}, round {round}"
                        );
                    }
                };
                spawner.spawn("writer", Priority::Foreground, Box::new(body)).unwrap()
            });
            let threads: Vec<_> = threads.collect();
            assert!(threads.into_iter().all(|thread| thread.join()));
        });
        assert!(ran.is_ok(), "seed {seed}: {ran:?}");
    }
}
