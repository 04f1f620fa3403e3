//! From a simulated run to the rows of a trace.

use super::super::record::{End, RequestRecord};
use super::super::request::SimRequest;
use super::row::{Row, Status};

impl Row {
    /// A request that was sent and of which nothing else is known. `place` counts the requests of the run in the order of
    /// their arrival; it is the number of the row, unless the request has one of the trace that is replayed.
    pub fn sent(place: u64, request: &SimRequest) -> Self {
        let client = &request.client;
        let session = request.session.as_ref();
        let later = session.filter(|session| session.round > 0);
        Self {
            request_id: request.name.number_at(place),
            client_id: client.id.clone(),
            tenant_id: (&*client.tenant).into(),
            slo_class: (&*client.slo_class).into(),
            session_id: session.map_or_else(Box::default, |session| (&*session.session).into()),
            round_index: session.map_or(0, |session| session.round),
            prefix_group: client.prefix_group.clone(),
            prefix_length: client.prefix_tokens,
            streaming: client.streaming,
            input_tokens: request.prompt_tokens.saturating_sub(client.prefix_tokens),
            output_tokens: request.output_tokens,
            text_tokens: request.media.text,
            image_tokens: request.media.image,
            audio_tokens: request.media.audio,
            video_tokens: request.media.video,
            reason_ratio: request.reason_ratio,
            model: (&*client.model).into(),
            deadline_us: request.deadline_us.unwrap_or_default(),
            slo_target_us: request.slo_target_us,
            arrival_time_us: request.arrival_us,
            send_time_us: request.arrival_us,
            adapter: (&*client.adapter).into(),
            think_time_us: later.map(|session| session.think_us),
            context_tokens: later.map(|session| session.context_tokens).filter(|&tokens| tokens > 0),
            ..Self::default()
        }
    }

    /// Adds what became of it. The last piece of the answer comes with its last token: what the server does after that is
    /// not in a trace.
    pub fn end(&mut self, record: &RequestRecord) {
        self.status = match record.end {
            End::Completed => Status::Ok,
            End::TimedOut => Status::Timeout,
            End::Failed => Status::Error,
            _ => Status::Incomplete,
        };
        if let Some(ttft_us) = record.ttft_us {
            self.first_chunk_time_us = self.arrival_time_us.saturating_add(ttft_us);
            self.last_chunk_time_us = self.first_chunk_time_us.saturating_add(record.itl_sum_us);
        }
        self.finish_reason = match record.end {
            End::Completed if record.length_capped => "length".into(),
            End::Completed => "stop".into(),
            _ => Box::default(),
        };
    }
}
