//! What Forebay learns from a request body and a response body, and the only bytes it changes in them.
//!
//! Pure functions: nothing here waits, and nothing keeps a body. A body is read where it lies. One pass checks that
//! it is JSON and finds the few fields that matter ([`parse`]); a second one, once the target model is known, hashes
//! the prompt and nothing else ([`Parsed::hash_prompt`]). No tree of the body is ever built.
//!
//! - `path`: which API a path means; `fields`: the fields of each API and their types
//! - `openai`, `anthropic`, `generate`: what is the prompt in the bodies of each
//! - `json`: a lazy view of JSON text; `prompt`: the parts of a prompt, and how they become tokens
//! - `splice`: another model name into the request; `restore`: the name that the client knows into the response
//! - `usage`: the token counts at the end of a response; `content`: what a model wrote in it, for an estimate
//!
//! Of a key that occurs twice in an object the last one counts, as in the model servers behind us.

mod anthropic;
mod content;
mod error;
mod fields;
mod generate;
mod json;
mod openai;
mod path;
mod prompt;
mod restore;
mod splice;
mod usage;

use std::borrow::Cow;

pub use error::{Fault, ParseError};
pub use path::{Api, LIKELY_PATHS, Parsers, path_of};
pub use prompt::Prompt;
pub use restore::ModelRestorer;
pub use splice::{ModelPlace, splice_model};
pub use usage::{Framing, Tokens, Usage, UsageScanner, UsageSource};

use crate::engine::prefix::{BlockHasher, PromptBlocks};
use fields::Fields;

/// What was learnt from a request body. Borrows from the body.
#[derive(Debug)]
pub struct Parsed<'a> {
    /// The model, and where another name goes. `None` if the body is not looked into: then it cannot be rewritten,
    /// and a missing model is no error.
    pub model: Option<Model<'a>>,
    /// The client asked for a stream of events.
    pub stream: bool,
    /// The client's limit on the tokens of the answer.
    pub max_output_tokens: Option<u32>,
    /// Keeps prefixes of different tenants apart. Empty if the body has none.
    pub cache_salt: Cow<'a, str>,
    /// The prompt, in parts that lie in the body.
    pub prompt: Prompt<'a>,
    /// What the response will look like.
    pub response: ResponseFormat,
}

/// The model that a body names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model<'a> {
    /// Empty if the body names none, or the empty string.
    pub name: Cow<'a, str>,
    /// What is wrong with the value of `model`, if it is no name. It does no harm where another name is put in.
    pub fault: Option<Fault>,
    /// Where [`splice_model`] puts another name.
    pub place: ModelPlace,
}

/// What a response tells about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseFormat {
    /// Usage as in OpenAI's APIs.
    OpenAi,
    /// Usage as in Anthropic's messages API.
    Anthropic,
    /// Observed, but there is no usage to find.
    Opaque,
    /// Not inference: it passes, and nothing of it is measured.
    Ignored,
}

/// Reads a request body of this API (spec, scheduling 12).
///
/// Missing models are the caller's to judge: a header may still name one.
///
/// # Errors
///
/// The body is not UTF-8 or no JSON object, or lacks what its API requires.
pub fn parse(api: Api, body: &[u8]) -> Result<Parsed<'_>, ParseError> {
    let response = match api {
        Api::Opaque => return Ok(Parsed::unread(ResponseFormat::Opaque)),
        Api::CountTokens => return Ok(Parsed::unread(ResponseFormat::Ignored)),
        Api::Messages => ResponseFormat::Anthropic,
        _ => ResponseFormat::OpenAi,
    };
    let fields = Fields::read(api, body)?;
    let prompt = match api {
        Api::Messages => anthropic::prompt(&fields),
        Api::Generate => generate::prompt(&fields),
        _ => openai::prompt(api, &fields),
    }?;
    Ok(Parsed {
        model: Some(fields.model()),
        stream: fields.stream(),
        max_output_tokens: fields.max_output_tokens(),
        cache_salt: fields.cache_salt(),
        prompt,
        response,
    })
}

impl Parsed<'_> {
    /// Hashes the prompt. Gives the number of its tokens (four bytes of text count as one, spec, scheduling 9.1) and
    /// its blocks; none of either if the API has no prompt.
    pub fn hash_prompt(&self, hasher: BlockHasher) -> (u32, PromptBlocks) {
        self.prompt.hash(hasher)
    }

    fn unread(response: ResponseFormat) -> Self {
        Self {
            model: None,
            stream: false,
            max_output_tokens: None,
            cache_salt: Cow::Borrowed(""),
            prompt: Prompt::none(),
            response,
        }
    }
}

#[cfg(test)]
mod tests;
