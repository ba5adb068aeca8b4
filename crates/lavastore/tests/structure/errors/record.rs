//! The errors recorded by a test run (`base::error::made`), compared with the places in the
//! sources.

use super::places::Place;
use std::collections::BTreeMap;

/// Messages of `lava` are recorded where it prints them.
const LAVA: &str = "apps/lava/src/";
const LAVA_PRINTS: &str = "apps/lava/src/main.rs";

/// Recorded messages by place in the sources: file and line.
pub struct Record(BTreeMap<(String, usize), Vec<String>>);

impl Record {
    /// Parses lines of kind, place and message, separated by tabs.
    pub fn parse(text: &str) -> Record {
        let mut made: BTreeMap<(String, usize), Vec<String>> = BTreeMap::new();
        for line in text.lines() {
            let mut fields = line.splitn(3, '\t').skip(1);
            let (Some(place), Some(message)) = (fields.next(), fields.next()) else { continue };
            let Some((file, number)) = place.rsplit_once(':') else { continue };
            let line = if file == LAVA_PRINTS { 0 } else { number.parse().unwrap_or(0) };
            made.entry((file.to_owned(), line)).or_default().push(message.to_owned());
        }
        made.values_mut().for_each(|messages| {
            messages.sort();
            messages.dedup();
        });
        Record(made)
    }

    /// Returns true if the error of this place was recorded.
    pub fn has(&self, place: &Place) -> bool {
        let is_lava = place.file.starts_with(LAVA);
        let at = if is_lava { (LAVA_PRINTS.to_owned(), 0) } else { (place.file.clone(), place.line) };
        let message = place.message.escape_debug().to_string();
        self.0.get(&at).into_iter().flatten().any(|made| fits(&message, made, is_lava))
    }
}

/// Returns true if a recorded message matches the template; with `is_part`, it may be embedded in a
/// longer text.
fn fits(message: &str, made: &str, is_part: bool) -> bool {
    let mut pieces = Vec::new();
    let mut rest = message;
    while let Some((piece, hole)) = rest.split_once('{') {
        pieces.push(piece);
        rest = hole.split_once('}').map_or("", |(_, rest)| rest);
    }
    pieces.push(rest);
    let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
    let mut at = 0;
    for piece in &pieces {
        match made[at..].find(piece) {
            Some(found) => at += found + piece.len(),
            None => return false,
        }
    }
    is_part || made.starts_with(first) && made.ends_with(last)
}

#[test]
fn a_message_fits_its_record() {
    assert!(fits("{n} of {} bytes", "3 of 7 bytes", false));
    assert!(!fits("{n} of {} bytes", "3 of 7 bytes more", false));
    assert!(fits("no {name}", "lava: no a", true) && !fits("no {name}", "lava: no a", false));
    assert!(!fits("a b", "a c", true));
}
