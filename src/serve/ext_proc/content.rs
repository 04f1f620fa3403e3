//! What a request body teaches, as the engine wants it.

use std::sync::Arc;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::headers::RequestHead;
use super::rewrite::Rewrites;
use crate::engine::prefix::{BlockHasher, BlockLayout, HashKey};
use crate::engine::request::{Kind, Request, Subset};
use crate::serve::parse::{self, Fault, LIKELY_PATHS, ModelRestorer, ParseError, Parsed, Parsers, ResponseFormat};

/// The longest name of a model, in bytes. Names are kept longer than the request: in metrics and in explanations.
const MAX_MODEL_BYTES: usize = 4096;

/// A request that is ready to be decided, and what is needed afterwards.
#[derive(Debug)]
pub(super) struct Content {
    pub(super) request: Request,
    /// The body to be sent on, in parts.
    pub(super) body: SmallVec<[Bytes; 3]>,
    /// The body is not the one that came.
    pub(super) is_spliced: bool,
    /// What the response will look like.
    pub(super) format: ResponseFormat,
    /// Gives the response the name of the model that the client knows.
    pub(super) restorer: Option<Box<ModelRestorer>>,
    /// The rewrite that chose the target, by the name of its object.
    pub(super) rewrite: Option<Arc<str>>,
}

/// How the target is chosen where there is a choice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice<'a> {
    pub(super) rewrites: &'a Rewrites,
    /// Drawn for the request: any number is equally likely.
    pub(super) lot: u64,
}

/// Why a body cannot be served.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentError {
    #[error(transparent)]
    Parse(#[from] ParseError),
    #[error("model not found in request body{}", .0.as_ref().map(|fault| format!(" ({fault})")).unwrap_or_default())]
    NoModel(Option<Fault>),
    #[error("the name of the model has {0} bytes; at most {MAX_MODEL_BYTES} are taken")]
    LongModel(usize),
}

impl Content {
    /// A request whose body is not there, or not looked into.
    pub(super) fn unread(kind: Kind, head: &RequestHead, subset: Subset, body: Bytes) -> Self {
        // More may come than is seen.
        let size = head.content_length.unwrap_or(0).max(body.len() as u64);
        let mut request = Request::unknown(kind);
        describe(&mut request, head, subset);
        request.size_bytes = size;
        Self {
            request,
            body: smallvec![body],
            is_spliced: false,
            format: ResponseFormat::Opaque,
            restorer: None,
            rewrite: None,
        }
    }

    /// Reads a complete body.
    pub(super) fn read(
        parsers: &Parsers,
        head: &RequestHead,
        subset: Subset,
        body: Bytes,
        (layout, key): (BlockLayout, HashKey),
        choice: Choice<'_>,
    ) -> Result<Self, ContentError> {
        let parsed = match parse::path_of(|name| head.path_header(name)) {
            Some(path) => parse::parse(parsers.resolve(path)?, &body)?,
            None => parse_without_path(parsers, &body)?,
        };
        let format = parsed.response;
        let Some(model) = &parsed.model else {
            let content = Self::unread(Kind::Inference, head, subset, body);
            return Ok(Self { format, ..content });
        };
        // What the operator says of the model that the client names goes before what the client says.
        let rule = choice.rewrites.rule(&model.name);
        let target: Arc<str> = match (rule, &head.rewrite) {
            (Some(rule), _) => rule.target(choice.lot),
            (None, Some(rewrite)) => Arc::clone(rewrite),
            (None, None) => Arc::from(&*model.name),
        };
        if target.is_empty() {
            return Err(ContentError::NoModel(model.fault.clone()));
        }
        let longest = target.len().max(model.name.len());
        if longest > MAX_MODEL_BYTES {
            return Err(ContentError::LongModel(longest));
        }
        let hasher = BlockHasher::with_key(key, &target, &parsed.cache_salt, layout);
        let (prompt_tokens, prompt_blocks) = parsed.hash_prompt(hasher);
        let is_renamed = *target != *model.name;
        let is_rewritten = rule.is_some() || head.rewrite.is_some();
        let is_spliced = is_renamed || (is_rewritten && model.place.is_repeated());
        let request = Request {
            model: if is_renamed {
                Arc::from(&*model.name)
            } else {
                Arc::clone(&target)
            },
            prompt_tokens,
            prompt_blocks,
            max_output_tokens: parsed.max_output_tokens,
            streaming: parsed.stream,
            ..Request::unknown(Kind::Inference)
        };
        let (parts, restorer) = if is_spliced {
            let parts = parse::splice_model(&body, &model.place, &target);
            let restorer =
                (is_renamed && !model.name.is_empty()).then(|| Box::new(ModelRestorer::new(&target, &model.name)));
            (parts, restorer)
        } else {
            (smallvec![body.clone()], None)
        };
        let mut content = Self {
            request,
            body: parts,
            is_spliced,
            format,
            restorer,
            rewrite: rule.map(|rule| Arc::clone(&rule.object)),
        };
        content.request.target_model = target;
        content.request.size_bytes = content.body_len() as u64;
        describe(&mut content.request, head, subset);
        Ok(content)
    }

