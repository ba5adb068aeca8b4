//! Operations of the log engine.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::log_batch(data));
