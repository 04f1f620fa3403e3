//! The prompt of vLLM's API of token ids.

use super::Api;
use super::error::ParseError;
use super::fields::Fields;
use super::json::Kind;
use super::prompt::Prompt;

/// Finds the token ids. An array with anything else in it counts as it is written.
pub(super) fn prompt<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, ParseError> {
    let ids = fields
        .required("token_ids", &[], "a non-empty array of token ids", |ids| {
            ids.kind() == Kind::Array && !ids.is_empty()
        })
        .map_err(|fault| Api::Generate.refuse(fault))?;
    Ok(ids.map_or_else(Prompt::none, |ids| match ids.as_token_ids() {
        Some(ids) => Prompt::tokens(ids),
        None => Prompt::written(ids),
    }))
}
