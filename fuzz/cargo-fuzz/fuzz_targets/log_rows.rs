//! A block of rows of an index.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::log_rows(data));
