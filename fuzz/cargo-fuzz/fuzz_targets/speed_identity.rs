//! A slot of the identity of a second disk.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::speed_identity(data));
