//! One parameter of `vlsm` with several values: `growth=8,16,32,64`, `table=2M,8M,32M,64M`.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Allowed growth factors of `vlsm`.
pub const GROWTH: std::ops::RangeInclusive<u32> = 2..=1000;
/// Allowed table sizes of `vlsm`.
const TABLE_BYTES: std::ops::RangeInclusive<u64> = 4 << 10..=4 << 30;

/// A parameter with its values in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Sweep {
    /// F: maximum size ratio of level 2 to level 1.
    Growth(Vec<u32>),
    /// M: size of a table and of a memtable in bytes.
    Table(Vec<u64>),
}

impl Sweep {
    /// Returns true if `vlsm` accepts these values.
    pub fn is_possible(&self) -> bool {
        match self {
            Sweep::Growth(values) => values.iter().all(|times| GROWTH.contains(times)),
            Sweep::Table(values) => values.iter().all(|bytes| TABLE_BYTES.contains(bytes)),
        }
    }
}

/// Parses `8M` or a plain number.
fn bytes(text: &str) -> Option<u64> {
    match text.strip_suffix('M') {
        Some(mebibytes) => mebibytes.parse::<u64>().ok()?.checked_mul(1 << 20),
        None => text.parse().ok(),
    }
}

impl FromStr for Sweep {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || {
            "a sweep is growth=N,... (ratios of 2 to 1000) or table=BYTES,... (4096 to 4096M, such as table=2M,8M)".to_owned()
        };
        let (parameter, values) = text.split_once('=').ok_or_else(fault)?;
        let values = values.split(',');
        match parameter {
            "growth" => {
                values.map(|v| v.parse().map_err(|_| fault())).collect::<Result<_, _>>().map(Sweep::Growth)
            }
            "table" => values.map(|v| bytes(v).ok_or_else(fault)).collect::<Result<_, _>>().map(Sweep::Table),
            _ => Err(fault()),
        }
    }
}

impl fmt::Display for Sweep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, values): (_, Vec<String>) = match self {
            Sweep::Growth(values) => ("growth", values.iter().map(u32::to_string).collect()),
            Sweep::Table(values) => ("table", values.iter().map(u64::to_string).collect()),
        };
        write!(f, "{name}={}", values.join(","))
    }
}

impl TryFrom<String> for Sweep {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Sweep> for String {
    fn from(sweep: Sweep) -> String {
        sweep.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sweep_is_a_parameter_with_its_values() {
        let sweep: Sweep = "growth=8,16".parse().unwrap();
        assert_eq!(sweep, Sweep::Growth(vec![8, 16]));
        let sweep: Sweep = "table=2M,8388608".parse().unwrap();
        assert_eq!(sweep, Sweep::Table(vec![2 << 20, 8 << 20]));
        assert_eq!(serde_json::to_string(&sweep).unwrap(), "\"table=2097152,8388608\"");
        assert_eq!(serde_json::from_str::<Sweep>("\"table=2M,8M\"").unwrap(), sweep);
        let possible = |text: &str| text.parse::<Sweep>().unwrap().is_possible();
        assert!(possible("growth=2,1000") && possible("table=4096,4096M"));
        assert!(!possible("growth=8,1") && !possible("table=4095") && !possible("table=8M,4097M"));
        for wrong in ["", "growth", "growth=", "growth=x", "table=2X", "levels=3"] {
            assert!(wrong.parse::<Sweep>().is_err(), "{wrong}");
        }
    }
}
