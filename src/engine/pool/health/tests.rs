use super::*;

const SETTINGS: OutlierDetection = OutlierDetection {
    consecutive_failures: 3,
    base_ejection_time: Duration::from_secs(10),
    max_ejection_time: Duration::from_secs(25),
    max_ejection_percent: 50,
};

fn at(millis: u64) -> Timestamp {
    Timestamp::ZERO + Duration::from_millis(millis)
}

/// An endpoint whose metrics were read at the start.
struct Endpoint {
    health: Health,
    metrics: Option<Timestamp>,
}

impl Endpoint {
    fn scraped() -> Self {
        let mut endpoint = Self::unscraped();
        endpoint.scrape(0);
        endpoint
    }

    fn unscraped() -> Self {
        let mut health = Health::default();
        health.settle(Timestamp::ZERO);
        Self { health, metrics: None }
    }

    fn scrape(&mut self, millis: u64) {
        self.metrics = Some(at(millis));
        self.health.reported();
        self.health
            .scraped(at(millis), Scrape::Succeeded, Duration::ZERO, &SETTINGS);
        self.health.settle(at(millis));
    }

    /// A scrape that took a second fails.
    fn scrape_fails(&mut self, millis: u64, failure: ScrapeFailure) {
        let began = Timestamp::ZERO + Duration::from_millis(millis.saturating_sub(1000));
        let age = self.metrics.map_or(Duration::MAX, |metrics| at(millis).since(metrics));
        self.health
            .scraped(at(millis), Scrape::Failed { failure, began }, age, &SETTINGS);
        self.health.settle(at(millis));
    }

    fn chosen(&mut self, millis: u64) {
        self.health.chosen(at(millis));
        self.health.settle(at(millis));
    }

    fn answers(&mut self, millis: u64, sent: u64) {
        self.health.answered(at(millis), at(sent));
        self.health.ended(at(millis), at(sent), &SETTINGS);
        self.health.settle(at(millis));
    }

    fn fails(&mut self, millis: u64, sent: u64) -> bool {
        let failure = RequestFailure::Connect;
        let ejects = self.health.failed(at(millis), at(sent), failure, &SETTINGS, true);
        self.health.ended(at(millis), at(sent), &SETTINGS);
        self.health.settle(at(millis));
        ejects
    }

    /// The state and the tier at a time.
    fn is(&mut self, millis: u64) -> (EndpointState, Tier) {
        self.health.settle(at(millis));
        (self.health.state(), self.health.tier())
    }
}

use EndpointState::{Ejected, Healthy, Stale, Unreachable, Unscraped};

#[test]
fn an_endpoint_is_healthy_once_its_metrics_were_read() {
    let mut endpoint = Endpoint::unscraped();
    assert_eq!(endpoint.is(0), (Unscraped, Tier::Unknown));

    endpoint.scrape(50);

    assert_eq!(endpoint.is(50), (Healthy, Tier::Usable));
    assert_eq!(endpoint.health.reason(), None);
    assert_eq!(endpoint.health.since(), at(50));
}

#[test]
fn the_first_refused_connection_makes_an_endpoint_unreachable_and_the_first_scrape_brings_it_back() {
    let mut endpoint = Endpoint::scraped();

    endpoint.scrape_fails(50, ScrapeFailure::Refused);
    assert_eq!(endpoint.is(50), (Unreachable, Tier::Unreachable));
    assert!(endpoint.health.standing().is_gone);
    endpoint.scrape(100);

    assert_eq!(endpoint.is(100), (Healthy, Tier::Usable));
}

#[test]
fn an_endpoint_where_nobody_listens_is_gone_even_if_it_was_never_scraped() {
    let mut endpoint = Endpoint::unscraped();

    endpoint.scrape_fails(50, ScrapeFailure::Refused);

    assert_eq!(endpoint.is(3_600_000), (Unreachable, Tier::Unreachable));
    assert!(endpoint.health.standing().is_gone);
}

#[test]
fn a_hung_endpoint_is_unreachable_after_one_scrape_that_times_out() {
    let mut endpoint = Endpoint::scraped();

    endpoint.scrape_fails(1050, ScrapeFailure::Timeout);

    assert_eq!(endpoint.is(1050), (Unreachable, Tier::Unreachable));
    assert_eq!(endpoint.health.reason(), Some(Reason::Scrape(ScrapeFailure::Timeout)));
}

#[test]
fn an_answer_just_before_it_hung_does_not_pass_for_life() {
    let mut endpoint = Endpoint::scraped();
    endpoint.answers(60, 20);

    endpoint.scrape_fails(1050, ScrapeFailure::Timeout);

    assert_eq!(endpoint.is(1050).0, Unreachable);
}

