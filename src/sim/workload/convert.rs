//! Descriptions made of others (spec, simulator 20), and descriptions as text.

use super::super::yaml;
use super::expand;
use super::flags::{FlagWorkload, Load, Preset};
use super::spec::{ProcessName, WorkloadSpec};

impl WorkloadSpec {
    /// The text of the description.
    pub fn to_yaml(&self) -> String {
        yaml::write(self)
    }
}

/// The description of a preset at a rate.
pub fn preset(preset: Preset, per_second: f64, num_requests: u64) -> WorkloadSpec {
    let flags = FlagWorkload {
        load: Load::Rate {
            per_second,
            arrival: ProcessName::Constant,
        },
        num_requests: Some(num_requests),
        ..FlagWorkload::of(preset)
    };
    flags.spec()
}

/// A description in the terms of inference-perf becomes one of clients. Any other stays what it is.
pub fn inference_perf(spec: &WorkloadSpec) -> WorkloadSpec {
    match &spec.inference_perf {
        Some(inference_perf) => expand::from_inference_perf(inference_perf, spec),
        None => spec.clone(),
    }
}

/// Why descriptions cannot become one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComposeError {
    /// There is nothing to compose.
    #[error("there is no workload to compose; give at least one")]
    None,
    /// Two say something different of the whole.
    #[error(
        "workload {first} has `{field}` {of_first} and workload {second} has {of_second}; give one value to all, or leave \
         it out of all but one"
    )]
    Conflict {
        /// What they disagree on.
        field: &'static str,
        /// The one, counted from 1.
        first: usize,
        /// What it says.
        of_first: String,
        /// The other, counted from 1.
        second: usize,
        /// What that says.
        of_second: String,
    },
    /// Some have an aggregate rate, and others have rates in each window.
    #[error(
        "workload {without} has an `aggregate_rate` of 0, and workload {with} has one above; rates of the one kind cannot \
         be turned into the other"
    )]
    Rates {
        /// One without, counted from 1.
        without: usize,
        /// One with, counted from 1.
        with: usize,
    },
}

/// What is lost where descriptions become one, for people.
pub fn lost(specs: &[WorkloadSpec]) -> Option<String> {
    let specs: Vec<WorkloadSpec> = specs.iter().map(inference_perf).collect();
    let without = specs.iter().position(|spec| spec.num_requests.is_none())?;
    let with = specs.iter().position(|spec| spec.num_requests.is_some())?;
    Some(format!(
        "`num_requests` of workload {} is left out: workload {} has none, so there is no sum; give it to all, or bound the \
         whole by `horizon`",
        with + 1,
        without + 1
    ))
}

/// All clients and cohorts of all descriptions as one. Each client keeps the rate that it has while all are active:
/// aggregate rates are added up, and each share is multiplied by its description's share of the whole. The numbers of
/// requests are added up if all have one; seed, horizon, category and targets must not contradict each other.
///
/// # Errors
///
/// See [`ComposeError`].
pub fn compose(specs: &[WorkloadSpec]) -> Result<WorkloadSpec, ComposeError> {
    let specs: Vec<WorkloadSpec> = specs.iter().map(inference_perf).collect();
    let Some(first) = specs.first() else {
        return Err(ComposeError::None);
    };
    let aggregate_rate: f64 = specs.iter().map(|spec| spec.aggregate_rate).sum();
    if aggregate_rate > 0.0
        && let Some(without) = specs.iter().position(has_rates_of_its_own)
    {
        let with = specs
            .iter()
            .position(|spec| spec.aggregate_rate > 0.0)
            .unwrap_or_default();
        return Err(ComposeError::Rates {
            without: without + 1,
            with: with + 1,
        });
    }
    let mut whole = WorkloadSpec {
        version: first.version.clone(),
        seed: agreed("seed", &specs, |spec| spec.seed)?,
        category: agreed("category", &specs, |spec| spec.category)?,
        horizon: agreed("horizon", &specs, |spec| spec.horizon)?,
        num_requests: specs
            .iter()
            .try_fold(0_u64, |sum, spec| Some(sum.saturating_add(spec.num_requests?))),
        aggregate_rate,
        ..WorkloadSpec::default()
    };
    for spec in &specs {
        let share = if aggregate_rate > 0.0 {
            spec.aggregate_rate / aggregate_rate / fractions(spec)
        } else {
            1.0
        };
        whole.clients.extend(spec.clients.iter().cloned().map(|mut client| {
            client.rate_fraction = client.rate_fraction.map(|fraction| fraction * share);
            for window in client.lifecycle.iter_mut().flat_map(|lifecycle| &mut lifecycle.windows) {
                window.trace_rate = window.trace_rate.map(|rate| rate * share);
            }
            client
        }));
        whole.cohorts.extend(spec.cohorts.iter().cloned().map(|mut cohort| {
            cohort.rate_fraction = cohort.rate_fraction.map(|fraction| fraction * share);
            if let Some(spike) = &mut cohort.spike {
                spike.trace_rate = spike.trace_rate.map(|rate| rate * share);
            }
            cohort
        }));
    }
    for class in specs.iter().flat_map(|spec| spec.goodput_slo_targets.keys()) {
        let target = agreed("goodput_slo_targets", &specs, |spec| {
            spec.goodput_slo_targets.get(class).copied()
        })?;
        whole
            .goodput_slo_targets
            .extend(target.map(|target| (class.clone(), target)));
    }
    Ok(whole)
}