    /// Bytes of the body that goes on.
    pub(super) fn body_len(&self) -> usize {
        self.body.iter().map(Bytes::len).sum()
    }
}

/// Reads a body as the first of the likely APIs that it fits.
fn parse_without_path<'b>(parsers: &Parsers, body: &'b [u8]) -> Result<Parsed<'b>, ParseError> {
    let [first, others @ ..] = LIKELY_PATHS;
    let read = |path| parse::parse(parsers.resolve(path)?, body);
    read(first).or_else(|error| others.into_iter().find_map(|path| read(path).ok()).ok_or(error))
}

/// Puts in what the headers say.
fn describe(request: &mut Request, head: &RequestHead, subset: Subset) {
    if let Some(fairness_id) = &head.fairness_id {
        request.fairness_id = Arc::clone(fairness_id);
    }
    request.objective.clone_from(&head.objective);
    request.subset = subset;
    request.slo = head.slo;
    request.ttl = head.ttl;
    request.only_if_cached = head.if_available;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(head: &RequestHead, model: &str) -> Result<Content, ContentError> {
        let body = Bytes::from(format!(r#"{{"model":"{model}","prompt":"hello"}}"#));
        Content::read(
            &Parsers::default(),
            head,
            Subset::default(),
            body,
            (BlockLayout::default(), HashKey::default()),
            Choice {
                rewrites: &Rewrites::default(),
                lot: 0,
            },
        )
    }

    #[test]
    fn without_a_path_a_body_is_read_as_what_it_looks_like() {
        let read = |body: &'static str| {
            let content = Content::read(
                &Parsers::default(),
                &RequestHead::default(),
                Subset::default(),
                Bytes::from_static(body.as_bytes()),
                (BlockLayout::default(), HashKey::default()),
                Choice {
                    rewrites: &Rewrites::default(),
                    lot: 0,
                },
            );
            content
                .map(|content| content.request.prompt_tokens)
                .map_err(|error| error.to_string())
        };

        assert_eq!(read(r#"{"model":"m","prompt":"four"}"#), Ok(1));
        assert!(read(r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#).is_ok_and(|tokens| tokens > 0));
        assert!(read(r#"{"model":"m","input":"hello"}"#).is_ok_and(|tokens| tokens > 0));
        assert!(read(r#"{"model":"m"}"#).is_err_and(|error| error.contains("must have prompt field")));
    }

    #[test]
    fn the_name_of_a_model_has_a_bound_wherever_it_comes_from() {
        let longest = "m".repeat(MAX_MODEL_BYTES);
        let too_long = format!("{longest}m");
        let mut rewritten = RequestHead::default();
        rewritten.rewrite = Some(Arc::from(&*too_long));

        assert!(read(&RequestHead::default(), &longest).is_ok());
        for (head, model) in [(RequestHead::default(), &*too_long), (rewritten, "m")] {
            let error = read(&head, model).unwrap_err();

            assert_eq!(
                error.to_string(),
                "the name of the model has 4097 bytes; at most 4096 are taken"
            );
        }
    }
}
