//! Ranges of options, and the error that names the option.

use base::{Error, Result};

/// Fails if a value is out of its range; the error names the option and the range.
pub(super) fn check<T: PartialOrd + std::fmt::Display>(name: &str, value: T, low: T, high: T) -> Result<()> {
    if value < low || value > high {
        return Err(Error::invalid(format!("option {name} = {value} is out of range: {low} to {high}")));
    }
    Ok(())
}

/// Adds the option that determines a bound to an error.
pub(super) fn beside<T: std::fmt::Display>(name: &str, value: T) -> impl Fn(Error) -> Error {
    move |e| e.context(format!("with {name} = {value}"))
}
