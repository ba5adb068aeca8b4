//! Check and repair of an unmounted volume.
//!
//! The check reads both superblock slots and the whole journal, and verifies that the metadata is
//! consistent. It does not read file contents, whose checksums belong to the writers of the files.
//!
//! After damage in the journal, the check continues with the intact transactions (`salvage`).
//!
//! A repair never changes anything in place. It removes contradictions from the readable metadata,
//! writes a dump of the result to free blocks, and then changes the superblock to refer to the
//! dump. The report lists everything that the repair abandons.

use crate::device_pairing;
use crate::devices::{Devices, VolumeDevices};
use crate::format::write_journal;
use crate::geometry::Role;
use crate::layout::{BLOCK, Extent, SLOTS};
use crate::meta::Meta;
use crate::mount::{check_len, free_map};
use crate::op::{Ino, Op};
use crate::replay::{Replayed, damaged_dump_parts, replay_as_far_as_possible};
use crate::salvage::{Salvaged, salvage};
use crate::space::FreeSpace;
use crate::superblock::{self, Slots, Superblock};
use base::{Error, ErrorKind, Result};
use io::{BlockDevice, Env};

/// Describes one problem of a volume that a check found.
#[derive(Clone, Debug)]
pub struct Finding {
    /// The problem, its place, and its consequence.
    pub what: String,
    /// True if the problem was repaired.
    pub repaired: bool,
}

/// Tells whether a volume is sound, and its sizes; [`fsck()`] returns it. Problems are no error of
/// the call.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All problems.
    pub findings: Vec<Finding>,
    /// Number of files.
    pub files: u64,
    /// Number of directories, the root included.
    pub dirs: u64,
    /// Size of the file blocks, in bytes.
    pub file_bytes: u64,
    /// Size of the journal, in bytes.
    pub journal_bytes: u64,
    /// Free bytes of the volume.
    pub free_bytes: u64,
    /// Bytes of the devices outside the volume, into which it can grow.
    pub beyond_bytes: u64,
    /// Number of transactions since the dump.
    pub transactions: u64,
}

impl Report {
    /// Returns true if the check found no problem, or the repair fixed all problems: the volume can
    /// be mounted.
    pub fn is_clean(&self) -> bool {
        self.findings.iter().all(|f| f.repaired)
    }

    fn add(&mut self, what: impl Into<String>) {
        self.findings.push(Finding { what: what.into(), repaired: false });
    }
}

/// Checks the volume on one device that is not mounted, after a mount failed with `Corruption` or
/// to trust a copy. With `repair` it also mends repairable damage; otherwise it only reads.
///
/// # Errors
/// `NotFound` if there is no volume; `Unsupported` if a newer release made it; the errors of the
/// device. The report describes damage.
pub fn fsck(env: &Env, device: &dyn BlockDevice, repair: bool) -> Result<Report> {
    check(env, device, None, repair)
}

/// Checks and optionally repairs the volume on one or two devices.
///
/// # Errors
/// The errors of [`fsck()`]; `InvalidArgument` for two devices that do not belong together or come
/// from different times.
pub fn fsck_on(env: &Env, devices: &Devices, repair: bool) -> Result<Report> {
    match &devices.second {
        None => check(env, &*devices.first, None, repair),
        Some(_) => {
            let ground = device_pairing::ground(devices)?;
            check(env, &*ground, Some(&ground), repair)
        }
    }
}

/// Reports unreadable or different superblock slots of a device.
fn check_slots(slots: &Slots, of: &str, report: &mut Report) {
    for (slot, found) in slots.found.iter().enumerate() {
        if let Err(e) = found {
            report.add(format!("slot {slot} of the superblock{of} (block {}): {e}", SLOTS[slot]));
        }
    }
    if let [Ok(a), Ok(b)] = &slots.found
        && a != b
        && a.uid == b.uid
    {
        report.add(format!(
            "the two slots of the superblock{of} differ: a crash came between them (a mount puts that right)"
        ));
    }
}

/// Checks the superblock slots of the capacity device. Returns their correct contents if they need
/// a repair.
fn check_second(ground: &VolumeDevices, report: &mut Report) -> Result<Option<Superblock>> {
    let Some(second) = ground.second() else { return Ok(None) };
    let (slots, before) = (Slots::read(second)?, report.findings.len());
    check_slots(&slots, " of the capacity device", report);
    let chosen = slots.choose()?.0;
    Ok((report.findings.len() > before).then_some(chosen))
}

/// Checks that the devices are long enough. Returns the number of bytes outside the volume.
fn check_lens(
    device: &dyn BlockDevice,
    ground: Option<&VolumeDevices>,
    superblock: &Superblock,
) -> Result<u64> {
    let mut beyond = 0;
    for role in Role::ALL {
        let device = match ground {
            Some(ground) => ground.device(role),
            None if role == Role::Fast => device,
            None => continue,
        };
        let blocks = superblock.blocks_of(role);
        check_len(device.path(), device.len(), blocks)?;
        beyond += device.len() - blocks * BLOCK;
    }
    Ok(beyond)
}

