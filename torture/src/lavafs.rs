//! Row `lavafs`: random operations on a small volume are recorded once, and then the machine dies
//! at many points of them.
//!
//! After each crash the volume must mount unaided, with
//!
//! * the names of one moment: after all durable ones, and before any that had not begun. So no file
//!   is lost or resurrected, and renames are atomic;
//! * for every file at least its synced bytes, and below its size only its own bytes: every byte
//!   identifies its file and offset;
//! * its former size or the one in progress, permanently once the call has returned. Devices grow
//!   while mounted and between crashes, and a crash may undo a growth that the volume did not use;
//! * for files written in place, for each sector a version not older than the last durable one;
//! * a journal without findings of `fsck`.
//!
//! Half of the volumes are on two devices, which lose unsynced data and grow independently; a file
//! is on either, or on both if one is full.
//!
//! Then the run continues: more operations, another crash or a clean end, and the same checks. The
//! journal is so short that most crashes hit its compaction or extension.

mod files;
mod volume;

use crate::case::{Context, Outcome, guarded};
use crate::check::{Check, Doing, ensure};
use crate::crash::{TRACE, kind_of_sectors};
use files::VolumeFiles;
use io::Rng;
use lavastore::lavafs::fsck_on;
use lavastore::testing::{CrashKind, SimEnv};
use volume::{Volume, devices};

/// Crash states tested per run.
const STATES: u64 = 24;
/// Maximum number of crashes in a row.
const DEATHS_MAX: u64 = 3;

pub(crate) fn case(_: &Context, seed: u64) -> Outcome {
    let mut outcome = Outcome::default();
    let mut rng = Rng::new(seed ^ 0x6c61_7661_6673);
    let mut volume = match guarded(|| Volume::make(seed, &mut rng)).and_then(|made| made) {
        Ok(volume) => volume,
        Err(why) => {
            outcome.failures.push(why);
            return outcome;
        }
    };
    let steps = rng.range(10, 80);
    let ran = guarded(|| (0..steps).try_for_each(|_| volume.step())).and_then(|ran| ran);
    if let Err(why) = ran {
        outcome.failures.push(format!("while recording: {why}"));
        return outcome;
    }
    let statistics = volume.statistics();
    outcome.note("journal compactions", statistics.journal_compactions);
    outcome.note("journal transactions", statistics.journal_transactions);
    outcome.note("calls that found the volume full", volume.full);
    outcome.note("times that the volume grew", volume.grown);
    let devices = volume.fs.devices();
    outcome.note("volumes of two devices", u64::from(devices.len() == 2));
    let fallen = devices.iter().filter(|device| device.fallen_over_bytes > 0).count() as u64;
    outcome.note("devices that files fell over to", fallen);
    let record = volume.sim.record();
    let ops = record.mutations();
    for state in 0..STATES {
        let mut rng = rng.fork();
        let Some(&op) = ops.get(rng.below(ops.len().max(1) as u64) as usize) else { break };
        let kind = kind_of_sectors(&mut rng);
        let sim = match rng.one_in(4) {
            true => record.crash_before(op, kind, rng.next_u64()),
            false => record.crash_at(op, kind, rng.next_u64()),
        };
        outcome.images.push(sim.state_hash().into());
        let checked = guarded(|| live_on(&volume.files, &sim, op, kind, &mut rng)).and_then(|c| c);
        if checked.is_err() && std::env::var_os(TRACE).is_some() {
            println!("{:#?}\nthe run:\n{}\nafterwards:\n{}", volume.files, volume.sim.trace(), sim.trace());
        }
        outcome.take(checked.map_err(|why| format!("state {state}, {kind:?} at operation {op}: {why}")));
        if outcome.failures.len() > 2 {
            break;
        }
    }
    outcome
}

/// Checks the state after a crash, continues with it, crashes again.
fn live_on(files: &VolumeFiles, sim: &SimEnv, op: u64, kind: CrashKind, rng: &mut Rng) -> Check {
    let (mut sim, mut files, mut op, mut kind) = (sim.clone(), files.clone(), op, kind);
    for death in 0..rng.range(1, DEATHS_MAX + 1) {
        check_image(&sim).map_err(|why| format!("death {death}: {why}"))?;
        let mut volume =
            Volume::mount(&sim, rng.next_u64(), rng).doing(|| format!("mount after death {death}"))?;
        if std::env::var_os(TRACE).is_some() {
            println!("death {death}: {kind:?} at operation {op}");
            files.moments.iter().for_each(|m| println!("  {:?} {:?}", m.span, m.names));
            println!("  {:?}", files.settled);
        }
        files = volume.check(&files, op, kind).map_err(|why| format!("death {death}: {why}"))?;
        volume.files = files;
        // A crash during the mount also occurs, since the mount's writes are operations of this
        // record.
        for _ in 0..rng.below(12) {
            volume.step().map_err(|why| format!("after death {death}: {why}"))?;
        }
        if rng.one_in(3) {
            return end_cleanly(volume, rng);
        }
        let record = volume.sim.record();
        let ops = record.mutations();
        files = volume.files.clone();
        let Some(&at) = ops.get(rng.below(ops.len().max(1) as u64) as usize) else { return Ok(()) };
        (op, kind) = (at, kind_of_sectors(rng));
        sim = record.crash_at(op, kind, rng.next_u64());
    }
    check_image(&sim)?;
    let volume = Volume::mount(&sim, rng.next_u64(), rng).doing(|| "the last mount".into())?;
    volume.check(&files, op, kind).map(|_| ())
}

/// Checks that all data is there after a clean end.
fn end_cleanly(volume: Volume, rng: &mut Rng) -> Check {
    let Volume { sim, files, fs, open, .. } = volume;
    drop(open);
    fs.unmount().doing(|| "unmount".into())?;
    drop(fs);
    let on = devices(&sim).doing(|| "open the devices".into())?;
    let report = fsck_on(&sim.env(), &on, false).doing(|| "fsck".into())?;
    ensure!(report.findings.is_empty(), "fsck after a clean end: {:?}", report.findings);
    let after = sim.crash(CrashKind::PowerLoss, rng.next_u64());
    let volume = Volume::mount(&after, rng.next_u64(), rng).doing(|| "mount after a clean end".into())?;
    volume.check_all(&files)
}

/// Checks an image for damage that no crash can cause. The slots of the superblock may differ; a
/// mount repairs them.
fn check_image(sim: &SimEnv) -> Check {
    let on = devices(sim).doing(|| "open the devices".into())?;
    let report = fsck_on(&sim.env(), &on, false).doing(|| "fsck".into())?;
    let harmless = |what: &str| what.contains("slot");
    let wrong: Vec<_> = report.findings.iter().filter(|f| !harmless(&f.what)).collect();
    ensure!(wrong.is_empty() && report.findings.len() <= 1, "fsck found {:?}", report.findings);
    Ok(())
}
