//! A block of range tombstones.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::range_tombstones(data));
