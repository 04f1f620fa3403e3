//! HTTP/1.1 by hand, for what no client library sends.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::soon;

/// An answer, as far as two answers can be compared: without its date and its framing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: Vec<String>,
    pub(crate) body: String,
}

/// Sends `request` on a connection of its own and reads the answer up to the end of the connection, so the request should
/// say `connection: close`.
pub(crate) async fn ask(address: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    soon(
        "the connection is closed after the answer",
        stream.read_to_end(&mut bytes),
    )
    .await
    .unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let (head, body) = text
        .split_once("\r\n\r\n")
        .unwrap_or_else(|| panic!("no answer to `{request}`: `{text}`"));
    let mut lines = head.lines();
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let mut headers: Vec<_> = lines.map(str::to_owned).collect();
    headers.sort();
    let is_chunked = headers.iter().any(|header| header == "transfer-encoding: chunked");
    headers.retain(|header| {
        !["date: ", "transfer-encoding: ", "content-length: "]
            .iter()
            .any(|name| header.starts_with(name))
    });
    Answer {
        status,
        headers,
        body: if is_chunked { joined(body) } else { body.to_owned() },
    }
}

/// The chunks of a body as one.
fn joined(mut chunked: &str) -> String {
    let mut body = String::new();
    loop {
        let (size, rest) = chunked.split_once("\r\n").expect("a chunk has a size");
        let size = usize::from_str_radix(size, 16).unwrap();
        if size == 0 {
            return body;
        }
        body += &rest[..size];
        chunked = &rest[size + 2..];
    }
}
