//! The format of patches, their application, and that all of them apply.

use super::apply::{self, Edit, Edits};
use super::catalogue::{canaries, root};
use super::patch::{Catcher, Patch};
use super::switch;

const SOURCE: &str = "\
impl A {
    fn first(&self) -> u64 {
        let a = 1;
        a + 1
    }

    fn other(&self) -> u64 {
        let a = 1;
        a + 1
    }
}

impl B {
    pub(crate) const fn first<T>(
        &self,
        a: u64,
    ) -> u64 {
        let b = 2;
        if b > 1 {
            b
        } else {
            a
        }
    }
}
";

fn patch(hunks: &str) -> Result<Patch, String> {
    Patch::parse("name", &format!("A slip.\ncaught-by: row crash seed 7\n\n{hunks}"))
}

fn edit(hunks: &str) -> Result<Edit, String> {
    let patch = patch(hunks)?;
    apply::edit(&patch.hunks[0], SOURCE, "bug()")
}

fn applied(hunks: &str) -> String {
    apply::apply(SOURCE, vec![&edit(hunks).unwrap()])
}

#[test]
fn every_patch_applies() {
    let canaries = canaries(&root().unwrap()).unwrap_or_else(|defects| panic!("{}", defects.join("\n")));
    assert!(canaries.len() <= 130, "at most 130, one for each invariant: {}", canaries.len());
    let rows = |canary: &&super::catalogue::Canary| matches!(canary.patch.by, Catcher::Row { .. });
    assert!(canaries.iter().filter(rows).count() * 2 > canaries.len(), "rows catch more than tests");
}

#[test]
fn a_patch_changes_the_named_function_only() {
    let text = applied(
        "file: x\nfunction: other\n@@\n let a = 1;\n-        a + 1\n+        a + u64::from(SEEDED_BUG)\n }\n",
    );
    assert_eq!(text.matches("a + u64::from(bug())").count(), 1);
    assert_eq!(text.matches("        a + 1\n").count(), 1);
    assert_eq!(text.lines().count(), SOURCE.lines().count());
    let changed = SOURCE.lines().zip(text.lines()).position(|(a, b)| a != b);
    assert_eq!(changed, Some(8), "the second of two equal lines");
}

#[test]
fn all_functions_of_a_name_count_and_lines_between_changes_stay() {
    let text = applied(
        "file: x\nfunction: first\n@@\n         let b = 2;\n+        if !SEEDED_BUG {\n         if b > 1 {\n+        }\n             b\n",
    );
    let expected =
        SOURCE.replace("        if b > 1 {\n", "        if !bug() {\n        if b > 1 {\n        }\n");
    assert_eq!(text, expected);
}

#[test]
fn context_must_occur_exactly_once() {
    let twice = edit("file: x\nfunction: first\n@@\n     }\n+    SEEDED_BUG;\n").unwrap_err();
    assert!(twice.contains("must occur once in function first of x, not 3 times"), "{twice}");
    let nowhere = edit("file: x\nfunction: other\n@@\n let b = 2;\n+SEEDED_BUG;\n").unwrap_err();
    assert!(nowhere.contains("not 0 times"), "{nowhere}");
    let no_function = edit("file: x\nfunction: second\n@@\n let b = 2;\n+SEEDED_BUG;\n").unwrap_err();
    assert!(no_function.contains("x has no function second"), "{no_function}");
}

#[test]
fn a_patch_without_effect_is_refused() {
    let of = |hunks| patch(hunks).unwrap_err();
    assert!(of("").contains("no hunk"));
    assert!(of("file: x\nfunction: f\n@@\n a\n").contains("changes nothing"));
    assert!(of("file: x\nfunction: f\n@@\n a\n+b\n").contains("no line with SEEDED_BUG"));
    assert!(of("file: x\nfunction: f\n@@\n+if SEEDED_BUG {\n").contains("neither context nor removed lines"));
    assert!(of("file: x\n@@\n a\n+SEEDED_BUG\n").contains("function: ..."));
    assert!(of("file: x\nfunction: f\n@@\nlet a = 1;\n").contains("neither context, `-` nor `+`"));
    assert!(Patch::parse("name", "caught-by: row crash\n").is_err(), "a description is needed");
    assert!(Patch::parse("name", "A slip.\ncaught-by: chance\n").is_err());
}

#[test]
fn the_header_names_a_row_or_a_test() {
    let hunks = "file: x\nfunction: f\n@@\n a\n+SEEDED_BUG\n";
    let row = Catcher::Row { row: "crash".to_owned(), seed: Some(7) };
    assert_eq!(patch(hunks).unwrap().by, row);
    let text = format!("A slip\nin two lines.\ncaught-by: test lavastore-wal --test api a::b\n\n{hunks}");
    let (package, target) = ("lavastore-wal".to_owned(), "--test api".to_owned());
    let test = Catcher::Test { package, target, name: "a::b".to_owned() };
    assert_eq!(Patch::parse("name", &text).unwrap().by, test);
}

#[test]
fn patches_that_overlap_are_in_different_builds() {
    let of = |start: usize, end: usize| {
        let edit = Edit { lines: start..end, new: vec!["new".to_owned()] };
        Edits::from([("x".to_owned(), vec![edit])])
    };
    let elsewhere = Edits::from([("y".to_owned(), vec![Edit { lines: 3..5, new: Vec::new() }])]);
    assert_eq!(apply::builds(&[of(3, 5), of(4, 6), of(7, 8), elsewhere, of(5, 5)]), [0, 1, 0, 0, 2]);
}

#[test]
fn a_crate_without_the_switch_asks_the_environment() {
    let of = |file: &str, manifest: &str| {
        switch::condition("bug", file, &mut |path| {
            assert_eq!(path, "crates/wal/Cargo.toml");
            Ok(manifest.to_owned())
        })
    };
    assert_eq!(of("crates/wal/src/wal.rs", "base.workspace = true\n").unwrap(), "base::seeded::is(\"bug\")");
    assert!(of("crates/wal/src/wal.rs", "io.workspace = true\n").unwrap().contains("LAVASTORE_CANARY"));
    assert_eq!(of("crates/base/src/key.rs", "").unwrap(), "crate::seeded::is(\"bug\")");
}

#[test]
fn every_canary_is_in_one_part() {
    for (len, n) in [(120, 20), (7, 3), (2, 5), (0, 4)] {
        let all: Vec<usize> = (0..n).flat_map(|k| super::part_of(len, k + n, n)).collect();
        assert_eq!(all, (0..len).collect::<Vec<_>>(), "{len} in {n} parts");
    }
}
