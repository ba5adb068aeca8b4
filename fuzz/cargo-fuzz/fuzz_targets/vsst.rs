//! The bytes of a vSST.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::vsst(data));
