#![allow(
    clippy::disallowed_methods,
    reason = "the tests are about threads, and read a page of the documentation"
)]

use super::*;
use crate::sync::{Condvar, Mutex, RwLock, lock, read, try_lock, wait, wait_timeout, write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// Returns the message of the panic, if there is one.
fn refusal(body: impl FnOnce()) -> Option<String> {
    let outcome = catch_unwind(AssertUnwindSafe(body)).err();
    assert!(HELD.with(|held| held.borrow().is_empty()), "nothing is held any more");
    outcome.map(|panic| *panic.downcast::<String>().expect("a message"))
}

type Low = Mutex<u32, Writer>;
type Middle = RwLock<u32, Families>;
type High = Mutex<u32, FsCore>;
type Leaf = crate::sync::leaf::Mutex<u32, SimWorld>;

fn locks() -> (Low, Middle, High, Leaf) {
    (Mutex::new(1), RwLock::new(2), Mutex::new(3), crate::sync::leaf::Mutex::new(4))
}

#[test]
fn ascending_ranks_are_accepted() {
    let (low, middle, high, leaf) = locks();
    let told = refusal(|| {
        let first = lock(&low);
        let second = read(&middle);
        let third = lock(&high);
        let fourth = crate::sync::leaf::lock(&leaf);
        assert_eq!((*first, *second, *third, *fourth), (1, 2, 3, 4));
        // Released in any order.
        drop((first, third, fourth));
        drop(lock(&high));
        drop(second);
        drop(write(&middle));
        drop(lock(&low));
    });
    assert_eq!(told, None);
}

#[test]
fn a_wrong_order_panics_with_both_ranks_and_locations() {
    let (low, middle, high, _) = locks();
    let told = refusal(|| {
        let _first = lock(&high);
        drop(lock(&low));
    });
    let told = told.unwrap();
    assert!(told.contains("Writer") && told.contains("FsCore") && told.contains("rank/tests.rs"), "{told}");
    let reading = |held: &Low| {
        let _held = lock(held);
        drop(read(&middle));
    };
    assert!(refusal(|| reading(&low)).is_none());
    let wrong: [&dyn Fn(); 5] = [
        &|| {
            let _held = read(&middle);
            drop(lock(&low));
        },
        &|| {
            let _held = lock(&high);
            drop(read(&middle));
        },
        &|| {
            let _held = lock(&high);
            drop(write(&middle));
        },
        // A reader waits for a writer who waits for this reader.
        &|| {
            let _held = read(&middle);
            drop(read(&middle));
        },
        // The highest rank counts, not the last.
        &|| {
            let (_first, _second) = (lock(&low), lock(&high));
            drop(read(&middle));
        },
    ];
    for (n, body) in wrong.into_iter().enumerate() {
        assert!(refusal(body).is_some(), "{n}");
    }
    // The refused attempts leave no record.
    assert!(refusal(|| reading(&low)).is_none());
}

#[test]
fn only_a_higher_leaf_may_be_locked_inside_a_leaf() {
    let (low, _, high, leaf) = locks();
    let others: [&dyn Fn(); 2] = [&|| drop(lock(&low)), &|| drop(lock(&high))];
    for other in others {
        let told = refusal(|| {
            let _held = crate::sync::leaf::lock(&leaf);
            other();
        });
        assert!(told.unwrap().contains("SimWorld"));
    }
    let share = crate::sync::leaf::Mutex::<(), CacheShare>::new(());
    let ghosts = crate::sync::leaf::Mutex::<(), CacheGhosts>::new(());
    let told = refusal(|| {
        let _held = crate::sync::leaf::lock(&share);
        drop(crate::sync::leaf::lock(&ghosts));
    });
    assert_eq!(told, None);
    let told = refusal(|| {
        let _held = crate::sync::leaf::lock(&ghosts);
        drop(crate::sync::leaf::lock(&share));
    });
    assert!(told.is_some());
}

#[test]
fn two_locks_of_one_rank_need_permission() {
    let (first, second) = (Low::new(1), Low::new(2));
    let told = refusal(|| {
        let _held = lock(&first);
        drop(lock(&second));
    });
    assert!(told.is_some());
    let (first, second) = (Mutex::<_, Outside>::new(1), Mutex::<_, Outside>::new(2));
    let told = refusal(|| {
        let _held = lock(&first);
        drop(lock(&second));
    });
    assert_eq!(told, None);
}

#[test]
fn try_lock_ignores_rank_but_counts_as_held() {
    let (low, middle, high, _) = locks();
    let told = refusal(|| {
        let first = lock(&high);
        let second = try_lock(&low).expect("nobody holds it");
        drop(first);
        let third = read(&middle);
        drop((second, third));
    });
    assert_eq!(told, None, "it waits for nobody");
    let told = refusal(|| {
        let _first = try_lock(&high).expect("nobody holds it");
        drop(lock(&low));
    });
    assert!(told.is_some(), "what it took is held");
    let told = refusal(|| {
        let _first = lock(&low);
        assert!(try_lock(&low).is_none(), "taken");
        drop(read(&middle));
    });
    assert_eq!(told, None, "what it did not take is not");
}

#[test]
fn a_condition_wait_releases_and_retakes_in_rank_order() {
    let (low, middle, high, _) = locks();
    let condition = Condvar::new();
    let short = Duration::from_millis(1);
    let told = refusal(|| {
        let (_first, second) = (lock(&low), lock(&high));
        let second = wait_timeout(&condition, second, short);
        // The lock is held again.
        assert!(catch_unwind(AssertUnwindSafe(|| drop(read(&middle)))).is_err());
        drop(second);
        drop(read(&middle));
    });
    assert_eq!(told, None);
    let told = refusal(|| {
        let (first, _second) = (lock(&low), lock(&high));
        drop(wait_timeout(&condition, first, short));
    });
    assert!(told.unwrap().contains("Writer"), "while it waits, somebody may wait for what it holds above");
    let told = refusal(|| {
        let (first, _second) = (lock(&low), lock(&high));
        drop(wait(&condition, first));
    });
    assert!(told.is_some(), "it panics and does not wait");
}

#[test]
fn held_ranks_are_per_thread() {
    let (low, _, high, _) = locks();
    let told = refusal(|| {
        let _held = lock(&high);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| refusal(|| drop(lock(&low))));
            assert_eq!(other.join().unwrap(), None, "another thread holds nothing");
            let wrong = scope.spawn(|| {
                refusal(|| {
                    let _turn = turn::<FsLive>();
                    drop(lock(&low));
                })
            });
            assert!(wrong.join().unwrap().is_some());
        });
    });
    assert_eq!(told, None, "and what it did is its own");
}

