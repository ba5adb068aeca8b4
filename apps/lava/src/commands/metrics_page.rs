//! Parser for the metrics page of a running process.
//!
//! Unknown lines are ignored: the page is made for Prometheus, and a newer release may add metrics.
//! Another program may have written the page, so its memory is bounded.

use std::collections::{BTreeMap, BTreeSet};

/// A sample with its labels except `store`.
struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    value: f64,
}

/// A parsed metrics page.
#[derive(Default)]
pub struct MetricsPage {
    /// Directory of the store.
    pub store: String,
    samples: Vec<Sample>,
}

/// Maximum number of samples. With labels they take less than 200 MiB.
const SAMPLES_MAX: usize = 1 << 18;
/// Maximum number of labels of a sample.
const LABELS_MAX: usize = 6;
/// Longest line in bytes: a label may be the escaped path of a store.
const LINE_LEN_MAX: usize = 16 << 10;

/// Prefix of all metric names.
const PREFIX: &str = "lavastore_";

/// Parses the labels in braces; returns them and the rest of the line.
fn labels_of(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    while !rest.starts_with('}') {
        if labels.len() == LABELS_MAX {
            return None;
        }
        let (label, quoted) = rest.trim_start_matches(',').split_once("=\"")?;
        let (mut value, mut chars) = (String::new(), quoted.char_indices());
        let end = loop {
            match chars.next()? {
                (at, '"') => break at + 1,
                (_, '\\') => value.push(match chars.next()?.1 {
                    'n' => '\n',
                    c => c,
                }),
                (_, c) => value.push(c),
            }
        };
        labels.push((label.to_owned(), value));
        rest = quoted.get(end..)?;
    }
    Some((labels, rest.get(1..)?.trim()))
}

fn sample(line: &str) -> Option<Sample> {
    let line = line.strip_prefix(PREFIX)?;
    let (name, rest) = line.split_at(line.find(['{', ' '])?);
    let (labels, value) = match rest.strip_prefix('{') {
        Some(inside) => labels_of(inside)?,
        None => (Vec::new(), rest.trim()),
    };
    Some(Sample { name: name.to_owned(), labels, value: value.parse().ok()? })
}

impl MetricsPage {
    pub fn parse(text: &str) -> MetricsPage {
        let mut page = MetricsPage::default();
        let lines = text.lines().filter(|line| line.len() <= LINE_LEN_MAX);
        for mut sample in lines.filter_map(sample).take(SAMPLES_MAX) {
            if let Some(at) = sample.labels.iter().position(|(label, _)| label == "store") {
                page.store = sample.labels.remove(at).1;
            }
            page.samples.push(sample);
        }
        page
    }

    /// Returns the samples of a metric with the value of one of their labels.
    pub fn by<'a>(&'a self, name: &'a str, label: &'a str) -> impl Iterator<Item = (&'a str, f64)> {
        let of = move |s: &'a Sample| {
            let (_, value) = s.labels.iter().find(|(of, _)| of == label)?;
            Some((&value[..], s.value))
        };
        self.samples.iter().filter(move |s| s.name == name).filter_map(of)
    }

    /// Returns true if there is a sample of this metric.
    pub fn has(&self, name: &str) -> bool {
        self.samples.iter().any(|s| s.name == name)
    }

    /// Returns the sum of all samples of a metric; 0 without any.
    pub fn sum(&self, name: &str) -> f64 {
        self.samples.iter().filter(|s| s.name == name).map(|s| s.value).sum()
    }

    /// Returns the sum of the samples with this label value.
    pub fn sum_of(&self, name: &str, label: &str, value: &str) -> f64 {
        self.by(name, label).filter(|(of, _)| *of == value).map(|(_, n)| n).sum()
    }

    /// Returns the values of a label of a metric, in page order.
    pub fn labels<'a>(&'a self, name: &'a str, label: &'a str) -> Vec<&'a str> {
        let mut known = BTreeSet::new();
        self.by(name, label).map(|(value, _)| value).filter(|value| known.insert(*value)).collect()
    }

    /// Returns the histogram with this label value, or without labels.
    pub fn histogram(&self, name: &str, of: Option<(&str, &str)>) -> Histogram {
        let is = |s: &&Sample| match of {
            None => true,
            Some((label, value)) => s.labels.iter().any(|(l, v)| l == label && v == value),
        };
        let named = |end: &str| {
            let name = format!("{name}_{end}");
            self.samples.iter().filter(move |s| s.name == name).filter(is)
        };
        let mut buckets: BTreeMap<u64, f64> = BTreeMap::new();
        for bucket in named("bucket") {
            let le = bucket.labels.iter().find(|(label, _)| label == "le").map_or("", |(_, le)| &le[..]);
            if let Ok(bound) = le.parse::<f64>()
                && bound.is_finite()
                && bound >= 0.0
            {
                // For non-negative numbers the bits are in numeric order.
                buckets.insert(bound.to_bits(), bucket.value);
            }
        }
        Histogram {
            up_to: buckets.into_iter().map(|(bound, count)| (f64::from_bits(bound), count)).collect(),
            sum: named("sum").map(|s| s.value).sum(),
            count: named("count").map(|s| s.value).sum(),
        }
    }
}

