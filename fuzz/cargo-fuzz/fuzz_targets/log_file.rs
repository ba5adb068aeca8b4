//! The bytes of a file of logs.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::log_file(data));
