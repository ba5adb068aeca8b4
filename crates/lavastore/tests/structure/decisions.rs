//! The index of decisions lists exactly the existing pages, with the status that each page states.

use crate::sources;
use std::collections::BTreeMap;
use std::fs;

/// Number to title and status, as stated by a page or a line of the index.
type Stated = BTreeMap<String, (String, String)>;

#[test]
fn the_index_of_decisions_is_complete() {
    let folder = sources::root().join("docs/decisions");
    let mut pages = Vec::new();
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !["README.md", "tried-and-removed.md"].contains(&name.as_str()) {
            pages.push((name, fs::read_to_string(&path).unwrap()));
        }
    }
    let index = fs::read_to_string(folder.join("README.md")).unwrap();
    let wrong = compare(&pages, &index);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the mismatches.
fn compare(pages: &[(String, String)], index: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut stated = Stated::new();
    for (name, text) in pages {
        let number = name.split('-').next().unwrap().to_owned();
        let title = text.lines().next().and_then(|line| line.strip_prefix("# "));
        let status =
            text.lines().nth(2).and_then(|line| line.strip_prefix("**Status:** ")?.strip_suffix('.'));
        match (title, status) {
            (Some(title), Some(status)) => {
                wrong.extend(unknown_status(status).then(|| format!("{name}: what status is {status:?}?")));
                for link in links(status) {
                    let there = pages.iter().any(|(other, _)| other == link);
                    wrong.extend((!there).then(|| format!("{name}: no page {link}")));
                }
                if stated.insert(number, (format!("({name}) | {title}"), status.to_owned())).is_some() {
                    wrong.push(format!("{name}: another page has this number"));
                }
            }
            _ => wrong.push(format!("{name}: begins with `# Title`, an empty line and `**Status:** ...`")),
        }
    }
    let mut listed = Stated::new();
    for line in index.lines().filter(|line| line.starts_with("| [")) {
        let (number, rest) = line["| [".len()..].split_once(']').unwrap();
        let (page, status) = rest.trim_end_matches(" |").rsplit_once(" | ").unwrap_or((rest, ""));
        if let Some((last, _)) = listed.last_key_value().filter(|(last, _)| number <= last.as_str()) {
            wrong.push(format!("{number} is in the index after {last}: each once, in order"));
        }
        listed.insert(number.to_owned(), (page.to_owned(), status.to_owned()));
    }
    for (number, page) in &stated {
        match listed.get(number) {
            None => wrong.push(format!("{number} is not in the index")),
            Some(line) if line != page => {
                wrong.push(format!("{number}: the index says {line:?}, the page {page:?}"))
            }
            Some(_) => {}
        }
    }
    wrong.extend(listed.keys().filter(|n| !stated.contains_key(*n)).map(|n| format!("{n} has no page")));
    let unused =
        index.split("* Not used: ").nth(1).and_then(|rest| rest.split('.').next()).unwrap_or_default();
    let unused: Vec<&str> = unused.split(", ").collect();
    let last: u32 = stated.keys().next_back().map_or(0, |n| n.parse().unwrap());
    for number in (1..=last).map(|n| format!("{n:04}")) {
        if stated.contains_key(&number) == unused.contains(&&*number) {
            wrong.push(format!("{number} is a page, or among those that are not used: one of the two"));
        }
    }
    wrong
}

fn unknown_status(status: &str) -> bool {
    let known = |part: &str| {
        part == "accepted" || part.starts_with("amended by [") || part.starts_with("superseded by [")
    };
    !status.split("; ").all(known)
}

/// Returns the pages that a status links to.
fn links(status: &str) -> Vec<&str> {
    status.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect()
}

#[test]
fn faults_of_a_decision_index_are_found() {
    let page = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    let good = [
        page("0001-a.md", "# A\n\n**Status:** accepted.\n\nText."),
        page("0003-c.md", "# C\n\n**Status:** accepted; amended by [0001](0001-a.md).\n"),
    ];
    let index = "* Not used: 0002. Why.\n| [0001](0001-a.md) | A | accepted |\n\
                 | [0003](0003-c.md) | C | accepted; amended by [0001](0001-a.md) |\n";
    assert_eq!(compare(&good, index), [""; 0]);
    let found = |pages: &[(String, String)], index: &str, what: &str| {
        let wrong = compare(pages, index);
        assert!(wrong.iter().any(|line| line.contains(what)), "{what}: {wrong:?}");
    };
    found(&good, &index.replace("| A | accepted", "| A | superseded by [0003](0003-c.md)"), "the index says");
    found(&good, &index.replace("| C |", "| D |"), "the index says");
    found(&good, &index.replace("| [0001](0001-a.md) | A | accepted |\n", ""), "0001 is not in the index");
    found(&good, &format!("{index}| [0004](0004-d.md) | D | accepted |\n"), "0004 has no page");
    found(
        &good,
        &format!("{index}| [0001](0001-a.md) | A | accepted |\n"),
        "0001 is in the index after 0003",
    );
    let again =
        index.replace("| A | accepted |\n", "| A | accepted |\n| [0001](0001-a.md) | A | accepted |\n");
    found(&good, &again, "0001 is in the index after 0001");
    found(&good, &index.replace("0002.", "0007."), "0002 is a page, or");
    found(&[good[0].clone()], index, "0003 has no page");
    let silent = [good[0].clone(), page("0003-c.md", "# C\n\nText.")];
    found(&silent, index, "begins with");
    let odd = [good[0].clone(), page("0003-c.md", "# C\n\n**Status:** perhaps.\n")];
    found(&odd, index, "what status");
    let lost = [good[0].clone(), page("0003-c.md", "# C\n\n**Status:** superseded by [0009](0009-x.md).\n")];
    found(&lost, index, "no page 0009-x.md");
    found(&[good[0].clone(), good[1].clone(), page("0001-b.md", &good[0].1)], index, "another page");
}
