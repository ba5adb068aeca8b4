//! Ranges of options, and the error that names the option.

use base::{Error, Result};

/// Fails if a value is out of its range; the error names the option and the range.
pub(super) fn check<T: PartialOrd + std::fmt::Display>(name: &str, value: T, low: T, high: T) -> Result<()> {
    if value < low || value > high {
        return Err(Error::invalid(format!(
            "option {name} = {value} is out of range: {low} to {high}{}",
            unit(name)
        )));
    }
    Ok(())
}

/// Returns the unit of an option, with a space before it.
fn unit(name: &str) -> &'static str {
    match name {
        "io_budget" | "scrub_bytes_per_s" => " bytes per second",
        "stall_budget" => " microseconds",
        "buffered_age_ms_max" => " ms",
        "min_blob_size" => " bytes",
        "gc_ratio_percent" => " percent",
        "filter_bits_per_key" => " bits",
        _ if name.contains("bytes") => " bytes",
        _ if name.ends_with("_files") || name.ends_with("_files_max") => " files",
        _ => "",
    }
}

/// Adds the option that determines a bound to an error.
pub(super) fn beside<T: std::fmt::Display>(name: &str, value: T) -> impl Fn(Error) -> Error {
    move |e| e.context(format!("with {name} = {value}"))
}
