//! The identity of the fast tier: its record in the manifest ([`FastTier`]), its record on the
//! disk, and the check that both are of one time.
//!
//! The disk has it in a file, `SPEED` (byte map: `docs/format/speed.md`), with two slots of a page
//! each. The slots are written one after the other, so that one of them is always valid, and a
//! single damaged sector loses nothing. The file never grows and is never renamed, so a full disk
//! accepts a new session too.

use crate::field::{newer, number};
use crate::names;
use base::checksum;
use base::codec::{Reader, put_bytes, put_u32, put_u64, put_varint};
use base::{Error, ErrorKind, Result, Uid};
use io::{Access, AlignedBuf, Env, InPlaceFile, PAGE, Tiers};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"LAVASPED";
/// The version this release writes, and the newest it reads.
const FORMAT_VERSION: u32 = 1;
/// Valid bytes of a slot, including the checksum.
const SLOT_LEN: usize = 96;
const SLOTS: usize = 2;

/// Maximum length of the recorded place of a fast tier, bytes.
const PLACE_LEN_MAX: usize = 4096;

/// The record of a store's fast tier: which disk it is, and the last session that wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastTier {
    /// Identity of the disk, chosen when it was attached.
    pub disk: Uid,
    /// Number of sessions that have written it.
    pub epoch: u64,
    /// The last session. The disk must record the same, or is of another time.
    pub session: Uid,
    /// Its last place, for people.
    pub place: String,
}

impl FastTier {
    /// Appends the record.
    pub fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.disk.0);
        put_varint(out, self.epoch);
        out.extend_from_slice(&self.session.0);
        put_bytes(out, self.place.get(..self.place.len().min(PLACE_LEN_MAX)).unwrap_or_default().as_bytes());
    }

    /// Decodes the record.
    ///
    /// # Errors
    /// `Corruption`.
    pub fn decode(r: &mut Reader<'_>) -> Result<FastTier> {
        let (disk, epoch, session) = (Uid(r.array()?), number(r)?, Uid(r.array()?));
        let len = r.length(PLACE_LEN_MAX)?;
        let place = std::str::from_utf8(r.take(len)?);
        let place = place.map_err(|e| {
            Error::corruption("the path of the fast tier in the manifest is not UTF-8").caused_by(e)
        })?;
        Ok(FastTier { disk, epoch, session, place: place.to_owned() })
    }
}

/// The contents of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// The store that owns the disk.
    pub store: Uid,
    /// Identity of the disk.
    pub disk: Uid,
    /// Number of sessions that have written it.
    pub epoch: u64,
    /// The last session.
    pub session: Uid,
    /// The previous session, until the last one is known to be in the manifest. Zero: it is.
    pub previous: Uid,
    /// The log is being moved to or from this disk: if the manifest does not list the disk, its
    /// files are void.
    pub moving: bool,
}

impl Identity {
    /// Encodes a slot.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(SLOT_LEN);
        out.extend_from_slice(MAGIC);
        put_u32(&mut out, FORMAT_VERSION);
        put_u32(&mut out, u32::from(self.moving));
        for uid in [self.store, self.disk, self.session, self.previous] {
            out.extend_from_slice(&uid.0);
        }
        put_u64(&mut out, self.epoch);
        put_u32(&mut out, 0);
        let sum = checksum::stored(&out, self.disk, 0);
        put_u32(&mut out, sum);
        out
    }

    /// Decodes a slot.
    ///
    /// # Errors
    /// `Corruption`; `Unsupported` if a newer release wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Identity> {
        let body = Reader::new(bytes).take(SLOT_LEN - 4)?;
        let r = &mut Reader::new(bytes);
        let magic: [u8; 8] = r.array()?;
        let (version, flags) = (r.u32()?, r.u32()?);
        let [store, disk, session, previous] = [r.array()?, r.array()?, r.array()?, r.array()?].map(Uid);
        let (epoch, reserved) = (r.u64()?, r.u32()?);
        if magic != *MAGIC {
            return Err(Error::corruption(
                "the identity file of the fast tier has a wrong magic number (its first 8 bytes)",
            ));
        }
        // Only an intact slot proves a newer version.
        checksum::verify(body, disk, 0, r.u32()?)?;
        if version > FORMAT_VERSION {
            return Err(newer(format!("version {version} of the identity of a fast tier")));
        }
        if version == 0 || flags > 1 || reserved != 0 {
            return Err(Error::corruption(format!(
                "the identity file of the fast tier has version {version}, flags {flags:#x} and reserved \
                 field {reserved}, not version 1, flags 0 or 1, and 0"
            )));
        }
        Ok(Identity { store, disk, epoch, session, previous, moving: flags == 1 })
    }

    /// Returns true if the manifest refers to the log on this disk.
    fn is(&self, known: &FastTier) -> bool {
        self.disk == known.disk && [self.session, self.previous].contains(&known.session)
    }
}

