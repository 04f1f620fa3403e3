//! Records made by hand.

use std::sync::Arc;

use super::options::ReportOptions;
use crate::sim::record::{Counts, End, InstanceTotals, RequestRecord, RunRecord};
use crate::sim::request::{Client, RequestName};

/// A request that was rejected.
pub(super) fn request(number: u64) -> RequestRecord {
    RequestRecord {
        name: RequestName::Numbered(number),
        client: Arc::new(Client::default()),
        session: None,
        arrival_us: number * 1_000,
        prompt_tokens: 32,
        output_tokens: 0,
        cached_tokens: 0,
        end: End::Rejected,
        instance: None,
        gateway_delay_us: None,
        scheduling_delay_us: None,
        ttft_us: None,
        itl_sum_us: 0,
        e2e_us: None,
        length_capped: false,
    }
}

/// A request with three tokens that was completed on the first instance.
pub(super) fn completed(number: u64, ttft_us: u64, e2e_us: u64) -> RequestRecord {
    RequestRecord {
        output_tokens: 3,
        end: End::Completed,
        instance: Some(0),
        scheduling_delay_us: Some(ttft_us / 2),
        ttft_us: Some(ttft_us),
        itl_sum_us: e2e_us - ttft_us,
        e2e_us: Some(e2e_us),
        ..request(number)
    }
}

fn with_client(mut request: RequestRecord, change: impl FnOnce(&mut Client)) -> RequestRecord {
    change(Arc::make_mut(&mut request.client));
    request
}

pub(super) fn of_class(request: RequestRecord, class: &str) -> RequestRecord {
    with_client(request, |client| client.slo_class = Arc::from(class))
}

pub(super) fn of_tenant(request: RequestRecord, tenant: &str) -> RequestRecord {
    with_client(request, |client| client.tenant = Arc::from(tenant))
}

pub(super) fn of_model(request: RequestRecord, model: &str) -> RequestRecord {
    with_client(request, |client| client.model = Arc::from(model))
}

pub(super) fn on_instance(mut request: RequestRecord, instance: u32) -> RequestRecord {
    request.instance = Some(instance);
    request
}

/// The run of section 36.5 of the specification: three requests, one after the other, on one instance.
pub(super) fn hand_checkable_run() -> (RunRecord, ReportOptions) {
    let mut gaps = Counts::default();
    (0..6).for_each(|_| gaps.add(12_209));
    let record = RunRecord {
        requests: (0..3)
            .map(|number| RequestRecord {
                arrival_us: (number + 1) * 99_999,
                scheduling_delay_us: Some(15_563),
                itl_sum_us: 2 * 12_209,
                ..completed(number, 27_899, 53_094)
            })
            .collect(),
        instances: vec![InstanceTotals {
            input_tokens: 96,
            block_misses: 6,
            steps: 9,
            ..InstanceTotals::default()
        }],
        itl: vec![(Arc::from(""), gaps.clone())],
        instance_itl: vec![gaps],
        end_us: 352_179,
        ..RunRecord::default()
    };
    let options = ReportOptions {
        num_requests: 3,
        ..ReportOptions::default()
    };
    (record, options)
}

/// A run of two instances with a request in each bucket. Its first request is completed.
pub(super) fn mixed_run() -> RunRecord {
    let classes = ["critical", "standard", ""];
    let requests: Vec<_> = (0..)
        .zip(End::ALL)
        .map(|(number, end)| {
            let done = completed(number, 20_000 + 1_000 * number, 60_000);
            let started = RequestRecord {
                e2e_us: None,
                end,
                ..done.clone()
            };
            let request = match end {
                End::Completed => done,
                End::StillRunning => started,
                End::StillQueued | End::Dropped | End::TimedOut | End::GatewayEvicted | End::Failed => RequestRecord {
                    end,
                    instance: Some(1),
                    ..request(number)
                },
                _ => RequestRecord { end, ..request(number) },
            };
            let at = usize::try_from(number).expect("there are few");
            of_tenant(of_class(request, classes[at % 3]), ["blue", "red"][at % 2])
        })
        .collect();
    let mut gaps = Counts::default();
    gaps.add(15_000);
    gaps.add(25_000);
    RunRecord {
        requests,
        instances: vec![
            InstanceTotals {
                preemptions: 1,
                block_hits: 3,
                block_misses: 1,
                input_tokens: 64,
                steps: 4,
                waiting_sum: 2,
                kv_allocations_refused: 1,
                peak_kv_blocks: 7,
            },
            InstanceTotals {
                block_misses: 2,
                input_tokens: 96,
                steps: 2,
                waiting_sum: 8,
                ..InstanceTotals::default()
            },
        ],
        itl: vec![(Arc::from("critical"), gaps.clone())],
        instance_itl: vec![gaps, Counts::default()],
        end_us: 2_000_000,
        ..RunRecord::default()
    }
}
