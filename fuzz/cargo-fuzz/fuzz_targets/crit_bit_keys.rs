//! Keys that must be found where they were put.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::crit_bit_keys(data));
