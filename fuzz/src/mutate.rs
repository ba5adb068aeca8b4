//! Mutation of inputs: small and large damage, deterministic by seed.

use crate::script::BOUNDARIES;
use io::Rng;

/// Changes `input` in one to eight ways. `others` are inputs to splice from; the result has at most `len_max` bytes.
pub fn mutate(rng: &mut Rng, input: &mut Vec<u8>, others: &[Vec<u8>], len_max: usize) {
    let times = 1 + rng.below(4) * rng.below(3);
    for _ in 0..times {
        step(rng, input, others);
    }
    input.truncate(len_max);
}

fn place(rng: &mut Rng, len: usize) -> usize {
    rng.below(len as u64) as usize
}

/// A place and a length in `len` bytes, mostly short.
fn range(rng: &mut Rng, len: usize) -> std::ops::Range<usize> {
    let start = place(rng, len + 1);
    let longest = if rng.one_in(4) { len - start } else { (len - start).min(16) };
    start..start + place(rng, longest + 1)
}

fn step(rng: &mut Rng, input: &mut Vec<u8>, others: &[Vec<u8>]) {
    if input.is_empty() {
        let mut noise = vec![0; 1 + place(rng, 32)];
        rng.fill(&mut noise);
        return *input = noise;
    }
    let at = place(rng, input.len());
    match rng.below(12) {
        0 | 1 => input[at] ^= 1 << rng.below(8),
        2 => input[at] = rng.next_u64() as u8,
        3 => input[at] = input[at].wrapping_add(rng.below(17) as u8).wrapping_sub(8),
        4 => overwrite(input, at, &number(rng)),
        5 => insert(input, at, &number(rng)),
        6 => {
            let other = &others[place(rng, others.len().max(1)).min(others.len().saturating_sub(1))..];
            let Some(other) = other.first() else { return };
            let from = range(rng, other.len());
            if rng.one_in(2) {
                insert(input, at, &other[from]);
            } else {
                input.truncate(at);
                input.extend_from_slice(&other[from.start..]);
            }
        }
        7 => {
            let from = range(rng, input.len());
            let piece = input[from].to_vec();
            insert(input, at, &piece);
        }
        8 => {
            let from = range(rng, input.len());
            let piece = input[from].to_vec();
            overwrite(input, at, &piece);
        }
        9 => {
            let gone = range(rng, input.len());
            input.drain(gone);
        }
        10 => {
            let fill = if rng.one_in(2) { 0 } else { rng.next_u64() as u8 };
            let span = range(rng, input.len());
            input[span].fill(fill);
        }
        _ => {
            if rng.one_in(8) {
                input.truncate(at);
            } else {
                let span = range(rng, input.len());
                rng.fill(&mut input[span]);
            }
        }
    }
}

/// A number at a boundary, or near it, in one of the encodings of the formats.
fn number(rng: &mut Rng) -> Vec<u8> {
    let boundary = BOUNDARIES[place(rng, BOUNDARIES.len())];
    let n = boundary.wrapping_add(rng.below(3)).wrapping_sub(1);
    match rng.below(5) {
        0 => n.to_le_bytes()[..1].to_vec(),
        1 => n.to_le_bytes()[..2].to_vec(),
        2 => n.to_le_bytes()[..4].to_vec(),
        3 => n.to_le_bytes().to_vec(),
        _ => {
            let mut out = Vec::new();
            base::codec::put_varint(&mut out, n);
            out
        }
    }
}

fn overwrite(input: &mut [u8], at: usize, new: &[u8]) {
    let room = new.len().min(input.len() - at);
    input[at..at + room].copy_from_slice(&new[..room]);
}

fn insert(input: &mut Vec<u8>, at: usize, new: &[u8]) {
    input.splice(at..at, new.iter().copied());
}