#[test]
fn an_overloaded_endpoint_that_still_answers_requests_is_not_unreachable_but_stale_in_the_end() {
    let mut endpoint = Endpoint::scraped();

    endpoint.answers(900, 100);
    endpoint.scrape_fails(1050, ScrapeFailure::Timeout);
    assert_eq!(endpoint.is(1050), (Healthy, Tier::Usable));
    endpoint.answers(2000, 100);
    endpoint.scrape_fails(2100, ScrapeFailure::Timeout);
    assert_eq!(endpoint.is(2100), (Stale, Tier::Unknown));

    endpoint.scrape(2200);
    assert_eq!(endpoint.is(2200), (Healthy, Tier::Usable));
}

#[test]
fn silence_of_an_endpoint_that_never_answered_a_scrape_says_nothing() {
    let mut endpoint = Endpoint::unscraped();

    for second in 1..10 {
        endpoint.scrape_fails(second * 1000, ScrapeFailure::Timeout);
        assert_eq!(endpoint.is(second * 1000), (Unscraped, Tier::Unknown));
        assert!(!endpoint.health.standing().is_gone);
    }

    // One that answered requests is no better off: where none can be scraped, all are to be used alike.
    endpoint.answers(9500, 9000);
    assert_eq!(endpoint.is(9500), (Unscraped, Tier::Unknown));
}

#[test]
fn a_connection_that_breaks_once_is_no_reason() {
    let mut endpoint = Endpoint::scraped();

    endpoint.scrape_fails(50, ScrapeFailure::Reset);
    assert_eq!(endpoint.is(50).0, Healthy);
    endpoint.scrape_fails(100, ScrapeFailure::Reset);

    assert_eq!(endpoint.is(100).0, Unreachable);
}

#[test]
fn an_endpoint_whose_metrics_page_fails_is_stale_after_two_seconds() {
    let mut endpoint = Endpoint::scraped();

    for millis in (50..=2000).step_by(50) {
        endpoint.scrape_fails(millis, ScrapeFailure::Status(500));
        assert_eq!(endpoint.is(millis).0, Healthy);
    }
    endpoint.scrape_fails(2050, ScrapeFailure::Status(500));

    assert_eq!(endpoint.is(2050), (Stale, Tier::Unknown));
    assert!(!endpoint.health.standing().is_out());
}

#[test]
fn an_endpoint_that_answers_with_an_error_is_there_again() {
    let mut endpoint = Endpoint::scraped();
    endpoint.scrape_fails(50, ScrapeFailure::Refused);

    endpoint.scrape_fails(100, ScrapeFailure::Status(503));

    assert_eq!(endpoint.is(100), (Stale, Tier::Unknown));
}

#[test]
fn a_silent_endpoint_may_be_tried_by_one_request_at_a_time_after_a_while() {
    let mut endpoint = Endpoint::scraped();
    endpoint.scrape_fails(1000, ScrapeFailure::Timeout);
    assert_eq!(endpoint.is(10_999).1, Tier::Unreachable);
    assert_eq!(endpoint.health.changes_at(at(10_999)), Some(at(11_000)));

    assert_eq!(endpoint.is(11_000), (Unreachable, Tier::Unknown));
    assert!(!endpoint.health.standing().is_gone);
    endpoint.chosen(11_000);
    assert!(endpoint.health.standing().is_gone);
    endpoint.health.ended(at(12_000), at(11_000), &SETTINGS);
    assert_eq!(endpoint.is(21_999).1, Tier::Unreachable);

    assert_eq!(endpoint.is(22_000).1, Tier::Unknown);
    endpoint.chosen(22_000);
    endpoint.answers(22_100, 22_000);
    assert_eq!(
        endpoint.is(22_100),
        (Stale, Tier::Unknown),
        "it serves, and cannot be scraped"
    );
    endpoint.scrape_fails(23_000, ScrapeFailure::Timeout);
    assert_eq!(endpoint.is(23_000), (Stale, Tier::Unknown));
}

#[test]
fn consecutive_failures_eject_an_endpoint_and_an_answer_in_between_counts_from_the_start() {
    let mut endpoint = Endpoint::scraped();
    endpoint.fails(1, 0);
    endpoint.fails(2, 0);
    endpoint.answers(3, 0);
    endpoint.fails(4, 0);
    endpoint.fails(5, 0);
    assert_eq!(endpoint.is(5), (Healthy, Tier::Usable));

    assert!(endpoint.fails(6, 0));

    assert_eq!(endpoint.is(6), (Ejected, Tier::Failing));
    assert_eq!(endpoint.health.reason(), Some(Reason::Request(RequestFailure::Connect)));
    assert_eq!(endpoint.health.ejected_until(), Some(at(10_006)));
}

/// Ejected from time 3 to 10,003.
fn ejected() -> Endpoint {
    let mut endpoint = Endpoint::scraped();
    for millis in 1..=3 {
        endpoint.fails(millis, 0);
    }
    endpoint
}

