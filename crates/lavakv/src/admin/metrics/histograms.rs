//! Histograms in Prometheus format: cumulative counts, sum and number, each with a gauge of the
//! maximum, which the format lacks.
//!
//! Bounds of times and bytes are just below powers of two, where buckets of the engine end, so the
//! counts are exact. An empty histogram has only number and sum, so a store without stalls takes
//! few lines.

use super::{MetricValue, Page};
use crate::context::times::Histograms;
use base::histogram::Distribution;

/// Bounds of times: 256 ns to 69 s, by powers of two.
const TIME_BITS: std::ops::RangeInclusive<u32> = 8..=36;
/// Bounds of compaction widths: 64 KiB to 1 TiB.
const BYTE_BITS: std::ops::RangeInclusive<u32> = 16..=40;
/// Maximum length of a chain: the depth of a tree.
const CHAIN_MAX: u64 = 8;

/// Bucket bounds, and the unit of values.
struct Scale {
    bounds: Vec<u64>,
    value: fn(u64) -> MetricValue,
}

impl Scale {
    fn times() -> Scale {
        Scale { bounds: TIME_BITS.map(|bits| (1 << bits) - 1).collect(), value: MetricValue::Seconds }
    }

    fn bytes() -> Scale {
        Scale { bounds: BYTE_BITS.map(|bits| (1 << bits) - 1).collect(), value: MetricValue::Count }
    }

    fn levels() -> Scale {
        Scale { bounds: (1..=CHAIN_MAX).collect(), value: MetricValue::Count }
    }
}

/// A label with its value, and the distribution.
type Row<'a> = (Option<(&'static str, &'a str)>, &'a Distribution);

/// Appends all histograms.
pub(super) fn put(page: &mut Page, histograms: &Histograms) {
    let Histograms { operations, waits, compaction_width, compaction_chain } = histograms;
    put_all(
        page,
        ("operation_seconds", "operation_max_seconds"),
        (
            "Latency of operations by kind; gets, moves of iterators and writes without \
             durability are sampled.",
            "Longest operation of a kind.",
        ),
        &operations.iter().map(|(name, times)| (Some(("operation", *name)), times)).collect::<Vec<_>>(),
        &Scale::times(),
    );
    put_all(
        page,
        ("wait_seconds", "wait_max_seconds"),
        ("Waits of writers by cause.", "Longest wait of a writer by cause."),
        &waits.iter().map(|(cause, times)| (Some(("cause", *cause)), times)).collect::<Vec<_>>(),
        &Scale::times(),
    );
    put_all(
        page,
        ("compaction_width_bytes", "compaction_width_max_bytes"),
        ("Bytes read by a compaction, moves excluded.", "Most bytes read by a compaction."),
        &[(None, compaction_width)],
        &Scale::bytes(),
    );
    put_all(
        page,
        ("compaction_chain_levels", "compaction_chain_max_levels"),
        (
            "Compactions due in a chain when a compaction began, itself included.",
            "Longest chain of due compactions.",
        ),
        &[(None, compaction_chain)],
        &Scale::levels(),
    );
}

/// Appends one histogram with all its rows, and the gauge of the maxima.
fn put_all(page: &mut Page, names: (&str, &str), helps: (&str, &str), rows: &[Row<'_>], scale: &Scale) {
    let (name, help) = (names.0, helps.0);
    page.text.push_str(&format!("# HELP lavastore_{name} {help}\n# TYPE lavastore_{name} histogram\n"));
    for (label, seen) in rows {
        let count = seen.count();
        let bounds = scale.bounds.iter().filter(|_| count > 0);
        for bound in bounds {
            let le = (scale.value)(*bound).text();
            let labels = label.iter().copied().chain([("le", &le[..])]).collect();
            page.sample(&format!("{name}_bucket"), labels, &MetricValue::Count(seen.at_most(*bound)));
        }
        let labels = label.iter().copied().chain([("le", "+Inf")]).collect();
        page.sample(&format!("{name}_bucket"), labels, &MetricValue::Count(count));
        page.sample(&format!("{name}_sum"), label.iter().copied().collect(), &(scale.value)(seen.sum()));
        page.sample(&format!("{name}_count"), label.iter().copied().collect(), &MetricValue::Count(count));
    }
    let largest =
        rows.iter().map(|(label, seen)| (label.iter().copied().collect(), (scale.value)(seen.max())));
    page.gauges(names.1, helps.1, largest);
}

#[cfg(test)]
mod tests;
