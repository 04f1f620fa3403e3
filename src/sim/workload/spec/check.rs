//! What is wrong with a description (spec, simulator 18.2).

use std::collections::BTreeMap;
use std::fmt;

use crate::engine::config::Severity;

use super::super::super::classes::Classes;
use super::super::lengths::MOST_TOKENS;
use super::{
    ArrivalSpec, ClientSpec, CohortSpec, ContextGrowth, DistributionSpec, GoodputTarget, InferencePerf, MOST_MEMBERS,
    MOST_USERS, MultiTurnSpec, MultimodalSpec, PREFIX_LENGTH, ReasoningSpec, VERSION, WindowSpec, WorkloadSpec,
};

/// Something that is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Whether the description cannot be used because of it.
    pub severity: Severity,
    /// Where, such as `clients[0].arrival.cv`. Empty for the whole.
    pub path: String,
    /// What was found, and what would be right.
    pub message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.message)
    }
}

/// Everything that is wrong with `spec`, which is of the newest version.
pub fn check(spec: &WorkloadSpec) -> Vec<Problem> {
    let mut checker = Checker::default();
    checker.whole(spec);
    for (at, client) in spec.clients.iter().enumerate() {
        checker.client(&format!("clients[{at}]"), client, spec.aggregate_rate);
    }
    for (at, cohort) in spec.cohorts.iter().enumerate() {
        checker.cohort(&format!("cohorts[{at}]"), cohort, spec.aggregate_rate);
    }
    if let Some(inference_perf) = &spec.inference_perf {
        checker.inference_perf(inference_perf);
    }
    checker.problems
}

#[derive(Debug, Default)]
struct Checker {
    problems: Vec<Problem>,
}

