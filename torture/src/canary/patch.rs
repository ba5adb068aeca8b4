//! The format of `torture/canaries/NAME.patch`; `torture/canaries/README.md` describes it.

/// The condition that a patch inserts: true in the process that runs this canary.
pub(super) const SEEDED_BUG: &str = "SEEDED_BUG";

/// A row or a test that must fail with a canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Catcher {
    /// A row; `seed`: one that fails, so that the runner does not search for it.
    Row { row: String, seed: Option<u64> },
    /// A unit or integration test. `target`: the arguments of cargo that select its binary, such as
    /// `--lib`.
    Test { package: String, target: String, name: String },
}

impl Catcher {
    /// The name of the build that it needs.
    pub(super) fn build_name(&self) -> String {
        match self {
            Catcher::Row { .. } => "rows".to_owned(),
            Catcher::Test { package, target, .. } => format!("{package} {target}"),
        }
    }
}

/// A line of a hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// In the source, and in the patched copy.
    Context(String),
    /// In the source only.
    Removed(String),
    /// In the patched copy only.
    Added(String),
}

/// Consecutive lines of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hunk {
    pub file: String,
    pub function: String,
    pub lines: Vec<Line>,
}

impl Line {
    pub(super) fn in_source(&self) -> Option<&str> {
        match self {
            Line::Context(text) | Line::Removed(text) => Some(text),
            Line::Added(_) => None,
        }
    }

    pub(super) fn in_copy(&self) -> Option<&str> {
        match self {
            Line::Context(text) | Line::Added(text) => Some(text),
            Line::Removed(_) => None,
        }
    }

    pub(super) fn is_context(&self) -> bool {
        matches!(self, Line::Context(_))
    }
}

/// A canary: a seeded bug, and the row or test that must fail with it.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    pub name: String,
    pub by: Catcher,
    pub hunks: Vec<Hunk>,
}

impl Patch {
    /// Returns true if `row_or_package` must catch it.
    pub(super) fn is_for(&self, row_or_package: &str) -> bool {
        match &self.by {
            Catcher::Row { row, .. } => row == row_or_package,
            Catcher::Test { package, .. } => package == row_or_package,
        }
    }

    /// Parses the patch file of the canary `name`.
    ///
    /// # Errors
    /// The first defect of the format.
    pub(super) fn parse(name: &str, text: &str) -> Result<Patch, String> {
        let mut lines = text.lines();
        let description: Vec<&str> = lines.by_ref().take_while(|line| !line.is_empty()).collect();
        let by = match description.split_last() {
            Some((last, [_, ..])) => catcher(last),
            _ => None,
        };
        let by = by.ok_or("the first paragraph must be a description, then a line `caught-by: ...`")?;
        let (mut file, mut function) = (String::new(), String::new());
        let mut hunks: Vec<Hunk> = Vec::new();
        let mut in_hunk = false;
        for line in lines {
            if let Some(name) = line.strip_prefix("file: ") {
                (file, function, in_hunk) = (name.to_owned(), String::new(), false);
            } else if let Some(name) = line.strip_prefix("function: ") {
                (function, in_hunk) = (name.to_owned(), false);
            } else if line == "@@" {
                hunks.push(Hunk { file: file.clone(), function: function.clone(), lines: Vec::new() });
                in_hunk = true;
            } else if let Some(hunk) = hunks.last_mut().filter(|_| in_hunk) {
                hunk.lines
                    .push(line_of(line).ok_or_else(|| format!("neither context, `-` nor `+`: {line}"))?);
            } else if !line.is_empty() {
                return Err(format!("outside of a hunk: {line}"));
            }
        }
        let patch = Patch { name: name.to_owned(), by, hunks };
        patch.check()?;
        Ok(patch)
    }

    fn check(&self) -> Result<(), String> {
        if self.hunks.is_empty() {
            return Err("it has no hunk".to_owned());
        }
        for hunk in &self.hunks {
            if hunk.file.is_empty() || hunk.function.is_empty() {
                return Err("a hunk needs a line `file: ...` and a line `function: ...` before it".to_owned());
            }
            if hunk.lines.iter().all(Line::is_context) {
                return Err("a hunk changes nothing".to_owned());
            }
            if hunk.lines.iter().all(|line| line.in_source().is_none()) {
                return Err("a hunk has neither context nor removed lines".to_owned());
            }
        }
        let added = |line: &Line| matches!(line, Line::Added(text) if text.contains(SEEDED_BUG));
        if !self.hunks.iter().all(|hunk| hunk.lines.iter().any(added)) {
            return Err(format!("a hunk has no line with {SEEDED_BUG}: it would change every process"));
        }
        Ok(())
    }
}

fn catcher(line: &str) -> Option<Catcher> {
    let words: Vec<&str> = line.strip_prefix("caught-by: ")?.split_whitespace().collect();
    match *words.as_slice() {
        ["row", row] => Some(Catcher::Row { row: row.to_owned(), seed: None }),
        ["row", row, "seed", seed] => {
            Some(Catcher::Row { row: row.to_owned(), seed: Some(seed.parse().ok()?) })
        }
        ["test", package, ref target @ .., name] if !target.is_empty() => Some(Catcher::Test {
            package: package.to_owned(),
            target: target.join(" "),
            name: name.to_owned(),
        }),
        _ => None,
    }
}

fn line_of(line: &str) -> Option<Line> {
    match line.split_at_checked(1) {
        None => Some(Line::Context(String::new())),
        Some((" ", text)) => Some(Line::Context(text.to_owned())),
        Some(("-", text)) => Some(Line::Removed(text.to_owned())),
        Some(("+", text)) => Some(Line::Added(text.to_owned())),
        Some(_) => None,
    }
}
