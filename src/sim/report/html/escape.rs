//! Text that stays text.

use std::fmt::{self, Write};

/// Shows text so that it means itself in HTML, between tags and in quoted attributes.
pub(super) fn escaped(text: &str) -> impl fmt::Display + '_ {
    Escaped(text)
}

struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

/// JSON of a value, such that it cannot end the script element that it stands in.
pub(super) fn json_in_script(value: &impl serde::Serialize) -> String {
    let json = serde_json::to_string(value).expect("the keys are texts, and memory takes every byte");
    json.replace('<', "\\u003c")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(
            escaped("<a href=\"x\" title='y'>&").to_string(),
            "&lt;a href=&quot;x&quot; title=&#39;y&#39;&gt;&amp;"
        );
    }

    #[test]
    fn json_does_not_close_its_script() {
        let text = "</script><!--";
        let json = json_in_script(&text);

        assert!(!json.contains('<'));
        assert_eq!(serde_json::from_str::<String>(&json).unwrap(), text);
    }
}
