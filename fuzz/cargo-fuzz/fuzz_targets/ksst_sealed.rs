//! A whole table, damaged under valid checksums.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::ksst_sealed(data));
