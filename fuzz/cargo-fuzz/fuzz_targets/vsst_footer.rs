//! The footers of vSSTs and segments.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::vsst_footer(data));
