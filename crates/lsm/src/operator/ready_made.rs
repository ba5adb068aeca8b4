//! Ready-made merge operators.

use super::MergeOperator;
use base::codec::{Reader, put_bytes};
use base::{Error, Result};
use std::collections::BTreeSet;

/// Adds little-endian `i64` numbers. Wrapping addition is associative, as the engine needs it; a
/// saturating one is not.
pub(super) struct Counter;

fn number(bytes: &[u8]) -> Result<i64> {
    <[u8; 8]>::try_from(bytes).map(i64::from_le_bytes).map_err(|_| {
        Error::invalid(format!(
            "the merge operator \"counter\" takes 8 bytes, a little-endian i64, and not {}",
            bytes.len()
        ))
    })
}

fn sum(mut total: i64, operands: &[&[u8]], out: &mut Vec<u8>) -> Result<()> {
    for operand in operands {
        total = total.wrapping_add(number(operand)?);
    }
    out.extend_from_slice(&total.to_le_bytes());
    Ok(())
}

impl MergeOperator for Counter {
    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        sum(base.map_or(Ok(0), number)?, operands, out)
    }

    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]], out: &mut Vec<u8>) -> Result<bool> {
        sum(0, operands, out).map(|()| true)
    }

    fn check_operand(&self, operand: &[u8]) -> Result<()> {
        number(operand).map(drop)
    }
}

/// Appends with a delimiter.
pub(super) struct Append {
    pub delimiter: Vec<u8>,
}

impl Append {
    fn join<'a>(&self, parts: impl Iterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
        for (nth, part) in parts.enumerate() {
            if nth > 0 {
                out.extend_from_slice(&self.delimiter);
            }
            out.extend_from_slice(part);
        }
    }
}

impl MergeOperator for Append {
    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        self.join(base.into_iter().chain(operands.iter().copied()), out);
        Ok(())
    }

    fn partial_merge(&self, _key: &[u8], operands: &[&[u8]], out: &mut Vec<u8>) -> Result<bool> {
        self.join(operands.iter().copied(), out);
        Ok(true)
    }
}

/// Keeps the largest.
pub(super) struct Max;

impl MergeOperator for Max {
    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let largest = base.into_iter().chain(operands.iter().copied()).max();
        out.extend_from_slice(largest.unwrap_or_default());
        Ok(())
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]], out: &mut Vec<u8>) -> Result<bool> {
        self.full_merge(key, None, operands, out).map(|()| true)
    }
}

/// Unites sets.
pub(super) struct SetUnion;

impl MergeOperator for SetUnion {
    fn full_merge(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut all = BTreeSet::new();
        for set in base.into_iter().chain(operands.iter().copied()) {
            each_member(set, |member| {
                all.insert(member);
            })?;
        }
        all.into_iter().for_each(|member| put_bytes(out, member));
        Ok(())
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]], out: &mut Vec<u8>) -> Result<bool> {
        self.full_merge(key, None, operands, out).map(|()| true)
    }

    fn check_operand(&self, operand: &[u8]) -> Result<()> {
        each_member(operand, drop)
    }
}

fn each_member<'a>(set: &'a [u8], mut member: impl FnMut(&'a [u8])) -> Result<()> {
    let mut reader = Reader::new(set);
    while !reader.is_empty() {
        let bytes = reader.bytes().map_err(|_| {
            Error::invalid(
                "the bytes are not a set of the merge operator \"set_union\": encode it with set_of",
            )
        })?;
        member(bytes);
    }
    Ok(())
}

/// Encodes a set, as value or operand of the merge operator `set_union`: the members in order, each
/// after its length.
///
/// ```
/// use lavastore_lsm::operator::{set_members, set_of};
/// let set = set_of([&b"b"[..], b"a", b"b"]);
/// assert_eq!(set_members(&set)?, [b"a", b"b"]);
/// # Ok::<(), base::Error>(())
/// ```
pub fn set_of<M: AsRef<[u8]>>(members: impl IntoIterator<Item = M>) -> Vec<u8> {
    let members: BTreeSet<Vec<u8>> = members.into_iter().map(|member| member.as_ref().to_vec()).collect();
    let mut out = Vec::new();
    members.iter().for_each(|member| put_bytes(&mut out, member));
    out
}