impl Checker {
    fn error(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem {
            severity: Severity::Error,
            path: path.into(),
            message: message.into(),
        });
    }

    fn warning(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem {
            severity: Severity::Warning,
            path: path.into(),
            message: message.into(),
        });
    }

    fn whole(&mut self, spec: &WorkloadSpec) {
        if spec.version != VERSION {
            let version = &spec.version;
            self.error(
                "version",
                format!("version \"{version}\" is not known; known are \"1\" and \"2\""),
            );
        }
        if spec.servegen_data.is_some() {
            self.error(
                "servegen_data",
                "ServeGen data cannot be read by this version; describe the load by `clients`, or replay a trace",
            );
        }
        let has_clients = !spec.clients.is_empty() || !spec.cohorts.is_empty();
        match (has_clients, &spec.inference_perf) {
            (true, Some(_)) => self.error("inference_perf", "stands beside `clients` or `cohorts`; give either"),
            (false, None) if spec.servegen_data.is_none() => {
                self.error(
                    "",
                    "nobody sends requests; give `clients`, `cohorts` or `inference_perf`",
                );
            }
            _ => {}
        }
        let rate = spec.aggregate_rate;
        if !(rate.is_finite() && rate >= 0.0) {
            self.error(
                "aggregate_rate",
                format!("is {rate}; it must be a number, zero or more"),
            );
        }
        self.classes(spec);
        self.loops(spec);
        self.prefixes(spec);
        for (class, target) in &spec.goodput_slo_targets {
            if *target == GoodputTarget::default() {
                let message = "has no effect without `ttft_ms`, `itl_ms` or `e2e_ms`";
                self.warning(format!("goodput_slo_targets.{class}"), message);
            }
            for (name, value) in [
                ("ttft_ms", target.ttft_ms),
                ("itl_ms", target.itl_ms),
                ("e2e_ms", target.e2e_ms),
            ] {
                let path = || format!("goodput_slo_targets.{class}.{name}");
                if let Some(value) = value.filter(|value| *value <= 0.0) {
                    self.error(path(), format!("is {value}; it must be above zero"));
                }
            }
        }
    }

    /// Either all have an SLO class or none.
    fn classes(&mut self, spec: &WorkloadSpec) {
        let clients = spec.clients.iter().map(|client| &client.slo_class).enumerate();
        let cohorts = spec.cohorts.iter().map(|cohort| &cohort.slo_class).enumerate();
        let all: Vec<(String, &String)> = clients
            .map(|(at, class)| (format!("clients[{at}]"), class))
            .chain(cohorts.map(|(at, class)| (format!("cohorts[{at}]"), class)))
            .collect();
        let some_have = all.iter().any(|(_, class)| !class.is_empty());
        for (path, class) in all {
            if class.is_empty() {
                if some_have {
                    self.error(
                        path,
                        "has no `slo_class` while others have one; give it to all or to none",
                    );
                }
            } else if !Classes::is_known(class) {
                let message = format!("`{class}` is not known; known here: {}", Classes::names());
                self.error(format!("{path}.slo_class"), message);
            }
        }
    }

    /// A group has the prefix of its first client.
    fn prefixes(&mut self, spec: &WorkloadSpec) {
        let mut groups = BTreeMap::new();
        for (at, client) in spec.clients.iter().enumerate() {
            let group = client.prefix_group.as_str();
            if group.is_empty() {
                continue;
            }
            let first = *groups
                .entry(group)
                .or_insert(client.prefix_length.unwrap_or(PREFIX_LENGTH));
            if let Some(length) = client.prefix_length.filter(|&length| length != first) {
                self.warning(
                    format!("clients[{at}].prefix_length"),
                    format!("is {length}, but that of group `{group}` is {first}, as its first client says"),
                );
            }
        }
    }

    /// Users and conversations do not go together.
    fn loops(&mut self, spec: &WorkloadSpec) {
        let has_turns = |reasoning: &Option<ReasoningSpec>| {
            let turns = reasoning.as_ref().and_then(|reasoning| reasoning.multi_turn.as_ref());
            turns.is_some()
        };
        let turns = spec.clients.iter().any(|client| has_turns(&client.reasoning))
            || spec.cohorts.iter().any(|cohort| has_turns(&cohort.reasoning));
        let users = spec.clients.iter().position(|client| client.concurrency.is_some());
        if let (true, Some(at)) = (turns, users) {
            self.error(
                format!("clients[{at}].concurrency"),
                "clients with `concurrency` and clients with `reasoning.multi_turn` cannot be mixed; make two workloads",
            );
        }
    }

    fn client(&mut self, path: &str, client: &ClientSpec, aggregate_rate: f64) {
        match (client.rate_fraction, client.concurrency) {
            (Some(_), Some(_)) => {
                self.error(
                    format!("{path}.concurrency"),
                    "stands beside `rate_fraction`; give either",
                );
            }
            (None, None) => self.error(path, "has neither `rate_fraction` nor `concurrency`; give one of them"),
            (None, Some(users)) if !(1..=MOST_USERS).contains(&users) => {
                let message = format!("is {users}; it must be from 1 to {MOST_USERS}");
                self.error(format!("{path}.concurrency"), message);
            }
            (None, Some(_)) => {
                for (name, there) in [
                    ("lifecycle", client.lifecycle.is_some()),
                    ("arrival", client.arrival.is_some()),
                ] {
                    if there {
                        self.warning(format!("{path}.{name}"), "has no effect on users (`concurrency`)");
                    }
                }
            }
            (Some(fraction), None) => self.rate(path, fraction, client.arrival.as_ref()),
        }
        if let (None, Some(_)) = (client.concurrency, client.think_time_us) {
            self.error(
                format!("{path}.think_time_us"),
                "is for users (`concurrency`); a conversation has `reasoning.multi_turn.think_time_us`",
            );
        }
        let common = Common {
            arrival: &client.arrival,
            input: &client.input_distribution,
            output: &client.output_distribution,
            prefix_group: &client.prefix_group,
            prefix_length: client.prefix_length,
            has_network: client.network.is_some(),
            multimodal: &client.multimodal,
            reasoning: &client.reasoning,
            closed_loop: client.closed_loop,
            timeout: client.timeout,
        };
        let windows_give = |get: fn(&WindowSpec) -> bool| {
            let windows = client.windows();
            !windows.is_empty() && windows.iter().all(get)
        };
        self.common(
            path,
            &common,
            windows_give(|window| window.input_distribution.is_some()),
            windows_give(|window| window.output_distribution.is_some()),
        );
        if client
            .lifecycle
            .as_ref()
            .is_some_and(|lifecycle| lifecycle.windows.is_empty())
        {
            self.warning(format!("{path}.lifecycle"), "has no effect without `windows`");
        }
        self.windows(path, client, aggregate_rate);
    }

    fn rate(&mut self, path: &str, fraction: f64, arrival: Option<&ArrivalSpec>) {
        if !(fraction.is_finite() && fraction > 0.0) {
            self.error(
                format!("{path}.rate_fraction"),
                format!("is {fraction}; it must be above zero"),
            );
        }
        if arrival.is_none() {
            self.error(
                path,
                "`arrival` is missing; give it, such as `arrival: {process: poisson}`",
            );
        }
    }

    fn windows(&mut self, path: &str, client: &ClientSpec, aggregate_rate: f64) {
        let windows = client.windows();
        let of = |at: usize, field: &str| format!("{path}.lifecycle.windows[{at}]{field}");
        for (at, window) in windows.iter().enumerate() {
            if window.end_us <= window.start_us {
                let (start, end) = (window.start_us, window.end_us);
                self.error(
                    of(at, ".end_us"),
                    format!("is {end}; it must be above `start_us`, which is {start}"),
                );
            }
            self.trace_rate(&of(at, ".trace_rate"), window.trace_rate);
            self.arrival(&of(at, ".arrival"), window.arrival.as_ref());
            self.distribution(&of(at, ".input_distribution"), window.input_distribution.as_ref());
            self.distribution(&of(at, ".output_distribution"), window.output_distribution.as_ref());
        }
        if aggregate_rate == 0.0 && client.rate_fraction.is_some() {
            if windows.is_empty() {
                self.error(
                    path,
                    "needs `lifecycle.windows` with a `trace_rate` each, because `aggregate_rate` is 0",
                );
            }
            for (at, _) in windows
                .iter()
                .enumerate()
                .filter(|(_, window)| window.trace_rate.is_none())
            {
                self.error(of(at, ""), "needs a `trace_rate`, because `aggregate_rate` is 0");
            }
        }
        if windows.iter().any(WindowSpec::has_its_own_way) {
            let mut order: Vec<usize> = (0..windows.len()).collect();
            order.sort_by_key(|&at| windows[at].start_us);
            for pair in order.windows(2) {
                let (first, second) = (pair[0], pair[1]);
                if windows[second].start_us < windows[first].end_us {
                    self.error(
                        of(second, ""),
                        format!(
                            "overlaps windows[{first}]; windows with a `trace_rate`, `arrival` or distributions of their \
                             own must lie apart, or belong to two clients"
                        ),
                    );
                }
            }
        }
    }

    fn cohort(&mut self, path: &str, cohort: &CohortSpec, aggregate_rate: f64) {
        if !(1..=MOST_MEMBERS).contains(&cohort.population) {
            let population = cohort.population;
            self.error(
                format!("{path}.population"),
                format!("is {population}; it must be from 1 to {MOST_MEMBERS}"),
            );
        }
        match cohort.rate_fraction {
            Some(fraction) => self.rate(path, fraction, cohort.arrival.as_ref()),
            None => self.error(path, "`rate_fraction` is missing"),
        }
        let common = Common {
            arrival: &cohort.arrival,
            input: &cohort.input_distribution,
            output: &cohort.output_distribution,
            prefix_group: &cohort.prefix_group,
            prefix_length: cohort.prefix_length,
            has_network: cohort.network.is_some(),
            multimodal: &cohort.multimodal,
            reasoning: &cohort.reasoning,
            closed_loop: cohort.closed_loop,
            timeout: cohort.timeout,
        };
        self.common(path, &common, false, false);
        if cohort.prefix_sharing.is_some() && cohort.prefix_group.is_empty() {
            self.warning(format!("{path}.prefix_sharing"), "has no effect without `prefix_group`");
        }
        if let Some(diurnal) = &cohort.diurnal {
            if diurnal.peak_hour > 23 {
                let hour = diurnal.peak_hour;
                self.error(
                    format!("{path}.diurnal.peak_hour"),
                    format!("is {hour}; it must be from 0 to 23"),
                );
            }
            let ratio = diurnal.peak_to_trough_ratio;
            if !(ratio.is_finite() && ratio >= 1.0) {
                let message = format!("is {ratio}; it must be 1 or more");
                self.error(format!("{path}.diurnal.peak_to_trough_ratio"), message);
            }
        }
        if let Some(spike) = &cohort.spike {
            if spike.duration_us == 0 {
                self.error(format!("{path}.spike.duration_us"), "is 0; it must be above zero");
            }
            self.trace_rate(&format!("{path}.spike.trace_rate"), spike.trace_rate);
            if spike.trace_rate.is_some() && (cohort.diurnal.is_some() || cohort.drain.is_some()) {
                self.error(
                    format!("{path}.spike.trace_rate"),
                    "cannot stand beside `diurnal` or `drain`; make two cohorts",
                );
            }
        }
        if cohort.drain.is_some_and(|drain| drain.ramp_duration_us == 0) {
            self.error(format!("{path}.drain.ramp_duration_us"), "is 0; it must be above zero");
        }
        if aggregate_rate == 0.0 {
            if cohort.spike.is_none_or(|spike| spike.trace_rate.is_none()) {
                self.error(path, "needs `spike` with a `trace_rate`, because `aggregate_rate` is 0");
            }
            for (name, there) in [("diurnal", cohort.diurnal.is_some()), ("drain", cohort.drain.is_some())] {
                if there {
                    self.error(format!("{path}.{name}"), "needs an `aggregate_rate` above 0");
                }
            }
        }
    }

    fn common(&mut self, path: &str, common: &Common<'_>, windows_give_input: bool, windows_give_output: bool) {
        self.arrival(&format!("{path}.arrival"), common.arrival.as_ref());
        self.distribution(&format!("{path}.input_distribution"), common.input.as_ref());
        self.distribution(&format!("{path}.output_distribution"), common.output.as_ref());
        if common.input.is_none() && common.multimodal.is_none() && !windows_give_input {
            self.error(path, "`input_distribution` is missing");
        }
        if common.output.is_none() && !windows_give_output {
            self.error(path, "`output_distribution` is missing");
        }
        match common.prefix_length {
            Some(_) if common.prefix_group.is_empty() => {
                self.warning(format!("{path}.prefix_length"), "has no effect without `prefix_group`");
            }
            Some(length) if length > MOST_TOKENS => {
                let message = format!("is {length}; it must be at most {MOST_TOKENS}");
                self.error(format!("{path}.prefix_length"), message);
            }
            _ => {}
        }
        if common.has_network {
            self.warning(format!("{path}.network"), "has no effect on a simulated run");
        }
        if let Some(multimodal) = common.multimodal {
            self.multimodal(&format!("{path}.multimodal"), multimodal);
        }
        if let Some(reasoning) = common.reasoning {
            let path = format!("{path}.reasoning");
            let ratio = reasoning.reason_ratio_distribution.as_ref();
            self.distribution(&format!("{path}.reason_ratio_distribution"), ratio);
            match &reasoning.multi_turn {
                None if ratio.is_none() => {
                    self.warning(
                        path,
                        "has no effect without `multi_turn` or `reason_ratio_distribution`",
                    );
                }
                Some(turns) if turns.max_rounds == 0 => self.error(
                    format!("{path}.multi_turn.max_rounds"),
                    "is 0 or missing; it must be 1 or more",
                ),
                Some(turns) if turns.max_rounds == 1 => self.conversation_of_one_turn(&path, turns),
                _ => {}
            }
        }
        let has_turns = common
            .reasoning
            .as_ref()
            .is_some_and(|reasoning| reasoning.multi_turn.is_some());
        if common.closed_loop.is_some() && !has_turns {
            self.warning(
                format!("{path}.closed_loop"),
                "has no effect without conversations (`reasoning.multi_turn`)",
            );
        }
        if common.timeout == Some(0) {
            self.error(
                format!("{path}.timeout"),
                "is 0; give microseconds, or a negative number for no timeout",
            );
        }
    }

    fn conversation_of_one_turn(&mut self, path: &str, turns: &MultiTurnSpec) {
        for (name, there) in [
            ("think_time_us", turns.think_time_us > 0),
            ("context_growth", turns.context_growth != ContextGrowth::None),
        ] {
            if there {
                let message = "has no effect on conversations of one turn (`max_rounds: 1`)";
                self.warning(format!("{path}.multi_turn.{name}"), message);
            }
        }
    }

    fn multimodal(&mut self, path: &str, multimodal: &MultimodalSpec) {
        let items = [
            (
                "image",
                &multimodal.image_distribution,
                &multimodal.image_count_distribution,
            ),
            (
                "audio",
                &multimodal.audio_distribution,
                &multimodal.audio_count_distribution,
            ),
            (
                "video",
                &multimodal.video_distribution,
                &multimodal.video_count_distribution,
            ),
        ];
        self.distribution(
            &format!("{path}.text_distribution"),
            multimodal.text_distribution.as_ref(),
        );
        for (name, length, count) in items {
            self.distribution(&format!("{path}.{name}_distribution"), length.as_ref());
            self.distribution(&format!("{path}.{name}_count_distribution"), count.as_ref());
            if count.is_some() && length.is_none() {
                let message = format!("has no effect without `{name}_distribution`");
                self.warning(format!("{path}.{name}_count_distribution"), message);
            }
        }
        if multimodal.text_distribution.is_none() && items.iter().all(|(_, length, _)| length.is_none()) {
            self.error(
                path,
                "has no distribution of lengths; give `text_distribution` or another one",
            );
        }
    }

    fn trace_rate(&mut self, path: &str, rate: Option<f64>) {
        if let Some(rate) = rate
            && !(rate.is_finite() && rate > 0.0)
        {
            self.error(path, format!("is {rate}; it must be above zero"));
        }
    }

    fn arrival(&mut self, path: &str, arrival: Option<&ArrivalSpec>) {
        match arrival.map(ArrivalSpec::process) {
            Some(Err((field, message))) => self.error(below(path, field), message),
            Some(Ok(process)) if process.is_too_uneven() => self.warning(
                path,
                "gaps of `gamma` with a `cv` above 10 (a `shape` below 0.01) are nearly all zero; poisson arrivals are taken \
                 instead",
            ),
            _ => {}
        }
    }

    fn distribution(&mut self, path: &str, distribution: Option<&DistributionSpec>) {
        if let Some(Err((field, message))) = distribution.map(DistributionSpec::lengths) {
            self.error(below(path, &field), message);
        }
    }

    fn inference_perf(&mut self, inference_perf: &InferencePerf) {
        if inference_perf.stages.is_empty() {
            self.error("inference_perf", "`stages` is missing; give rates and durations");
        }
        for (at, stage) in inference_perf.stages.iter().enumerate() {
            let path = format!("inference_perf.stages[{at}]");
            if !(stage.rate.is_finite() && stage.rate > 0.0) {
                let rate = stage.rate;
                self.error(format!("{path}.rate"), format!("is {rate}; it must be above zero"));
            }
            if stage.duration == 0 {
                self.error(format!("{path}.duration"), "is 0; it must be above zero");
            }
        }
        let prefix = &inference_perf.shared_prefix;
        let users = u64::from(prefix.num_unique_system_prompts) * u64::from(prefix.num_users_per_system_prompt);
        for (name, value) in [
            ("num_unique_system_prompts", prefix.num_unique_system_prompts),
            ("num_users_per_system_prompt", prefix.num_users_per_system_prompt),
            ("question_len", prefix.question_len),
            ("output_len", prefix.output_len),
        ] {
            if value == 0 {
                let path = format!("inference_perf.shared_prefix.{name}");
                self.error(path, "is 0 or missing; it must be 1 or more");
            }
        }
        if users > u64::from(MOST_MEMBERS) {
            self.error(
                "inference_perf.shared_prefix",
                format!("has {users} users in all; there may be {MOST_MEMBERS}"),
            );
        }
        for (name, value) in [
            ("system_prompt_len", prefix.system_prompt_len),
            ("question_len", prefix.question_len),
            ("output_len", prefix.output_len),
        ] {
            if value > MOST_TOKENS {
                let path = format!("inference_perf.shared_prefix.{name}");
                self.error(path, format!("is {value}; it must be at most {MOST_TOKENS}"));
            }
        }
    }
}

/// What clients and cohorts have in common.
#[derive(Debug)]
struct Common<'s> {
    arrival: &'s Option<ArrivalSpec>,
    input: &'s Option<DistributionSpec>,
    output: &'s Option<DistributionSpec>,
    prefix_group: &'s str,
    prefix_length: Option<u32>,
    has_network: bool,
    multimodal: &'s Option<MultimodalSpec>,
    reasoning: &'s Option<ReasoningSpec>,
    closed_loop: Option<bool>,
    timeout: Option<i64>,
}

fn below(path: &str, field: &str) -> String {
    if field.is_empty() {
        path.to_owned()
    } else {
        format!("{path}.{field}")
    }
}
