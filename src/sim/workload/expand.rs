//! Cohorts, and descriptions in the terms of inference-perf, become clients (spec, simulator 18.2 and 18.6).

use super::spec::{
    ArrivalSpec, ClientSpec, CohortSpec, ContextGrowth, DistributionSpec, DiurnalSpec, DrainSpec, InferencePerf,
    LifecycleSpec, MultiTurnSpec, PrefixSharing, ProcessName, ReasoningSpec, SharedPrefixSpec, SpikeSpec, WindowSpec,
    WorkloadSpec,
};

const SECOND_US: u64 = 1_000_000;
const HOUR_US: f64 = 3_600_000_000.0;
const HOURS: u32 = 24;

/// Steps in which a cohort drains.
const DRAIN_STEPS: u64 = 10;

/// The description with clients only, each of which has a name.
pub(super) fn expanded(spec: &WorkloadSpec) -> WorkloadSpec {
    let mut spec = match &spec.inference_perf {
        Some(inference_perf) => from_inference_perf(inference_perf, spec),
        None => spec.clone(),
    };
    for (at, client) in spec.clients.iter_mut().enumerate() {
        if client.id.is_empty() {
            client.id = format!("client-{at}");
        }
    }
    for (at, cohort) in std::mem::take(&mut spec.cohorts).iter().enumerate() {
        spec.clients
            .extend((0..cohort.population).map(|member| member_of(cohort, at, member)));
    }
    spec
}

fn member_of(cohort: &CohortSpec, at: usize, member: u32) -> ClientSpec {
    let name = match cohort.id.as_str() {
        "" => format!("cohort-{at}"),
        name => name.to_owned(),
    };
    let prefix_group = match cohort.prefix_sharing {
        Some(PrefixSharing::PerMember) if !cohort.prefix_group.is_empty() => {
            format!("{}-{member}", cohort.prefix_group)
        }
        _ => cohort.prefix_group.clone(),
    };
    let windows = windows(cohort);
    ClientSpec {
        id: format!("{name}-{member}"),
        tenant_id: cohort.tenant_id.clone(),
        slo_class: cohort.slo_class.clone(),
        model: cohort.model.clone(),
        adapter: cohort.adapter.clone(),
        rate_fraction: cohort.rate_fraction.map(|all| all / f64::from(cohort.population)),
        concurrency: None,
        think_time_us: None,
        arrival: cohort.arrival.clone(),
        input_distribution: cohort.input_distribution.clone(),
        output_distribution: cohort.output_distribution.clone(),
        prefix_group,
        prefix_length: cohort.prefix_length,
        streaming: cohort.streaming,
        network: cohort.network,
        lifecycle: (!windows.is_empty()).then_some(LifecycleSpec { windows }),
        multimodal: cohort.multimodal.clone(),
        reasoning: cohort.reasoning.clone(),
        timeout: cohort.timeout,
        slo_target_us: cohort.slo_target_us,
        closed_loop: cohort.closed_loop,
    }
}

fn windows(cohort: &CohortSpec) -> Vec<WindowSpec> {
    let mut windows = Vec::new();
    if let Some(diurnal) = &cohort.diurnal {
        windows.extend(day(diurnal));
    }
    if let Some(spike) = &cohort.spike {
        windows.push(burst(spike, cohort.population));
    }
    if let Some(drain) = &cohort.drain {
        windows.extend(end(drain));
    }
    windows
}

/// A window in each hour of the first day, the longer the closer to the peak.
fn day(diurnal: &DiurnalSpec) -> impl Iterator<Item = WindowSpec> {
    let trough = 1.0 / diurnal.peak_to_trough_ratio;
    let peak = f64::from(diurnal.peak_hour);
    (0..HOURS).filter_map(move |hour| {
        let angle = std::f64::consts::TAU * (f64::from(hour) - peak) / f64::from(HOURS);
        let share = (1.0 + libm::cos(angle)) / 2.0 * (1.0 - trough) + trough;
        let start = f64::from(hour) * HOUR_US;
        active(start as u64, (start + HOUR_US * share) as u64)
    })
}

