//! Dependencies among the files of a crate, and limits on their cycles.
//!
//! A file uses another if a `use` or the code names an item of it by a path from `crate::`,
//! `super::` or `self::`. `mod` alone does not count, and neither do tests. Small cycles within one
//! folder are allowed: no cycle has more than three files, and none spans folders.
//!
//! The folders of `store` and `lavakv` are ordered, and no file uses a higher folder.

use crate::sources;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

const CIRCLE_FILES_MAX: usize = 3;

#[test]
fn import_cycles_are_small_and_within_one_folder() {
    for (name, path) in sources::members() {
        let wrong: Vec<_> =
            circles(&uses(&read(&path.join("src")))).into_iter().filter_map(|c| fault(&c)).collect();
        assert!(wrong.is_empty(), "{name}: {}", wrong.join("\n"));
    }
}

/// Returns the violation of a cycle, if any.
fn fault(circle: &BTreeSet<String>) -> Option<String> {
    if circle.len() > CIRCLE_FILES_MAX {
        return Some(format!("a circle of {} files, at most {CIRCLE_FILES_MAX}: {circle:?}", circle.len()));
    }
    (!share_folder(circle)).then(|| format!("a circle of files of different folders: {circle:?}"))
}

/// Returns true if all files are in one folder. The folder's own file (`jobs.rs` of `jobs/`) counts
/// as part of it.
fn share_folder(circle: &BTreeSet<String>) -> bool {
    let folder =
        |module: &String| module.rsplit_once("::").map_or(String::new(), |(folder, _)| folder.to_owned());
    let candidates = circle.iter().map(folder).chain(circle.iter().cloned());
    candidates
        .into_iter()
        .any(|within| circle.iter().all(|module| folder(module) == within || *module == within))
}

/// The folders of a crate, lowest first; files outside of folders are the top level of the crate.
const FOLDERS: &[(&str, &[&str])] = &[
    (
        "store",
        &[
            "numbers",
            "field",
            "format",
            "idmap",
            "names",
            "descriptors",
            "pacing",
            "volumes",
            "context",
            "mailbox",
            "run",
            "manifest",
            "files",
            "space",
            "commit",
        ],
    ),
    (
        "lavakv",
        &["context", "files", "tree", "batch", "large", "write", "read", "plan", "work", "admin", "requests"],
    ),
];

#[test]
fn folders_do_not_import_higher_layers() {
    for (name, order) in FOLDERS {
        let members = sources::members();
        let (_, path) = members.iter().find(|(member, _)| member == name).unwrap();
        let uses = uses(&read(&path.join("src")));
        let upward = upward(&uses, order);
        assert!(upward.is_empty(), "{name}: these uses point up: {upward:?}");
    }
}

/// Returns the uses of a file in a higher folder.
fn upward<'a>(uses: &'a Uses, order: &[&str]) -> Vec<(&'a String, &'a String)> {
    let rank = |module: &str| {
        let folder = module.split("::").next().unwrap_or_default();
        order.iter().position(|name| *name == folder).unwrap_or(order.len())
    };
    let all = uses.iter().flat_map(|(from, used)| used.iter().map(move |to| (from, to)));
    all.filter(|(from, to)| rank(to) > rank(from)).collect()
}

/// Text by module path (`jobs::flush`; empty for the crate's root).
type Sources = BTreeMap<String, String>;

fn read(src: &Path) -> Sources {
    let mut files = Vec::new();
    sources::below(src, &mut files);
    let files = files.iter().filter(|path| !sources::is_test(path) && !path.ends_with("loom_tests.rs"));
    files.map(|path| (module(path.strip_prefix(src).unwrap()), fs::read_to_string(path).unwrap())).collect()
}

fn module(path: &Path) -> String {
    let names = path.with_extension("");
    let names: Vec<&str> = names.iter().map(|name| name.to_str().unwrap()).collect();
    match names.as_slice() {
        ["lib" | "main"] => String::new(),
        [dirs @ .., "mod"] => dirs.join("::"),
        names => names.join("::"),
    }
}

