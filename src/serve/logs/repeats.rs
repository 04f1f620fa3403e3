//! Messages that are said too often.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

use super::LeftOut;
use crate::engine::time::Timestamp;
use crate::serve::clock::Clock;

const SECOND: Duration = Duration::from_secs(1);

/// Lets each place in the program say only so much in a second. Whoever asks for more than `info` gets all of it.
#[derive(Debug)]
pub struct Repeats {
    /// By place, of which a program has a fixed number.
    said: Mutex<HashMap<Identifier, Said>>,
    clock: Clock,
    left_out: Arc<AtomicU64>,
}

/// What a place has said in the second that began then.
#[derive(Clone, Copy, Debug)]
struct Said {
    since: Timestamp,
    lines: u32,
}

impl Repeats {
    /// Lines of one place in a second.
    pub const PER_SECOND: u32 = 20;

    /// Counts what it leaves out in `left_out`.
    pub fn new(left_out: &LeftOut) -> Self {
        Self {
            said: Mutex::default(),
            clock: Clock::new(),
            left_out: Arc::clone(&left_out.repeated),
        }
    }

    fn may_say(&self, place: Identifier, now: Timestamp) -> bool {
        let mut said = self.said.lock();
        let said = said.entry(place).or_insert(Said { since: now, lines: 0 });
        if now.since(said.since) >= SECOND {
            *said = Said { since: now, lines: 0 };
        }
        said.lines = said.lines.saturating_add(1);
        said.lines <= Self::PER_SECOND
    }
}

impl<S: Subscriber> Filter<S> for Repeats {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let may_say = *metadata.level() > Level::INFO || self.may_say(metadata.callsite(), self.clock.now());
        if !may_say {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
        may_say
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use tracing_subscriber::Layer as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[test]
    fn a_place_says_so_much_in_a_second_and_others_are_heard_meanwhile() {
        let left_out = LeftOut::default();
        let repeats = Repeats::new(&left_out);
        let subscriber = tracing_subscriber::registry().with(
            tracing_subscriber::fmt::layer()
                .with_writer(io::sink)
                .with_filter(repeats),
        );

        tracing::subscriber::with_default(subscriber, || {
            // Far more than fit into the time that this takes.
            for _ in 0..1000 * Repeats::PER_SECOND {
                tracing::warn!("often");
            }
            let before = left_out.repeated();
            tracing::warn!("once");

            assert!(before > 0);
            assert_eq!(left_out.repeated(), before);
        });
    }

    #[test]
    fn the_next_second_is_another_one() {
        let repeats = Repeats::new(&LeftOut::default());
        let place = tracing::callsite::Identifier(&PLACE);
        let start = Timestamp::ZERO;

        let said = |at| {
            (0..2 * Repeats::PER_SECOND)
                .filter(|_| repeats.may_say(place.clone(), at))
                .count()
        };

        assert_eq!(said(start), Repeats::PER_SECOND as usize);
        assert_eq!(said(start + SECOND), Repeats::PER_SECOND as usize);
    }

    struct Place;

    static PLACE: Place = Place;

    impl tracing::Callsite for Place {
        fn set_interest(&self, _: tracing::subscriber::Interest) {}

        fn metadata(&self) -> &Metadata<'_> {
            unreachable!("nothing is said here")
        }
    }
}