fn burst(spike: &SpikeSpec, population: u32) -> WindowSpec {
    WindowSpec {
        start_us: spike.start_time_us,
        end_us: spike.start_time_us.saturating_add(spike.duration_us),
        trace_rate: spike.trace_rate.map(|all| all / f64::from(population)),
        ..WindowSpec::default()
    }
}

/// Activity until the start, and then in steps, of each of which a smaller part is active.
fn end(drain: &DrainSpec) -> impl Iterator<Item = WindowSpec> {
    let step = drain.ramp_duration_us / DRAIN_STEPS;
    let start = drain.start_time_us;
    let steps = (0..DRAIN_STEPS).filter_map(move |at| {
        let from = start.saturating_add(at * step);
        active(from, from.saturating_add(step / DRAIN_STEPS * (DRAIN_STEPS - at)))
    });
    active(0, start).into_iter().chain(steps)
}

fn active(start_us: u64, end_us: u64) -> Option<WindowSpec> {
    (end_us > start_us).then(|| WindowSpec {
        start_us,
        end_us,
        ..WindowSpec::default()
    })
}

/// Every user of every system prompt is a client.
pub(super) fn from_inference_perf(inference_perf: &InferencePerf, spec: &WorkloadSpec) -> WorkloadSpec {
    let chat = inference_perf.shared_prefix.enable_multi_turn_chat;
    let (aggregate_rate, clients) = match chat {
        true => chats(inference_perf),
        // Each window has a rate of its own.
        false => (0.0, single_requests(inference_perf)),
    };
    WorkloadSpec {
        aggregate_rate,
        clients,
        inference_perf: None,
        ..spec.clone()
    }
}

/// Clients that send single requests, exactly as many in each stage as rate times duration.
fn single_requests(inference_perf: &InferencePerf) -> Vec<ClientSpec> {
    let everyone = users(&inference_perf.shared_prefix).into_iter().enumerate();
    let with_windows = everyone.filter_map(|(index, client)| {
        let stages = stages(inference_perf).filter_map(|stage| {
            let requests = stage.requests_of(index);
            (requests > 0).then(|| WindowSpec {
                trace_rate: Some(requests as f64 / stage.duration as f64),
                ..stage.window()
            })
        });
        let windows: Vec<WindowSpec> = stages.collect();
        (!windows.is_empty()).then_some(ClientSpec {
            lifecycle: Some(LifecycleSpec { windows }),
            ..client
        })
    });
    with_windows.collect()
}

/// Clients with one conversation for each stage, of as many turns as the user's part of the stage's requests; and the rate
/// of all. The users take turns: each thinks for as long as all of them together need for one turn at the stage's rate.
/// Prompts have a fixed length, as inference-perf sends them: no turn repeats what was said before.
fn chats(inference_perf: &InferencePerf) -> (f64, Vec<ClientSpec>) {
    let several = inference_perf.stages.len() > 1;
    let users = users(&inference_perf.shared_prefix);
    let mut clients = Vec::new();
    for stage in stages(inference_perf) {
        let round_us = users.len() as f64 / stage.rate * SECOND_US as f64;
        for (index, user) in users.iter().enumerate() {
            let requests = stage.requests_of(index);
            if requests == 0 {
                continue;
            }
            let mut client = ClientSpec {
                reasoning: Some(ReasoningSpec {
                    reason_ratio_distribution: None,
                    multi_turn: Some(MultiTurnSpec {
                        max_rounds: u32::try_from(requests).unwrap_or(u32::MAX),
                        think_time_us: round_us as u64,
                        context_growth: ContextGrowth::None,
                        single_session: true,
                    }),
                }),
                ..user.clone()
            };
            if several {
                // Shares of one aggregate rate cannot give stages different rates. So the mean gap is written.
                client.id = format!("stage-{}-{}", stage.number, user.id);
                client.rate_fraction = Some(1.0);
                client.arrival = Some(ArrivalSpec {
                    scale: Some(round_us),
                    ..ArrivalSpec::of(ProcessName::Poisson)
                });
                client.lifecycle = Some(LifecycleSpec {
                    windows: vec![stage.window()],
                });
            }
            clients.push(client);
        }
    }
    let rates = inference_perf.stages.iter().map(|stage| stage.rate);
    (rates.sum(), clients)
}