type Uses = BTreeMap<String, BTreeSet<String>>;

fn uses(sources: &Sources) -> Uses {
    let exports = exports(sources);
    let of = |(module, text): (&String, &String)| {
        let text = without_tests(text);
        let found = paths(&text, module).into_iter().filter_map(|path| {
            longest_module(sources, &path).or_else(|| exports.get(path.split("::").next()?).cloned())
        });
        (module.clone(), found.filter(|used| used != module).collect())
    };
    sources.iter().map(of).collect()
}

/// Returns the names that the crate's root re-exports with their modules: `crate::Name` is a use of
/// that module.
fn exports(sources: &Sources) -> BTreeMap<String, String> {
    let root = without_tests(sources.get("").map_or("", String::as_str));
    let mut paths = Vec::new();
    for (at, start) in root.match_indices("pub use ") {
        // `self::` distinguishes a module from the crate of the same name.
        unfold(root[at + start.len()..].trim_start_matches("self::"), "", &mut paths);
    }
    let named = |path: String| Some((path.rsplit("::").next()?.to_owned(), longest_module(sources, &path)?));
    paths.into_iter().filter_map(named).collect()
}

/// Returns the code without comments and without the test module at the end of a file.
fn without_tests(text: &str) -> String {
    let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    code.lines().filter(|line| !line.trim_start().starts_with("//")).collect::<Vec<_>>().join("\n")
}

/// Returns all paths from the crate's root that the code of a module names, with `use` trees
/// expanded.
fn paths(code: &str, module: &str) -> Vec<String> {
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    let grandparent = parent.rsplit_once("::").map_or("", |(parent, _)| parent);
    let mut out = Vec::new();
    for (start, from) in
        [("crate::", ""), ("super::super::", grandparent), ("super::", parent), ("self::", module)]
    {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            let is_part = before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == ':' || c == '$');
            if is_part || code[at + start.len()..].starts_with("super::") {
                continue;
            }
            unfold(&code[at + start.len()..], from, &mut out);
        }
    }
    out
}

/// Appends the paths of the `use` tree or path at the start of `code`, relative to `from`. Returns
/// the rest of the code.
fn unfold<'a>(code: &'a str, from: &str, out: &mut Vec<String>) -> &'a str {
    let code = code.trim_start();
    if let Some(mut rest) = code.strip_prefix('{') {
        loop {
            rest = unfold(rest, from, out).trim_start();
            match rest.strip_prefix(',') {
                Some(next) if !next.trim_start().starts_with('}') => rest = next,
                Some(next) => return next.trim_start().strip_prefix('}').unwrap_or_default(),
                None => return rest.strip_prefix('}').unwrap_or_default(),
            }
        }
    }
    let end = code.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(code.len());
    let path = if from.is_empty() { code[..end].to_owned() } else { format!("{from}::{}", &code[..end]) };
    match code[end..].strip_prefix("::") {
        Some(rest) if end > 0 => unfold(rest, &path, out),
        _ => {
            out.push(path);
            let rest = &code[end..];
            // `as name`, `*`
            rest.strip_prefix(" as ").map_or(rest.trim_start_matches('*'), |named| {
                named.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_')
            })
        }
    }
}

/// Returns the module that a path leads into, or the root for the root's own names.
fn longest_module(sources: &Sources, path: &str) -> Option<String> {
    let mut at = path;
    loop {
        if sources.contains_key(at) {
            return Some(at.to_owned());
        }
        at = at.rsplit_once("::")?.0;
    }
}

