//! Row `block`: loss of power below the kernel's file systems, and below LavaFS on a raw device.
//!
//! A process writes to a store on ext4, XFS, btrfs or LavaFS, through io_uring or the portable
//! engine. The block device below logs every request ([`rig`]). The log yields images that a loss
//! of power at some moment may leave ([`log`]): all writes before the last completed flush, and any
//! of the later ones, in part or whole. Each image is mounted, and its store is opened unaided,
//! twice. Batches acknowledged as durable before that moment must be present, and of the later ones
//! a prefix of whole batches ([`scenario`]).
//!
//! A case is one recording and some images of it. It runs in its own process and namespaces. The
//! row needs root, loop devices, FUSE, and some programs; if any is missing, the row names it and
//! counts its images as skipped.
//!
//! Threads and the real disk influence the recording, so a seed repeats the work, not the images. A
//! failing image is kept.

mod log;
mod rig;
mod scenario;

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::driver::scan;
use crate::files::check_at_rest;
use crate::plan;
use crate::state::difference;
use crate::tally;
use io::Rng;
use io::kernel::IoEngine;
use io::kernel::device::{self, DeviceOptions};
use lavastore::lavafs::fsck;
use lavastore::{Db, Env, WriteOptions};
use log::{DeviceImage, Replay};
use rig::{Below, Loop, Mounted, Rig};
use scenario::{Record, Scenario};
use serde::{Deserialize, Serialize};
use std::io::Read;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Hidden row: a case in its namespaces.
pub(crate) const INSIDE: &str = "block-inside";
/// Hidden row: the writer; its count is the number of the session.
pub(crate) const WRITER: &str = "block-writer";

/// Cases that share the count of the row: each file system with each engine.
const CASES: u64 = 8;
const IMAGES_MIN: u64 = 19;
const IMAGES_MAX: u64 = 80;
/// Timeout of a case in seconds.
const PATIENCE_S: &str = "600";
/// Directories of programs for root.
const MORE_PATH: &str = "/usr/local/sbin:/usr/sbin:/sbin";
/// Programs required for the block device.
const PROGRAMS: [&str; 6] = ["qemu-storage-daemon", "losetup", "mount", "umount", "unshare", "timeout"];
/// Files that must be writable.
const DEVICES: [&str; 2] = ["/dev/fuse", "/dev/loop-control"];

/// Result of a case, sent to the parent process.
#[derive(Debug, Default, Serialize, Deserialize)]
struct CaseReport {
    passed: u64,
    failures: Vec<String>,
    images: Vec<u64>,
    /// Reason for missing images.
    skipped: Option<String>,
    notes: Vec<(String, u64)>,
}

const BATCHES: &str = "batches acknowledged";
const REQUESTS: &str = "requests of the device";
const PORTABLE: &str = "images written by the portable engine";
const RINGS: &str = "images written with io_uring";

pub(crate) fn case(context: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let images = (context.count / CASES).clamp(IMAGES_MIN, IMAGES_MAX);
    if let Some(why) = lacking(Scenario::new(seed).fs) {
        outcome.skip(why, images);
        return outcome;
    }
    match run_inside(context, seed, images) {
        Ok(report) => take(&mut outcome, report, images),
        Err(why) => outcome.take(Err(why)),
    }
    let _ = std::fs::remove_dir(context.dir.join(scratch_name(seed)));
    let _ = std::fs::remove_dir(&context.dir);
    outcome
}

fn scratch_name(seed: u64) -> String {
    format!("scratch-{seed}")
}

fn take(outcome: &mut Outcome, report: CaseReport, images: u64) {
    if let Some(why) = report.skipped {
        return outcome.skip(why, images);
    }
    outcome.passed = report.passed;
    outcome.failures = report.failures;
    outcome.images = report.images.into_iter().map(Into::into).collect();
    let own = [BATCHES, REQUESTS, PORTABLE, RINGS].into_iter().chain(Below::ALL.map(Below::count_name));
    let names: Vec<&'static str> = own.chain(tally::names()).collect();
    for (name, count) in report.notes {
        if let Some(name) = names.iter().find(|n| **n == name) {
            outcome.note(name, count);
        }
    }
}