#[test]
fn a_scrape_that_succeeds_does_not_bring_an_ejected_endpoint_back() {
    let mut endpoint = ejected();

    endpoint.scrape(100);

    assert_eq!(endpoint.is(10_002), (Ejected, Tier::Failing));
}

#[test]
fn after_its_time_an_ejected_endpoint_is_tried_by_one_request_and_back_if_that_is_answered() {
    let mut endpoint = ejected();

    assert_eq!(endpoint.is(10_003), (Ejected, Tier::Usable));
    endpoint.chosen(10_003);
    assert_eq!(endpoint.is(10_003), (Ejected, Tier::Failing), "one at a time");
    endpoint.answers(10_100, 10_003);

    assert_eq!(endpoint.is(10_100), (Healthy, Tier::Usable));
}

#[test]
fn a_try_that_ends_without_a_word_makes_way_for_the_next() {
    let mut endpoint = ejected();
    endpoint.chosen(10_003);

    endpoint.health.ended(at(10_500), at(10_003), &SETTINGS);

    assert_eq!(endpoint.is(10_500), (Ejected, Tier::Usable));
}

#[test]
fn each_ejection_is_longer_than_the_one_before_up_to_a_limit() {
    let mut endpoint = ejected();
    let mut lasted = Vec::new();
    for _ in 0..3 {
        let until = endpoint.health.ejected_until().unwrap();
        let millis = u64::try_from(until.since(Timestamp::ZERO).as_millis()).unwrap();
        endpoint.chosen(millis);
        assert!(endpoint.fails(millis + 1, millis));
        lasted.push(endpoint.health.ejected_until().unwrap().since(at(millis + 1)).as_secs());
    }

    assert_eq!(lasted, [20, 25, 25]);
}

#[test]
fn an_endpoint_that_was_well_for_as_long_as_it_was_ejected_begins_anew() {
    let again = |millis: u64| {
        let mut endpoint = ejected();
        endpoint.chosen(10_003);
        endpoint.answers(10_010, 10_003);
        for _ in 0..3 {
            endpoint.fails(millis, millis);
        }
        endpoint.health.ejected_until().unwrap().since(at(millis)).as_secs()
    };

    assert_eq!(again(11_000), 20);
    assert_eq!(again(20_010), 10);
}

#[test]
fn requests_that_were_under_way_when_it_was_ejected_change_nothing() {
    let mut endpoint = ejected();

    endpoint.answers(500, 2);
    assert!(!endpoint.fails(600, 2));
    // Had no other choice, and failed as was to be expected.
    assert!(!endpoint.fails(700, 650));

    assert_eq!(endpoint.is(10_002), (Ejected, Tier::Failing));
    assert_eq!(endpoint.health.ejected_until(), Some(at(10_003)));
}

#[test]
fn a_request_that_had_no_other_choice_and_is_answered_brings_it_back_early() {
    let mut endpoint = ejected();

    endpoint.answers(700, 650);

    assert_eq!(endpoint.is(700), (Healthy, Tier::Usable));
}

#[test]
fn an_ejected_endpoint_that_was_away_and_is_there_again_may_be_tried_at_once() {
    let mut endpoint = ejected();
    endpoint.scrape_fails(1000, ScrapeFailure::Refused);
    assert_eq!(endpoint.is(1000).0, Unreachable);

    endpoint.scrape(2000);

    assert_eq!(endpoint.is(2000), (Ejected, Tier::Usable));
    endpoint.chosen(2000);
    endpoint.answers(2100, 2000);
    assert_eq!(endpoint.is(2100), (Healthy, Tier::Usable));
}

#[test]
fn without_a_threshold_nothing_is_ejected() {
    let off = OutlierDetection {
        consecutive_failures: 0,
        ..SETTINGS
    };
    let mut health = Health::default();

    let ejections = (0..1000).filter(|&millis| health.failed(at(millis), at(0), RequestFailure::Reset, &off, true));

    assert_eq!(ejections.count(), 0);
}

#[test]
fn at_most_a_share_of_the_pool_is_ejected_and_one_of_two_may_always_be() {
    let most = |percent, endpoints| {
        OutlierDetection {
            max_ejection_percent: percent,
            ..SETTINGS
        }
        .most_ejected(endpoints)
    };

    assert_eq!([1, 2, 3, 4, 9].map(|endpoints| most(50, endpoints)), [0, 1, 1, 2, 4]);
    assert_eq!([2, 9].map(|endpoints| most(1, endpoints)), [1, 1]);
    assert_eq!(most(0, 9), 0);
}

#[test]
fn every_failure_has_a_name_of_its_own() {
    let names: std::collections::BTreeSet<_> = RequestFailure::NAMES.into_iter().collect();

    assert_eq!(names.len(), RequestFailure::NAMES.len());
    assert_eq!(RequestFailure::NoAnswer.name(), "no-answer");
    assert_eq!(EndpointState::ALL.map(EndpointState::name)[4], "unreachable");
}