/// A Prometheus histogram.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    /// Bounds in ascending order, each with the cumulative count.
    up_to: Vec<(f64, f64)>,
    pub sum: f64,
    pub count: f64,
}

impl Histogram {
    /// Returns the difference to an earlier page.
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let before = |bound: f64| earlier.up_to.iter().find(|(of, _)| *of == bound).map_or(0.0, |(_, n)| *n);
        Histogram {
            up_to: self.up_to.iter().map(|(bound, n)| (*bound, (n - before(*bound)).max(0.0))).collect(),
            sum: (self.sum - earlier.sum).max(0.0),
            count: (self.count - earlier.count).max(0.0),
        }
    }

    pub fn mean(&self) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { 0.0 }
    }

    /// Returns an estimate of a quantile by linear interpolation between the bounds around it, at
    /// most `max`, the observed maximum.
    pub fn quantile(&self, part: f64, max: f64) -> f64 {
        let rank = part * self.count;
        let (mut low, mut below) = (0.0, 0.0);
        for (bound, up_to) in &self.up_to {
            if *up_to >= rank && *up_to > below {
                let value = low + (bound - low) * ((rank - below) / (up_to - below)).clamp(0.0, 1.0);
                return value.min(max);
            }
            (low, below) = (*bound, *up_to);
        }
        if self.count > 0.0 { max } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP lavastore_gets_total Gets.\n# TYPE lavastore_gets_total counter\n\
        lavastore_gets_total{store=\"/a \\\"b\\\"\"} 7\n\
        lavastore_level_files{store=\"x\",family=\"a\",level=\"0\"} 2\n\
        lavastore_level_files{store=\"x\",family=\"b\\n,}\",level=\"0\"} 3\n\
        lavastore_t_bucket{store=\"x\",op=\"get\",le=\"0.1\"} 10\n\
        lavastore_t_bucket{store=\"x\",op=\"get\",le=\"0.2\"} 20\n\
        lavastore_t_bucket{store=\"x\",op=\"get\",le=\"+Inf\"} 21\n\
        lavastore_t_sum{store=\"x\",op=\"get\"} 5.5\nlavastore_t_count{store=\"x\",op=\"get\"} 21\n\
        rubbish{\nlavastore_broken{store=\"x\nlavastore_broken{store=\"x\"} y\n";

    #[test]
    fn metrics_page_parser_skips_malformed_samples() {
        let page = MetricsPage::parse(TEXT);
        assert_eq!((page.sum("gets_total"), page.sum("broken")), (7.0, 0.0));
        assert_eq!(page.sum_of("level_files", "level", "0"), 5.0);
        assert_eq!(page.labels("level_files", "family"), ["a", "b\n,}"]);
        assert_eq!(MetricsPage::parse(&TEXT[..TEXT.find("lavastore_level").unwrap()]).store, "/a \"b\"");
        assert!(MetricsPage::parse("").samples.is_empty());
    }

    #[test]
    fn a_page_of_another_program_takes_bounded_memory() {
        let many = "lavastore_a 1\n".repeat(SAMPLES_MAX + 10);
        assert_eq!(MetricsPage::parse(&many).samples.len(), SAMPLES_MAX);
        let labels = |count: usize| format!("lavastore_a{{{}}} 1\n", vec!["l=\"v\""; count].join(","));
        assert_eq!(MetricsPage::parse(&labels(LABELS_MAX)).samples.len(), 1);
        assert!(MetricsPage::parse(&labels(LABELS_MAX + 1)).samples.is_empty());
        let long = format!("lavastore_a{{l=\"{}\"}} 1\n", "v".repeat(LINE_LEN_MAX));
        assert!(MetricsPage::parse(&long).samples.is_empty());
    }

    #[test]
    fn quantiles_interpolate_within_buckets_up_to_the_maximum() {
        let all = MetricsPage::parse(TEXT).histogram("t", Some(("op", "get")));
        assert_eq!((all.count, all.sum, all.up_to.len()), (21.0, 5.5, 2));
        let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-9, "{a} {b}");
        near(all.quantile(0.5, 9.0), 0.105);
        near(all.quantile(0.999, 9.0), 9.0);
        near(all.quantile(0.9, 0.15), 0.15);
        near(all.since(&all).quantile(0.5, 9.0), 0.0);
        near(all.since(&Histogram::default()).mean(), 5.5 / 21.0);
        assert_eq!(MetricsPage::parse(TEXT).histogram("none", None).count, 0.0);
    }
}
