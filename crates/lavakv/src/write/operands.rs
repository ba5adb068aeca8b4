//! The checks of merge operands before they are written.
//!
//! A wrong operand fails its write, and not all later reads of its key. Only a family whose stored
//! options name a merge operator takes operands; so an earlier release, which would return wrong
//! values, refuses the store.

use super::WritePath;
use crate::batch::payload::Body;
use crate::batch::{BatchEntries, Change, shown_key};
use crate::large::segments::threshold;
use crate::tree::family::Family;
use base::{Error, ErrorKind, Result, ValueKind, limits};

/// Fails if the operators of the families would not take the operands among some changes. An operand
/// that is not logged may be as long as a value in memory: compactions combine short ones, and a
/// repair copies the result.
pub(crate) fn check(writes: &WritePath, body: &Body<'_>, is_logged: bool) -> Result<()> {
    let len_max = if is_logged { threshold(&writes.context.options) - 1 } else { limits::VALUE_LEN_MAX };
    match body {
        Body::One(family, change) => check_one(writes, family, change, len_max),
        Body::Batch(batch) => {
            for change in BatchEntries::of(batch.body()) {
                let change = change?;
                if change.kind == ValueKind::Merge {
                    let family = &writes.tree.families.find_all(&[change.family])?[0];
                    check_one(writes, family, &change, len_max)?;
                }
            }
            Ok(())
        }
    }
}

fn check_one(writes: &WritePath, family: &Family, change: &Change<'_>, len_max: usize) -> Result<()> {
    let store = &writes.context.options;
    let Some(choice) = &family.options().merge_operator else {
        return Err(Error::invalid(format!(
            "column family {} has no merge operator, so it takes no operands: set \
             FamilyOptions::merge_operator",
            family.name
        )));
    };
    if change.value.len() > len_max {
        let len = change.value.len();
        let why =
            format!("merge operand of {len} bytes is over the limit: at most {len_max} bytes are supported");
        return Err(Error::new(ErrorKind::TooLarge, why));
    }
    let operator = store.expert.merge_operators.find(choice)?;
    lsm::operator::check(&*operator, change.value).map_err(|e| e.context(shown_key(change.key)))
}
