//! What one document of an answer says.

use serde::Deserialize;
use serde_json::Value;

/// What one document of an answer says: the whole one, or the data of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// The words of the first answer, those that it thinks aloud included.
    pub text: String,
    /// Why the answer ended, once it has.
    pub finish_reason: Option<String>,
    /// What went wrong instead.
    pub error: Option<String>,
    /// There is an answer, with words or without.
    pub has_answer: bool,
}

impl Piece {
    /// Reads a document of either API. `None` if it is none.
    pub fn read(json: &[u8]) -> Option<Self> {
        let document: Document = serde_json::from_slice(json).ok()?;
        let error = document.error_message();
        let Some(choice) = document.choices.into_iter().next() else {
            return Some(Self {
                error,
                ..Self::default()
            });
        };
        let message = choice.message.or(choice.delta).unwrap_or_default();
        let thoughts = message.reasoning_content.or(message.reasoning);
        let texts = [thoughts, message.content, choice.text];
        Some(Self {
            text: texts.into_iter().flatten().collect(),
            finish_reason: choice.finish_reason,
            error,
            has_answer: true,
        })
    }
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    choices: Vec<Choice>,
    error: Option<Value>,
    object: Option<Value>,
    message: Option<Value>,
}

#[derive(Deserialize)]
struct Choice {
    text: Option<String>,
    message: Option<Message>,
    delta: Option<Message>,
    finish_reason: Option<String>,
}

#[derive(Default, Deserialize)]
struct Message {
    content: Option<String>,
    reasoning_content: Option<String>,
    reasoning: Option<String>,
}

impl Document {
    /// An error is an object with a message, or a text; some servers write it in the place of the document.
    fn error_message(&self) -> Option<String> {
        let is_error = self.object.as_ref().is_some_and(|object| object == "error");
        let error = match &self.error {
            Some(Value::Object(members)) => members.get("message").or(self.error.as_ref()),
            Some(Value::Null) | None => self.message.as_ref().filter(|_| is_error),
            other => other.as_ref(),
        }?;
        Some(error.as_str().map_or_else(|| error.to_string(), str::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(json: &str) -> Option<String> {
        Piece::read(json.as_bytes()).map(|piece| piece.text)
    }

    #[test]
    fn words_are_found_in_all_kinds_of_documents() {
        for json in [
            r#"{"choices":[{"text":" sea","finish_reason":null}],"usage":null}"#,
            r#"{"choices":[{"delta":{"content":" sea"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":" sea","content":null}}]}"#,
            r#"{"choices":[{"message":{"role":"assistant","content":" sea"}},{"message":{"content":"other"}}]}"#,
        ] {
            assert_eq!(text(json).as_deref(), Some(" sea"), "{json}");
        }
        assert_eq!(
            text(r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#),
            Some(String::new())
        );
        assert_eq!(text("[DONE]"), None);
        assert_eq!(text(r#"{"choices":[{"text":" s"#), None);
    }

    #[test]
    fn the_end_has_a_reason_and_usage_is_no_answer() {
        let end = Piece::read(br#"{"choices":[{"text":"","finish_reason":"length"}]}"#).unwrap();
        let usage = Piece::read(br#"{"choices":[],"usage":{"prompt_tokens":1}}"#).unwrap();

        assert_eq!(end.finish_reason.as_deref(), Some("length"));
        assert_eq!(usage, Piece::default());
    }

    #[test]
    fn errors_are_found_however_they_are_written() {
        for (json, message) in [
            (r#"{"error":{"message":"too long","code":400}}"#, "too long"),
            (r#"{"error":"too long"}"#, "too long"),
            (r#"{"error":{"code":400}}"#, r#"{"code":400}"#),
            (r#"{"object":"error","message":"too long"}"#, "too long"),
        ] {
            assert_eq!(
                Piece::read(json.as_bytes()).unwrap().error.as_deref(),
                Some(message),
                "{json}"
            );
        }
        assert_eq!(Piece::read(br#"{"choices":[],"error":null}"#).unwrap().error, None);
    }
}
