//! From what is written to what draws numbers.

use super::super::arrivals::{Form, Process};
use super::super::lengths::{Bounds, Empirical, Lengths, LogNormal, MOST_TOKENS};
use super::{ArrivalSpec, DistributionKind, DistributionSpec, ProcessName};

/// The unevenness of Weibull gaps for which a shape is looked for.
const WEIBULL_CV: std::ops::RangeInclusive<f64> = 0.01..=10.4;

impl ArrivalSpec {
    /// Gaps of this kind, and nothing else said.
    pub fn of(process: ProcessName) -> Self {
        Self {
            process,
            cv: None,
            shape: None,
            scale: None,
        }
    }

    /// What draws the gaps.
    ///
    /// # Errors
    ///
    /// The field that is wrong (empty for the whole), and what would be right.
    pub fn process(&self) -> Result<Process, (&'static str, String)> {
        let parameters = [("cv", self.cv), ("shape", self.shape), ("scale", self.scale)];
        for (name, value) in parameters {
            let Some(value) = value else { continue };
            let known: &[&str] = match self.process {
                ProcessName::Constant => &[],
                ProcessName::Poisson => &["scale"],
                ProcessName::Gamma | ProcessName::Weibull => &["cv", "shape", "scale"],
            };
            if !known.contains(&name) {
                let process = self.process.name();
                return Err((
                    name,
                    format!("has no meaning for `{process}`; it is for `gamma` and `weibull`"),
                ));
            }
            if !(value.is_finite() && value > 0.0) {
                return Err((name, format!("is {value}; it must be above zero")));
            }
        }
        if let (ProcessName::Poisson, Some(mean_gap_us)) = (self.process, self.scale) {
            return Ok(Process::PoissonOf { mean_gap_us });
        }
        let form = match (self.cv, self.shape, self.scale) {
            (cv, None, None) => Form::Variation(cv.unwrap_or(1.0)),
            (None, Some(shape), Some(scale_us)) => Form::Explicit { shape, scale_us },
            (Some(_), ..) => return Err(("cv", "stands beside `shape` and `scale`; give either".to_owned())),
            _ => return Err(("", "has one of `shape` and `scale`; they belong together".to_owned())),
        };
        Ok(match (self.process, form) {
            (ProcessName::Constant, _) => Process::Constant,
            (ProcessName::Poisson, _) => Process::Poisson,
            (ProcessName::Gamma, form) => Process::Gamma(form),
            (ProcessName::Weibull, Form::Variation(cv)) if !WEIBULL_CV.contains(&cv) => {
                let (least, most) = (WEIBULL_CV.start(), WEIBULL_CV.end());
                return Err((
                    "cv",
                    format!("is {cv}; for `weibull` it must be from {least} to {most}"),
                ));
            }
            (ProcessName::Weibull, form) => Process::Weibull(form),
        })
    }
}

impl DistributionSpec {
    /// Always the same number.
    pub fn constant(value: u32) -> Self {
        Self {
            kind: DistributionKind::Constant,
            params: [("value".to_owned(), f64::from(value))].into(),
        }
    }

