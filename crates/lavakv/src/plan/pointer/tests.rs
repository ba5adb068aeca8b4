//! Tests of the pointer over two simulated tiers, modeled as a closed queueing network of workers
//! and devices.

use super::*;
use datadriven::TestCase;
use std::error::Error;

const SECOND: f64 = 1e9;
const WINDOW_NS: u64 = 1_000_000_000;

/// A device.
#[derive(Clone, Copy)]
struct Disk {
    bytes_per_s: f64,
    read_ns: f64,
}

/// One operation of a phase: bytes of the log, and for each level the bytes of background work and
/// the reads.
#[derive(Clone)]
struct Load {
    log_bytes: f64,
    bytes: [f64; LEVELS],
    reads: [f64; LEVELS],
    /// Concurrent workers.
    workers: usize,
}

const LEVELS: usize = 5;
const SLOW: Disk = Disk { bytes_per_s: 60e6, read_ns: 400_000.0 };

/// Returns the part of each level on the fast tier.
fn parts(pointer: u32) -> [f64; LEVELS] {
    std::array::from_fn(|level| {
        f64::from(pointer.saturating_sub(level as u32 * LEVEL).min(LEVEL)) / f64::from(LEVEL)
    })
}

/// Returns operations per second, and the load of the devices, by mean value analysis of the
/// network.
fn run(load: &Load, fast: Disk, pointer: u32) -> (f64, Used, Used) {
    let parts = parts(pointer);
    let sum = |of: &[f64; LEVELS], on: bool| -> f64 {
        of.iter().zip(parts).map(|(x, part)| x * if on { part } else { 1.0 - part }).sum()
    };
    let (bytes, reads) = (
        [sum(&load.bytes, true), sum(&load.bytes, false)],
        [sum(&load.reads, true), sum(&load.reads, false)],
    );
    let disks = [fast, SLOW];
    let log_ns = load.log_bytes / fast.bytes_per_s * SECOND;
    let demand: [f64; 2] = std::array::from_fn(|d| {
        bytes[d] / disks[d].bytes_per_s * SECOND
            + reads[d] * disks[d].read_ns
            + if d == 0 { log_ns } else { 0.0 }
    });
    let (mut waiting, mut rate) = ([0.0; 2], 0.0);
    let mut slower = [1.0; 2];
    for n in 1..=load.workers {
        slower = waiting.map(|waiting| 1.0 + waiting);
        let took: [f64; 2] = std::array::from_fn(|d| demand[d] * slower[d]);
        rate = n as f64 / (took[0] + took[1]);
        waiting = took.map(|took| rate * took);
    }
    let per_s = rate * SECOND;
    let used = |d: usize| Used {
        bytes: (bytes[d] * per_s) as u64,
        bytes_ns: (bytes[d] * per_s / disks[d].bytes_per_s * SECOND * slower[d]) as u64,
        reads: (reads[d] * per_s) as u64,
        reads_ns: (reads[d] * per_s * disks[d].read_ns * slower[d]) as u64,
        log_bytes: if d == 0 { (load.log_bytes * per_s) as u64 } else { 0 },
        log_late_ns: if d == 0 { (log_ns * per_s * (slower[0] - 1.0)) as u64 } else { 0 },
    };
    (per_s, used(0), used(1))
}

const MOST: u32 = LEVELS as u32 * LEVEL;

/// Runs a phase for so many seconds; returns the operations done.
fn phase(pointer: &mut Pointer, now_ns: &mut u64, load: &Load, fast: Disk, seconds: u64) -> f64 {
    let mut done = 0.0;
    for _ in 0..seconds {
        let (rate, speed, capacity) = run(load, fast, pointer.at());
        done += rate;
        *now_ns += WINDOW_NS;
        pointer.see(&TierWindow {
            now_ns: *now_ns,
            speed,
            capacity,
            room: FastTierRoom::Plenty,
            most: MOST,
            filled: 0b11111,
        });
    }
    done
}

/// A write-heavy load, with compactions in each level.
fn writes() -> Load {
    Load {
        log_bytes: 1000.0,
        bytes: [1000.0, 2000.0, 4000.0, 6000.0, 3000.0],
        reads: [0.0; LEVELS],
        workers: 4,
    }
}

fn reads() -> Load {
    Load {
        log_bytes: 50.0,
        bytes: [50.0, 100.0, 200.0, 200.0, 100.0],
        reads: [0.05, 0.1, 0.2, 0.4, 0.25],
        workers: 8,
    }
}