fn check(
    env: &Env,
    device: &dyn BlockDevice,
    ground: Option<&VolumeDevices>,
    repair: bool,
) -> Result<Report> {
    let mut report = Report::default();
    let slots = Slots::read(device)?;
    slots.require_one(device)?;
    check_slots(&slots, "", &mut report);
    let second = ground.map_or(Ok(None), |ground| check_second(ground, &mut report))?;
    let generations = slots.found.iter().flatten().map(|s| s.generation).max();
    let superblock = match slots.choose() {
        Ok((superblock, _)) => superblock,
        Err(e) if e.kind() == ErrorKind::Unsupported => return Err(e.at_file(device.path())),
        Err(e) => {
            report.add(format!("the superblock: {e}"));
            return Ok(report);
        }
    };
    if ground.is_none() {
        device_pairing::check_alone(device, &superblock)?;
    }
    report.beyond_bytes = match check_lens(device, ground, &superblock) {
        Ok(beyond) => beyond,
        Err(e) => {
            report.add(e.to_string());
            return Ok(report);
        }
    };
    let (mut replayed, damage) = match replay_as_far_as_possible(device, &superblock, &mut |_| {}) {
        Ok(replayed) => replayed,
        Err(e) if e.is_corruption() => {
            report.add(e.to_string());
            return Ok(report);
        }
        Err(e) => return Err(e),
    };
    if let Some(e) = &damage {
        tell_salvaged(e, salvage(device, &superblock, &mut replayed)?, &mut report);
    }
    let damaged_parts = damaged_dump_parts(device, &superblock)?;
    for offset in &damaged_parts {
        report
            .add(format!("a part of the dump of metadata is damaged at byte {offset}, and its copy is read: nothing is lost"));
    }
    let mut meta = replayed.meta.clone();
    let mut journal = replayed.journal();
    let contradictory = check_owners(&mut meta, &mut journal, &mut report);
    let nameless = name_all(&mut meta, &mut report);
    report.count(&meta, &replayed);
    if repair && !report.findings.is_empty() {
        let rewrite = damage.is_some() || !damaged_parts.is_empty() || contradictory || nameless;
        put_right(
            env,
            device,
            &superblock,
            generations,
            rewrite.then_some((&meta, &replayed, &journal[..])),
        )?;
        if let Some((ground, chosen)) = ground.zip(second) {
            superblock::heal(ground.device(Role::Capacity), &chosen)?;
        }
        report.findings.iter_mut().for_each(|f| f.repaired = true);
    }
    Ok(report)
}

impl Report {
    fn count(&mut self, meta: &Meta, replayed: &Replayed) {
        self.transactions = replayed.transactions;
        self.files = meta.nodes().count();
        self.dirs = meta.directories().paths().count() as u64;
        self.file_bytes = meta.nodes().blocks() * BLOCK;
        self.journal_bytes = crate::layout::blocks_of(&replayed.journal()) * BLOCK;
        let free = free_map(meta, &replayed.journal()).map_or(0, |free| free.blocks());
        self.free_bytes = free * BLOCK;
    }
}

/// Reports the consequences of damage.
fn tell_salvaged(damage: &Error, salvaged: Salvaged, report: &mut Report) {
    let Salvaged { lost, applied, consequences } = salvaged;
    let runs = lost.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    });
    let runs = runs.collect::<Vec<_>>().join(", ");
    let lost = if runs.is_empty() { "those that it had".to_owned() } else { runs };
    report.add(format!(
        "{damage} (a repair gives up transactions {lost}; behind the damage it keeps {applied})"
    ));
    consequences.into_iter().for_each(|what| report.add(what));
}

/// Finds blocks with two owners. The journal keeps its blocks. Of two files, the older one stays
/// and the other one is removed.
fn check_owners(meta: &mut Meta, journal: &mut Vec<Extent>, report: &mut Report) -> bool {
    let mut free = FreeSpace::all_of(meta.geometry());
    let mut expelled = false;
    // Rebuild the list so that it names each block once.
    for extent in std::mem::take(journal) {
        if free.claim(extent) {
            journal.push(extent);
            continue;
        }
        report.add(format!(
            "the blocks {extent} (first block, count) are in the journal twice (a repair writes it anew)"
        ));
        expelled = true;
        for part in free.overlapping(extent) {
            let claimed = free.claim(part);
            debug_assert!(claimed, "it was found free");
            journal.push(part);
        }
    }
    let mut inos: Vec<Ino> = meta.nodes().iter().map(|(ino, _)| ino).collect();
    inos.sort_unstable();
    for ino in inos {
        let extents = meta.nodes().get(ino).map(|n| n.extents.as_slice().to_vec()).unwrap_or_default();
        let mut taken = Vec::new();
        let clash = extents.into_iter().filter(|e| !e.is_hole()).find(|&e| {
            let claimed = free.claim(e);
            if claimed {
                taken.push(e);
            }
            !claimed
        });
        if let Some(extent) = clash {
            report.add(format!(
                "the blocks {extent} (first block, count) of file {ino} have another owner (a repair removes the file)"
            ));
            taken.into_iter().for_each(|e| {
                let released = free.release(e);
                debug_assert!(released, "it was taken a moment ago");
            });
            meta.expel(ino);
            expelled = true;
        }
    }
    expelled
}