/// The slots of a disk; for a damaged one, the error.
#[derive(Debug)]
pub struct Slots(Vec<Result<Identity>>);

impl Slots {
    /// Reads the slots. `None`: the disk has none, or there is no disk.
    ///
    /// # Errors
    /// `Unsupported` if a newer release wrote one; file system errors.
    pub fn read(disks: &Tiers) -> Result<Option<Slots>> {
        let path = path(disks);
        let file = match disks.speed.open(&path, Access::Buffered) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let slot = |nth: usize| -> Result<Identity> {
            let mut page = vec![0; PAGE];
            let offset = (nth * PAGE) as u64;
            file.read_at(&mut page, offset)?;
            Identity::decode(&page).map_err(|e| e.at_file(&path).at_offset(offset))
        };
        let slots: Vec<_> = (0..SLOTS).map(slot).collect();
        let passes = |e: &&Error| !e.is_corruption() && !io::is_unreadable(e);
        match slots.iter().filter_map(|slot| slot.as_ref().err()).find(passes) {
            Some(e) => Err(e.clone()),
            None => Ok(Some(Slots(slots))),
        }
    }

    /// Returns the newest intact slot.
    fn newest(&self) -> Option<&Identity> {
        self.0.iter().filter_map(|slot| slot.as_ref().ok()).max_by_key(|slot| slot.epoch)
    }

    /// Returns the index of the slot that matches the manifest.
    pub fn matching(&self, known: &FastTier) -> Option<usize> {
        let is = |exactly: bool| {
            let fits = |slot: &Result<Identity>| {
                slot.as_ref().is_ok_and(|it| it.is(known) && (!exactly || it.session == known.session))
            };
            self.0.iter().position(fits)
        };
        is(true).or_else(|| is(false))
    }

    /// Returns the first error of a slot.
    pub fn damage(&self) -> Option<&Error> {
        self.0.iter().find_map(|slot| slot.as_ref().err())
    }
}

/// The identity file, open for writing.
#[derive(Debug)]
pub struct IdentityFile {
    file: Arc<dyn InPlaceFile>,
}

impl IdentityFile {
    /// Creates the file; the caller makes its name durable.
    ///
    /// # Errors
    /// File system errors.
    pub fn create(disks: &Tiers) -> Result<IdentityFile> {
        let len = (SLOTS * PAGE) as u64;
        Ok(IdentityFile { file: disks.speed.create_in_place(&path(disks), len, Access::Buffered)? })
    }

    /// Opens the file.
    ///
    /// # Errors
    /// File system errors.
    pub fn open(disks: &Tiers) -> Result<IdentityFile> {
        Ok(IdentityFile { file: disks.speed.open_in_place(&path(disks), Access::Buffered)? })
    }

    /// Writes a slot, durably.
    ///
    /// # Errors
    /// File system errors.
    pub fn write(&self, slot: usize, identity: &Identity) -> Result<()> {
        let mut page = AlignedBuf::zeroed(PAGE);
        let bytes = identity.encode();
        page.as_mut_slice()[..bytes.len()].copy_from_slice(&bytes);
        self.file.write_durable(&page, (slot % SLOTS * PAGE) as u64)
    }

    /// Writes all slots, one after the other.
    ///
    /// # Errors
    /// File system errors.
    pub fn write_all(&self, identity: &Identity) -> Result<()> {
        (0..SLOTS).try_for_each(|slot| self.write(slot, identity))
    }
}

/// Returns the path of the identity file.
pub fn path(disks: &Tiers) -> PathBuf {
    io::fs::join(&disks.speed_dir, names::SPEED)
}

