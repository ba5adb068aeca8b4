//! Damage to a segment, under valid checksums.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::segment_sealed(data));
