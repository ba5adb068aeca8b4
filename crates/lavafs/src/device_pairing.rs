//! Pairing of the two devices of a volume.
//!
//! Each device has superblock slots. The slots name the volume, both devices, and the device that
//! holds the slot. Therefore a mount detects a missing device or a device of another volume, and
//! the caller may name the devices in any order.
//!
//! **Sessions.** A device may belong to the volume but come from another time, for example a
//! restored copy. The speed device holds the names and extents of all files. An outdated capacity
//! device would therefore return old bytes, or bytes of another file, that only the checksums of
//! the file's owner can detect.
//!
//! Therefore each writable mount draws a random *session*. Both devices store it, together with the
//! previous session. The mount writes the session to the capacity device first, then to the speed
//! device. A crash between these two writes leaves a capacity device that is ahead by one session:
//! its `previous` equals the session of the speed device. Finally the mount clears `previous` on
//! the capacity device, so that an outdated speed device is rejected as well. Every other
//! combination means devices of different times, and is rejected. A mount counter accompanies the
//! session; the error message uses it to name the outdated device.
//!
//! The slots of the capacity device may differ after a crash between their writes or after damage.
//! The mount makes them equal again before it writes the next session.

use crate::devices::{Devices, VolumeDevices};
use crate::geometry::Role;
use crate::superblock::{self, DevicePairing, DeviceTable, Slots, Superblock};
use base::{Error, ErrorKind, Result, Uid};
use io::{BlockDevice, Env};

/// A device of a volume, as described by its superblock.
struct PairedDevice<'d> {
    device: &'d dyn BlockDevice,
    superblock: Superblock,
    bond: DevicePairing,
}

impl PairedDevice<'_> {
    fn error(&self, why: String) -> Error {
        Error::invalid(why).at_file(self.device.path())
    }
}

fn other_needed(device: &dyn BlockDevice, role: Role) -> Error {
    let (this, other) = (role.name(), role.other().name());
    let why = format!(
        "the device is the {this} device of a volume of two devices: name its {other} device as well"
    );
    Error::invalid(why).at_file(device.path())
}

/// Rejects a device that is one of two devices of its volume.
pub(crate) fn check_alone(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    superblock.devices.bond.map_or(Ok(()), |bond| Err(other_needed(device, bond.role)))
}

fn find(device: &dyn BlockDevice) -> Result<PairedDevice<'_>> {
    let (superblock, _) = Slots::read(device)?.choose().map_err(|e| e.at_file(device.path()))?;
    let Some(bond) = superblock.devices.bond else {
        let why = "the device has a volume of this one device only: name it alone";
        return Err(Error::invalid(why).at_file(device.path()));
    };
    Ok(PairedDevice { device, superblock, bond })
}

/// Returns the devices by role, after checking that they belong to the same volume and come from
/// the same time.
///
/// # Errors
/// `NotFound` if a device holds no volume; `InvalidArgument` if the devices do not belong together
/// or one is missing; the errors of the devices.
pub(crate) fn ground(devices: &Devices) -> Result<VolumeDevices> {
    let Some(second) = &devices.second else {
        return Ok(VolumeDevices::one(devices.first.clone()));
    };
    let (a, b) = (find(&*devices.first), find(&**second));
    let (a, b) = match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        // The device that was found describes the missing one.
        (Ok(there), Err(e)) | (Err(e), Ok(there)) if e.kind() == ErrorKind::NotFound => {
            let (this, other) = (there.bond.role.name(), there.bond.role.other().name());
            let why = format!(
                "the {other} device of the volume is expected here, because {} is its {this} device: name the device formatted with it",
                there.device.path().display()
            );
            return Err(e.context(why));
        }
        (Err(e), _) | (_, Err(e)) => return Err(e),
    };
    let swapped = a.bond.role == Role::Capacity;
    let (speed, capacity) = if swapped { (&b, &a) } else { (&a, &b) };
    check(speed, capacity)?;
    Ok(match swapped {
        false => VolumeDevices::two(devices.first.clone(), second.clone()),
        true => VolumeDevices::two(second.clone(), devices.first.clone()),
    })
}

fn check(speed: &PairedDevice<'_>, capacity: &PairedDevice<'_>) -> Result<()> {
    if speed.bond.role == capacity.bond.role {
        let (name, missing) = (speed.bond.role.name(), speed.bond.role.other().name());
        let why = format!(
            "both devices are a {name} device: name the {missing} device of the volume as the second one"
        );
        return Err(capacity.error(why));
    }
    let uids = |found: &PairedDevice<'_>| {
        let records = found.superblock.devices.records.iter().map(|device| device.uid);
        (found.superblock.uid, records.collect::<Vec<_>>())
    };
    if uids(speed) != uids(capacity) {
        let why = format!(
            "the capacity device belongs to another volume than {}: name two devices formatted together",
            speed.device.path().display()
        );
        return Err(capacity.error(why));
    }
    let (ours, theirs) = (speed.bond, capacity.bond);
    let ahead_by_one = ours.session == theirs.previous && theirs.previous != Uid::default();
    if ours.session == theirs.session || ahead_by_one {
        return Ok(());
    }
    let (behind, ahead) = if ours.mounts > theirs.mounts { (capacity, speed) } else { (speed, capacity) };
    let (name, other) = (behind.bond.role.name(), ahead.device.path().display());
    Err(behind.error(match ours.mounts == theirs.mounts {
        true => format!("the device and {other} were mounted apart from each other: name two copies of the same time"),
        false => format!(
            "the device is an older copy of the {name} device: {other} was mounted {} since; name the newest copy",
            counted(ahead.bond.mounts - behind.bond.mounts)
        ),
    }))
}

fn counted(mounts: u64) -> String {
    if mounts == 1 { "1 time".to_owned() } else { format!("{mounts} times") }
}

/// Begins a session for a writable mount: writes a new session to both devices.
///
/// # Errors
/// The errors of the devices.
pub(crate) fn begin_session(env: &Env, ground: &VolumeDevices, superblock: &mut Superblock) -> Result<()> {
    let (Some(second), Some(bond)) = (ground.second(), superblock.devices.bond) else { return Ok(()) };
    let (found, agree) = Slots::read(second)?.choose().map_err(|e| e.at_file(second.path()))?;
    if !agree {
        // Rewrite the invalid slot first: a crash during the write of the valid slot would
        // otherwise leave none.
        superblock::heal(second, &found)?;
    }
    let session =
        DevicePairing { session: env.new_uid(), previous: bond.session, mounts: bond.mounts + 1, ..bond };
    let mut next = Superblock { generation: superblock.generation + 1, ..superblock.clone() };
    next.devices.bond = Some(session);
    let ahead = of_capacity(&next, found.generation + 1);
    superblock::write(second, &ahead)?;
    superblock::write(ground.device(Role::Fast), &next)?;
    next.devices.bond = Some(DevicePairing { previous: Uid::default(), ..session });
    superblock::write(second, &of_capacity(&next, ahead.generation + 1))?;
    *superblock = next;
    Ok(())
}

/// Returns the contents of the capacity device's slots that belong to `superblock`.
pub(crate) fn of_capacity(superblock: &Superblock, generation: u64) -> Superblock {
    let bond = superblock.devices.bond.map(|bond| DevicePairing { role: Role::Capacity, ..bond });
    let devices = DeviceTable { bond, ..superblock.devices.clone() };
    Superblock { generation, checkpoint: 0, reached: 0, dump: Vec::new(), devices, ..superblock.clone() }
}

#[cfg(test)]
mod tests;
