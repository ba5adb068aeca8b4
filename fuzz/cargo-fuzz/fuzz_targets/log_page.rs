//! A page of the log.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::log_page(data));
