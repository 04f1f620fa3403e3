use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use super::*;
use crate::serve::clock::Clock;

/// A server that says the same to everybody, byte by byte, and then hangs up.
struct Canned {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
    _task: AbortOnDropHandle<()>,
}

impl Canned {
    async fn start(answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let seen = Arc::clone(&heads);
        let task = tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let request = read_request(&mut stream).await;
                seen.lock().push(request);
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        Self {
            url,
            heads,
            _task: AbortOnDropHandle::new(task),
        }
    }
}

async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.to_ascii_lowercase();
            let length = length.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.unwrap().parse::<usize>().unwrap() {
                return text.into_owned();
            }
        }
        assert_ne!(stream.read_buf(&mut request).await.unwrap(), 0, "the client went away");
    }
}

fn options(url: &str) -> HttpOptions {
    HttpOptions {
        url: url.to_owned(),
        api: Api::Completions,
        key: None,
        streaming: true,
        lengths: Lengths::Exact,
    }
}

async fn ask(options: HttpOptions) -> (Heard, Result<(), Trouble>) {
    let server = HttpServer::new(options).unwrap();
    let mut heard = Heard::begin(Clock::new(), true);
    let answered = server.answer(&Ask::plain(&"m".into(), " sea", 3), &mut heard).await;
    (heard, answered)
}

async fn answered_with(answer: &'static str) -> (Heard, Result<(), Trouble>) {
    let server = Canned::start(answer).await;
    ask(options(&server.url)).await
}

macro_rules! events {
    ($($data:literal),* $(,)?) => {
        concat!(
            "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n",
            $("data: ", $data, "\n\n"),*
        )
    };
}

#[tokio::test]
async fn a_stream_is_read_to_its_end() {
    let (heard, answered) = answered_with(events!(
        r#"{"choices":[{"text":" the","finish_reason":null}]}"#,
        r#"{"choices":[{"text":"","finish_reason":null}]}"#,
        r#"{"choices":[{"text":" sea","finish_reason":"length"}]}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#,
        "[DONE]",
    ))
    .await;

    assert_eq!(answered, Ok(()));
    assert_eq!((heard.chunks.len(), &*heard.text), (2, " the sea"));
    assert_eq!(heard.finish_reason.as_deref(), Some("length"));
    assert_eq!((heard.usage.unwrap().prompt, heard.output_tokens()), (9, 3));
    assert!(heard.sent_us <= heard.chunks[0] && heard.chunks.is_sorted());
}

#[tokio::test]
async fn without_usage_every_piece_counts_as_a_token() {
    let (heard, answered) = answered_with(events!(
        r#"{"choices":[{"text":" the"}]}"#,
        r#"{"choices":[{"text":" sea"}]}"#,
        "[DONE]",
    ))
    .await;

    assert_eq!((answered, heard.output_tokens()), (Ok(()), 2));
}

#[tokio::test]
async fn a_stream_without_end_is_broken_off() {
    let (heard, answered) = answered_with(events!(r#"{"choices":[{"text":" the"}]}"#)).await;
    assert_eq!(
        answered,
        Err(Trouble::BrokenOff("the answer ended without an end".to_owned()))
    );
    assert_eq!(heard.chunks.len(), 1);

    let (_, answered) = answered_with(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 900\r\n\r\ndata: {\"choices\":[",
    )
    .await;
    assert!(
        matches!(&answered, Err(Trouble::BrokenOff(why)) if why.starts_with("the answer broke off: ")),
        "{answered:?}"
    );
}

#[tokio::test]
async fn an_error_may_come_as_an_event() {
    let (_, answered) = answered_with(events!(
        r#"{"choices":[{"text":" the"}]}"#,
        r#"{"error":{"message":"out of memory","code":500}}"#,
        "[DONE]",
    ))
    .await;

    assert_eq!(answered, Err(Trouble::Failed("out of memory".to_owned())));
}

#[tokio::test]
async fn an_answer_without_words_has_its_end_for_a_piece() {
    let (heard, answered) =
        answered_with(events!(r#"{"choices":[{"text":"","finish_reason":"stop"}]}"#, "[DONE]")).await;
    assert_eq!((answered, heard.chunks.len()), (Ok(()), 1));

    let (_, answered) = answered_with(events!("[DONE]")).await;
    assert_eq!(answered, Err(Trouble::Failed("an answer without words".to_owned())));
}

#[tokio::test]
async fn a_whole_answer_is_one_piece() {
    let (heard, answered) = answered_with(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n\
         {\"choices\":[{\"message\":{\"content\":\" sea\"},\"finish_reason\":\"stop\"}],\
         \"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}",
    )
    .await;

    assert_eq!(answered, Ok(()));
    assert_eq!(
        (heard.chunks.len(), heard.output_tokens(), &*heard.text),
        (1, 3, " sea")
    );
    assert_eq!(heard.finish_reason.as_deref(), Some("stop"));
}

#[tokio::test]
async fn a_refusal_is_told_with_status_words_and_reason() {
    let (heard, answered) = answered_with(
        "HTTP/1.1 429 Too Many Requests\r\nx-llm-d-request-dropped-reason: rejected-saturated\r\ncontent-length: 24\r\n\r\n\
         queue at capacity, wait\n",
    )
    .await;

    let message = "429 Too Many Requests: queue at capacity, wait".to_owned();
    assert_eq!(answered, Err(Trouble::Failed(message)));
    assert_eq!(heard.dropped_reason.as_deref(), Some("rejected-saturated"));
}

#[tokio::test]
async fn the_message_is_taken_from_an_error_document() {
    let (_, answered) =
        answered_with("HTTP/1.1 404 Not Found\r\nconnection: close\r\n\r\n{\"error\":{\"message\":\"no model `m`\"}}")
            .await;

    assert_eq!(answered, Err(Trouble::Failed("404 Not Found: no model `m`".to_owned())));
}

#[tokio::test]
async fn a_server_that_is_not_there_is_not_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);

    let (_, answered) = ask(options(&url)).await;

    assert!(
        matches!(&answered, Err(Trouble::Unreachable(why)) if why.contains("refused")),
        "{answered:?}"
    );
}

#[tokio::test]
async fn the_key_goes_with_requests_and_a_path_before_the_api_is_kept() {
    let server = Canned::start(events!(r#"{"choices":[{"text":" a","finish_reason":"stop"}]}"#)).await;
    let options = HttpOptions {
        key: Some("secret".to_owned()),
        api: Api::Chat,
        ..options(&format!("{}/pool/v1/", server.url))
    };

    let (_, answered) = ask(options).await;

    assert_eq!(answered, Ok(()));
    let head = server.heads.lock()[0].to_ascii_lowercase();
    assert!(
        head.starts_with("post /pool/v1/chat/completions http/1.1\r\n"),
        "{head}"
    );
    assert!(head.contains("\r\nauthorization: bearer secret\r\n"), "{head}");
    assert!(head.contains("\r\nx-request-id: "), "{head}");
}

#[test]
fn what_is_no_address_of_a_server_is_refused() {
    for url in ["", "localhost:8000", "ftp://host", "http://", "http:// x"] {
        let error = HttpServer::new(options(url)).unwrap_err().to_string();
        assert!(error.starts_with(&format!("`{url}` is no URL")), "{error}");
    }
}