/// Finds files without names, and gives them names in the root directory.
fn name_all(meta: &mut Meta, report: &mut Report) -> bool {
    let mut nameless: Vec<Ino> =
        meta.nodes().iter().filter(|(_, n)| n.links == 0).map(|(ino, _)| ino).collect();
    nameless.sort_unstable();
    for &ino in &nameless {
        let name = format!("lost-{ino}");
        report.add(format!("file {ino} has no name (a repair calls it /{name})"));
        if meta.apply(&Op::Link { dir: String::new(), name, ino }).is_err() {
            meta.expel(ino);
        }
    }
    !nameless.is_empty()
}

/// Writes the repaired state.
fn put_right(
    env: &Env,
    device: &dyn BlockDevice,
    superblock: &Superblock,
    generation: Option<u64>,
    rewrite: Option<(&Meta, &Replayed, &[Extent])>,
) -> Result<()> {
    let Some((meta, replayed, journal)) = rewrite else { return superblock::heal(device, superblock) };
    let next =
        Superblock { generation: generation.unwrap_or(superblock.generation) + 1, ..superblock.clone() };
    // This sequence is higher than that of any abandoned transaction.
    let sequence = replayed.sequence.max(superblock.reached) + (1 << 32);
    write_journal(env, device, next, meta, journal, sequence)
}

/// Lists the superblock and the journal of a volume in readable form: one line for each slot,
/// transaction and operation. The last line describes any damage that ends the listing.
///
/// # Errors
/// `NotFound` if there is no volume; the errors of the device.
pub fn dump_journal(device: &dyn BlockDevice, emit: &mut dyn FnMut(&str)) -> Result<()> {
    let slots = Slots::read(device)?;
    slots.require_one(device)?;
    show_slots(&slots, "", emit);
    let superblock = match slots.choose() {
        Ok((superblock, _)) => superblock,
        Err(e) => {
            emit(&e.to_string());
            return Ok(());
        }
    };
    // The journal of a two-device volume needs both devices.
    device_pairing::check_alone(device, &superblock)?;
    show_journal(device, &superblock, emit)
}

/// Lists the superblocks and the journal of a volume on one or two devices.
///
/// # Errors
/// The errors of [`dump_journal()`]; `InvalidArgument` for two devices that do not belong together
/// or come from different times.
pub fn dump_journal_on(devices: &Devices, emit: &mut dyn FnMut(&str)) -> Result<()> {
    if devices.second.is_none() {
        return dump_journal(&*devices.first, emit);
    }
    let ground = device_pairing::ground(devices)?;
    let slots = Slots::read(&*ground)?;
    show_slots(&slots, " of the speed device", emit);
    if let Some(second) = ground.second() {
        show_slots(&Slots::read(second)?, " of the capacity device", emit);
    }
    let superblock = slots.choose()?.0;
    show_journal(&*ground, &superblock, emit)
}

fn show_slots(slots: &Slots, of: &str, emit: &mut dyn FnMut(&str)) {
    for (slot, found) in slots.found.iter().enumerate() {
        let s = match found {
            Ok(s) => s,
            Err(e) => {
                emit(&format!("slot {slot}{of}: {e}"));
                continue;
            }
        };
        let blocks: Vec<String> = s.devices.records.iter().map(|d| d.blocks.to_string()).collect();
        let mut line = format!(
            "slot {slot}{of}: volume {:?}, generation {}, {} blocks, dump of transaction {} in {} runs, reached {}",
            s.uid,
            s.generation,
            blocks.join(" and "),
            s.checkpoint,
            s.dump.len(),
            s.reached
        );
        if let Some(bond) = &s.devices.bond {
            line += &format!(", session {:?} of mount {}", bond.session, bond.mounts);
        }
        emit(&line);
    }
}

fn show_journal(device: &dyn BlockDevice, superblock: &Superblock, emit: &mut dyn FnMut(&str)) -> Result<()> {
    let replayed = replay_as_far_as_possible(device, superblock, &mut |seen| {
        let h = seen.header;
        let what = match h.kind {
            crate::transaction::Kind::Change => format!("transaction {}", h.sequence),
            crate::transaction::Kind::Dump => format!("dump of transaction {}, part {}", h.sequence, h.part),
        };
        emit(&format!("offset {}: {what}, durable {}", seen.offset, h.durable));
        seen.ops.iter().for_each(|op| emit(&format!("  {op}")));
    });
    match replayed {
        Ok((replayed, None)) => emit(&format!("end: transaction {} is the last", replayed.sequence)),
        Ok((_, Some(e))) | Err(e) if e.is_corruption() => emit(&e.to_string()),
        Ok((_, Some(e))) | Err(e) => return Err(e),
    }
    Ok(())
}