#[test]
fn a_turn_is_ranked_like_a_lock() {
    let (low, _, high, _) = locks();
    let told = refusal(|| {
        let _held = lock(&low);
        let turn = turn::<ManifestTurn>();
        drop(lock(&high));
        drop(turn);
    });
    assert_eq!(told, None);
    let told = refusal(|| {
        let _turn = turn::<ManifestTurn>();
        drop(lock(&low));
    });
    assert!(told.unwrap().contains("ManifestTurn"), "it may be waited for under that lock");
    let told = refusal(|| {
        let _held = lock(&high);
        drop(turn::<ManifestTurn>());
    });
    assert!(told.is_some());
}

#[test]
fn a_panicking_thread_may_lock_in_any_order() {
    struct Ends<'a>(&'a Low);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            *lock(self.0) += 1;
        }
    }
    let (low, _, high, _) = locks();
    let told = refusal(|| {
        let held = lock(&high);
        let _ends = Ends(&low);
        let _also = held;
        panic!("{}", String::from("of something else"));
    });
    assert_eq!(told.as_deref(), Some("of something else"));
    assert_eq!(*lock(&low), 2);
}

/// Returns the list of docs/locks.md.
fn table() -> String {
    let row = |rank: &Rank| {
        let together = rank.together().map_or(String::new(), |why| format!(" Several at once: {why}."));
        let leaf = if rank.is_leaf() { "yes" } else { "" };
        format!("| {rank:?} | {}{together} | {leaf} |\n", rank.guards())
    };
    let rows: String = Rank::ALL.iter().map(row).collect();
    format!("| rank | guards | leaf |\n|---|---|---|\n{rows}")
}

#[test]
fn the_page_shows_the_order_of_the_ranks() {
    const BEGIN: &str =
        "<!-- ranks: written by `LAVASTORE_BLESS=1 cargo test -p lavastore-base the_page_shows` -->\n";
    const END: &str = "<!-- end of ranks -->";
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/locks.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).expect("the page has a place for the list");
    let (shown, after) = rest.split_once(END).expect("and the list an end");
    let table = table();
    if std::env::var_os("LAVASTORE_BLESS").is_some() {
        std::fs::write(&path, [before, BEGIN, &table, END, after].concat()).unwrap();
    } else {
        assert!(shown == table, "the list is not that of the ranks: LAVASTORE_BLESS=1 writes it anew");
    }
}

#[test]
fn ranks_are_sorted_and_documented() {
    assert!(Rank::ALL.is_sorted_by(|a, b| a < b));
    let first_leaf = Rank::ALL.iter().position(|rank| rank.is_leaf()).unwrap();
    assert!(Rank::ALL[first_leaf..].iter().all(|rank| rank.is_leaf()), "leaves are last");
    assert!(Rank::ALL.iter().all(|rank| rank.guards().ends_with('.')));
    assert_eq!(<Writer as Ranked>::RANK, Rank::Writer);
}

#[test]
fn holds_reports_the_ranks_of_this_thread() {
    let (low, middle, ..) = locks();
    assert!(!holds::<Writer>());
    let held = (lock(&low), read(&middle));
    assert!(holds::<Writer>() && holds::<Families>() && !holds::<FsCore>());
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(!holds::<Writer>(), "another thread does"));
    });
    drop(held);
    assert!(!holds::<Writer>());
}
