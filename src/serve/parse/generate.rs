//! The prompt of vLLM's API of token ids.

use super::Api;
use super::error::{Fault, ParseError, Place};
use super::fields::Fields;
use super::json::Kind;
use super::prompt::Prompt;

const TOKEN_IDS: &str = "a non-empty array of whole numbers from 0 to 4294967295";

/// Characters of a wrong value that an error repeats.
const SHOWN: usize = 64;

/// Finds the token ids.
pub(super) fn prompt<'a>(fields: &Fields<'a>) -> Result<Prompt<'a>, ParseError> {
    let ids = fields
        .required("token_ids", TOKEN_IDS, |ids| {
            ids.kind() == Kind::Array && !ids.is_empty()
        })
        .map_err(|fault| Api::Generate.refuse(fault))?;
    if let Some(ids) = ids.as_token_ids() {
        return Ok(Prompt::tokens(ids));
    }
    ids.try_for_each_element(|index, element| {
        if element.as_token_id().is_some() {
            return Ok(());
        }
        let place = Place::Field("token_ids");
        let fault = Fault::found(element, place.element(index), "a whole number from 0 to 4294967295");
        let value: String = element.text().chars().take(SHOWN).collect();
        Err(ParseError::malformed(
            "invalid generate request",
            &format_args!("token_ids[{index}]: invalid value {value} ({fault})"),
        ))
    })?;
    Ok(Prompt::none())
}
