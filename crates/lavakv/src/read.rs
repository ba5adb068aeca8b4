//! Reads at one sequence. `read_path`: a get. `multi_get`: many keys, whose device reads `wanted`
//! batches. `iterator`, with `prefetch` and `fetch` for separated values. `pending`: gets whose
//! caller reads from the device. `scan`: the same for one page of a scan. `operands`: merge operands.

pub(crate) mod fetch;
pub(crate) mod iterator;
pub(crate) mod multi_get;
pub(crate) mod operands;
pub(crate) mod options;
pub(crate) mod pending;
pub(crate) mod prefetch;
pub(crate) mod read_path;
pub(crate) mod scan;
pub(crate) mod value_reader;
pub(crate) mod wanted;
