//! Waiting for something that can only be asked about.

use std::time::Duration;

use tokio::time::Instant;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_millis(20);

/// It has not happened in time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not within {limit:?}: {what}; the last look: {last}")]
pub struct TimedOut {
    what: String,
    limit: Duration,
    last: String,
}

/// Looks again and again until `look` passes, for `limit` at most. `what` is a sentence of what is waited for.
///
/// # Errors
///
/// If the time is over; it says what the last look saw.
pub async fn until(
    limit: Duration,
    what: &str,
    mut look: impl AsyncFnMut() -> Result<(), String>,
) -> Result<(), TimedOut> {
    let deadline = Instant::now() + limit;
    let mut last = "none came to an end".to_owned();
    loop {
        match tokio::time::timeout_at(deadline, look()).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(seen)) => last = seen,
            Err(_) => {}
        }
        if Instant::now() >= deadline {
            return Err(TimedOut {
                what: what.to_owned(),
                limit,
                last,
            });
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_looks_until_it_passes() {
        let mut looks = 0;

        let result = until(Duration::from_secs(1), "three looks", async || {
            looks += 1;
            if looks == 3 { Ok(()) } else { Err(looks.to_string()) }
        })
        .await;

        assert_eq!(result, Ok(()));
        assert_eq!(looks, 3);
    }

    #[tokio::test(start_paused = true)]
    async fn it_says_what_it_saw_last() {
        let error = until(Duration::from_secs(1), "rain stops", async || Err("rain".to_owned()))
            .await
            .unwrap_err();

        assert_eq!(error.to_string(), "not within 1s: rain stops; the last look: rain");
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_without_an_end_is_cut() {
        let result = until(Duration::from_secs(1), "an answer", std::future::pending).await;

        assert!(result.is_err());
    }
}
