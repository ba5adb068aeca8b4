use super::*;
use base::HashMap;
use io::Rng;

fn vsst(number: u64) -> VsstMeta {
    VsstMeta { number, ..VsstMeta::default() }
}

fn file(number: u64) -> Created {
    (number, PathBuf::from(format!("{number}")))
}

#[test]
fn subcompactions_cover_all_keys_and_the_last_collects_outputs() {
    let pieces = Pieces::new(vec![b"c".to_vec(), b"f".to_vec()]);
    assert_eq!(pieces.count(), 3);
    let begun: Vec<Subcompaction> = std::iter::from_fn(|| pieces.next()).collect();
    let bounds: Vec<_> = begun.iter().map(|piece| (piece.lower.as_deref(), piece.upper.as_deref())).collect();
    assert_eq!(
        bounds,
        [(None, Some(&b"c"[..])), (Some(&b"c"[..]), Some(&b"f"[..])), (Some(&b"f"[..]), None)]
    );
    for (n, piece) in (0..).zip(&begun) {
        assert_eq!(pieces.wrote(piece, 10), 10 * (n + 1), "what all have written");
    }
    let mut last = None;
    for (n, piece) in begun.into_iter().enumerate().rev() {
        assert!(last.is_none());
        let merged = Merged { vssts: vec![vsst(n as u64)], ..Merged::default() };
        last = match pieces.end(piece, merged, vec![file(n as u64)]) {
            Ended::All(merged, created) => Some((merged, created)),
            Ended::More => None,
            Ended::Over => unreachable!("nobody left"),
        };
    }
    let (merged, created) = last.expect("the last piece has ended");
    assert_eq!(merged.iter().map(|of| of.vssts[0].number).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(created, [file(0), file(1), file(2)]);
    assert!(pieces.leave(None).is_empty(), "what was made belongs to who ended it");
}

/// Each file is removed once, after its last writer, or is handed over with all others, whatever
/// job abandons the compaction.
#[test]
fn each_output_file_is_removed_or_handed_over_once() {
    let (mut whole, mut over) = (0, 0);
    for seed in 0..2000 {
        let mut rng = Rng::new(seed);
        let cuts = (0..rng.below(5) as u8).map(|n| vec![n]).collect();
        let pieces = Pieces::new(cuts);
        // With limited space, files are reported after each step; otherwise with the merged
        // outputs.
        let (fails, limited) = (rng.one_in(2), rng.one_in(2));
        // Per job: its piece, and the files of that piece.
        let mut jobs: Vec<Option<(Subcompaction, Vec<Created>)>> =
            (0..1 + rng.below(4)).map(|_| None).collect();
        let mut gone: HashMap<u64, bool> = HashMap::default();
        let (mut last_file, mut installed) = (0, None);
        let mut remove = |files: Vec<Created>, open: &[Option<(Subcompaction, Vec<Created>)>]| {
            for (number, _) in files {
                let at_work = open.iter().flatten().any(|(_, files)| files.iter().any(|(n, _)| *n == number));
                assert!(!at_work, "seed {seed}: a file goes that is being written");
                assert!(gone.insert(number, true).is_none(), "seed {seed}: a file goes twice");
            }
        };
        while !jobs.is_empty() {
            let at = rng.below(jobs.len() as u64) as usize;
            let job = jobs[at].take();
            if pieces.are_over() || fails && rng.one_in(12) {
                jobs.swap_remove(at);
                remove(pieces.leave(job), &jobs);
                continue;
            }
            let Some((piece, mut files)) = job.or_else(|| pieces.next().map(|piece| (piece, Vec::new())))
            else {
                jobs.swap_remove(at);
                continue;
            };
            if rng.one_in(2) {
                last_file += 1;
                files.push(file(last_file));
                pieces.wrote(&piece, 1);
                if limited {
                    let all = pieces.created(&piece, files.clone());
                    assert!(files.iter().all(|file| all.contains(file)), "seed {seed}");
                }
                jobs[at] = Some((piece, files));
                continue;
            }
            match pieces.end(piece, Merged::default(), files) {
                Ended::More => {}
                Ended::Over => {
                    jobs.swap_remove(at);
                    remove(pieces.leave(None), &jobs);
                }
                Ended::All(merged, created) => {
                    assert_eq!(merged.len(), pieces.count());
                    assert!(installed.replace(created).is_none(), "seed {seed}: installed twice");
                }
            }
        }
        match installed {
            Some(created) => {
                whole += 1;
                assert!(gone.is_empty() && created.len() as u64 == last_file, "seed {seed}");
            }
            None => {
                over += 1;
                assert!(fails && gone.len() as u64 == last_file, "seed {seed}: files that are nobody's");
            }
        }
    }
    assert!(whole > 500 && over > 200, "{whole} {over}");
}