/// Returns the sets of files that all reach each other.
fn circles(uses: &Uses) -> Vec<BTreeSet<String>> {
    let reached = |from: &String| {
        let (mut seen, mut open) = (BTreeSet::new(), vec![from]);
        while let Some(next) = open.pop() {
            open.extend(uses.get(next).into_iter().flatten().filter(|used| seen.insert((*used).clone())));
        }
        seen
    };
    let reach: BTreeMap<&String, BTreeSet<String>> = uses.keys().map(|from| (from, reached(from))).collect();
    let circle = |from: &String| -> BTreeSet<String> {
        reach[from]
            .iter()
            .filter(|to| reach.get(to).is_some_and(|back| back.contains(from)))
            .cloned()
            .collect()
    };
    let all: BTreeSet<BTreeSet<String>> = uses.keys().map(circle).filter(|circle| circle.len() > 1).collect();
    all.into_iter().collect()
}

fn sources_of(files: &[(&str, &str)]) -> Sources {
    files.iter().map(|(module, text)| (module.to_string(), text.to_string())).collect()
}

#[test]
fn imports_of_every_form_are_found() {
    let files = sources_of(&[
        ("", "mod a;\npub use self::c::{Thing, Other};"),
        ("a", "use crate::{b::{One, two::Three}, c as other, d::*};\nmod x;"),
        ("a::x", "use super::super::b; fn f() { super::y::call(); }"),
        ("a::y", "// crate::c\nlet x = crate::c::N;\n#[cfg(test)]\nmod tests {\n use crate::d; }"),
        ("b", "use std::crate_name; fn f() { $crate::c::x() }"),
        ("b::two", ""),
        ("c", ""),
        ("d", "pub(in crate::a) fn f() { crate::Thing::new() }"),
    ]);
    let found = uses(&files);
    let of = |module: &str| found[module].iter().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(of("a"), ["b", "b::two", "c", "d"]);
    assert_eq!(of("a::x"), ["a::y", "b"]);
    assert_eq!(of("a::y"), ["c"]);
    assert_eq!(of("d"), ["a", "c"]);
    assert!(of("b").is_empty());
}

#[test]
fn an_import_cycle_is_found_with_all_its_files() {
    let files = sources_of(&[
        ("a", "use crate::b;"),
        ("b", "use crate::c::x;"),
        ("c", "use crate::{d, a::y};"),
        ("d", "use crate::e;"),
        ("e", ""),
        ("f", "use crate::g;"),
        ("g", "use crate::{a, f};"),
    ]);
    let found = circles(&uses(&files));
    let found: Vec<Vec<&str>> = found.iter().map(|c| c.iter().map(String::as_str).collect()).collect();
    assert_eq!(found, [vec!["a", "b", "c"], vec!["f", "g"]]);
    let open = sources_of(&[("a", "use crate::b;"), ("b", "use crate::c;"), ("c", "")]);
    assert!(circles(&uses(&open)).is_empty());
}

#[test]
fn an_import_cycle_is_judged_by_size_and_folders() {
    let judged = |files: &[&str]| fault(&files.iter().map(|f| f.to_string()).collect());
    for good in [
        &["a", "b", "c"][..],
        &["x::a", "x::b"],
        &["x", "x::a", "x::b"],
        &["x", "x::a"],
        &["x::y::a", "x::y"],
    ] {
        assert_eq!(judged(good), None);
    }
    for bad in [&["a", "b", "c", "d"][..], &["x::a", "x::b", "x::c", "x::d"]] {
        assert!(judged(bad).unwrap().contains("of 4 files"));
    }
    for bad in
        [&["a", "x::b"][..], &["x::a", "y::b"], &["x", "y", "x::a"], &["x", "x::y::a"], &["x::a", "x::y::b"]]
    {
        assert!(judged(bad).unwrap().contains("different folders"), "{bad:?}");
    }
}

#[test]
fn upward_imports_are_found() {
    let files = sources_of(&[
        ("low", "pub mod a;"),
        ("low::a", "use crate::high::b; use crate::roof;"),
        ("high::b", "use crate::low::a; use super::c;"),
        ("high::c", ""),
        ("roof", "use crate::high::b;"),
    ]);
    let found = uses(&files);
    let shown: Vec<String> =
        upward(&found, &["low", "high"]).iter().map(|(from, to)| format!("{from} {to}")).collect();
    assert_eq!(shown, ["low::a high::b", "low::a roof"]);
}
