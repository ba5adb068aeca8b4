//! A reference to a separated value.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::reference(data));
