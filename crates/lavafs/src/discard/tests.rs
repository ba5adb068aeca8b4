use super::*;
use crate::{FormatOptions, LavaFs, MountOptions, format, mount};
use io::sim::SimEnv;
use io::sim::threads::Plan;
use io::{CreateOptions, Env, FileSystem, Rng, SyncKind};
use std::path::Path;

const MS: u64 = 1_000_000;

/// The limit holds in every period, for any sequence of freed blocks and requests.
#[test]
fn discards_keep_the_rate_in_every_interval() {
    let mut rng = Rng::new(1);
    for rate in [1, 5_000, 1 << 20, 256 << 20] {
        let mut discards = Discards::new(rate);
        let mut told: Vec<(u64, u64)> = Vec::new();
        let (mut now_ns, mut at) = (rng.below(10 * SECOND_NS), 100);
        for _ in 0..400 {
            if rng.one_in(3) {
                let blocks = rng.range(1, 5000) as u32;
                discards.note(Extent::new(at, blocks));
                at += blocks + 7;
            }
            if let Some(extent) = discards.take(now_ns) {
                told.push((now_ns, extent.len()));
            }
            now_ns += rng.below(200 * MS);
        }
        let run = (rate / RUNS_A_SECOND).max(BLOCK);
        for from in 0..told.len() {
            let mut sum = 0;
            for &(at_ns, len) in &told[from..] {
                sum += len;
                let took_ns = u128::from(at_ns - told[from].0 + SECOND_NS);
                let most = u128::from(rate) * took_ns / u128::from(SECOND_NS) + u128::from(run);
                assert!(u128::from(sum) <= most, "{sum} bytes in {took_ns} ns at {rate} a second");
            }
        }
        assert!(!told.is_empty());
    }
}

#[test]
fn free_blocks_are_discarded_once_unless_reallocated() {
    let mut discards = Discards::new(1 << 30);
    discards.note(Extent::new(100, 50));
    discards.note(Extent::new(140, 20));
    discards.forget(Extent::new(110, 5));
    let mut told: Vec<Extent> = std::iter::from_fn(|| discards.take(0)).collect();
    told.sort_unstable();
    assert_eq!(told, [Extent::new(100, 10), Extent::new(115, 45)]);
    assert!(discards.is_empty() && discards.take(u64::MAX).is_none());
}

/// 1 MiB per second.
const RATE: u64 = 1 << 20;
const FILE_LEN: u64 = 8 * RATE;

/// Returns a volume with a discard rate of 1 MiB per second, from which a file of 8 MiB was
/// removed.
fn with_freed_blocks(sim: &SimEnv, env: &Env) -> LavaFs {
    let device = sim.device("/device", 4 * FILE_LEN).unwrap();
    let options = FormatOptions { journal_len: 16 << 10, ..FormatOptions::default() };
    format(env, &*device, &options).unwrap();
    let options = MountOptions { discard: true, discard_bytes_per_second: RATE, ..MountOptions::default() };
    let fs = mount(env, device, options).unwrap();
    let path = Path::new("/a");
    let mut file = fs.create(path, &CreateOptions::default()).unwrap();
    file.append(&vec![7; FILE_LEN as usize]).unwrap();
    file.sync(SyncKind::Full).unwrap();
    drop(file);
    fs.remove(path).unwrap();
    fs.sync_dir(Path::new("/")).unwrap();
    fs
}

#[test]
fn discards_keep_their_rate_and_finish_eventually() {
    let sim = SimEnv::new(1);
    let fs = with_freed_blocks(&sim, &sim.env());
    let began_ns = sim.now_ns();
    let mut told = 0;
    for n in 0..2000 {
        // Each commit runs one step of background maintenance.
        fs.create_dir_all(Path::new(&format!("/{n}"))).unwrap();
        fs.sync_dir(Path::new("/")).unwrap();
        sim.advance_ns(10 * MS);
        let now = fs.statistics().discarded_bytes;
        let most = RATE * (sim.now_ns() - began_ns + SECOND_NS) / SECOND_NS + RATE / RUNS_A_SECOND;
        assert!(now <= most, "{now} bytes after {} ms", (sim.now_ns() - began_ns) / MS);
        told = now;
    }
    assert!(told >= FILE_LEN, "{told} bytes in the end");
}

/// With threads, the thread of the volume issues discards without calls. An unmount does not wait
/// for discards that are not allowed yet.
#[test]
fn a_thread_issues_discards_and_unmount_does_not_wait() {
    for (seed, rest_ns) in [(1, 0), (2, 3 * SECOND_NS), (3, 20 * SECOND_NS), (4, 20 * SECOND_NS)] {
        let sim = SimEnv::new(seed);
        let machine = sim.clone();
        let ran = sim.run_threads(&Plan { steps_max: 400_000, ..Plan::new(seed) }, move |env| {
            let fs = with_freed_blocks(&machine, env);
            env.clock.sleep_ns(rest_ns);
            let told = fs.statistics().discarded_bytes;
            if rest_ns > 10 * SECOND_NS {
                assert!(told >= FILE_LEN, "seed {seed}: {told} bytes");
            } else {
                assert!(told < FILE_LEN, "seed {seed}: {told} bytes");
            }
            let ends_ns = env.clock.now_ns();
            fs.unmount().unwrap();
            let took_ns = env.clock.now_ns() - ends_ns;
            assert!(took_ns < SECOND_NS / 4, "seed {seed}: {took_ns} ns");
        });
        assert!(ran.is_ok(), "seed {seed}: {ran:?}");
    }
}
