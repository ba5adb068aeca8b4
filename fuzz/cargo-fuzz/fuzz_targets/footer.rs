//! The footer of a table.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::footer(data));
