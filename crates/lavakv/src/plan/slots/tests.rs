//! The equations on examples, and the ends they leave open.

use super::*;

const MIB: u64 = 1 << 20;

/// A tree with levels of these sizes in MiB, level 0 first, and values with so much exposed garbage and live data.
fn pressure(levels: &[u64], exposed: u64, live: u64) -> Pressure {
    let levels: Vec<u64> = levels.iter().map(|n| n * MIB).collect();
    Pressure::new(&levels, 10, exposed * MIB, live * MIB, 20)
}

/// Compactions, collections and urgent ones of eight threads.
fn of(pressure: &Pressure, fill_percent: u64, before: usize) -> (usize, usize, usize) {
    let slots = Slots::of(pressure, 8, fill_percent, before);
    (slots.compactions, slots.collections, slots.urgent)
}

fn near(a: f64, b: f64) -> bool {
    (a - b).abs() < 1e-9
}

#[test]
fn the_pressures_are_those_of_the_paper() {
    // S_index = (10 + 30 + 120 + 1000) / 1000 = 1.16; three levels: 1 + 0.1 + 0.01.
    let t = pressure(&[10, 0, 30, 120, 1000], 400, 1000);
    assert!(near(t.index_pressure(), 1.16 - 1.11), "{t:?}");
    // G_E / D = 0.4; R_G / (1 - R_G) = 0.2 / 0.8.
    assert!(near(t.value_pressure(), 0.4 - 0.25), "{t:?}");
    assert!(near(t.gc_share(), 0.15 / (0.05 + 0.15)), "{t:?}");
    // Max_GC = 8 * 0.75
    assert_eq!(of(&t, 0, 1), (2, 6, 0));
}

#[test]
fn a_pressure_is_never_below_zero() {
    let t = pressure(&[0, 0, 0, 50, 1000], 100, 1000);
    assert!(near(t.index_pressure(), 0.0) && near(t.value_pressure(), 0.0), "{t:?}");
    assert_eq!(of(&t, 0, 1), (7, 1, 0));
    // All pressure in the values: all threads but one.
    let t = pressure(&[0, 0, 0, 50, 1000], 900, 1000);
    assert_eq!(of(&t, 0, 1), (1, 7, 0));
    // All in the tree.
    let t = pressure(&[90, 0, 300, 400, 1000], 10, 1000);
    assert_eq!(of(&t, 0, 7), (7, 1, 0));
    assert_eq!(pressure(&[], 0, 0).gc_share(), 0.0);
}

#[test]
fn each_class_keeps_a_thread_whatever_the_pressures() {
    for threads in 1..20 {
        for before in [0, 1, threads, 64] {
            for (level0, exposed) in [(0, 0), (0, 900), (900, 0), (900, 900)] {
                for fill in [0, 80, 95, 100, 200] {
                    let t = pressure(&[level0, 0, 1000], exposed, 1000);
                    let slots = Slots::of(&t, threads, fill, before);
                    assert!((1..=threads).contains(&slots.collections), "{slots:?}");
                    assert!((1..=all_but_one(threads)).contains(&slots.compactions), "{slots:?}");
                    assert!(slots.urgent <= all_but_one(threads), "{slots:?}");
                    assert!(threads < 2 || slots.urgent < threads, "{slots:?}");
                }
            }
        }
    }
}

#[test]
fn a_thread_does_not_move_to_and_fro() {
    // Shares of 8 threads around 3.5: whoever has three or four keeps them.
    for exposed in [300, 310, 320, 330] {
        let t = pressure(&[80, 0, 1000], exposed, 1000);
        let due = 8.0 * t.gc_share();
        for before in 2..6usize {
            let now = Slots::of(&t, 8, 0, before).collections;
            let keeps = (due - before as f64).abs() <= HYSTERESIS;
            assert_eq!(now, if keeps { before } else { due.round() as usize }, "{due} {before}");
            assert_eq!(Slots::of(&t, 8, 0, now).collections, now, "it comes to rest at once");
        }
    }
}

#[test]
fn a_full_disk_gives_collection_every_thread_and_the_way_first() {
    let t = pressure(&[0, 0, 1000], 10, 1000);
    let at = |fill| of(&t, fill, 1);
    assert_eq!(at(0), at(FILL_LAZY_PERCENT));
    assert!((75..100).all(|fill| at(fill).1 <= at(fill + 1).1));
    assert_eq!(at(82), (7, 4, 0));
    assert_eq!(at(89), (7, 7, 0));
    assert_eq!(at(90), (7, 8, 7));
    assert_eq!(Slots::of(&t, 8, 95, 1).by_pressure, 1, "fill is forgotten when it falls");
    assert_eq!(at(300), at(90));
}

#[test]
fn families_add_up() {
    let mut sum = Pressure::default();
    sum.add(&pressure(&[0, 100, 1000], 350, 1000));
    sum.add(&pressure(&[0, 0, 1000], 0, 1000));
    // 100 MiB over two levels of which the ideal has just so many: no pressure; 100 MiB of garbage too much in 2,000.
    assert!(near(sum.index_pressure(), 0.0) && near(sum.value_pressure(), 0.05), "{sum:?}");
    // A family below its ideal does not pay for another that is above.
    sum.add(&pressure(&[200, 0, 1000], 0, 0));
    assert!(near(sum.index_pressure(), 200.0 / 3000.0), "{sum:?}");
}

#[test]
fn whoever_bounds_compactions_is_obeyed() {
    let calm = Slots::of(&pressure(&[0, 0, 1000], 10, 1000), 4, 0, 1);
    let pressed = Slots::of(&pressure(&[0, 0, 1000], 900, 1000), 4, 0, 1);
    let at = |slots: Slots, max| slots.limited(4, max).compactions;
    assert_eq!((at(calm, 0), at(calm, 1), at(calm, 4)), (3, 1, 4));
    assert_eq!((at(pressed, 0), at(pressed, 2), at(pressed, 4)), (1, 1, 1));
    assert_eq!(at(Slots::fixed(4), 4), 4);
}