/// Returns the search path for programs.
fn path() -> String {
    format!("{}:{MORE_PATH}", std::env::var("PATH").unwrap_or_default())
}

/// Returns the missing requirements of this machine.
fn lacking(fs: Below) -> Option<String> {
    let paths = path();
    let missing = |programs: &[&'static str]| -> Option<String> {
        let there = |program: &str| paths.split(':').any(|dir| Path::new(dir).join(program).is_file());
        let missing: Vec<_> = programs.iter().copied().filter(|program| !there(program)).collect();
        (!missing.is_empty()).then(|| format!("there is no {}", missing.join(", no ")))
    };
    let closed = || {
        let closed: Vec<_> = DEVICES.into_iter().filter(|device| !rig::can_write(device)).collect();
        (!closed.is_empty()).then(|| format!("this user may not write to {}", closed.join(" and ")))
    };
    let confined = || {
        let probe = ["--mount", "--pid", "--fork", "true"];
        let output = Command::new("unshare").env("PATH", path()).args(probe).output();
        let allowed = output.is_ok_and(|output| output.status.success());
        (!allowed).then(|| "name spaces of mounts and processes are not allowed here".to_owned())
    };
    let common = missing(&PROGRAMS).or_else(closed).or_else(confined);
    common.or_else(|| match fs {
        Below::Btrfs => missing(&["mkfs.btrfs", "btrfs"]),
        fs => fs.maker().and_then(|maker| missing(&maker[..1])),
    })
}

/// Runs a case in its own process.
fn run_inside(context: &Context, seed: u64, images: u64) -> Check<CaseReport> {
    let program = std::env::current_exe().doing(|| "own path".into())?;
    let mut child = Command::new("timeout")
        .env("PATH", path())
        .args(["--foreground", "--signal=KILL", PATIENCE_S])
        .args([
            "unshare",
            "--mount",
            "--propagation=private",
            "--pid",
            "--fork",
            "--kill-child",
            "--mount-proc",
        ])
        .arg(program)
        .arg(INSIDE)
        .arg("--dir")
        .arg(&context.dir)
        .args(["--seed", &seed.to_string(), "--count", &images.to_string()])
        .args(crate::plan::with_arguments())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .doing(|| "start of a case".into())?;
    // Held until the case ends: the case exits when the other end of this pipe is closed.
    let held = child.stdin.take();
    let mut said = String::new();
    child.stdout.take().ok_or("no pipe")?.read_to_string(&mut said).doing(|| "reading from a case".into())?;
    drop(held);
    let status = child.wait().doing(|| "wait".into())?;
    ensure!(status.success(), "the case ended with {status}, or took more than {PATIENCE_S} s");
    serde_json::from_str(&said).doing(|| "the report of a case".into())
}

/// Main function of a case process.
pub(crate) fn inside(dir: &Path, seed: u64, images: u64) -> ExitCode {
    let watch = Box::new(|| {
        let _ = std::io::stdin().read(&mut [0]);
        // Everything in these namespaces ends with this process.
        std::process::exit(1);
    });
    let env = Env::kernel();
    let watching = env.spawner.as_ref().map(|s| s.spawn("watch", io::Priority::Foreground, watch));
    if !matches!(watching, Some(Ok(_))) {
        return ExitCode::FAILURE;
    }
    let scratch = dir.join(scratch_name(seed));
    let mut report = CaseReport::default();
    let done = guarded(|| try_case(dir, &scratch, seed, images, &mut report));
    if let Err(why) = done.and_then(|done| done) {
        report.failures.push(why);
    }
    report.notes.extend(tally::take().map(|(name, count)| (name.to_owned(), count)));
    println!("{}", serde_json::to_string(&report).unwrap_or_default());
    ExitCode::SUCCESS
}

