//! Reading at one sequence: `read_path` (a get), `multi_get` (many, whose reads `wanted` does together), `iterator` with
//! `prefetch`, `fetch` (separated values). `pending`: gets whose reads somebody else does. `scan`: the same of a page.

pub(crate) mod fetch;
pub(crate) mod iterator;
pub(crate) mod multi_get;
pub(crate) mod options;
pub(crate) mod pending;
pub(crate) mod prefetch;
pub(crate) mod read_path;
pub(crate) mod scan;
pub(crate) mod value_reader;
pub(crate) mod wanted;