fn mixed() -> Load {
    Load {
        log_bytes: 500.0,
        bytes: [500.0, 1000.0, 2000.0, 3000.0, 1500.0],
        reads: [0.02, 0.05, 0.1, 0.2, 0.13],
        workers: 6,
    }
}

/// The load of a device in a second: unused, idle, quick, busy, or `late` with a delayed log.
fn used(name: &str) -> Used {
    let quick = Used { bytes: 50 << 20, bytes_ns: 100_000_000, ..Used::default() };
    match name {
        "unused" => Used::default(),
        "idle" => Used { bytes: 300 << 10, bytes_ns: 2_000_000, ..Used::default() },
        "quick" => quick,
        "busy" => Used { bytes_ns: 900_000_000, ..quick },
        "late" => Used { log_late_ns: 2_000_000_000, ..quick },
        other => panic!("no disk is {other}"),
    }
}

fn room(name: &str) -> FastTierRoom {
    match name {
        "plenty" => FastTierRoom::Plenty,
        "enough" => FastTierRoom::Enough,
        "short" => FastTierRoom::Short,
        other => panic!("no room is {other}"),
    }
}

/// Parses the fast tier of a script.
fn fast_tier(case: &mut TestCase) -> Result<Disk, Box<dyn Error>> {
    let (mb, us): (f64, f64) = (case.take_arg("mb-per-s")?, case.take_arg("read-us")?);
    Ok(Disk { bytes_per_s: mb * 1e6, read_ns: us * 1e3 })
}

/// Runs the phases of the lines in sequence. Prints the operations of each, in percent of the best
/// fixed placement, including the log alone.
fn phases(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let (fast, seconds) = (fast_tier(case)?, case.take_arg("seconds-each")?);
    let (mut pointer, mut now_ns, mut out) = (Pointer::default(), 0, String::new());
    for of in case.input.lines() {
        let load = match of {
            "writes" => writes(),
            "reads" => reads(),
            "mixed" => mixed(),
            other => return Err(format!("no phase is called {other}").into()),
        };
        let moving = phase(&mut pointer, &mut now_ns, &load, fast, seconds) / seconds as f64;
        let best = (0..=LEVELS as u32).map(|levels| run(&load, fast, levels * LEVEL).0).fold(0.0, f64::max);
        out += &format!("{of}: {:.0} % of the best placement\n", (moving / best * 100.0).floor());
    }
    Ok(out)
}

/// Prints how often the pointer moves under a write-heavy load.
fn moves(case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let (fast, seconds) = (fast_tier(case)?, case.take_arg::<u64>("seconds")?);
    let (mut pointer, mut now_ns, mut moves, mut before) = (Pointer::default(), 0, 0, 0);
    for _ in 0..seconds {
        phase(&mut pointer, &mut now_ns, &writes(), fast, 1);
        moves += u32::from(pointer.at() != before);
        before = pointer.at();
    }
    Ok(format!("{moves} moves\n"))
}

fn command(state: &mut (Pointer, u64), case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let out = match &*case.directive {
        "new" => {
            *state = (Pointer::default(), WINDOW_NS);
            String::new()
        }
        "seconds" => seconds(state, case)?,
        "phases" => phases(case)?,
        "moves" => moves(case)?,
        other => return Err(format!("no command is called {other}").into()),
    };
    case.expect_empty()?;
    Ok(out)
}

/// Runs consecutive seconds of a script.
fn seconds((pointer, now_ns): &mut (Pointer, u64), case: &mut TestCase) -> Result<String, Box<dyn Error>> {
    let (fast, slow) = (case.take_arg::<String>("fast-tier")?, case.take_arg::<String>("capacity-tier")?);
    let room = room(&case.try_take_arg::<String>("room")?.unwrap_or_else(|| "plenty".into()));
    let mut out = String::new();
    for second in 1..=case.take_arg("count")? {
        *now_ns += WINDOW_NS;
        let (speed, capacity) = (used(&fast), used(&slow));
        let window = TierWindow { now_ns: *now_ns, speed, capacity, room, most: MOST, filled: 0b11111 };
        if let Some(why) = pointer.see(&window) {
            out += &format!("after {second} s: at {} of {MOST}, {why:?}\n", pointer.at());
        }
    }
    Ok(if out.is_empty() { format!("it stays at {}\n", pointer.at()) } else { out })
}

#[test]
fn scripts() {
    datadriven::walk("src/plan/pointer/scripts", |file| {
        let mut state = (Pointer::default(), WINDOW_NS);
        file.run(|case| command(&mut state, case));
    });
}