    /// What draws the lengths.
    ///
    /// # Errors
    ///
    /// The field that is wrong (empty for the whole), and what would be right.
    pub fn lengths(&self) -> Result<Lengths, (String, String)> {
        if let Some((name, value)) = self.params.iter().find(|(_, value)| !value.is_finite()) {
            return Err(wrong(name, format!("is {value}; it must be a finite number")));
        }
        if self.kind == DistributionKind::Empirical {
            return self.empirical();
        }
        let (required, optional): (&[&str], &[&str]) = match self.kind {
            DistributionKind::Gaussian => (&["mean", "std_dev", "min", "max"], &[]),
            DistributionKind::Exponential => (&["mean"], &["min", "max"]),
            DistributionKind::Lognormal => (&["mu", "sigma"], &["min", "max"]),
            DistributionKind::ParetoLognormal => (&["alpha", "xm", "mu", "sigma", "mix_weight"], &[]),
            DistributionKind::Constant | DistributionKind::Empirical => (&["value"], &[]),
        };
        for name in self.params.keys() {
            if !required.contains(&name.as_str()) && !optional.contains(&name.as_str()) {
                let known: Vec<String> = required
                    .iter()
                    .chain(optional)
                    .map(|known| format!("`{known}`"))
                    .collect();
                return Err(wrong(name, format!("is not known; known here: {}", known.join(", "))));
            }
        }
        if let Some(name) = required.iter().find(|name| !self.params.contains_key(**name)) {
            return Err(("params".to_owned(), format!("`{name}` is missing")));
        }
        self.check_ranges()?;
        let get = |name: &str| self.params.get(name).copied().unwrap_or_default();
        let bounds = Bounds {
            min: self.params.get("min").copied(),
            max: self.params.get("max").copied(),
        };
        let log_normal = LogNormal {
            mu: get("mu"),
            sigma: get("sigma"),
            bounds,
        };
        Ok(match self.kind {
            DistributionKind::Gaussian => Lengths::Gaussian {
                mean: get("mean"),
                std_dev: get("std_dev"),
                min: get("min"),
                max: get("max"),
            },
            DistributionKind::Exponential => Lengths::Exponential {
                mean: get("mean"),
                bounds,
            },
            DistributionKind::Lognormal => Lengths::LogNormal(log_normal),
            DistributionKind::ParetoLognormal => Lengths::ParetoLogNormal {
                alpha: get("alpha"),
                least: get("xm"),
                log_normal,
                mix_weight: get("mix_weight"),
            },
            DistributionKind::Constant | DistributionKind::Empirical => Lengths::Constant(get("value") as u32),
        })
    }

    fn check_ranges(&self) -> Result<(), (String, String)> {
        for (name, &value) in &self.params {
            let least = match name.as_str() {
                "mu" => continue,
                "alpha" | "xm" => f64::MIN_POSITIVE,
                _ => 0.0,
            };
            let most = match name.as_str() {
                "mix_weight" => 1.0,
                "value" | "min" | "max" => f64::from(MOST_TOKENS),
                _ => f64::MAX,
            };
            if value < least {
                let rule = if least > 0.0 {
                    "must be above zero"
                } else {
                    "must not be negative"
                };
                return Err(wrong(name, format!("is {value}; it {rule}")));
            }
            if value > most {
                return Err(wrong(name, format!("is {value}; it must be at most {most}")));
            }
        }
        if let (Some(min), Some(max)) = (self.params.get("min"), self.params.get("max"))
            && min > max
        {
            return Err(wrong("min", format!("is {min}, above `max`, which is {max}")));
        }
        Ok(())
    }

    fn empirical(&self) -> Result<Lengths, (String, String)> {
        let mut shares = Vec::new();
        for (name, &share) in &self.params {
            let tokens = name.parse::<u32>().ok().filter(|&tokens| tokens <= MOST_TOKENS);
            let Some(tokens) = tokens else {
                return Err(wrong(
                    name,
                    format!("is no length; write a whole number up to {MOST_TOKENS}, and its share"),
                ));
            };
            if share < 0.0 {
                return Err(wrong(name, format!("has the share {share}; it must not be negative")));
            }
            shares.push((tokens, share));
        }
        let total: f64 = shares.iter().map(|&(_, share)| share).sum();
        if !(total.is_finite() && total > 0.0) {
            return Err((
                "params".to_owned(),
                "an empirical distribution needs lengths and shares above zero, such as `100: 0.5`".to_owned(),
            ));
        }
        Ok(Lengths::Empirical(Empirical::new(shares)))
    }
}

fn wrong(parameter: &str, message: String) -> (String, String) {
    (format!("params.{parameter}"), message)
}
