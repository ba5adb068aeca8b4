//! Scripts of damage: how the bytes of an input change something valid.
//!
//! A script is a row of patches of eight bytes: what, which part, where in it, with what. Any bytes are a script, so
//! mutation of a script is mutation of the damage.

use io::Rng;

/// Bytes of a patch.
pub const PATCH_LEN: usize = 8;
/// Patches of one script that are looked at.
const PATCHES_MAX: usize = 64;

/// Numbers at which decoders are likely to be wrong.
pub const BOUNDARIES: [u64; 24] = [
    0,
    1,
    2,
    0x7f,
    0x80,
    0xff,
    0x100,
    0x7fff,
    0xffff,
    0x1_0000,
    1 << 20,
    1 << 24,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    (1 << 56) - 1,
    1 << 56,
    (1 << 62) - 1,
    1 << 62,
    i64::MAX as u64,
    1 << 63,
    u64::MAX - 1,
    u64::MAX,
];

/// One change.
#[derive(Clone, Copy, Debug)]
pub struct Patch {
    /// What to do.
    pub op: u8,
    /// Which file, table or part, as far as the target has several.
    pub part: u8,
    /// Which region of it.
    pub region: u16,
    /// Where.
    pub offset: u16,
    /// With what.
    pub value: u16,
}

/// The patches of a script.
pub fn patches(script: &[u8]) -> impl Iterator<Item = Patch> + '_ {
    script.chunks_exact(PATCH_LEN).take(PATCHES_MAX).map(|c| Patch {
        op: c[0],
        part: c[1],
        region: u16::from_le_bytes([c[2], c[3]]),
        offset: u16::from_le_bytes([c[4], c[5]]),
        value: u16::from_le_bytes([c[6], c[7]]),
    })
}

impl Patch {
    /// Number `self.region`, wrapped, of `count` regions; `None` if there are none.
    pub fn region_of(&self, count: usize) -> Option<usize> {
        usize::from(self.region).checked_rem(count)
    }

    /// Changes bytes without changing their number.
    pub fn apply(&self, bytes: &mut [u8]) {
        let len = bytes.len();
        let Some(at) = usize::from(self.offset).checked_rem(len) else { return };
        let boundary = BOUNDARIES[usize::from(self.value) % BOUNDARIES.len()];
        let room = &mut bytes[at..];
        match self.op % 8 {
            0 | 1 => put(room, &[self.value as u8]),
            2 => room[0] ^= 1 << (self.value % 8),
            3 => put(room, &boundary.to_le_bytes()[..4]),
            4 => put(room, &boundary.to_le_bytes()),
            5 => {
                let mut varint = Vec::new();
                base::codec::put_varint(&mut varint, boundary);
                put(room, &varint);
            }
            6 => put(room, &vec![(self.value >> 8) as u8; usize::from(self.value as u8 % 40)]),
            _ => {
                let from = usize::from(self.value) % len;
                let count = (usize::from(self.region >> 8) % 48).min(len - from).min(len - at);
                bytes.copy_within(from..from + count, at);
            }
        }
    }
}

/// Overwrites the start of `room` by as much of `new` as fits.
fn put(room: &mut [u8], new: &[u8]) {
    let len = new.len().min(room.len());
    room[..len].copy_from_slice(&new[..len]);
}

/// Scripts to begin with: random ones of one to six patches.
pub fn seeds() -> Vec<Vec<u8>> {
    let mut rng = Rng::new(77);
    let script = |i: u64| {
        let mut script = vec![0; PATCH_LEN * (1 + i as usize % 6)];
        rng.fill(&mut script);
        script
    };
    std::iter::once(Vec::new()).chain((0..48).map(script)).collect()
}
