//! Reading at one sequence: `read_path` (a get), `iterator` with `prefetch`, `fetch` (separated values).

pub(crate) mod fetch;
pub(crate) mod iterator;
pub(crate) mod options;
pub(crate) mod prefetch;
pub(crate) mod read_path;
pub(crate) mod value_reader;
