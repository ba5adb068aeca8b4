//! Every interleaving of rising floors and a release.

use super::*;
use crate::manifest::Engines;
use base::sync::model::atomic::AtomicU64;
use base::sync::model::check;
use base::sync::model::loom::thread;

/// One tenant reports its floor as it rises; the release computes the floor of the other.
const TELLS: TenantId = TenantId(1);
const ASKED: TenantId = TenantId(2);

#[derive(Default)]
struct Shared {
    floors: Floors,
    /// End of the second tenant's flushed sequences.
    flushed_end: AtomicU64,
}

impl Shared {
    /// Runs a release and returns its floors.
    fn release(&self) -> Vec<(TenantId, SeqNo)> {
        let tell = || self.floors.tell(ASKED, self.flushed_end.load(Ordering::Acquire));
        self.floors.for_release(tell, || {
            Arc::new(ManifestState::empty(base::Uid::default(), 0, &Engines::default()))
        })
    }
}

fn of(floors: &[(TenantId, SeqNo)], tenant: TenantId) -> SeqNo {
    floors.iter().find(|(of, _)| *of == tenant).map_or(0, |(_, floor)| *floor)
}

fn spawn(shared: &Arc<Shared>, body: impl FnOnce(&Shared) + 'static) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || body(&shared))
}

/// The release used every raised floor, or a hint requests another release.
#[test]
fn loom_no_raised_floor_is_lost() {
    check(3, || {
        let shared = Arc::new(Shared::default());
        let telling = spawn(&shared, |shared| {
            shared.floors.tell(TELLS, 7);
            shared.floors.hint();
        });
        let flushing = spawn(&shared, |shared| {
            shared.flushed_end.store(5, Ordering::Release);
            shared.floors.hint();
        });
        let floors = shared.release();
        telling.join().unwrap();
        flushing.join().unwrap();
        let all_known = of(&floors, TELLS) == 7 && of(&floors, ASKED) == 5;
        assert!(all_known || shared.floors.is_hinted(), "released by {floors:?}, and nobody looks again");
    });
}

/// With two concurrent reports for a tenant, in any order, the higher floor stays. No release sees
/// a floor fall.
#[test]
fn loom_a_floor_never_falls() {
    check(3, || {
        let shared = Arc::new(Shared::default());
        let tellers = [4, 7].map(|floor| spawn(&shared, move |shared| shared.floors.tell(TELLS, floor)));
        let seen = [0, 1].map(|_| of(&shared.release(), TELLS));
        assert!(seen.is_sorted(), "{seen:?}");
        tellers.into_iter().for_each(|teller| teller.join().unwrap());
        assert_eq!(of(&shared.release(), TELLS), 7);
    });
}
