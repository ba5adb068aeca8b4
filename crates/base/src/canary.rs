//! Seeded bugs: a switch by which a campaign breaks the engine on purpose, to see whether the campaign notices.
//!
//! A canary is a realistic slip of one line, written beside the line it spoils:
//!
//! ```
//! # fn sync() {}
//! if !base::canary::is("log-sync-skipped") {
//!     sync();
//! }
//! # use lavastore_base as base;
//! ```
//!
//! Without the feature `canary`, which only the campaigns switch on, [`is`] is `false` at compile time and the engine is
//! what it is without canaries. With it, one canary lives in a process: the one whose name is in the environment variable
//! [`VARIABLE`] when it is first asked. Each name stands at one place in the sources and in the campaigns' table of what
//! must catch it (`torture canary`), and a test holds the two against each other.

/// The environment variable that names the canary of a process.
pub const VARIABLE: &str = "LAVASTORE_CANARY";

/// True where this seeded bug is at work.
#[cfg(not(feature = "canary"))]
#[inline(always)]
pub const fn is(_name: &str) -> bool {
    false
}

/// True where this seeded bug is at work.
#[cfg(feature = "canary")]
#[inline]
pub fn is(name: &str) -> bool {
    static ACTIVE: std::sync::LazyLock<Option<String>> =
        std::sync::LazyLock::new(|| std::env::var(VARIABLE).ok());
    ACTIVE.as_deref() == Some(name)
}

#[cfg(test)]
mod tests {
    #[test]
    fn no_canary_sings_unasked() {
        assert!(!super::is("a-bug-that-nobody-asked-for"));
    }
}
