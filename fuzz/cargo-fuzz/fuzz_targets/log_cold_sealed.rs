//! Damage to a cold file, under valid checksums.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::log_cold_sealed(data));
