//! What holds the two devices of a volume together.
//!
//! Each device has slots of a superblock. Both name the volume and the two devices, and say which of them holds the slot: so a device that is
//! missing, or another volume's, is told from the right one, and the order in which they are named does not matter.
//!
//! **Sessions.** A device may be the right one and of another time: a copy that somebody has put back. The names and places of all files are on
//! the speed device, so an older capacity device would show old bytes, or another file's, under checksums that only who wrote them can
//! check. Therefore each mount that writes draws a random *session*, and both devices keep it, together with the one
//! before. The capacity device gets it first, then the speed device. A death between the two leaves a capacity device
//! that is ahead by one, and says so itself: its `previous` is what the speed device has. Then the capacity device forgets the one before, so
//! that an older speed device is refused as well. Everything else is two devices of different times, and
//! refused. A number of mounts goes with it, for the message: it tells which one is behind.
//!
//! Slots of the capacity device that differ (a death between the two, or a damaged one) are made to say the same again before the next
//! session is written.

use crate::devices::{Devices, Ground};
use crate::geometry::Role;
use crate::superblock::{self, Bond, DeviceTable, Slots, Superblock};
use base::{Error, ErrorKind, Result, Uid};
use io::{BlockDevice, Env};

/// A device of a volume, as its slots say.
struct Found<'d> {
    device: &'d dyn BlockDevice,
    superblock: Superblock,
    bond: Bond,
}

impl Found<'_> {
    fn error(&self, why: String) -> Error {
        Error::invalid(why).at_file(self.device.path())
    }
}

fn other_needed(device: &dyn BlockDevice, role: Role) -> Error {
    let (this, other) = (role.name(), role.other().name());
    let why = format!("it is the {this} device of a volume of two: name its {other} device as well");
    Error::invalid(why).at_file(device.path())
}

/// Refuses a device that is only half of its volume.
pub(crate) fn check_alone(device: &dyn BlockDevice, superblock: &Superblock) -> Result<()> {
    superblock.devices.bond.map_or(Ok(()), |bond| Err(other_needed(device, bond.role)))
}

fn find(device: &dyn BlockDevice) -> Result<Found<'_>> {
    let (superblock, _) = Slots::read(device)?.choose().map_err(|e| e.at_file(device.path()))?;
    let Some(bond) = superblock.devices.bond else {
        let why = "it holds a volume of one device: name it alone";
        return Err(Error::invalid(why).at_file(device.path()));
    };
    Ok(Found { device, superblock, bond })
}

/// The devices by their roles, when they are those of one volume and of one time.
///
/// # Errors
/// `NotFound` if one of them holds no volume; `InvalidArgument` if they do not belong together, or one of them is missing; those of
/// the devices.
pub(crate) fn ground(devices: &Devices) -> Result<Ground> {
    let Some(second) = &devices.second else {
        return Ok(Ground::one(devices.first.clone()));
    };
    let (a, b) = (find(&*devices.first), find(&**second));
    let (a, b) = match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        // The one that is there says what the other one should be.
        (Ok(there), Err(e)) | (Err(e), Ok(there)) if e.kind() == ErrorKind::NotFound => {
            let (this, other) = (there.bond.role.name(), there.bond.role.other().name());
            let why = format!(
                "it should be the {other} device of the volume on {}, which is the {this} device: name the one that was made with it",
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
        false => Ground::two(devices.first.clone(), second.clone()),
        true => Ground::two(second.clone(), devices.first.clone()),
    })
}

fn check(speed: &Found<'_>, capacity: &Found<'_>) -> Result<()> {
    if speed.bond.role == capacity.bond.role {
        let (name, missing) = (speed.bond.role.name(), speed.bond.role.other().name());
        let why = format!("both are a volume's {name} device: name its {missing} device as the other one");
        return Err(capacity.error(why));
    }
    let uids = |found: &Found<'_>| {
        let records = found.superblock.devices.records.iter().map(|device| device.uid);
        (found.superblock.uid, records.collect::<Vec<_>>())
    };
    if uids(speed) != uids(capacity) {
        let why = format!(
            "it is the capacity device of another volume than {}: name the two that were made together",
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
        true => format!("it and {other} were mounted apart from each other: name two of the same time"),
        false => format!(
            "it is an older copy of the {name} device: {other} was mounted {} times since; name the newest",
            ahead.bond.mounts - behind.bond.mounts
        ),
    }))
}

/// A mount that writes: both devices get a new session.
///
/// # Errors
/// Those of the devices.
pub(crate) fn begin_session(env: &Env, ground: &Ground, superblock: &mut Superblock) -> Result<()> {
    let (Some(second), Some(bond)) = (ground.second(), superblock.devices.bond) else { return Ok(()) };
    let (found, agree) = Slots::read(second)?.choose().map_err(|e| e.at_file(second.path()))?;
    if !agree {
        // First the one that does not count: a death while the other one is written would leave none.
        superblock::heal(second, &found)?;
    }
    let session = Bond { session: env.new_uid(), previous: bond.session, mounts: bond.mounts + 1, ..bond };
    let mut next = Superblock { generation: superblock.generation + 1, ..superblock.clone() };
    next.devices.bond = Some(session);
    let ahead = of_capacity(&next, found.generation + 1);
    superblock::write(second, &ahead)?;
    superblock::write(ground.device(Role::Speed), &next)?;
    next.devices.bond = Some(Bond { previous: Uid::default(), ..session });
    superblock::write(second, &of_capacity(&next, ahead.generation + 1))?;
    *superblock = next;
    Ok(())
}

/// What the slots of the capacity device say, beside a superblock.
pub(crate) fn of_capacity(superblock: &Superblock, generation: u64) -> Superblock {
    let bond = superblock.devices.bond.map(|bond| Bond { role: Role::Capacity, ..bond });
    let devices = DeviceTable { bond, ..superblock.devices.clone() };
    Superblock { generation, checkpoint: 0, reached: 0, dump: Vec::new(), devices, ..superblock.clone() }
}

#[cfg(test)]
mod tests;