/// All users of all system prompts, with nothing said of when they send.
fn users(prefix: &SharedPrefixSpec) -> Vec<ClientSpec> {
    let count = u64::from(prefix.num_unique_system_prompts) * u64::from(prefix.num_users_per_system_prompt);
    let of_prompt = |prompt: u32| {
        let group = format!("prompt-{prompt}");
        (0..prefix.num_users_per_system_prompt).map(move |user| ClientSpec {
            id: format!("{group}-user-{user}"),
            tenant_id: group.clone(),
            slo_class: "standard".to_owned(),
            rate_fraction: Some(1.0 / count as f64),
            arrival: Some(ArrivalSpec::of(ProcessName::Poisson)),
            input_distribution: Some(DistributionSpec::constant(prefix.question_len)),
            output_distribution: Some(DistributionSpec::constant(prefix.output_len)),
            prefix_group: if prefix.system_prompt_len > 0 {
                group.clone()
            } else {
                String::new()
            },
            prefix_length: (prefix.system_prompt_len > 0).then_some(prefix.system_prompt_len),
            ..ClientSpec::default()
        })
    };
    (0..prefix.num_unique_system_prompts).flat_map(of_prompt).collect()
}

/// A stage of a load, and when it is.
#[derive(Clone, Copy, Debug)]
struct Stage {
    number: usize,
    start_us: u64,
    end_us: u64,
    /// Seconds.
    duration: u64,
    /// Requests per second of all users.
    rate: f64,
    users: u64,
}

fn stages(inference_perf: &InferencePerf) -> impl Iterator<Item = Stage> {
    let prefix = &inference_perf.shared_prefix;
    let users = u64::from(prefix.num_unique_system_prompts) * u64::from(prefix.num_users_per_system_prompt);
    let mut end_us = 0_u64;
    inference_perf.stages.iter().enumerate().map(move |(number, stage)| {
        let start_us = end_us;
        end_us = start_us.saturating_add(stage.duration.saturating_mul(SECOND_US));
        Stage {
            number,
            start_us,
            end_us,
            duration: stage.duration,
            rate: stage.rate,
            users,
        }
    })
}

impl Stage {
    /// Requests of one user. They are dealt out evenly; what is left over goes to the first users.
    fn requests_of(&self, index: usize) -> u64 {
        let all = (self.rate * self.duration as f64) as u64;
        all / self.users + u64::from((index as u64) < all % self.users)
    }