/// Decodes a set: see [`set_of`].
///
/// # Errors
/// `InvalidArgument`: the bytes are no set.
pub fn set_members(set: &[u8]) -> Result<Vec<Vec<u8>>> {
    let mut members = Vec::new();
    each_member(set, |member| members.push(member.to_vec()))?;
    Ok(members)
}

#[cfg(test)]
mod tests {
    use super::*;
    use io::Rng;

    fn full(operator: &dyn MergeOperator, base: Option<&[u8]>, operands: &[&[u8]]) -> Vec<u8> {
        let mut out = Vec::new();
        operator.full_merge(b"k", base, operands, &mut out).unwrap();
        out
    }

    /// Folds operands in groups of random sizes: some combined first, some folded at once.
    fn in_groups(
        operator: &dyn MergeOperator,
        base: Option<Vec<u8>>,
        all: &[&[u8]],
        rng: &mut Rng,
    ) -> Vec<u8> {
        let (mut value, mut left) = (base, all);
        while !left.is_empty() {
            let (group, rest) = left.split_at(1 + rng.below(left.len() as u64) as usize);
            let mut combined = Vec::new();
            let is_combined = group.len() > 1
                && rng.one_in(2)
                && operator.partial_merge(b"k", group, &mut combined).unwrap();
            let group = if is_combined { &[&combined[..]][..] } else { group };
            (value, left) = (Some(full(operator, value.as_deref(), group)), rest);
        }
        value.unwrap()
    }

    #[test]
    fn folding_in_any_groups_gives_the_same_value() {
        for case in 0..400 {
            let mut rng = Rng::new(case);
            let list = Append { delimiter: b",".to_vec() };
            let operators: [(&dyn MergeOperator, bool); 4] =
                [(&Counter, false), (&Max, false), (&list, false), (&SetUnion, true)];
            for (operator, takes_sets) in operators {
                let bytes = |rng: &mut Rng| match takes_sets {
                    true => set_of((0..rng.below(4)).map(|_| [b'a' + rng.below(6) as u8])),
                    false => (rng.next_u64() >> rng.below(64)).to_le_bytes().to_vec(),
                };
                let base = rng.one_in(2).then(|| bytes(&mut rng));
                let operands: Vec<Vec<u8>> = (0..1 + rng.below(8)).map(|_| bytes(&mut rng)).collect();
                let operands: Vec<&[u8]> = operands.iter().map(|operand| &operand[..]).collect();
                let expected = full(operator, base.as_deref(), &operands);
                assert_eq!(in_groups(operator, base, &operands, &mut rng), expected, "case {case}");
            }
        }
    }

    #[test]
    fn values_are_those_of_the_documentation() {
        let number = |n: i64| n.to_le_bytes();
        assert_eq!(full(&Counter, None, &[&number(3), &number(-5)]), number(-2));
        assert_eq!(full(&Counter, Some(&number(i64::MAX)), &[&number(1)]), number(i64::MIN));
        assert_eq!(full(&Max, None, &[b"b", b"a"]), b"b");
        let list = Append { delimiter: b", ".to_vec() };
        assert_eq!(full(&list, None, &[b"a", b"b"]), b"a, b");
        assert_eq!(full(&list, Some(b""), &[b"a"]), b", a");
        let sets = [set_of([b"b"]), set_of([b"a", b"b"])];
        assert_eq!(full(&SetUnion, Some(&sets[0]), &[&sets[1]]), sets[1]);
    }

    #[test]
    fn wrong_operands_are_refused_before_they_are_written() {
        for wrong in [&b""[..], b"1234567", b"123456789"] {
            assert!(Counter.check_operand(wrong).is_err());
        }
        for wrong in [&b"\x01"[..], b"\x02a", b"\xff"] {
            assert!(SetUnion.check_operand(wrong).is_err());
            assert!(set_members(wrong).is_err());
        }
        assert!(SetUnion.check_operand(b"").is_ok());
        assert!(Counter.full_merge(b"k", Some(b"7"), &[&[0; 8]], &mut Vec::new()).is_err());
    }
}