/// Whether it has clients with rates, and no aggregate rate of which these are shares.
fn has_rates_of_its_own(spec: &WorkloadSpec) -> bool {
    let rates = spec.clients.iter().any(|client| client.rate_fraction.is_some());
    spec.aggregate_rate == 0.0 && (rates || !spec.cohorts.is_empty())
}

/// The sum of all shares, by which they are divided where they are used.
fn fractions(spec: &WorkloadSpec) -> f64 {
    let clients = spec.clients.iter().filter_map(|client| client.rate_fraction);
    let cohorts = spec.cohorts.iter().filter_map(|cohort| cohort.rate_fraction);
    let sum: f64 = clients.chain(cohorts).sum();
    if sum > 0.0 { sum } else { 1.0 }
}

/// What all say that say anything.
fn agreed<T: PartialEq + std::fmt::Debug>(
    field: &'static str,
    specs: &[WorkloadSpec],
    get: impl Fn(&WorkloadSpec) -> Option<T>,
) -> Result<Option<T>, ComposeError> {
    let mut said: Option<(usize, T)> = None;
    for (at, value) in specs.iter().enumerate() {
        let Some(value) = get(value) else { continue };
        match &said {
            None => said = Some((at, value)),
            Some((_, known)) if *known == value => {}
            Some((first, known)) => {
                return Err(ComposeError::Conflict {
                    field,
                    first: first + 1,
                    of_first: format!("{known:?}"),
                    second: at + 1,
                    of_second: format!("{value:?}"),
                });
            }
        }
    }
    Ok(said.map(|(_, value)| value))
}

#[cfg(test)]
mod tests {
    use super::super::spec::{self, CohortSpec};
    use super::*;
    use crate::engine::config::SourceName;

    fn chatbot(per_second: f64) -> WorkloadSpec {
        preset(Preset::Chatbot, per_second, 10)
    }

    #[test]
    fn a_preset_is_read_as_it_was_written() {
        for preset in Preset::ALL {
            let spec = super::preset(preset, 2.5, 7);
            let text = spec.to_yaml();

            let loaded = spec::load(&text, &SourceName::Flag).unwrap();

            assert_eq!(loaded.spec, spec, "{text}");
            assert!(loaded.warnings.is_empty());
        }
    }

    #[test]
    fn the_text_of_a_preset_is_one_that_people_would_write() {
        assert_eq!(
            chatbot(2.5).to_yaml(),
            "version: \"2\"
aggregate_rate: 2.5
num_requests: 10
clients:
  - id: distribution
    rate_fraction: 1.0
    arrival:
      process: constant
    input_distribution:
      type: gaussian
      params:
        max: 800.0
        mean: 256.0
        min: 2.0
        std_dev: 100.0
    output_distribution:
      type: gaussian
      params:
        max: 1024.0
        mean: 256.0
        min: 1.0
        std_dev: 100.0
    timeout: 300000000
"
        );
    }

    #[test]
    fn what_is_converted_from_inference_perf_is_sound() {
        let text = "
version: 2
inference_perf:
  stages: [{rate: 3, duration: 7}]
  shared_prefix: {num_unique_system_prompts: 2, num_users_per_system_prompt: 2, system_prompt_len: 9, question_len: 2,
    output_len: 3, enable_multi_turn_chat: true}
";
        let spec = spec::load(text, &SourceName::Flag).unwrap().spec;

        let converted = inference_perf(&spec);

        assert_eq!(spec::check(&converted), []);
        let again = spec::load(&converted.to_yaml(), &SourceName::Flag).unwrap().spec;
        assert_eq!(again, converted);
    }

    #[test]
    fn composed_clients_keep_their_rates_and_cohorts_are_kept() {
        let mut crowd = chatbot(30.0);
        crowd.seed = Some(5);
        crowd.cohorts = vec![CohortSpec {
            rate_fraction: Some(4.0),
            population: 3,
            ..CohortSpec::default()
        }];

        let whole = compose(&[chatbot(10.0), crowd]).unwrap();

        assert_eq!(
            (whole.aggregate_rate, whole.num_requests, whole.seed),
            (40.0, Some(20), Some(5))
        );
        let rates: Vec<f64> = whole
            .clients
            .iter()
            .map(|client| client.rate_fraction.unwrap() * 40.0)
            .collect();
        assert_eq!((rates[0], rates[1].round()), (10.0, 6.0));
        assert_eq!((whole.cohorts[0].rate_fraction.unwrap() * 40.0).round(), 24.0);
    }

    #[test]
    fn what_contradicts_itself_is_not_composed() {
        let seeded = |seed| WorkloadSpec { seed, ..chatbot(1.0) };
        let error = |specs: &[WorkloadSpec]| compose(specs).unwrap_err().to_string();

        assert!(
            error(&[seeded(Some(1)), seeded(None), seeded(Some(2))])
                .starts_with("workload 1 has `seed` 1 and workload 3 has 2;")
        );
        assert!(error(&[chatbot(1.0), chatbot(0.0)]).starts_with("workload 2 has an `aggregate_rate` of 0"));
        assert!(error(&[]).contains("at least one"));
    }

    #[test]
    fn a_number_of_requests_that_some_have_is_told_to_be_lost() {
        let endless = WorkloadSpec {
            num_requests: None,
            ..chatbot(1.0)
        };

        assert_eq!(lost(&[chatbot(1.0), chatbot(2.0)]), None);
        assert_eq!(lost(&[endless.clone(), endless.clone()]), None);
        let told = lost(&[endless, chatbot(1.0)]).unwrap();
        assert!(
            told.starts_with("`num_requests` of workload 2 is left out: workload 1 has none"),
            "{told}"
        );
    }
}
