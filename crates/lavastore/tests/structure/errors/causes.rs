//! Causes and remedies of errors, parsed from `causes.txt`.

use super::places::Place;

/// Cause and remedy for a set of messages.
pub struct Paragraph {
    kind: String,
    below: Vec<String>,
    says: Vec<String>,
    /// Keeps the line breaks of the file.
    pub cause: String,
    pub way_out: String,
}

impl Paragraph {
    /// Returns true if the paragraph applies to the errors of a place.
    pub fn holds_for(&self, place: &Place) -> bool {
        self.kind == place.kind
            && (self.below.is_empty() || self.below.iter().any(|path| place.file.starts_with(path)))
            && (self.says.is_empty() || self.says.iter().any(|text| place.message.contains(text)))
    }
}

/// Returns all paragraphs in order.
pub fn all() -> Vec<Paragraph> {
    let text = include_str!("causes.txt");
    text.split("\n\n").skip(1).map(paragraph).collect()
}

fn paragraph(text: &str) -> Paragraph {
    let mut fields: Vec<(String, String)> = Vec::new();
    for line in text.trim().lines() {
        match (line.strip_prefix("  "), fields.last_mut()) {
            (Some(more), Some((_, value))) => *value += &format!("\n{more}"),
            _ => {
                let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("causes.txt: {line}"));
                fields.push((name.to_owned(), value.to_owned()));
            }
        }
    }
    let known = ["kind", "in", "says", "cause", "way out"];
    assert!(fields.iter().all(|(name, _)| known.contains(&name.as_str())), "causes.txt: {text}");
    let every = |name: &str| fields.iter().filter(|(n, _)| n == name).map(|(_, v)| v.clone()).collect();
    let one = |name: &str| {
        let all: Vec<String> = every(name);
        assert_eq!(all.len(), 1, "causes.txt: one `{name}` each: {text}");
        all.concat()
    };
    let paths: Vec<String> = every("in");
    Paragraph {
        kind: one("kind"),
        below: paths.iter().flat_map(|line| line.split_whitespace()).map(str::to_owned).collect(),
        says: every("says"),
        cause: one("cause"),
        way_out: one("way out"),
    }
}
