//! A slot of the identity of a fast tier.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::speed_identity(data));
