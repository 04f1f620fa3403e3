//! What a tenant that floods a queue can do to the others, and what it can't.

use std::time::Duration;

use super::super::outcome::Refusal;
use super::traffic::{Fate, GUIDE, Scenario, Source};

/// The noisy sources beside a tenant that sends 1.5 requests a second, for two minutes. The pool serves 16.7 a second.
fn beside_a_quiet_tenant(config: &str, noisy: Vec<Source>) -> Vec<Fate> {
    let scenario = Scenario {
        config: config.to_owned(),
        objectives: &[],
        sources: [vec![Source::new("quiet", 1.5)], noisy].concat(),
        endpoints: vec![(0.0, 1)],
        service: 0.9,
        until: 120.0,
        seed: 0,
    };
    scenario.run()
}

/// The share of the requests of a tenant that were refused, and the 95th percentile of the waits of the others.
fn fared(fates: &[Fate], tenant: &str) -> (f64, Duration) {
    let of_tenant = || fates.iter().filter(|fate| fate.tenant == tenant);
    let refused = of_tenant().filter(|fate| fate.refused.is_some()).count();
    let mut waits: Vec<_> = of_tenant().filter_map(Fate::waited).collect();
    waits.sort_unstable();
    let share = refused as f64 / of_tenant().count() as f64;
    (share, waits[waits.len() * 95 / 100])
}

const SOON: Duration = Duration::from_secs(2);

#[test]
fn a_noisy_tenant_does_not_lock_a_quiet_one_out_of_a_full_band() {
    let fates = beside_a_quiet_tenant(GUIDE, vec![Source::new("noisy", 25.0)]);

    let (refused, p95) = fared(&fates, "quiet");
    assert_eq!(refused, 0.0);
    assert!(p95 < SOON, "{p95:?}");
    let (refused, _) = fared(&fates, "noisy");
    assert!((0.2..0.5).contains(&refused), "{refused}");
    assert!(fates.iter().any(|fate| fate.is_refused(Refusal::Displaced)));
}

#[test]
fn a_noisy_tenant_does_not_lock_a_quiet_one_out_by_the_size_of_its_requests() {
    let config = GUIDE.replace("    maxRequests: 200\n", "    maxBytes: 1M\n");
    let noisy = Source {
        bytes: 20_000,
        ..Source::new("noisy", 25.0)
    };

    let fates = beside_a_quiet_tenant(&config, vec![noisy]);

    let (refused, p95) = fared(&fates, "quiet");
    assert_eq!(refused, 0.0);
    assert!(p95 < SOON, "{p95:?}");
}

#[test]
fn a_noisy_tenant_does_not_lock_a_quiet_one_out_of_the_room_of_all_bands() {
    let config = GUIDE.replace("  maxRequests: 1k\n", "  maxRequests: 100\n");

    let fates = beside_a_quiet_tenant(&config, vec![Source::new("noisy", 25.0)]);

    let (refused, p95) = fared(&fates, "quiet");
    assert_eq!(refused, 0.0);
    assert!(p95 < SOON, "{p95:?}");
}

#[test]
fn switched_off_or_without_turns_a_full_band_turns_away_whoever_comes() {
    let off = GUIDE.replace("flowControl:\n", "flowControl:\n  displaceWhenFull: false\n");
    let strict = GUIDE.replace("    fairnessPolicyRef: round-robin-fairness-policy\n", "");

    for config in [off, strict] {
        let fates = beside_a_quiet_tenant(&config, vec![Source::new("noisy", 25.0)]);

        assert!(fared(&fates, "quiet").0 > 0.2);
        assert!(!fates.iter().any(|fate| fate.is_refused(Refusal::Displaced)));
    }
}

/// A tenant that invents names is as many tenants, each of which is owed as much as an honest one. What an honest tenant
/// keeps is the part of one name: here one in 101 of 16.7 requests a second.
#[test]
fn among_invented_names_a_tenant_within_the_part_of_one_name_is_not_refused() {
    let honest = Source::new("honest", 0.1);
    let noisy = Source {
        ids: 100,
        ..Source::new("noisy", 25.0)
    };

    let fates = beside_a_quiet_tenant(GUIDE, vec![honest, noisy]);

    let (refused, p95) = fared(&fates, "honest");
    assert_eq!(refused, 0.0);
    assert!(p95 < Duration::from_secs(15), "one round takes 12 s: {p95:?}");
    let (refused, _) = fared(&fates, "quiet");
    assert!(
        refused > 0.5,
        "it sends nine times the part of one name, and {refused} are refused"
    );
}

/// With more names than may wait, each has one request waiting or none, and nothing but the name tells an honest tenant
/// from them.
#[test]
fn against_two_thousand_invented_names_a_quiet_tenant_gets_the_part_of_one_name_and_no_more() {
    let noisy = Source {
        ids: 2000,
        ..Source::new("noisy", 25.0)
    };

    let fates = beside_a_quiet_tenant(GUIDE, vec![noisy]);

    let served = |tenant: &str| {
        fates
            .iter()
            .filter(|fate| fate.tenant == tenant && fate.refused.is_none())
            .count()
    };
    let (quiet, noisy) = (served("quiet"), served("noisy"));
    assert!(quiet * 2000 >= noisy, "quiet {quiet}, noisy {noisy}");
    assert!(fared(&fates, "quiet").0 > 0.5);
}
