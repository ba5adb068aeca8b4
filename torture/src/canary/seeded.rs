//! A seeded bug, and what must catch it.

/// What must catch a canary.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Catcher {
    /// A row; `seed`: one that caught it when it was entered, so that the campaign need not look for it.
    Row { row: &'static str, seed: Option<u64> },
    /// A unit or integration test: `target` are cargo's words for the test binary (`--lib`, `--test api`).
    Test { package: &'static str, target: &'static str, name: &'static str },
}

/// A seeded bug.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canary {
    /// As it stands in the sources.
    pub name: &'static str,
    /// What is broken.
    #[cfg_attr(not(test), expect(dead_code, reason = "for the page that tells people"))]
    pub about: &'static str,
    pub by: Catcher,
}

impl Canary {
    /// True if `what` is the row or the package that must catch it.
    pub fn is_for(&self, what: &str) -> bool {
        match self.by {
            Catcher::Row { row, .. } => row == what,
            Catcher::Test { package, .. } => package == what,
        }
    }
}

/// A canary that a row catches.
pub(super) const fn row(
    name: &'static str,
    row: &'static str,
    seed: Option<u64>,
    about: &'static str,
) -> Canary {
    Canary { name, about, by: Catcher::Row { row, seed } }
}

/// A canary that a test catches: of which package, in which of its binaries.
pub(super) const fn test(
    name: &'static str,
    (package, target): (&'static str, &'static str),
    test: &'static str,
    about: &'static str,
) -> Canary {
    Canary { name, about, by: Catcher::Test { package, target, name: test } }
}
