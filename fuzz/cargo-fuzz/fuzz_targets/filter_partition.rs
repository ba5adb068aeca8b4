//! A filter partition.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| fuzz::filter_partition(data));
