//! Impossible states and records: each contradiction is found, and reported as itself.

use super::*;

/// Verifies a manipulated [`sample`], and returns the error.
fn refused(meddle: impl FnOnce(&mut KvState)) -> String {
    let mut state = KvState::clone(&sample());
    state.verify().unwrap();
    meddle(&mut state);
    let e = state.verify().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Corruption, "{e}");
    e.message().to_owned()
}

fn family(state: &mut KvState, change: impl FnOnce(&mut FamilyState)) {
    let mut family = FamilyState::clone(state.families.get(&0).unwrap());
    change(&mut family);
    state.families.insert(0, Arc::new(family));
}

fn version(state: &mut KvState, change: impl FnOnce(&mut Version)) {
    family(state, |family| {
        let mut version = Version::clone(&family.version);
        change(&mut version);
        family.version = Arc::new(version);
    });
}

/// Sets the tables of a level, in this order.
fn level(version: &mut Version, level: usize, tables: Vec<FileMeta>) {
    let levels = version.levels.iter().enumerate().map(|(at, old)| match at == level {
        true => tables.iter().cloned().map(Arc::new).collect(),
        false => old.to_vec(),
    });
    version.levels = Version::with_files(version.family, levels.collect()).levels;
}

#[test]
fn an_inconsistent_state_is_detected() {
    type Meddle = Box<dyn FnOnce(&mut KvState)>;
    let of_version = |change: fn(&mut Version)| -> Meddle { Box::new(move |s| version(s, change)) };
    let cases: Vec<(&str, Meddle)> = vec![
        ("has another id (1), a taken name, or an id not below ", Box::new(|s| family(s, |f| f.id = 1))),
        ("column family 0 has 6 levels instead of 7", of_version(|v| drop(v.levels.pop()))),
        ("file 10 is both a key table", of_version(|v| level(v, 2, vec![table(10, 0, 1, (1, 2))]))),
        (
            "tables (kSSTs) 13 and 14 of column family 0 are out of order at level 1",
            of_version(|v| level(v, 1, vec![table(13, 0, 5, (1, 2)), table(14, 5, 6, (1, 2))])),
        ),
        (
            "value file (vSST) 20 is listed as 21",
            of_version(|v| {
                let meta = v.vssts.remove(&20).unwrap();
                v.vssts.insert(21, meta);
            }),
        ),
        (
            "table (kSST) 12 depends on value file (vSST) 20, which the",
            of_version(|v| drop(v.vssts.remove(&20))),
        ),
        (
            "depend on value file (vSST) 20, and the manifest lists neither it nor a successor",
            of_version(|v| {
                // Only the table itself has its dependency list.
                let mut table = depends_on(table(12, 150, 250, (6, 9)), &[20]);
                table.uses = table.uses.without_list();
                level(v, 0, vec![table]);
                v.vssts.remove(&20);
            }),
        ),
        (
            "the sums of references to value files are not those of the tables",
            of_version(|v| {
                v.references.remove(&20);
            }),
        ),
        (
            "the index of file numbers does not match the files of the column families",
            Box::new(|s| drop(s.index.remove(&10))),
        ),
        (
            "its sequences 5 to 2 descend, or are over 56 bits",
            of_version(|v| level(v, 1, vec![table(10, 0, 1, (5, 2))])),
        ),
    ];
    for (told, meddle) in cases {
        let message = refused(meddle);
        assert!(message.contains(told), "{told}: {message}");
    }
}

#[test]
fn invalid_records_are_refused_by_name() {
    let of_vsst = |meta| Record::AddVsst { family: 0, meta };
    let dependency = |blob_id| Dependency { blob_id, count: 1, raw_bytes: 1, stored_bytes: 1 };
    let huge = Dependency { count: u64::MAX, ..dependency(20) };
    let descending = FileMeta { uses: vec![dependency(9), dependency(8)].into(), ..table(40, 0, 1, (1, 2)) };
    let mut covers_nothing = table(40, 7, 7, (1, 2));
    covers_nothing.largest.truncate(covers_nothing.largest.len() - 8);
    covers_nothing.largest.extend_from_slice(&u64::MAX.to_le_bytes());
    covers_nothing.smallest.clone_from(&covers_nothing.largest);
    let large = FileMeta { uses: vec![huge].into(), ..table(40, 0, 1, (20, 21)) };
    let long_name = Record::CreateFamily { id: 1, name: "x".repeat(1 << 16), options: vec![] };
    let target = AliasTarget { first_key: vec![], file: 20 };
    let alias = |blob_id| Record::SetAlias { family: 0, blob_id, targets: vec![target.clone()] };
    let cases = vec![
        (
            "key table (kSST) 40: its dependencies on value files are not in ascending order",
            vec![add(2, descending)],
        ),
        ("key table (kSST) 40: it covers no key", vec![add(2, covers_nothing)]),
        (
            "the references to value file (vSST) 20 change by 18446744073709551615 references",
            vec![add(0, large)],
        ),
        ("value file (vSST) 0: its file number is not 1 to ", vec![of_vsst(vsst(0, 0, 1, vec![]))]),
        (
            "value file (vSST) 40: the numbers of the value files that it replaces",
            vec![of_vsst(vsst(40, 0, 1, vec![40]))],
        ),
        ("the name of a column family has 65536 bytes (at most 1024)", vec![long_name]),
        ("value file (vSST) 20 is listed both as present and as replaced", vec![alias(20)]),
        (
            "value file (vSST) 40 has the number of a replaced value file",
            vec![alias(40), of_vsst(vsst(40, 0, 1, vec![]))],
        ),
        (
            "table (kSST) 40 is shared by an edit that also adds it",
            vec![add(2, table(40, 0, 1, (1, 2))), Record::ShareFile { number: 40 }],
        ),
    ];
    for (told, records) in cases {
        let e = sample().apply(Edit(records)).map(|_| ()).expect_err(told);
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{told}: {e}");
        assert!(e.message().contains(told), "{told}: {e}");
    }
    let e = sample().family(7).unwrap_err();
    assert_eq!(
        (e.kind(), e.message()),
        (ErrorKind::NotFound, "column family 7 does not exist, or was dropped: open it again by its name")
    );
}
