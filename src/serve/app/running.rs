//! What runs side by side for as long as the service serves.

use std::future::Future;

use tokio::task::JoinSet;

use super::AppError;
use crate::serve::ext_proc::server::{Drained, ServerError};

/// The parts of a service. None of them ends by itself, and one that does although nobody asked it to is the end of all.
/// Dropped, it ends them.
#[derive(Debug, Default)]
pub(super) struct Running(JoinSet<Result<End, AppError>>);

/// How a part ended that did not fail.
#[derive(Debug)]
enum End {
    /// The server of streams, which alone can be told to.
    Streams(Drained),
    /// A part of this name.
    Other(&'static str),
}

impl Running {
    /// Adds a part.
    pub(super) fn add(&mut self, name: &'static str, part: impl Future<Output = ()> + Send + 'static) {
        self.try_add(name, async move {
            part.await;
            Ok(())
        });
    }

    /// Adds a part that can fail.
    pub(super) fn try_add(
        &mut self,
        name: &'static str,
        part: impl Future<Output = Result<(), AppError>> + Send + 'static,
    ) {
        self.0.spawn(async move { part.await.map(|()| End::Other(name)) });
    }

    /// Adds the server of streams.
    pub(super) fn add_streams(&mut self, server: impl Future<Output = Result<Drained, ServerError>> + Send + 'static) {
        self.0.spawn(async move { Ok(End::Streams(server.await?)) });
    }

    /// Waits until a part ends that should not, and gives the reason.
    pub(super) async fn broken(&mut self) -> AppError {
        match self.next().await {
            Ok(End::Streams(_)) => AppError::Ended("the ext_proc service"),
            Ok(End::Other(part)) => AppError::Ended(part),
            Err(error) => error,
        }
    }

    /// Waits for the server of streams, which was told to stop.
    ///
    /// # Errors
    ///
    /// It fails, or another part ends before.
    pub(super) async fn drained(mut self) -> Result<Drained, AppError> {
        match self.next().await? {
            End::Streams(drained) => Ok(drained),
            End::Other(part) => Err(AppError::Ended(part)),
        }
    }

    async fn next(&mut self) -> Result<End, AppError> {
        match self.0.join_next().await {
            None => Err(AppError::Ended("everything")),
            Some(ended) => ended?,
        }
    }
}
