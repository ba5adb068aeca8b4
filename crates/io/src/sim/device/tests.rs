use crate::device::{BlockDevice, Completions, DeviceDone, DeviceQueue, DeviceRequest};
use crate::sim::{CrashKind, DeviceModel, FaultEffect, FaultPlan, OpKind, Policy, SimEnv};
use crate::{AlignedBuf, BLOCK, Rng};
use base::ErrorKind;
use std::fmt::Write;
use std::sync::Arc;

const BLOCKS: u64 = 1024;
const DEPTHS: [usize; 7] = [1, 2, 4, 8, 16, 32, 64];

fn device(seed: u64, model: DeviceModel) -> (SimEnv, Arc<dyn BlockDevice>) {
    let sim = SimEnv::new(seed);
    let device = sim.device("/device", BLOCKS * BLOCK as u64).unwrap();
    sim.set_device_model("/device", model).unwrap();
    (sim, device)
}

fn block(byte: u8) -> AlignedBuf {
    let mut buf = AlignedBuf::zeroed(BLOCK);
    buf.as_mut_slice().fill(byte);
    buf
}

/// Runs block requests at random places, always `depth` in flight. Returns thousands per second,
/// and the mean and the 99th percentile of their durations, in tenths of a microsecond.
fn closed_loop(model: DeviceModel, depth: usize, write: bool) -> (u64, u64, u64) {
    let (sim, device) = device(7, model);
    let mut queue = device.queue(Completions::Polled).unwrap();
    let mut rng = Rng::new(depth as u64);
    let (count, mut begun, mut took_ns, mut done) = (4000, Vec::new(), Vec::new(), Vec::new());
    while took_ns.len() < count {
        while queue.in_flight() < depth && begun.len() < count {
            let (token, offset) = (begun.len() as u64, rng.below(BLOCKS) * BLOCK as u64);
            begun.push(sim.now_ns());
            queue.submit(match write {
                true => DeviceRequest::write(token, offset, block(1)),
                false => DeviceRequest::read(token, offset, BLOCK),
            });
        }
        queue.wait(&mut done);
        took_ns.extend(done.drain(..).map(|d| sim.now_ns() - begun[d.token as usize]));
    }
    took_ns.sort_unstable();
    let mean_ns = took_ns.iter().sum::<u64>() / count as u64;
    let a_second = count as u64 * 1_000_000_000 / sim.now_ns();
    ((a_second + 500) / 1000, (mean_ns + 50) / 100, (took_ns[count * 99 / 100] + 50) / 100)
}

/// The decision page shows the result of the experiment, which is the same on every machine.
#[test]
#[allow(clippy::disallowed_methods, reason = "a page of the project, no file of a store")]
fn the_page_shows_how_depth_pays() {
    const BEGIN: &str =
        "<!-- depths: written by `LAVASTORE_BLESS=1 cargo test -p lavastore-io the_page_shows` -->\n";
    const END: &str = "<!-- end of depths -->";
    let mut table = String::new();
    table +=
        "| in flight | Optane reads | Optane writes | NVMe reads | NVMe writes |\n|---|---|---|---|---|\n";
    for depth in DEPTHS {
        let _ = write!(table, "| {depth} |");
        for model in [DeviceModel::OPTANE, DeviceModel::NVME] {
            for write in [false, true] {
                let (thousands, mean, p99) = closed_loop(model, depth, write);
                let us = |tenths: u64| format!("{}.{}", tenths / 10, tenths % 10);
                let _ = write!(table, " {thousands}k, {} us, {} us |", us(mean), us(p99));
            }
        }
        table.push('\n');
    }
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/decisions/0077-requests-to-a-device-in-flight.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the table");
    let (shown, after) = rest.split_once(END).expect("and the table an end");
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(&path, [before, BEGIN, &table, END, after].concat()).unwrap();
    } else {
        assert!(shown == table, "the table is another: LAVASTORE_BLESS=1 writes it anew\n{table}");
    }
}

/// Properties of the models: a single request takes its latency, many are as fast as the channel,
/// and the fast disk needs few for that.
#[test]
fn throughput_grows_with_depth_up_to_the_channels() {
    for model in [DeviceModel::OPTANE, DeviceModel::NVME] {
        for write in [false, true] {
            let service = if write { model.write } else { model.read };
            let (alone, mean, _) = closed_loop(model, 1, write);
            let least = service.latency_ns / 100;
            assert!((least..=least + 5 * service.spread_ns / 100 + 4).contains(&mean), "{mean}: {service:?}");
            let most = closed_loop(model, 64, write).0;
            let channel = service.bytes_per_second / BLOCK as u64 / 1000;
            let ways = alone * service.ways as u64;
            let (least, bound) = (channel.min(ways) * 3 / 4, channel.min(ways * 5 / 4) + 5);
            assert!((least..=bound).contains(&most), "{most} of {channel} and {ways}: {service:?}");
        }
    }
    let of_most = |model, depth| 100 * closed_loop(model, depth, false).0 / closed_loop(model, 64, false).0;
    assert!(of_most(DeviceModel::OPTANE, 8) > 90, "few in flight are enough");
    assert!(of_most(DeviceModel::NVME, 8) < 30, "of flash, many");
}

