//! The cluster over time, in a bounded number of samples.

use super::super::record::{Judge, Sample, Series};

/// Samples that are kept at most. Even, so that dropping every second one leaves half.
const MOST: usize = 1024;

/// The distance of two samples at first: 10 ms.
const FIRST_DISTANCE_US: u64 = 10_000;

/// Takes samples at equal distances of time. When there are too many, it drops every second one and takes them half as
/// often from then on.
#[derive(Debug)]
pub(super) struct Sampler {
    series: Series,
    next_us: u64,
}

impl Sampler {
    /// Takes samples in which `judge` says how full the pool is.
    pub(super) fn new(judge: Judge) -> Self {
        Self {
            series: Series {
                every_us: FIRST_DISTANCE_US,
                judge,
                samples: Vec::new(),
            },
            next_us: 0,
        }
    }

    /// True if a sample is to be taken at `now_us` or before.
    pub(super) fn is_due(&self, now_us: u64) -> bool {
        now_us >= self.next_us
    }

    /// Takes the samples up to `now_us`. `sample` is how the cluster has been since the last event.
    pub(super) fn up_to(&mut self, now_us: u64, sample: &Sample) {
        while self.next_us <= now_us {
            self.series.samples.push(Sample {
                at_us: self.next_us,
                ..sample.clone()
            });
            self.next_us += self.series.every_us;
            if self.series.samples.len() == MOST {
                self.thin_out();
            }
        }
    }

    pub(super) fn finish(self) -> Series {
        self.series
    }

    fn thin_out(&mut self) {
        self.series.every_us *= 2;
        let every = self.series.every_us;
        self.series.samples.retain(|sample| sample.at_us % every == 0);
        self.next_us = self.series.samples.last().map_or(0, |last| last.at_us + every);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(waiting: u64) -> Sample {
        Sample {
            gateway_waiting: waiting,
            ..Sample::default()
        }
    }

    #[test]
    fn a_sample_shows_the_cluster_as_it_was_before_the_event() {
        let mut sampler = Sampler::new(Judge::Detector);
        sampler.up_to(5000, &sample(1));
        sampler.up_to(25_000, &sample(2));
        sampler.up_to(29_000, &sample(3));
        assert!(!sampler.is_due(29_999) && sampler.is_due(30_000));

        let series = sampler.finish();

        let seen: Vec<_> = series.samples.iter().map(|s| (s.at_us, s.gateway_waiting)).collect();
        assert_eq!(seen, [(0, 1), (10_000, 2), (20_000, 2)]);
    }

    #[test]
    fn a_long_run_has_as_many_samples_as_a_short_one_and_they_are_equally_far_apart() {
        let mut sampler = Sampler::new(Judge::Detector);
        for second in 0..1000 {
            sampler.up_to(second * 1_000_000, &sample(second));
        }

        let series = sampler.finish();

        assert!(
            (MOST / 2..MOST).contains(&series.samples.len()),
            "{}",
            series.samples.len()
        );
        let even = |pair: &[Sample]| pair[1].at_us - pair[0].at_us == series.every_us;
        assert!(series.samples.windows(2).all(even));
        assert_eq!(series.samples[0].at_us, 0);
    }
}
