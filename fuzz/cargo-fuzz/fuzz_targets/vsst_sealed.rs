//! Damage to a vSST, under valid checksums.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::vsst_sealed(data));
