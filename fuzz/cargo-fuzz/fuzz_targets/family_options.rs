//! Options of a column family.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::family_options(data));
