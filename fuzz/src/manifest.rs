//! The manifest: edits, records, `CURRENT`, recovery.

use crate::seal::{MANIFEST_HEADER_LEN, RECORD_HEADER_LEN, manifest_uid};
use base::checksum::{checksum, checksum_of, mask};
use base::codec::{Reader, put_bytes, put_u32, put_u64, put_varint};
use base::{Result, Uid};
use io::sim::SimEnv;
use std::path::Path;
use store::volumes::identity::Identity;
use version::{Edit, Manifest, State, dump_manifest, names};

const GOLDEN: &[u8] = include_bytes!("../../crates/version/tests/golden/manifest-v1.bin");
const GOLDEN_RECORDS: &[u8] = include_bytes!("../../crates/version/tests/golden/records-v1.bin");
const GOLDEN_CURRENT: &[u8] = include_bytes!("../../crates/version/tests/golden/current-v1.txt");
const GOLDEN_SPEED: &[u8] = include_bytes!("../../crates/store/tests/golden/speed-v1.bin");
/// Where the checksum of a slot of an identity is.
const SPEED_SUM_AT: usize = 92;
/// The number of the golden manifest.
const NUMBER: u64 = 77;

/// An edit: decoded, shown, encoded again, applied to an empty store twice.
pub fn edit(data: &[u8]) {
    for bytes in [data.to_vec(), lenient(data)] {
        let Ok(edit) = Edit::decode(&bytes) else { continue };
        let again = Edit::decode(&edit.encode());
        assert_eq!(again.ok().as_ref(), Some(&edit), "an edit is not what it was");
        edit.0.iter().for_each(|record| drop(record.to_string()));
        let Ok(state) = State::from_snapshot(Uid::default(), 5, &bytes) else { continue };
        let sound = state.verify();
        assert!(sound.is_ok(), "an edit was applied that leads to a contradiction: {sound:?}");
        let _ = (state.apply(&edit), state.describe());
        let copy = State::from_snapshot(Uid::default(), 5, &state.snapshot());
        assert_eq!(copy.ok().as_ref(), Some(&state), "a snapshot does not lead to its state");
    }
}

/// Reads bytes as records whose lengths need not fit, and writes them as records whose lengths do: so that an input
/// stays an edit when bytes are put in or taken out of its records.
fn lenient(data: &[u8]) -> Vec<u8> {
    let mut r = Reader::new(data);
    let mut out = Vec::new();
    while let (Ok(tag), Ok(len)) = (r.varint(), r.varint()) {
        let left = r.rest().len();
        let body = r.take(usize::try_from(len).unwrap_or(left).min(left)).unwrap_or_default();
        put_varint(&mut out, tag);
        put_bytes(&mut out, body);
    }
    out
}

/// The golden records, the golden edits.
pub fn edit_seeds() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = golden_payloads();
    all.push(GOLDEN_RECORDS.to_vec());
    all
}

fn golden_payloads() -> Vec<Vec<u8>> {
    let mut r = Reader::new(&GOLDEN[MANIFEST_HEADER_LEN..]);
    let mut all = Vec::new();
    while let Ok(len) = r.u32() {
        let record = r.take(RECORD_HEADER_LEN - 4 + len as usize).expect("the golden manifest is whole");
        all.push(record[RECORD_HEADER_LEN - 4..].to_vec());
    }
    all
}

/// Puts a manifest and a `CURRENT` into a directory and recovers it, rolls it, recovers it again.
fn recover(manifest: &[u8], current: &[u8]) -> Result<()> {
    dump_manifest(manifest);
    let sim = SimEnv::new(1);
    let env = sim.env();
    let dir = Path::new("/");
    sim.write_file(dir.join(names::manifest(NUMBER)), manifest)?;
    sim.write_file(dir.join(names::CURRENT), current)?;
    let recovered = Manifest::recover(&env, dir, false)?;
    let state = recovered.state();
    state.verify()?;
    // What is believed can be written again: room for more edits, a snapshot that leads to the same state.
    recovered.commit(Edit::default())?;
    recovered.commits().roll()?;
    let state = recovered.state();
    drop(recovered);
    let again = Manifest::recover(&env, dir, true).expect("what was just written");
    assert!(
        again.state().families == state.families && again.state().store.log_groups == state.store.log_groups
    );
    Ok(())
}

fn current_of(number: u64, uid: Uid, edit: u64) -> Vec<u8> {
    let text = format!("{}\nuid {uid:?}\nedit {edit}\n", names::manifest(number));
    format!("{text}checksum {:08x}\n", checksum(text.as_bytes())).into_bytes()
}

/// `CURRENT`, beside the golden manifest; and the bytes as a file name.
pub fn current(data: &[u8]) {
    let _ = recover(GOLDEN, data);
    if let Ok(name) = std::str::from_utf8(data)
        && let Some(kind) = names::parse(name)
    {
        assert_eq!(kind.to_string(), name);
    }
}

