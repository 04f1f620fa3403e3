//! When the requests of one client arrive (spec, simulator 18.5).

use super::arrivals::Gaps;
use super::chance::Stream;

/// The times at which requests, or conversations, of one client begin.
#[derive(Debug)]
pub(super) enum Times {
    /// One rate throughout; what falls outside the windows is left out.
    Steady {
        gaps: Gaps,
        /// From and to, by start. None: always active.
        windows: Vec<(u64, u64)>,
        now_us: u64,
    },
    /// A rate for each window, whose gaps are stretched so that they fill it.
    Filled {
        /// The windows that are left, the next one last.
        windows: Vec<Window>,
        current: Option<Filling>,
    },
}

/// A window that is to be filled.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Window {
    /// Which one it is in the description.
    pub(super) index: usize,
    pub(super) start_us: u64,
    pub(super) end_us: u64,
    pub(super) gaps: Gaps,
    /// How many requests arrive in it.
    pub(super) requests: u64,
}

/// A window that is being filled. Its gaps are drawn twice, first to know their sum: so they need not be kept.
#[derive(Debug)]
pub(super) struct Filling {
    window: Window,
    /// Where the gaps were drawn from, at the first of them.
    again: Stream,
    stretch: f64,
    now_us: u64,
    left: u64,
}

/// A time at which something begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    pub(super) at_us: u64,
    /// The window whose own distributions hold.
    pub(super) window: Option<usize>,
}

impl Times {
    /// One rate throughout, within the windows. The first gap begins at time 0.
    pub(super) fn steady(gaps: Gaps, mut windows: Vec<(u64, u64)>) -> Self {
        windows.sort_unstable();
        Self::Steady {
            gaps,
            windows,
            now_us: 0,
        }
    }

    /// The same, with the first gap beginning where the first window does. A client with one conversation begins it so,
    /// however late its window opens.
    pub(super) fn steady_from_first_window(gaps: Gaps, windows: Vec<(u64, u64)>) -> Self {
        let mut times = Self::steady(gaps, windows);
        if let Self::Steady { windows, now_us, .. } = &mut times {
            *now_us = windows.first().map_or(0, |&(start, _)| start);
        }
        times
    }

    /// A rate for each window. They do not overlap.
    pub(super) fn filled(mut windows: Vec<Window>) -> Self {
        windows.sort_by_key(|window| std::cmp::Reverse(window.start_us));
        Self::Filled { windows, current: None }
    }

    /// The next time before the horizon.
    pub(super) fn next(&mut self, chance: &mut Stream, horizon_us: u64) -> Option<Slot> {
        match self {
            Self::Steady { gaps, windows, now_us } => loop {
                *now_us = now_us.saturating_add(gaps.sample(chance));
                let now = *now_us;
                if now >= horizon_us || windows.iter().all(|&(_, end)| now >= end) && !windows.is_empty() {
                    return None;
                }
                if windows.is_empty() || windows.iter().any(|&(start, end)| (start..end).contains(&now)) {
                    return Some(Slot {
                        at_us: now,
                        window: None,
                    });
                }
            },
            Self::Filled { windows, current } => loop {
                if let Some(filling) = current
                    && let Some(at_us) = filling.next()
                {
                    let window = Some(filling.window.index);
                    return (at_us < horizon_us).then_some(Slot { at_us, window });
                }
                *current = Some(Filling::new(windows.pop()?, chance));
            },
        }
    }
}

impl Filling {
    fn new(window: Window, chance: &mut Stream) -> Self {
        let again = chance.clone();
        let sum: f64 = (0..window.requests).map(|_| window.gaps.sample(chance) as f64).sum();
        Self {
            again,
            stretch: (window.end_us - window.start_us) as f64 / sum,
            now_us: window.start_us,
            left: window.requests,
            window,
        }
    }

    fn next(&mut self) -> Option<u64> {
        self.left = self.left.checked_sub(1)?;
        if self.left == 0 {
            // The last one takes up what was cut off from the others.
            self.now_us = self.window.end_us;
        } else {
            let gap = (self.window.gaps.sample(&mut self.again) as f64 * self.stretch) as u64;
            self.now_us = self.now_us.saturating_add(gap).min(self.window.end_us);
        }
        Some(self.now_us)
    }
}

#[cfg(test)]
mod tests {
    use super::super::arrivals::Process;
    use super::*;

    fn all(mut times: Times, horizon_us: u64) -> Vec<u64> {
        let mut chance = Stream::seeded(1);
        std::iter::from_fn(|| times.next(&mut chance, horizon_us).map(|slot| slot.at_us)).collect()
    }

    #[test]
    fn a_steady_client_is_silent_outside_its_windows() {
        let gaps = Process::Constant.at(1.0 / 10.0);

        let times = all(Times::steady(gaps, vec![(45, 60), (10, 20)]), u64::MAX);

        assert_eq!(times, [10, 50]);
    }

    #[test]
    fn a_first_gap_may_begin_with_the_first_window() {
        let gaps = Process::Constant.at(1.0 / 10.0);

        let times = all(
            Times::steady_from_first_window(gaps, vec![(60, 75), (25, 40)]),
            u64::MAX,
        );

        assert_eq!(times, [35, 65]);
    }

    #[test]
    fn nothing_arrives_at_the_horizon_or_after_it() {
        let gaps = Process::Constant.at(1.0 / 10.0);

        assert_eq!(all(Times::steady(gaps, Vec::new()), 30), [10, 20]);
    }

    #[test]
    fn a_window_is_filled_to_its_end_by_so_many_requests() {
        let window = |index, start_us, end_us, requests| Window {
            index,
            start_us,
            end_us,
            gaps: Process::Poisson.at(0.5),
            requests,
        };

        let times = all(
            Times::filled(vec![window(0, 5000, 6000, 7), window(1, 100, 900, 3)]),
            u64::MAX,
        );

        assert_eq!(times.len(), 10);
        assert!(times.is_sorted());
        assert!(times[0] > 100);
        assert_eq!((times[2], times[9]), (900, 6000));
        assert!(times[3] > 5000);
    }
}
