//! Computes where a view continues after an unreadable part.

use super::VisibleOptions;
use super::versions::fill;
use base::key;
use base::{Gap, MAX_SEQ, ValueKind};
use std::cmp::Ordering;

/// A gap that was passed.
struct Skip {
    is_forward: bool,
    /// Key at which the cursor continued.
    border: Vec<u8>,
}

/// The last gap that was passed since the last seek.
#[derive(Default)]
pub(super) struct Skips {
    last: Option<Skip>,
    /// True if the last move failed to fold the merge operands of a key, which can be skipped alone.
    pub is_unfolded: bool,
}

impl Skips {
    /// Resets the state for a new seek.
    pub fn restart(&mut self) {
        (self.last, self.is_unfolded) = (None, false);
    }

    /// Returns the seek target after the gap, within the bounds and beyond the user key passed
    /// last. Returns `None` if that is no further than the last target in this direction.
    pub fn border(
        &mut self,
        gap: &Gap,
        passed: Option<&[u8]>,
        options: &VisibleOptions,
        is_forward: bool,
    ) -> Option<&[u8]> {
        let border = match is_forward {
            true => border_behind(gap, passed, options),
            false => border_before(gap, passed, options),
        };
        let last = self.last.take().filter(|last| last.is_forward == is_forward);
        let further = if is_forward { Ordering::Greater } else { Ordering::Less };
        if last.is_some_and(|last| key::compare(&border, &last.border) != further) {
            return None;
        }
        Some(&self.last.insert(Skip { is_forward, border }).border)
    }
}

fn border_behind(gap: &Gap, passed: Option<&[u8]>, options: &VisibleOptions) -> Vec<u8> {
    let (user_key, trailer) = key::split(&gap.last);
    // A table that ends with a range tombstone excludes the key at which it ends.
    let behind = if trailer == u64::MAX { user_key.to_vec() } else { [user_key, &[0]].concat() };
    let passed = passed.map(|key| [key, &[0]].concat());
    let behind = Some(behind).max(passed).max(options.lower.clone()).unwrap_or_default();
    let mut border = Vec::new();
    fill(&mut border, &behind, options.snapshot, ValueKind::Seek);
    border
}

fn border_before(gap: &Gap, passed: Option<&[u8]>, options: &VisibleOptions) -> Vec<u8> {
    let (mut border, mut other) = (Vec::new(), Vec::new());
    match key::split(&gap.first) {
        // The gap begins after the key.
        (user_key, 0) => fill(&mut border, user_key, 0, ValueKind::Deletion),
        (user_key, _) => fill(&mut border, user_key, MAX_SEQ, ValueKind::Seek),
    }
    for limit in passed.into_iter().chain(options.upper.as_deref()) {
        fill(&mut other, limit, MAX_SEQ, ValueKind::Seek);
        if key::compare(&other, &border).is_lt() {
            border.clone_from(&other);
        }
    }
    border
}
