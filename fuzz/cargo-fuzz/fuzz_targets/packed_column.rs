//! A packed column.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::packed_column(data));
