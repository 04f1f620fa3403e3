//! How the aggregate rate is divided among the clients that are active together (spec, simulator 18.4 and 18.5).

use std::collections::BTreeMap;

use super::spec::{ClientSpec, WindowSpec};

/// A time from, and to, and what counts in it.
type Span = (u64, u64, u64);

/// The clients that have a rate, by when they are active.
#[derive(Debug)]
pub(super) struct Rates {
    aggregate: f64,
    /// The shares of those that are always active.
    always: f64,
    /// The shares of the others, by their windows. Members of a cohort have the same ones, so that these are few.
    fractions: BTreeMap<Vec<Span>, f64>,
    /// As many as are alike, by their windows with the weight in each.
    weights: BTreeMap<Vec<Span>, f64>,
}

impl Rates {
    pub(super) fn new<'c>(aggregate: f64, clients: impl Iterator<Item = &'c ClientSpec>) -> Self {
        let mut rates = Self {
            aggregate,
            always: 0.0,
            fractions: BTreeMap::new(),
            weights: BTreeMap::new(),
        };
        for client in clients {
            let Some(fraction) = client.rate_fraction else { continue };
            if client.windows().is_empty() {
                rates.always += fraction;
                continue;
            }
            let plain = client
                .windows()
                .iter()
                .map(|window| (window.start_us, window.end_us, 0));
            *rates.fractions.entry(plain.collect()).or_default() += fraction;
            let weighted = client.windows().iter().map(|window| {
                let weight = weight(window, fraction);
                (window.start_us, window.end_us, weight.to_bits())
            });
            *rates.weights.entry(weighted.collect()).or_default() += 1.0;
        }
        rates
    }

    /// Requests per microsecond of a client with one rate throughout.
    pub(super) fn of_client(&self, client: &ClientSpec) -> f64 {
        let fraction = client.rate_fraction.unwrap_or_default();
        let windows = client.windows();
        let beside = self.fractions.iter().filter(|(spans, _)| {
            windows.is_empty()
                || windows
                    .iter()
                    .any(|window| spans.iter().any(|span| overlap(window, *span)))
        });
        let all = beside.fold(self.always, |sum, (_, fraction)| sum + fraction);
        self.aggregate * fraction / all / 1e6
    }

    /// Requests per second of a client in one of its windows, if windows have rates of their own.
    pub(super) fn of_window(&self, client: &ClientSpec, window: &WindowSpec) -> f64 {
        let own = weight(window, client.rate_fraction.unwrap_or_default());
        if self.aggregate == 0.0 {
            return own;
        }
        let beside = self.weights.iter().map(|(spans, count)| {
            let spans = spans.iter().filter(|span| overlap(window, **span));
            count * spans.map(|(_, _, weight)| f64::from_bits(*weight)).fold(0.0, f64::max)
        });
        self.aggregate * own / (self.always + beside.sum::<f64>())
    }
}

fn weight(window: &WindowSpec, fraction: f64) -> f64 {
    window.trace_rate.unwrap_or(fraction)
}

fn overlap(window: &WindowSpec, (start, end, _): Span) -> bool {
    window.start_us < end && start < window.end_us
}

#[cfg(test)]
mod tests {
    use super::super::spec::LifecycleSpec;
    use super::*;

    fn client(fraction: f64, windows: &[(u64, u64, Option<f64>)]) -> ClientSpec {
        let windows = windows.iter().map(|&(start_us, end_us, trace_rate)| WindowSpec {
            start_us,
            end_us,
            trace_rate,
            ..WindowSpec::default()
        });
        let windows: Vec<_> = windows.collect();
        ClientSpec {
            rate_fraction: Some(fraction),
            lifecycle: (!windows.is_empty()).then_some(LifecycleSpec { windows }),
            ..ClientSpec::default()
        }
    }

    #[test]
    fn the_rate_is_divided_among_those_that_are_active_together() {
        let clients = [
            client(0.5, &[]),
            client(0.5, &[(0, 10, None)]),
            client(0.5, &[(20, 30, None)]),
        ];
        let rates = Rates::new(30e6, clients.iter());

        assert_eq!(
            clients.each_ref().map(|client| rates.of_client(client)),
            [10.0, 15.0, 15.0]
        );
    }

    #[test]
    fn without_an_aggregate_rate_a_window_has_the_one_that_is_written() {
        let clients = [client(1.0, &[(0, 10, Some(3.0))]), client(1.0, &[(0, 10, Some(5.0))])];
        let of = |aggregate| {
            let rates = Rates::new(aggregate, clients.iter());
            clients
                .each_ref()
                .map(|client| rates.of_window(client, &client.windows()[0]))
        };

        assert_eq!(of(0.0), [3.0, 5.0]);
        assert_eq!(of(16.0), [6.0, 10.0]);
    }
}
