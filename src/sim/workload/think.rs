//! How long a user thinks between an answer and the next request (spec, simulator 22).

use std::fmt;
use std::str::FromStr;

use super::chance::Stream;
use super::lengths::{Bounds, LogNormal};

/// Microseconds in a second.
const SECOND_US: f64 = 1e6;

/// The longest thought, in microseconds.
const LONGEST_US: f64 = (1_u64 << 62) as f64;

/// How long a user thinks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Think {
    /// As long as was recorded for that turn.
    Recorded,
    /// Always so many microseconds.
    Constant(u64),
    /// Seconds whose logarithm is normally distributed, and the bounds in seconds.
    LogNormal(LogNormal),
}

impl Think {
    /// Microseconds of one thought.
    pub(super) fn sample(&self, recorded_us: u64, chance: &mut Stream) -> u64 {
        match self {
            Self::Recorded => recorded_us,
            Self::Constant(us) => *us,
            Self::LogNormal(seconds) => (seconds.sample(chance) * SECOND_US).clamp(0.0, LONGEST_US) as u64,
        }
    }
}

/// Why a text says nothing about thinking.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is no distribution of think times: {reason}; write `constant:value=500ms` or \
     `lognormal:mu=0.5,sigma=1,min=1s,max=60s` (mu and sigma of the logarithm of seconds)"
)]
pub struct ThinkError {
    text: String,
    reason: String,
}

impl FromStr for Think {
    type Err = ThinkError;

    fn from_str(text: &str) -> Result<Self, ThinkError> {
        parse(text).map_err(|reason| ThinkError {
            text: text.to_owned(),
            reason,
        })
    }
}

impl fmt::Display for Think {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Recorded => f.write_str("as recorded"),
            Self::Constant(us) => write!(f, "constant:value={us}us"),
            Self::LogNormal(LogNormal { mu, sigma, bounds }) => {
                write!(f, "lognormal:mu={mu},sigma={sigma}")?;
                for (name, bound) in [("min", bounds.min), ("max", bounds.max)] {
                    if let Some(seconds) = bound {
                        write!(f, ",{name}={seconds}s")?;
                    }
                }
                Ok(())
            }
        }
    }
}

fn parse(text: &str) -> Result<Think, String> {
    let (kind, parameters) = text.split_once(':').ok_or("there is no colon in it")?;
    let mut given: Vec<(&str, &str)> = Vec::new();
    for parameter in parameters.split(',') {
        let (name, value) = parameter
            .split_once('=')
            .ok_or_else(|| format!("`{parameter}` has no `=`"))?;
        let name = name.trim();
        if given.iter().any(|(known, _)| *known == name) {
            return Err(format!("`{name}` is there twice"));
        }
        given.push((name, value.trim()));
    }
    let known: &[&str] = match kind {
        "constant" => &["value"],
        "lognormal" => &["mu", "sigma", "min", "max"],
        kind => return Err(format!("`{kind}` is not known")),
    };
    if let Some((name, _)) = given.iter().find(|(name, _)| !known.contains(name)) {
        return Err(format!("`{name}` is not known"));
    }
    let get = |name: &str| given.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
    let require = |name: &str| get(name).ok_or_else(|| format!("`{name}` is missing"));
    if kind == "constant" {
        return Ok(Think::Constant((seconds(require("value")?)? * SECOND_US).round() as u64));
    }
    let sigma = number(require("sigma")?)?;
    if sigma < 0.0 {
        return Err(format!("sigma is {sigma}, below zero"));
    }
    let bounds = Bounds {
        min: get("min").map(seconds).transpose()?,
        max: get("max").map(seconds).transpose()?,
    };
    if let (Some(min), Some(max)) = (bounds.min, bounds.max)
        && min > max
    {
        return Err("min is above max".to_owned());
    }
    let mu = number(require("mu")?)?;
    Ok(Think::LogNormal(LogNormal { mu, sigma, bounds }))
}

/// `2s`, `500ms`, `20us`, or milliseconds without a unit.
fn seconds(text: &str) -> Result<f64, String> {
    let units = [("us", 1e-6), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0), ("", 1e-3)];
    let (digits, factor) = units
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, factor)))
        .unwrap_or((text, &1e-3));
    let value = number(digits)? * factor;
    if value < 0.0 || value * SECOND_US > LONGEST_US {
        return Err(format!("`{text}` is no length of time"));
    }
    Ok(value)
}

fn number(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
    number.ok_or_else(|| format!("`{text}` is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood_and_a_bare_number_is_milliseconds() {
        for (text, us) in [("500ms", 500_000), ("2s", 2_000_000), ("20us", 20), ("1.5", 1500)] {
            let think: Think = format!("constant:value={text}").parse().unwrap();
            assert_eq!(think, Think::Constant(us), "{text}");
        }
    }

    #[test]
    fn a_lognormal_thought_stays_within_its_bounds() {
        let think: Think = "lognormal:mu=0.5,sigma=3,min=1s,max=2000ms".parse().unwrap();
        let mut chance = Stream::seeded(1);

        let thoughts: Vec<u64> = (0..100).map(|_| think.sample(0, &mut chance)).collect();

        assert!(thoughts.iter().all(|us| (1_000_000..=2_000_000).contains(us)));
        assert!(thoughts.contains(&1_000_000) && thoughts.contains(&2_000_000));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (text, reason) in [
            ("constant", "there is no colon"),
            ("uniform:value=1", "`uniform` is not known"),
            ("constant:valve=1", "`valve` is not known"),
            ("lognormal:mu=1", "`sigma` is missing"),
            ("constant:value=-1s", "no length of time"),
            ("lognormal:mu=1,sigma=1,min=2s,max=1s", "min is above max"),
            ("constant:value=1,value=2", "there twice"),
        ] {
            let error = text.parse::<Think>().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_distribution_reads_back_as_it_was_written() {
        for text in ["constant:value=500us", "lognormal:mu=0.5,sigma=1,min=1s,max=60s"] {
            assert_eq!(text.parse::<Think>().unwrap().to_string(), text);
        }
    }
}