#[test]
fn blocking_call_latency_follows_the_model_and_seed() {
    let run = |seed| {
        let (sim, device) = device(seed, DeviceModel::OPTANE);
        let begin_ns = sim.now_ns();
        device.write_at(block(1).as_slice(), 0).unwrap();
        device.read_at(&mut [0; 5], 9).unwrap();
        device.sync().unwrap();
        sim.now_ns() - begin_ns
    };
    assert_eq!(run(1), run(1));
    assert!((18_000..60_000).contains(&run(1)) && run(1) != run(2));
}

fn all(queue: &mut dyn DeviceQueue) -> Vec<DeviceDone> {
    let mut done = Vec::new();
    while queue.in_flight() > 0 {
        queue.wait(&mut done);
    }
    done
}

#[test]
fn a_poll_does_not_wait_and_spinning_advances_time() {
    let (sim, device) = device(1, DeviceModel::NVME);
    let mut queue = device.queue(Completions::Interrupts).unwrap();
    assert_eq!(queue.completions(), Completions::Simulated);
    queue.submit(DeviceRequest::read(1, 0, BLOCK));
    let (mut done, mut polls, begin_ns) = (Vec::new(), 0, sim.now_ns());
    queue.poll(&mut done);
    assert!(done.is_empty() && sim.now_ns() - begin_ns < 1_000);
    while done.is_empty() {
        queue.poll(&mut done);
        polls += 1;
    }
    assert!((300..2000).contains(&polls), "{polls}");
    queue.wait(&mut done);
    assert_eq!(done.len(), 1, "nothing is in flight");
}

/// A crash leaves nothing of a request in flight, any part of one reported as done, and all of one
/// synced after that.
#[test]
fn a_request_in_flight_is_not_durable() {
    let (sim, device) = device(1, DeviceModel::OPTANE);
    let mut queue = device.clone().queue(Completions::Polled).unwrap();
    queue.submit(DeviceRequest::write(1, 0, block(1)));
    assert!(all(&mut *queue)[0].result.is_ok());
    device.sync().unwrap();
    queue.submit(DeviceRequest::write(2, BLOCK as u64, block(2)));
    all(&mut *queue);
    queue.submit(DeviceRequest::write(3, 2 * BLOCK as u64, block(3)));
    let mut second = [false; 2];
    for (policy, seed) in Policy::ALL.into_iter().flat_map(|policy| (0..10).map(move |seed| (policy, seed))) {
        let left = sim.crash(CrashKind::PowerLossWith(policy), seed);
        let bytes = left.read_file("/device").unwrap();
        let of = |n: usize| bytes[n * BLOCK];
        assert_eq!((of(0), of(2)), (1, 0));
        second[usize::from(of(1) == 2)] = true;
    }
    assert_eq!(second, [true; 2]);
    drop(queue);
    assert_eq!(sim.read_file("/device").unwrap()[2 * BLOCK], 3, "dropping a queue waits");
}

#[test]
fn faults_apply_to_requests_as_to_calls() {
    for (kind, effect) in [
        (OpKind::Read, FaultEffect::Eio),
        (OpKind::WriteAt, FaultEffect::Short),
        (OpKind::WriteAt, FaultEffect::NoSpace),
    ] {
        let (sim, device) = device(1, DeviceModel::OPTANE);
        sim.inject(FaultPlan::nth(1, effect).kinds(&[kind]).path("device"));
        let mut queue = device.queue(Completions::Polled).unwrap();
        for n in 0..4 {
            queue.submit(match kind {
                OpKind::Read => DeviceRequest::read(n, n * BLOCK as u64, BLOCK),
                _ => DeviceRequest::write(n, n * BLOCK as u64, block(1)),
            });
        }
        let failed: Vec<ErrorKind> =
            all(&mut *queue).iter().filter_map(|d| Some(d.result.as_ref().err()?.kind())).collect();
        let wanted = if effect == FaultEffect::NoSpace { ErrorKind::NoSpace } else { ErrorKind::Io };
        assert_eq!((failed, sim.faults_fired()), (vec![wanted], 1));
    }
}
