//! Recent evictions of a segment: fingerprints with the time of eviction, measured in evicted
//! bytes.
//!
//! # Algorithm
//!
//! A table of 64-bit slots in buckets of four. A slot has the upper 48 bits of the key's hash and
//! 16 bits of *epoch*; the epoch advances by one each time another quantum of bytes has been
//! evicted. With epochs instead of a queue, entries expire by themselves: after [`REACH_QUANTA`]
//! quanta a slot counts as free. A full bucket drops its oldest slot. Two keys have equal
//! fingerprints once in 2^48 tries, and a wrapped epoch makes one slot look young. Both only cost a
//! wrong count.
//!
//! Invariant: a slot of 0 is empty (fingerprints are made odd in their lowest bit).

/// How far back the table reaches, in quanta.
pub const REACH_QUANTA: u64 = 16;

const WAYS: usize = 4;
const EPOCH_BITS: u32 = 16;
const EPOCH_MASK: u64 = (1 << EPOCH_BITS) - 1;

/// Recently evicted keys.
pub struct Ghosts {
    slots: Box<[u64]>,
    quantum_bytes: u64,
    evicted_bytes: u64,
}

impl Ghosts {
    /// Returns a table that reaches `reach_bytes` of evictions back, in `slots` slots (rounded down
    /// to a power of two; fewer than one bucket keep nothing).
    pub fn new(reach_bytes: u64, slots: usize) -> Self {
        let slots = if slots < WAYS { 0 } else { 1 << slots.ilog2() };
        Ghosts {
            slots: vec![0; slots].into_boxed_slice(),
            quantum_bytes: (reach_bytes / REACH_QUANTA).max(1),
            evicted_bytes: 0,
        }
    }

    /// Returns the bytes of the table.
    pub fn bytes(slots: usize) -> usize {
        if slots < WAYS { 0 } else { (1 << slots.ilog2()) * size_of::<u64>() }
    }

    fn epoch(&self) -> u64 {
        (self.evicted_bytes / self.quantum_bytes) & EPOCH_MASK
    }

    fn age(&self, slot: u64) -> u64 {
        self.epoch().wrapping_sub(slot) & EPOCH_MASK
    }

    fn bucket(&self, hash: u64) -> std::ops::Range<usize> {
        let start = hash as usize & (self.slots.len() - 1) & !(WAYS - 1);
        start..start + WAYS
    }

    /// Records that the key with this hash, of `bytes` bytes, was evicted now.
    pub fn record(&mut self, hash: u64, bytes: u64) {
        if self.slots.is_empty() {
            return;
        }
        self.evicted_bytes = self.evicted_bytes.wrapping_add(bytes);
        let fingerprint = fingerprint(hash);
        let bucket = self.bucket(hash);
        let rank = |&i: &usize| {
            let slot = self.slots[i];
            if slot & !EPOCH_MASK == fingerprint {
                u64::MAX
            } else if slot == 0 {
                u64::MAX - 1
            } else {
                self.age(slot)
            }
        };
        let victim = bucket.max_by_key(rank).unwrap_or(0);
        self.slots[victim] = fingerprint | self.epoch();
    }

    /// Removes the key with this hash. Returns how many quanta ago it was evicted, if it is known
    /// and not expired.
    pub fn take(&mut self, hash: u64) -> Option<u64> {
        if self.slots.is_empty() {
            return None;
        }
        let fingerprint = fingerprint(hash);
        let found = self.bucket(hash).find(|&i| self.slots[i] & !EPOCH_MASK == fingerprint)?;
        let age = self.age(self.slots[found]);
        self.slots[found] = 0;
        (age <= REACH_QUANTA).then_some(age)
    }
}

fn fingerprint(hash: u64) -> u64 {
    hash & !EPOCH_MASK | 1 << EPOCH_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(n: u64) -> u64 {
        (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29).wrapping_mul(0xbf58_476d_1ce4_e5b9)
    }

    #[test]
    fn ghosts_remember_the_configured_bytes() {
        let mut ghosts = Ghosts::new(1600, 1024);
        for n in 0..1000 {
            ghosts.record(hash(n), 10);
        }
        let known: Vec<u64> = (0..1000).filter(|&n| ghosts.take(hash(n)).is_some()).collect();
        assert!(known.iter().all(|&n| n >= 1000 - 170), "expired ones are not found: {known:?}");
        assert!(known.len() > 150, "nearly all of the last 160 are known: {}", known.len());
        assert_eq!(ghosts.take(hash(999)), None, "taking forgets");
    }

    #[test]
    fn ghost_ages_are_counted_in_quanta() {
        let mut ghosts = Ghosts::new(1600, 64);
        ghosts.record(hash(1), 100);
        ghosts.record(hash(2), 300);
        assert_eq!(ghosts.take(hash(2)), Some(0));
        assert_eq!(ghosts.take(hash(1)), Some(3));
        ghosts.record(hash(3), 100);
        ghosts.record(hash(3), 100);
        assert_eq!(ghosts.take(hash(3)), Some(0));
        assert_eq!(ghosts.take(hash(3)), None, "one slot for one key");
    }

    #[test]
    fn zero_slots_allocate_no_memory() {
        let mut ghosts = Ghosts::new(0, 3);
        ghosts.record(1, 1);
        assert_eq!(ghosts.take(1), None);
        assert_eq!(Ghosts::bytes(3), 0);
        assert_eq!(Ghosts::bytes(100), 64 * 8);
    }
}