/// Returns the identity at a place that the manifest does not list. Damage there is the trace of an
/// interrupted start.
///
/// # Errors
/// `Unsupported` if a newer release wrote it; file system errors.
pub fn of_place(disks: &Tiers) -> Result<Option<Identity>> {
    match Slots::read(disks) {
        Err(e) if e.is_corruption() => Ok(None),
        read => Ok(read?.and_then(|slots| slots.newest().copied())),
    }
}

/// Checks that the fast tier, or its absence, agrees with the manifest. Nothing is written. If a
/// store is about to get its fast tier, a writer moves the log there, and a reader finds the log in
/// the directory.
///
/// # Errors
/// `InvalidArgument` if there is one too many or too few, or the disk is of another store or an
/// earlier time. `NotFound` if it is missing or empty. `Corruption` if its identity is damaged, or
/// the manifest is of an earlier time. `Unsupported` if a newer release wrote the identity. File
/// system errors.
pub fn check(env: &Env, dir: &Path, (store, known): (Uid, Option<&FastTier>), read_only: bool) -> Result<()> {
    match (known, env.fs.disks(dir)) {
        (None, None) => Ok(()),
        (Some(known), None) => Err(left_out(known).at_file(dir)),
        (None, Some(disks)) if read_only => check_unknown(&disks, store),
        (None, Some(_)) => Ok(()),
        (Some(known), Some(disks)) => check_disk(&disks, store, known).map(drop),
    }
}

fn left_out(known: &FastTier) -> Error {
    Error::invalid(format!(
        "the log of this store is on a fast tier, last used at {}: open the store with it; only \
         if it is lost, repair the store without it, which loses all data that only the log holds",
        known.place
    ))
}

/// Checks a fast tier that the manifest does not list, for a reader: it must have no files of the
/// store yet.
fn check_unknown(disks: &Tiers, store: Uid) -> Result<()> {
    let error = match of_place(disks)? {
        None => return Ok(()),
        Some(found) if found.store == store && found.moving => return Ok(()),
        Some(found) if found.store == store => Error::corruption(format!(
            "the fast tier is of session {} of the store, and the manifest lists none: the \
             manifest has lost its end, the store's directory is an older copy, or the tier was \
             given back",
            found.epoch
        )),
        Some(found) => Error::invalid(format!(
            "this is the fast tier of another store, {:?}, and the log of this store is in its \
             own directory: open the store without a fast tier",
            found.store
        )),
    };
    Err(error.at_file(&disks.speed_dir))
}

/// Returns the slots of the disk, if it is the one that the manifest lists.
///
/// # Errors
/// As [`check`].
pub fn check_disk(disks: &Tiers, store: Uid, known: &FastTier) -> Result<Slots> {
    let at = |e: Error| e.at_file(&disks.speed_dir);
    let Some(slots) = Slots::read(disks)? else {
        let why = format!(
            "this is not the fast tier of the store: it has no file {}; mount the tier, last \
             used at {}; only if it is lost, repair the store without it",
            names::SPEED,
            known.place
        );
        return Err(at(Error::not_found(why)));
    };
    if slots.matching(known).is_some() {
        return Ok(slots);
    }
    let Some(newest) = slots.newest() else {
        let why =
            "both slots (copies) of the fast tier's identity are damaged, so the tier is not recognized";
        let error = Error::corruption(why).at_file(path(disks));
        return Err(slots.damage().cloned().into_iter().fold(error, Error::caused_by));
    };
    Err(at(stranger(newest, store, known)))
}

/// Returns the error of a disk with another identity.
fn stranger(found: &Identity, store: Uid, known: &FastTier) -> Error {
    if found.store != store {
        return Error::invalid(format!(
            "this is the fast tier of another store, {:?}: name that of this store, last used at \
             {}",
            found.store, known.place
        ));
    }
    let (epoch, session) = (known.epoch, known.session);
    match found.disk == known.disk && found.epoch > epoch {
        true => Error::corruption(format!(
            "the fast tier is of session {} and the manifest only of session {epoch}: the \
             manifest has lost its end, or the store's directory is an older copy",
            found.epoch
        ))
        .with_remedy("restore both disks to the same time, or run `lava repair`"),
        false => Error::invalid(format!(
            "the fast tier is of session {} ({:?}), the store of session {epoch} ({session:?}): \
             the tier is an older copy, or that of a copy of the store; open the store with its \
             latest fast tier",
            found.epoch, found.session
        )),
    }
}
