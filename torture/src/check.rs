//! The result of a check: nothing, or a description of the failure.

/// An error is text for people.
pub(crate) type Check<T = ()> = Result<T, String>;

/// Adds the failed action to an error.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl FnOnce() -> String) -> Check<T>;
}

impl<T, E: std::fmt::Display> Doing<T> for Result<T, E> {
    fn doing(self, what: impl FnOnce() -> String) -> Check<T> {
        self.map_err(|e| format!("{}: {e}", what()))
    }
}

/// Fails with the message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}
pub(crate) use ensure;

/// Formats bytes for people.
pub(crate) fn show(bytes: &[u8]) -> String {
    let shown: String =
        bytes.iter().take(24).flat_map(|b| std::ascii::escape_default(*b)).map(char::from).collect();
    if bytes.len() > 24 { format!("\"{shown}...\" ({} B)", bytes.len()) } else { format!("\"{shown}\"") }
}
