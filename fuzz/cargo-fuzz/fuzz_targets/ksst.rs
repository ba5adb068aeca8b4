//! A whole table.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::ksst(data));
