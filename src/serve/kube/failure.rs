//! Errors of the API server's client in one plain line.

use std::error::Error as _;

use crate::serve::causes::with_causes;

/// The longest line, in bytes. A status may repeat a whole object.
const LONGEST: usize = 512;

/// What went wrong, in the API server's own words if it answered. kube's `Display` has the whole status in Rust's debug
/// form.
pub(super) fn in_one_line(error: &kube::Error) -> String {
    let words = match error {
        kube::Error::Api(status) => {
            let code = format!("HTTP {} {}", status.code, status.reason);
            match status.message.trim() {
                "" => code.trim().to_owned(),
                message => format!("{message} ({})", code.trim()),
            }
        }
        // These only say of which library their cause is.
        kube::Error::Service(_)
        | kube::Error::HyperError(_)
        | kube::Error::HttpError(_)
        | kube::Error::ReadEvents(_)
        | kube::Error::Auth(_) => match error.source() {
            Some(cause) => format!("no answer from the API server: {}", with_causes(cause)),
            None => error.to_string(),
        },
        error => with_causes(error),
    };
    shortened(words.split_whitespace().collect::<Vec<_>>().join(" "))
}

fn shortened(mut line: String) -> String {
    if line.len() > LONGEST {
        line.truncate(line.floor_char_boundary(LONGEST));
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use std::io;

    use kube::core::Status;

    use super::*;

    fn answered(code: u16, reason: &str, message: &str) -> kube::Error {
        kube::Error::Api(Status::failure(message, reason).with_code(code).boxed())
    }

    #[test]
    fn an_answer_is_told_in_the_words_of_the_api_server() {
        let message = "pods is forbidden: User \"epp\" cannot list resource \"pods\"\nin the namespace \"inference\"";

        assert_eq!(
            in_one_line(&answered(403, "Forbidden", message)),
            "pods is forbidden: User \"epp\" cannot list resource \"pods\" in the namespace \"inference\" (HTTP 403 Forbidden)"
        );
        assert_eq!(
            in_one_line(&answered(503, "ServiceUnavailable", "")),
            "HTTP 503 ServiceUnavailable"
        );
        assert_eq!(in_one_line(&answered(502, "", "")), "HTTP 502");
    }

    #[test]
    fn without_an_answer_the_cause_is_told() {
        let refused = io::Error::new(io::ErrorKind::ConnectionRefused, "connection refused");

        assert_eq!(
            in_one_line(&kube::Error::Service(Box::new(refused))),
            "no answer from the API server: connection refused"
        );
    }

    #[test]
    fn a_line_has_a_bound() {
        let line = in_one_line(&answered(422, "Invalid", &"ä".repeat(10_000)));

        assert!(line.len() <= LONGEST + '…'.len_utf8(), "{line}");
        assert!(line.ends_with('…'), "{line}");
    }
}
