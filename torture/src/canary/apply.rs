//! Applies patches to the text of source files.
//!
//! A hunk has no line number. Its context and removed lines must occur exactly once in the
//! functions of the given name in the given file; indentation does not count. Hunks of several
//! patches share one build unless their lines overlap.

use super::patch::{Hunk, Line, Patch, SEEDED_BUG};
use super::switch;
use std::collections::BTreeMap;
use std::ops::Range;

/// The replacement of consecutive lines of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Edit {
    /// The lines of the source, counted from 0.
    pub lines: Range<usize>,
    pub new: Vec<String>,
}

/// Edits by file.
pub(super) type Edits = BTreeMap<String, Vec<Edit>>;

/// Returns the edits of a patch. `read` returns the text of a source file.
///
/// # Errors
/// The hunk that does not apply.
pub(super) fn edits(
    patch: &Patch,
    read: &mut dyn FnMut(&str) -> Result<String, String>,
) -> Result<Edits, String> {
    let mut out = Edits::new();
    for hunk in &patch.hunks {
        let text = read(&hunk.file)?;
        let edit = edit(hunk, &text, &switch::condition(&patch.name, &hunk.file, read)?)?;
        out.entry(hunk.file.clone()).or_default().push(edit);
    }
    Ok(out)
}

/// Returns the edit of a hunk in `text`; `condition` takes the place of [`SEEDED_BUG`].
pub(super) fn edit(hunk: &Hunk, text: &str, condition: &str) -> Result<Edit, String> {
    let Hunk { file, function, lines } = hunk;
    let source: Vec<&str> = text.lines().map(str::trim).collect();
    let functions = functions(text, function);
    if functions.is_empty() {
        return Err(format!("{file} has no function {function}"));
    }
    let old: Vec<&str> = lines.iter().filter_map(Line::in_source).map(str::trim).collect();
    let matches_at = |at: &usize| source.get(*at..*at + old.len()).is_some_and(|lines| lines == old);
    let candidates = |body: &Range<usize>| body.start..(body.end + 1).saturating_sub(old.len());
    let mut places: Vec<usize> = functions.iter().flat_map(candidates).filter(matches_at).collect();
    places.sort_unstable();
    places.dedup();
    let &[at] = places.as_slice() else {
        let count = places.len();
        return Err(format!(
            "the context must occur once in function {function} of {file}, not {count} times"
        ));
    };
    // Other patches may change the context at both ends.
    let before = lines.iter().take_while(|line| line.is_context()).count();
    let after = lines.iter().rev().take_while(|line| line.is_context()).count();
    let changed = lines.get(before..lines.len() - after).unwrap_or_default();
    let new = changed.iter().filter_map(Line::in_copy).map(|line| line.replace(SEEDED_BUG, condition));
    Ok(Edit { lines: at + before..at + old.len() - after, new: new.collect() })
}

/// Returns the lines of all functions of this name, from the signature to the closing brace, which
/// `rustfmt` puts at the indentation of the signature.
fn functions(text: &str, name: &str) -> Vec<Range<usize>> {
    let lines: Vec<&str> = text.lines().collect();
    let is_signature = |line: &str| {
        let (modifiers, rest) = line.split_once("fn ").unwrap_or((line, ""));
        let is_modifier = |word: &str| {
            matches!(word, "const" | "async" | "unsafe" | "extern" | "default" | "\"C\"")
                || word.starts_with("pub")
                || word.ends_with(')')
        };
        modifiers.split_whitespace().all(is_modifier)
            && rest.strip_prefix(name).is_some_and(|rest| rest.starts_with(['(', '<']))
    };
    let end = |start: usize| {
        let first = lines.get(start)?;
        if first.ends_with(['}', ';']) {
            return Some(start + 1);
        }
        let indentation = first.len() - first.trim_start().len();
        let closes = |line: &&str| {
            let (space, rest) = line.split_at_checked(indentation).unwrap_or(("x", ""));
            space.trim().is_empty() && (rest == "}" || rest.starts_with(')') && rest.ends_with(';'))
        };
        lines.get(start..)?.iter().position(closes).map(|n| start + n + 1)
    };
    let starts = (0..lines.len()).filter(|&n| lines.get(n).is_some_and(|line| is_signature(line)));
    starts.filter_map(|start| Some(start..end(start)?)).collect()
}

/// Returns true if the edits cannot be in one build.
fn collide(a: &Edits, b: &Edits) -> bool {
    let touch = |a: &Edit, b: &Edit| a.lines.start <= b.lines.end && b.lines.start <= a.lines.end;
    a.iter().any(|(file, a)| {
        let b = b.get(file).map(Vec::as_slice).unwrap_or_default();
        a.iter().any(|a| b.iter().any(|b| touch(a, b)))
    })
}

/// Distributes patches over builds by first fit. Returns the build number of each patch.
pub(super) fn builds(of_patches: &[Edits]) -> Vec<usize> {
    let mut builds: Vec<Vec<&Edits>> = Vec::new();
    let mut numbers = Vec::new();
    for edits in of_patches {
        let number = builds.iter().position(|build| build.iter().all(|other| !collide(edits, other)));
        let number = number.unwrap_or_else(|| {
            builds.push(Vec::new());
            builds.len() - 1
        });
        builds.get_mut(number).into_iter().for_each(|build| build.push(edits));
        numbers.push(number);
    }
    numbers
}

/// Returns `text` with these edits, which do not overlap.
pub(super) fn apply(text: &str, mut edits: Vec<&Edit>) -> String {
    let mut lines: Vec<&str> = text.lines().collect();
    edits.sort_by_key(|edit| edit.lines.start);
    for edit in edits.into_iter().rev() {
        lines.splice(edit.lines.clone(), edit.new.iter().map(String::as_str));
    }
    lines.join("\n") + "\n"
}
