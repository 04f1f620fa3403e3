use std::net::SocketAddr;

use proptest::prelude::*;

use super::*;

fn endpoint(name: &str, socket: &str) -> Arc<Endpoint> {
    let socket: SocketAddr = socket.parse().unwrap();
    Arc::new(Endpoint {
        id: EndpointId::new("default", name),
        name: name.into(),
        address: socket.ip(),
        port: socket.port(),
        labels: BTreeMap::new(),
        rank: 0,
    })
}

fn pool(endpoints: &[(&str, &str)]) -> Pool {
    let mut pool = Pool::default();
    for (name, socket) in endpoints {
        pool.upsert(Timestamp::ZERO, endpoint(name, socket));
    }
    pool
}

fn selected(pool: &Pool, subset: &Subset) -> Vec<String> {
    let mut slots = Vec::new();
    pool.select(subset, &mut slots);
    slots.iter().map(|&slot| pool[slot].endpoint.name.to_string()).collect()
}

fn only(entries: &[&str]) -> Subset {
    let entry = |text: &&str| match text.parse() {
        Ok(socket) => SubsetEntry::Socket(socket),
        Err(_) => SubsetEntry::Host(text.parse().unwrap()),
    };
    Subset::Only(entries.iter().map(entry).collect())
}

#[test]
fn endpoints_come_in_order_of_id_whatever_order_they_arrived_in() {
    let pool = pool(&[("c", "10.0.0.3:80"), ("a", "10.0.0.1:80"), ("b", "10.0.0.2:80")]);

    assert_eq!(selected(&pool, &Subset::All), ["a", "b", "c"]);
}

#[test]
fn a_hint_with_a_port_names_one_rank_and_without_one_names_the_host() {
    let pool = pool(&[("a-0", "10.0.0.1:80"), ("a-1", "10.0.0.1:81"), ("b", "[fd00::1]:80")]);

    assert_eq!(selected(&pool, &only(&["10.0.0.1:81"])), ["a-1"]);
    assert_eq!(selected(&pool, &only(&["10.0.0.1"])), ["a-0", "a-1"]);
    assert_eq!(selected(&pool, &only(&["[fd00::1]:80"])), ["b"]);
    assert_eq!(selected(&pool, &only(&["fd00::1"])), ["b"]);
}

#[test]
fn a_hint_whose_port_nobody_has_stands_for_its_host() {
    let pool = pool(&[("a", "10.0.0.1:80"), ("b", "10.0.0.2:80")]);

    assert_eq!(selected(&pool, &only(&["10.0.0.1:9"])), ["a"]);
}

#[test]
fn an_empty_hint_allows_nobody() {
    let pool = pool(&[("a", "10.0.0.1:80")]);

    assert!(selected(&pool, &only(&[])).is_empty());
}

#[test]
fn an_endpoint_with_a_new_description_keeps_what_is_known_of_it() {
    let mut pool = pool(&[("a", "10.0.0.1:80")]);
    let id = EndpointId::new("default", "a");
    pool.report(
        &id,
        SignalUpdate {
            waiting: Some(3),
            ..SignalUpdate::default()
        },
    );
    let slot = pool.upsert(Timestamp::ZERO, endpoint("a", "10.0.0.9:80"));

    assert_eq!(pool[slot].signals.waiting, 3);
    assert_eq!(pool[slot].endpoint.socket().to_string(), "10.0.0.9:80");
}

#[test]
fn a_report_says_only_what_it_mentions_and_an_older_one_says_nothing() {
    let at = Timestamp::from_nanos;
    let mut signals = Signals::default();
    let update = |nanos, waiting, running| SignalUpdate {
        at: at(nanos),
        waiting,
        running,
        ..SignalUpdate::default()
    };

    signals.apply(update(10, Some(1), Some(2)));
    signals.apply(update(20, Some(5), None));
    signals.apply(update(15, Some(9), Some(9)));
    signals.apply(update(30, None, None));

    assert_eq!((signals.waiting, signals.running, signals.at), (5, 2, Some(at(20))));
}

proptest! {
    #[test]
    fn a_slot_belongs_to_one_endpoint_and_stays_with_it(
        steps in proptest::collection::vec((0_u8..6, any::<bool>()), 1..80),
    ) {
        let mut pool = Pool::default();
        let mut known: BTreeMap<String, Slot> = BTreeMap::new();

        for (n, add) in steps {
            let name = format!("e{n}");
            if add {
                let slot = pool.upsert(Timestamp::ZERO, endpoint(&name, "10.0.0.1:80"));
                prop_assert!(known.get(&name).is_none_or(|&before| before == slot));
                known.insert(name, slot);
            } else {
                let removed = pool.remove(&EndpointId::new("default", &name)).map(|(slot, _)| slot);
                prop_assert_eq!(removed, known.remove(&name));
            }
            let held: Vec<_> = pool.iter().map(|(slot, m)| (m.endpoint.name.to_string(), slot)).collect();
            prop_assert_eq!(held, known.clone().into_iter().collect::<Vec<_>>());
        }
    }
}
