//! How the gateway was told to send bodies.

use super::wire::{BodySendMode, ProcessingMode, ProcessingRequest};

/// The body modes of one stream, in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modes {
    pub(super) request: BodyMode,
    pub(super) response: BodyMode,
    /// The gateway said so.
    pub(super) are_announced: bool,
}

/// How bodies of one direction arrive, and what answers the gateway takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyMode {
    /// Bodies are not sent.
    None,
    /// In chunks, each of which waits for an answer. The headers go on before the body comes.
    Streamed,
    /// In one message that has all of it. The headers wait for its answer.
    Buffered,
    /// In one message that has the beginning of it, if it is large. The headers wait for its answer.
    BufferedPartial,
    /// In chunks, which are answered whenever and in whatever pieces we like. The headers wait for as long as we like.
    FullDuplex,
}

impl Modes {
    /// What the first message of a stream says of it. A gateway that says nothing is taken to be configured as
    /// the endpoint picker protocol wants it: full duplex in both directions (spec, ext-proc 1).
    pub(super) fn announced(first: &ProcessingRequest) -> Self {
        match &first.protocol_config {
            Some(config) => Self {
                request: BodyMode::from_wire(config.request_body_mode),
                response: BodyMode::from_wire(config.response_body_mode),
                are_announced: true,
            },
            None => Self::FULL_DUPLEX,
        }
    }

    /// What a gateway that buffers requests should do with a tunnel, which never ends: pass the client's bytes on unseen,
    /// and the server's as they come. Gateways take no notice unless they allow overrides.
    pub(super) fn for_tunnel(self) -> ProcessingMode {
        let response = match self.response {
            BodyMode::None => BodySendMode::None,
            _ => BodySendMode::Streamed,
        };
        ProcessingMode {
            request_body_mode: BodySendMode::None.into(),
            response_body_mode: response.into(),
            ..ProcessingMode::default()
        }
    }

    pub(super) const FULL_DUPLEX: Self = Self {
        request: BodyMode::FullDuplex,
        response: BodyMode::FullDuplex,
        are_announced: false,
    };
}

impl BodyMode {
    /// The gateway waits for the end of a body, or for as much as it can hold of it.
    pub(super) fn is_buffered(self) -> bool {
        matches!(self, Self::Buffered | Self::BufferedPartial)
    }

    /// Modes that this version does not know are variants of full duplex.
    fn from_wire(mode: i32) -> Self {
        match BodySendMode::try_from(mode) {
            Ok(BodySendMode::None) => Self::None,
            Ok(BodySendMode::Streamed) => Self::Streamed,
            Ok(BodySendMode::Buffered) => Self::Buffered,
            Ok(BodySendMode::BufferedPartial) => Self::BufferedPartial,
            Ok(BodySendMode::FullDuplexStreamed | BodySendMode::Grpc) | Err(_) => Self::FullDuplex,
        }
    }
}
