//! Signals between workers and callers.

use io::Env;
use io::sim::SimEnv;
use std::time::Duration;
use store::context::Signals;

#[test]
fn a_write_wakes_dozing_workers_once() {
    let signals = Signals::default();
    let before = signals.work_epoch();
    signals.wake_dozing();
    assert_eq!(signals.work_epoch(), before, "nobody sleeps long");
    signals.sleep(before, Duration::from_millis(1), true);
    signals.wake_dozing();
    signals.wake_dozing();
    assert_eq!(signals.work_epoch(), before + 1);
}

#[test]
fn a_wait_ends_at_its_time_or_at_once_if_its_condition_holds() {
    let (env, signals) = (SimEnv::new(1).env(), Signals::default());
    let begun_ns = env.clock.now_ns();
    signals.wait_before(&env, begun_ns + 2_500_000, || true);
    assert_eq!(env.clock.now_ns(), begun_ns);
    let mut looks = 0;
    signals.wait_before(&env, begun_ns + 2_500_000, || {
        looks += 1;
        false
    });
    assert_eq!((env.clock.now_ns(), looks), (begun_ns + 2_500_000, 4), "every millisecond, and at the end");
    signals.wait_before(&env, begun_ns, || false);
    // Outside of the simulation the wait checks the clock itself.
    let env = Env::kernel();
    let begun_ns = env.clock.now_ns();
    signals.wait_before(&env, begun_ns + 2_000_000, || false);
    let took_ns = env.clock.now_ns() - begun_ns;
    assert!(took_ns >= 2_000_000);
    assert_eq!(signals.wait_until(&env, || Some(7)), 7);
}

#[test]
fn no_worker_sleeps_after_new_work_or_a_stop() {
    let signals = Signals::default();
    let before = signals.work_epoch();
    signals.notify_work();
    signals.sleep(before, Duration::MAX, false);
    signals.stop();
    signals.sleep(signals.work_epoch(), Duration::MAX, false);
}