fn try_case(dir: &Path, scratch: &Path, seed: u64, images: u64, report: &mut CaseReport) -> Check {
    rig::mount_scratch(scratch)?;
    let scenario = Scenario::new(seed);
    let image = match prepare(&scenario, scratch) {
        Ok(image) => image,
        Err(why) => {
            report.skipped = Some(why);
            return Ok(());
        }
    };
    let log = record(&scenario, scratch)?;
    let record = Record::read(scratch, scenario.writers)?;
    let mut rng = Rng::new(seed ^ 0x0069_6d61_6765);
    let mut replay = Replay::new(&log, image, scenario.fs.atom());
    let mut hashes = Vec::new();
    for (n, point) in log.points(&mut rng, images as usize).into_iter().enumerate() {
        let image = replay.image_at(point, &mut rng);
        if hashes.contains(&image.hash()) {
            continue;
        }
        hashes.push(image.hash());
        let log_len = point.checked_sub(1).map_or(0, |last| log.requests[last].log_end);
        let looked = guarded(|| look(&scenario, &record, scratch, &image, log_len, &mut rng));
        match looked.and_then(|looked| looked) {
            Ok(()) => report.passed += 1,
            Err(why) => {
                let kept =
                    rig::keep(&image, &dir.join(format!("block-{seed}-{n}")), scenario.fs.device_len());
                report.failures.push(format!("{:?}, after {point} requests: {why}; {kept}", scenario.fs));
            }
        }
    }
    let written_by = if scenario.engine == IoEngine::Portable { PORTABLE } else { RINGS };
    for (name, count) in [
        (BATCHES, record.acknowledged),
        (REQUESTS, log.requests.len() as u64),
        (written_by, hashes.len() as u64),
        (scenario.fs.count_name(), hashes.len() as u64),
    ] {
        report.notes.push((name.to_owned(), count));
    }
    report.images = hashes;
    Ok(())
}

/// Creates the file system and checks that this machine supports the next steps. An error names the
/// missing feature.
fn prepare(scenario: &Scenario, scratch: &Path) -> Check<DeviceImage> {
    let image = scratch.join("image");
    rig::create(&image, scenario.fs.device_len())?;
    match scenario.fs.maker() {
        None => scenario::make_volume(&image)?,
        Some(maker) => {
            let arguments: Vec<&str> = maker[1..].iter().copied().chain(image.to_str()).collect();
            rig::run(maker[0], &arguments)?;
            // This also detects a kernel without the file system.
            drop(Mounted::new(scenario.fs, &image, scratch.join("mounted"))?);
        }
    }
    let rig = Rig::start(scratch)?;
    drop(Loop::new(&rig.export())?);
    drop(rig);
    rig::load(&image)
}

/// Runs the writer and returns the requests of the device.
fn record(scenario: &Scenario, scratch: &Path) -> Check<log::Log> {
    let rig = Rig::start(scratch)?;
    let mounted = match scenario.fs {
        Below::LavaFs => None,
        fs => Some(Mounted::new(fs, &rig.export(), scratch.join("mounted"))?),
    };
    for session in 0..scenario.sessions {
        let device = match scenario.fs {
            Below::LavaFs => Some(rig::loop_at(&rig.export(), &scratch.join("device"))?),
            _ => None,
        };
        let program = std::env::current_exe().doing(|| "own path".into())?;
        let output = Command::new(program)
            .arg(WRITER)
            .arg("--dir")
            .arg(scratch)
            .args(["--seed", &scenario.seed.to_string(), "--count", &session.to_string()])
            .args(crate::plan::with_arguments())
            .stdin(Stdio::null())
            .output()
            .doing(|| "start of a writer".into())?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "session {session} of the writer failed: {}", said.trim());
        tally::add_collections(scenario::collections(scratch, session)?);
        drop(device);
    }
    drop(mounted);
    rig.end()
}