/// The golden `CURRENT`, one of the golden manifest, and names.
pub fn current_seeds() -> Vec<Vec<u8>> {
    let names = [names::ksst(1), names::manifest(u64::MAX), names::log(1 << 40), names::vsst(0)];
    let mut all: Vec<Vec<u8>> = names.into_iter().map(String::into_bytes).collect();
    all.push(GOLDEN_CURRENT.to_vec());
    all.push(current_of(NUMBER, manifest_uid(GOLDEN), 1));
    all
}

/// The bytes of a manifest, with a `CURRENT` that fits.
pub fn manifest(data: &[u8]) {
    let uid = if data.len() < MANIFEST_HEADER_LEN { Uid::default() } else { manifest_uid(data) };
    let _ = recover(data, &current_of(NUMBER, uid, 1));
}

/// The golden manifest.
pub fn manifest_seeds() -> Vec<Vec<u8>> {
    vec![GOLDEN.to_vec()]
}

/// A manifest under valid checksums: the input is a row of (how its numbers depart from right: u8, length: u16, edit).
pub fn manifest_sealed(data: &[u8]) {
    let uid = Uid([9; 16]);
    let mut bytes = GOLDEN[..16].to_vec();
    bytes.extend_from_slice(&[8; 16]);
    bytes.extend_from_slice(&uid.0);
    put_u64(&mut bytes, NUMBER);
    put_u32(&mut bytes, 0);
    let sum = base::checksum::stored(&bytes, uid, 0);
    put_u32(&mut bytes, sum);
    let mut r = Reader::new(data);
    let (mut edit, mut durable) = (1u64, 1u64);
    while let (Ok(departure), Ok(len)) = (r.u8(), r.u16()) {
        let left = r.rest().len();
        let payload = lenient(r.take(usize::from(len).min(left)).unwrap_or_default());
        let (number, confirmed) = match departure {
            250 => (edit.wrapping_add(1), durable),
            251 => (u64::MAX, durable),
            252 => (edit, edit.wrapping_add(1)),
            253 => (edit, u64::MAX),
            254 => (version::NUMBER_MAX, version::NUMBER_MAX),
            255 => (0, 0),
            _ => (edit, durable),
        };
        let offset = bytes.len() as u64;
        let start = bytes.len();
        put_u32(&mut bytes, payload.len() as u32);
        put_u32(&mut bytes, 0);
        put_u64(&mut bytes, number);
        put_u64(&mut bytes, confirmed);
        bytes.extend_from_slice(&payload);
        let sum = checksum_of(&[&bytes[start..start + 4], &bytes[start + 8..]]) ^ mask(uid, offset);
        bytes[start + 4..start + 8].copy_from_slice(&sum.to_le_bytes());
        durable = edit;
        edit = number.wrapping_add(1);
    }
    let _ = recover(&bytes, &current_of(NUMBER, uid, 1));
}

/// The golden manifest as such a row, and edits of one record each.
pub fn manifest_sealed_seeds() -> Vec<Vec<u8>> {
    let row = |payloads: &[Vec<u8>]| {
        let mut out = Vec::new();
        for payload in payloads {
            out.push(0);
            base::codec::put_u16(&mut out, payload.len() as u16);
            out.extend_from_slice(payload);
        }
        out
    };
    let payloads = golden_payloads();
    (1..payloads.len()).step_by(4).map(|n| row(&payloads[..n])).collect()
}

/// A slot of the identity of a fast tier, as it is and with its checksum computed anew.
pub fn speed_identity(data: &[u8]) {
    let mut sealed = data.to_vec();
    if let (Some(disk), Some((body, sum))) = (data.get(32..48), sealed.split_at_mut_checked(SPEED_SUM_AT)) {
        let mut uid = Uid::default();
        uid.0.copy_from_slice(disk);
        let (own, _) = sum.split_at_mut(sum.len().min(4));
        own.copy_from_slice(&(checksum(body) ^ mask(uid, 0)).to_le_bytes()[..own.len()]);
    }
    for bytes in [data, &sealed] {
        let Ok(identity) = Identity::decode(bytes) else { continue };
        assert_eq!(
            Identity::decode(&identity.encode()).ok(),
            Some(identity),
            "an identity is not what it was"
        );
    }
}

/// The golden slots.
pub fn speed_identity_seeds() -> Vec<Vec<u8>> {
    GOLDEN_SPEED.chunks(io::PAGE).map(|slot| slot[..SPEED_SUM_AT + 4].to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_golden_manifest_is_recovered() {
        recover(GOLDEN, &current_of(NUMBER, manifest_uid(GOLDEN), 1)).unwrap();
        assert!(golden_payloads().iter().all(|payload| &lenient(payload) == payload));
    }
}
