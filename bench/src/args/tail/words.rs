//! Syntax of loads, bursts and times on the command line and in JSON.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Percentages of a rate: `80`, or `20,40,60`. JSON has a number for one, a list for several.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "LoadsInJson", into = "LoadsInJson")]
pub struct Loads(Vec<f64>);

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum LoadsInJson {
    One(f64),
    Several(Vec<f64>),
}

impl Loads {
    /// Returns a single load.
    pub fn one(percent: f64) -> Loads {
        Loads(vec![percent])
    }

    /// Returns the loads in the given order; at least one, except from JSON.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied()
    }

    /// Returns true if there are loads and the condition holds for each.
    pub fn all(&self, is_so: impl Fn(f64) -> bool) -> bool {
        !self.0.is_empty() && self.iter().all(is_so)
    }
}

impl From<LoadsInJson> for Loads {
    fn from(told: LoadsInJson) -> Self {
        match told {
            LoadsInJson::One(percent) => Loads::one(percent),
            LoadsInJson::Several(all) => Loads(all),
        }
    }
}

impl From<Loads> for LoadsInJson {
    fn from(loads: Loads) -> Self {
        match loads.0.as_slice() {
            [one] => LoadsInJson::One(*one),
            _ => LoadsInJson::Several(loads.0),
        }
    }
}

impl FromStr for Loads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let percent = |word: &str| {
            word.parse().map_err(|_| {
                format!("`{word}` is no percentage of the sustained rate: name a number such as 80")
            })
        };
        text.split(',').map(percent).collect::<Result<_, _>>().map(Loads)
    }
}

impl fmt::Display for Loads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.iter().map(|percent| percent.to_string()).collect();
        f.write_str(&all.join(","))
    }
}

/// A duration: `20s`, `0.5s`, `100ms`, or `20` in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Span {
    /// Duration in seconds.
    pub seconds: f64,
}

impl FromStr for Span {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (number, part) = match (text.strip_suffix("ms"), text.strip_suffix('s')) {
            (Some(number), _) => (number, 1e-3),
            (None, Some(number)) => (number, 1.0),
            (None, None) => (text, 1.0),
        };
        let number: f64 = number
            .parse()
            .map_err(|_| format!("`{text}` is no time: name seconds, such as 20s, 500ms or 20"))?;
        Ok(Span { seconds: number * part })
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}s", self.seconds)
    }
}

/// A multiple of the rate for a duration: `3x10s`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Burst {
    /// Multiple of the rate.
    pub times: f64,
    /// Duration.
    pub span: Span,
}

impl Burst {
    /// Returns true if the burst is within the allowed ranges.
    pub fn is_possible(self) -> bool {
        let seconds = self.span.seconds;
        self.times > 0.0 && self.times <= 1000.0 && seconds > 0.0 && seconds.is_finite()
    }
}

impl FromStr for Burst {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = || {
            format!(
                "`{text}` is no burst: name a multiple and a time, such as 3x10s (three times the rate for 10 s)"
            )
        };
        let (times, span) = text.split_once('x').ok_or_else(fault)?;
        Ok(Burst { times: times.parse().map_err(|_| fault())?, span: span.parse().map_err(|_| fault())? })
    }
}

impl fmt::Display for Burst {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.times, self.span)
    }
}

/// JSON uses the syntax of the command line.
macro_rules! told_by_words {
    ($($name:ident),*) => {$(
        impl TryFrom<String> for $name {
            type Error = String;

            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(told: $name) -> String {
                told.to_string()
            }
        }
    )*};
}

told_by_words!(Span, Burst);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_load_is_a_number_and_several_are_a_list() {
        let json = |loads: &Loads| serde_json::to_string(loads).unwrap();
        let (one, several): (Loads, Loads) = ("80".parse().unwrap(), "20,40.5,95".parse().unwrap());
        assert_eq!((json(&one).as_str(), json(&several).as_str()), ("80.0", "[20.0,40.5,95.0]"));
        for loads in [one, several] {
            assert_eq!(serde_json::from_str::<Loads>(&json(&loads)).unwrap(), loads);
            assert_eq!(loads.to_string().parse::<Loads>().unwrap(), loads);
        }
        for wrong in ["", "20,", "x", "20;40"] {
            assert!(wrong.parse::<Loads>().unwrap_err().contains("is no percentage"), "{wrong}");
        }
    }

    #[test]
    fn bursts_and_times_parse_and_round_trip() {
        let burst: Burst = "3x10s".parse().unwrap();
        assert_eq!((burst.times, burst.span.seconds), (3.0, 10.0));
        assert_eq!("2.5x100ms".parse::<Burst>().unwrap().span.seconds, 0.1);
        assert_eq!("7".parse::<Span>().unwrap().seconds, 7.0);
        assert_eq!(serde_json::to_string(&burst).unwrap(), "\"3x10s\"");
        assert_eq!(serde_json::from_str::<Burst>("\"3x10s\"").unwrap(), burst);
        assert!(
            ["0x1s", "1x0s", "NaNx1s", "1001x1s", "1xinfs"]
                .iter()
                .all(|text| !text.parse::<Burst>().unwrap().is_possible())
        );
        for wrong in ["", "3", "x10s", "3x", "3x10m", "10s x 3"] {
            assert!(wrong.parse::<Burst>().unwrap_err().contains("is no burst"), "{wrong}");
        }
        assert!("1h".parse::<Span>().unwrap_err().contains("is no time"));
    }
}
