//! The clock of the live service.

use crate::engine::time::Timestamp;

/// Tells the time since it was made. Follows tokio's clock, so that tests can pause it.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: tokio::time::Instant,
}

impl Clock {
    /// A clock at [`Timestamp::ZERO`].
    #[expect(
        clippy::new_without_default,
        reason = "it reads the time, which no default value should"
    )]
    pub fn new() -> Self {
        Self {
            origin: tokio::time::Instant::now(),
        }
    }

    /// The time.
    pub fn now(&self) -> Timestamp {
        Timestamp::ZERO + self.origin.elapsed()
    }

    /// When tokio's clock will show `at`.
    pub fn instant(&self, at: Timestamp) -> tokio::time::Instant {
        self.origin + at.since(Timestamp::ZERO)
    }
}