    fn window(&self) -> WindowSpec {
        WindowSpec {
            start_us: self.start_us,
            end_us: self.end_us,
            ..WindowSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::StageSpec;
    use super::*;

    fn spans(cohort: &CohortSpec) -> Vec<(u64, u64)> {
        let windows = windows(cohort);
        windows.iter().map(|window| (window.start_us, window.end_us)).collect()
    }

    #[test]
    fn the_hours_of_a_day_are_longest_at_the_peak_and_shortest_half_a_day_away() {
        let cohort = CohortSpec {
            diurnal: Some(DiurnalSpec {
                peak_hour: 14,
                peak_to_trough_ratio: 4.0,
            }),
            ..CohortSpec::default()
        };

        let lengths: Vec<u64> = spans(&cohort).iter().map(|(start, end)| end - start).collect();

        assert_eq!(lengths.len(), 24);
        assert_eq!((lengths[14], lengths[2]), (3_600_000_000, 900_000_000));
        assert_eq!(lengths[13], lengths[15]);
    }

    #[test]
    fn a_drain_is_active_until_its_start_and_then_less_and_less() {
        let cohort = CohortSpec {
            drain: Some(DrainSpec {
                start_time_us: 500,
                ramp_duration_us: 1000,
            }),
            ..CohortSpec::default()
        };

        let spans = spans(&cohort);

        assert_eq!(spans[..3], [(0, 500), (500, 600), (600, 690)]);
        assert_eq!(spans[10], (1400, 1410));
    }

    #[test]
    fn members_divide_the_share_and_the_rate_of_their_cohort() {
        let cohort = CohortSpec {
            id: "crowd".to_owned(),
            population: 4,
            rate_fraction: Some(1.0),
            prefix_group: "p".to_owned(),
            prefix_sharing: Some(PrefixSharing::PerMember),
            spike: Some(SpikeSpec {
                start_time_us: 10,
                duration_us: 5,
                trace_rate: Some(8.0),
            }),
            ..CohortSpec::default()
        };
        let spec = expanded(&WorkloadSpec {
            cohorts: vec![cohort],
            ..WorkloadSpec::default()
        });

        let last = &spec.clients[3];
        assert_eq!((spec.clients.len(), spec.cohorts.len()), (4, 0));
        assert_eq!((last.id.as_str(), last.prefix_group.as_str()), ("crowd-3", "p-3"));
        assert_eq!(last.rate_fraction, Some(0.25));
        assert_eq!(last.windows()[0].trace_rate, Some(2.0));
    }

    #[test]
    fn the_requests_of_a_stage_are_dealt_out_evenly() {
        let inference_perf = InferencePerf {
            stages: vec![StageSpec { rate: 2.5, duration: 4 }],
            shared_prefix: SharedPrefixSpec {
                num_unique_system_prompts: 2,
                num_users_per_system_prompt: 2,
                system_prompt_len: 100,
                question_len: 5,
                output_len: 6,
                enable_multi_turn_chat: true,
            },
        };
        let spec = expanded(&WorkloadSpec {
            inference_perf: Some(inference_perf),
            ..WorkloadSpec::default()
        });

        let rounds: Vec<u32> = spec
            .clients
            .iter()
            .map(|client| client.multi_turn().unwrap().max_rounds)
            .collect();
        assert_eq!(rounds, [3, 3, 2, 2]);
        assert_eq!(spec.clients[2].multi_turn().unwrap().think_time_us, 1_600_000);
        assert_eq!(
            (spec.clients[3].id.as_str(), spec.clients[3].tenant_id.as_str()),
            ("prompt-1-user-1", "prompt-1")
        );
    }

    #[test]
    fn each_stage_of_chats_has_conversations_and_a_mean_gap_of_its_own() {
        let inference_perf = InferencePerf {
            stages: vec![
                StageSpec { rate: 0.5, duration: 4 },
                StageSpec { rate: 3.0, duration: 2 },
            ],
            shared_prefix: SharedPrefixSpec {
                num_unique_system_prompts: 3,
                num_users_per_system_prompt: 1,
                question_len: 5,
                output_len: 6,
                enable_multi_turn_chat: true,
                ..SharedPrefixSpec::default()
            },
        };
        let spec = expanded(&WorkloadSpec {
            inference_perf: Some(inference_perf),
            ..WorkloadSpec::default()
        });

        let of = |client: &ClientSpec| {
            let (turns, window) = (client.multi_turn().unwrap(), &client.windows()[0]);
            let scale = client.arrival.as_ref().and_then(|arrival| arrival.scale).unwrap();
            (
                client.id.clone(),
                turns.max_rounds,
                turns.think_time_us,
                scale,
                window.start_us,
            )
        };
        let told: Vec<_> = spec.clients.iter().map(of).collect();
        let first = |user: &str| (format!("stage-0-prompt-{user}-user-0"), 1, 6_000_000, 6e6, 0);
        let second = |user: &str| (format!("stage-1-prompt-{user}-user-0"), 2, 1_000_000, 1e6, 4_000_000);
        assert_eq!(told, [first("0"), first("1"), second("0"), second("1"), second("2")]);
        assert_eq!(spec.aggregate_rate, 3.5);
    }
}