/// Main function of the writer process.
pub(crate) fn writer(dir: &Path, seed: u64, session: u64) -> ExitCode {
    match scenario::write(dir, seed, session) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Recovers from an image, as after a loss of power, and compares the store with the record.
fn look(
    scenario: &Scenario,
    record: &Record,
    scratch: &Path,
    image: &DeviceImage,
    log_len: u64,
    rng: &mut Rng,
) -> Check {
    let file = scratch.join("state");
    rig::store(image, &file, scenario.fs.device_len())?;
    let mounted = match scenario.fs {
        Below::LavaFs => None,
        fs => Some(Mounted::new(fs, &file, scratch.join("mounted"))?),
    };
    let at = mounted.as_ref().map_or(&file, |mounted| &mounted.at);
    check_volume(scenario.fs, at, true)?;
    let first = open_and_compare(scenario, record, at, log_len, rng, None)?;
    check_volume(scenario.fs, at, false).map_err(|why| format!("after the first close: {why}"))?;
    open_and_compare(scenario, record, at, log_len, rng, Some(first))
        .map(drop)
        .map_err(|why| format!("second open: {why}"))
}

/// Checks a LavaFS volume. The power may have failed between the two slots of its superblock.
fn check_volume(fs: Below, image: &Path, crashed: bool) -> Check {
    if fs != Below::LavaFs {
        return Ok(());
    }
    let options = DeviceOptions { read_only: true, ..DeviceOptions::default() };
    let device = device::open(image, &options).doing(|| "open the image".into())?;
    let report = fsck(&Env::kernel(), &*device, false).doing(|| "fsck".into())?;
    let wrong: Vec<_> = report.findings.iter().filter(|f| !crashed || !f.what.contains("slots")).collect();
    ensure!(wrong.is_empty(), "fsck found {wrong:?}");
    Ok(())
}

/// The last batch of each writer in a store; `None` if its families are missing.
type Numbers = Vec<Option<u64>>;

fn open_and_compare(
    scenario: &Scenario,
    record: &Record,
    at: &Path,
    log_len: u64,
    rng: &mut Rng,
    before: Option<Numbers>,
) -> Check<Numbers> {
    let engine = plan::pick(rng, &[IoEngine::IoUring, IoEngine::Portable]);
    let (env, dir) = scenario::environment(scenario.fs, engine, at)?;
    let options = scenario.options(rng);
    let db = Db::open_in(&env, &dir, &options)
        .doing(|| format!("refused to open with {}", plan::describe(&options)))?;
    let numbers = compare(scenario, record, &db, log_len)?;
    if let Some(before) = before {
        ensure!(numbers == before, "batches {before:?} have become {numbers:?}");
        let (family, key) = (db.default_family(), b"after");
        family.writing(&WriteOptions::durable()).put(key, b"the loss of power").doing(|| "put".into())?;
        check_at_rest(&db, &env, &dir, false)?;
        if rng.one_in(3) {
            let report = db.verify().doing(|| "verify".into())?;
            ensure!(report.errors.is_empty(), "verify: {}", report.errors[0]);
        }
        db.delete(key).doing(|| "delete".into())?;
    }
    tally::add(&db);
    Ok(numbers)
}

fn compare(scenario: &Scenario, record: &Record, db: &Db, log_len: u64) -> Check<Numbers> {
    let mut found = scan(db)?;
    let mut entries_of = |name: &str| db.open_family(name).ok().and_then(|family| found.remove(&family.id()));
    let rest = entries_of("default").unwrap_or_default();
    ensure!(rest.is_empty(), "the default family has {} entries", rest.len());
    let mut numbers = Vec::new();
    for writer in 0..scenario.writers {
        let families = Scenario::families(writer).map(|name| entries_of(&name));
        let number = families.iter().all(Option::is_some).then(|| {
            let numbers = families.iter().flatten().map(Scenario::number);
            numbers.max().unwrap_or(0)
        });
        scenario::check_bounds(record, writer, number, log_len)?;
        let expected = scenario.contents(writer, number.unwrap_or(0));
        for (expected, found) in expected.iter().zip(families.iter().flatten()) {
            difference(expected.entries(), found)
                .map_err(|why| format!("writer {writer} after batch {number:?}, {why}"))?;
        }
        numbers.push(number);
    }
    ensure!(found.is_empty(), "families {:?} are nobody's", found.keys());
    Ok(numbers)
}
