//! What holds for every fairness policy in the table.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;

use super::super::super::plugin::Needs;
use super::super::super::scheduling::testing::params_conform;
use super::testing::Band;
use super::{FairnessPolicy, TABLE};

#[test]
fn described_parameters_are_the_ones_that_are_accepted() {
    TABLE.iter().for_each(params_conform);
}

/// What happens to a band.
#[derive(Clone, Debug)]
enum Event {
    Arrive(u8),
    Release,
    End(u64),
    Pass(u64),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0_u8..6).prop_map(Event::Arrive),
        2 => Just(Event::Release),
        1 => (0_u64..5000).prop_map(Event::End),
        1 => (0_u64..600_000).prop_map(Event::Pass),
    ];
    proptest::collection::vec(event, 0..120)
}

/// The flows that are served while `events` happen and afterwards, until nothing waits.
fn served(policy: Box<dyn FairnessPolicy>, events: &[Event]) -> Vec<String> {
    let mut band = Band::new(policy);
    let mut served = Vec::new();
    let mut running = Vec::new();
    for event in events {
        match event {
            Event::Arrive(flow) => band.arrive(&flow.to_string()),
            Event::Release if band.is_empty() => {}
            Event::Release => {
                let flow = band.release();
                running.push(flow.clone());
                served.push(flow);
            }
            Event::End(tokens) => {
                if let Some(flow) = running.pop() {
                    band.end(&flow, *tokens, tokens / 2);
                }
            }
            Event::Pass(millis) => band.pass(Duration::from_millis(*millis)),
        }
    }
    served.extend(band.drain());
    served
}

proptest! {
    #[test]
    fn who_is_served_has_requests_and_everything_is_served_once(events in events()) {
        let mut arrived = BTreeMap::<_, usize>::new();
        for event in &events {
            if let Event::Arrive(flow) = event {
                *arrived.entry(flow.to_string()).or_default() += 1;
            }
        }

        for entry in TABLE {
            let mut counts = BTreeMap::<_, usize>::new();
            for flow in served(entry.instance(None, &mut Needs::default()).unwrap(), &events) {
                *counts.entry(flow).or_default() += 1;
            }

            prop_assert_eq!(&counts, &arrived, "{}", entry.type_name);
        }
    }

    #[test]
    fn equal_histories_have_equal_sequels(events in events()) {
        for entry in TABLE {
            let policy = || entry.instance(None, &mut Needs::default()).unwrap();

            prop_assert_eq!(served(policy(), &events), served(policy(), &events), "{}", entry.type_name);
        }
    }
}
