//! "Did you mean": the most similar known name.

use clap::error::{ContextKind, ContextValue};
use io::FileSystem;
use std::path::Path;

/// Returns the suggestions of the parser for an unknown word.
pub fn of_parser(error: &clap::Error) -> String {
    let kinds = [ContextKind::SuggestedSubcommand, ContextKind::SuggestedArg, ContextKind::SuggestedValue];
    let all = kinds.iter().filter_map(|kind| error.get(*kind)).flat_map(|value| match value {
        ContextValue::String(one) => vec![one.clone()],
        ContextValue::Strings(all) => all.clone(),
        _ => Vec::new(),
    });
    told(&all.collect::<Vec<_>>())
}

/// Returns `; did you mean NAME?` if a known name is similar, otherwise an empty string.
pub fn tip<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let near = known.into_iter().map(|known| (distance(name, known), known)).min();
    let most = name.chars().count().div_ceil(3);
    let near = near.filter(|(distance, known)| *distance <= most && !known.is_empty());
    told(&near.map(|(_, known)| known.to_owned()).into_iter().collect::<Vec<_>>())
}

/// Same as [`tip`], for the files in the directory of a missing file.
pub fn of_file(fs: &dyn FileSystem, path: &Path) -> String {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return String::new();
    };
    let files = fs.list(dir).unwrap_or_default();
    tip(name, files.iter().map(|file| &file.name[..]))
}

fn told(names: &[String]) -> String {
    if names.is_empty() { String::new() } else { format!("; did you mean {}?", names.join(" or ")) }
}

/// Number of characters to insert, delete or replace (Levenshtein); a swap of neighbors counts as
/// one.
fn distance(a: &str, b: &str) -> usize {
    const CHARS_MAX: usize = 64;
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len() > CHARS_MAX || b.len() > CHARS_MAX {
        return usize::MAX;
    }
    let mut rows = vec![vec![0; b.len() + 1]; a.len() + 1];
    for i in 0..=a.len() {
        for j in 0..=b.len() {
            rows[i][j] = if i == 0 || j == 0 {
                i + j
            } else {
                let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
                let swapped = if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                    rows[i - 2][j - 2] + 1
                } else {
                    usize::MAX
                };
                replaced.min(swapped).min(rows[i - 1][j] + 1).min(rows[i][j - 1] + 1)
            };
        }
    }
    rows[a.len()][b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_proposed_if_it_is_near() {
        let known = ["default", "users", "orders"];
        for (name, tip_of) in
            [("user", "users"), ("usres", "users"), ("Default", "default"), ("oders", "orders")]
        {
            assert_eq!(tip(name, known), format!("; did you mean {tip_of}?"));
        }
        for name in ["", "x", "invoices", &"u".repeat(1000)] {
            assert_eq!(tip(name, known), "", "{name}");
        }
        assert_eq!((distance("abc", "abc"), distance("abc", "acb"), distance("", "ab")), (0, 1, 2));
    }
}
