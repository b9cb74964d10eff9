//! The part of HTTP that one page needs: GET and HEAD, one request per connection, no keep-alive.
//!
//! Invariant: heads, connections and waits are bounded. A malformed request gets an error message, and its connection
//! is closed.

use std::{cell::Cell, future::Future, rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_env::{Env, Listener, ReadHalf, Stream};

/// Most bytes of a request head that is accepted; a scraper's has a few hundred.
const HEAD_BYTES: usize = 8 << 10;
/// Most bytes that are read of a longer head, so that it can be refused with a message.
const READ_BYTES: usize = 64 << 10;
/// Most header lines in a head.
const HEADERS: usize = 64;
/// Most connections at a time; another one is closed at once.
const CONNECTIONS: u32 = 16;
/// How long a connection may last, from the client's first byte to our last.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Pause after a failed accept.
const PAUSE: Duration = Duration::from_millis(100);

/// Path of the page.
const PATH: &str = "/metrics";

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Page,
    /// Its head only.
    Head,
    /// Another path.
    Elsewhere,
    /// Another method.
    Otherwise,
    Nonsense,
}

/// Serves the text that `page` makes, until it is dropped.
pub async fn serve<F>(env: Env, mut listener: Listener, content_type: &'static str, page: impl Fn() -> F + 'static)
where
    F: Future<Output = String> + 'static,
{
    let (open, page) = (Rc::new(Cell::new(0)), Rc::new(page));
    loop {
        let accepted = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                env.log(&format!("metrics: cannot accept a connection: {error}"));
                env.sleep(PAUSE).await;
                continue;
            }
        };
        if open.get() >= CONNECTIONS {
            continue;
        }
        open.set(open.get() + 1);
        let (env_of_task, open, page) = (env.clone(), open.clone(), page.clone());
        env.spawn(async move {
            let answer = async {
                let Ok((stream, _)) = accepted.handshake(&env_of_task).await else { return };
                answer(stream, content_type, || page()).await;
            };
            // A client that is slower, or has gone, gets nothing.
            let _ = env_of_task.timeout(TIMEOUT, answer).await;
            open.set(open.get() - 1);
        });
    }
}

async fn answer<F: Future<Output = String>>(stream: Stream, content_type: &str, page: impl Fn() -> F) {
    let (mut read, mut write) = stream.split();
    let Some(head) = read_head(&mut read).await else { return };
    let words = "text/plain; charset=utf-8";
    let (status, kind, body) = match understand(&head) {
        Asked::Page | Asked::Head => ("200 OK", content_type, page().await),
        Asked::Elsewhere => ("404 Not Found", words, format!("there is only {PATH} here\n")),
        Asked::Otherwise => ("405 Method Not Allowed", words, format!("only GET {PATH} is understood\n")),
        Asked::Nonsense => ("400 Bad Request", words, "this is not an HTTP request\n".into()),
    };
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    let head_lines = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n{allow}Connection: close\r\n\r\n",
        body.len()
    );
    let mut parts = vec![Bytes::from(head_lines)];
    if understand(&head) != Asked::Head {
        parts.push(body.into());
    }
    // A client that has gone needs no reply.
    let _ = write.write_all(&parts).await;
}

/// All bytes up to the empty line. None if the connection ends first, or the head is too long. (The stream is
/// buffered.)
async fn read_head(read: &mut ReadHalf) -> Option<Vec<u8>> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && !head.ends_with(b"\n\n") {
        if head.len() >= READ_BYTES {
            return None;
        }
        read.read_exact(&mut byte).await.ok()?;
        head.push(byte[0]);
    }
    Some(head)
}

fn understand(head: &[u8]) -> Asked {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    if head.len() > HEAD_BYTES || !request.parse(head).is_ok_and(|status| status.is_complete()) {
        return Asked::Nonsense;
    }
    let path = request.path.unwrap_or_default();
    let here = path.split(['?', '#']).next() == Some(PATH);
    match (request.method, here) {
        (Some("GET"), true) => Asked::Page,
        (Some("HEAD"), true) => Asked::Head,
        (Some("GET" | "HEAD"), false) => Asked::Elsewhere,
        _ => Asked::Otherwise,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scrape_is_told_from_what_is_none() {
        for (head, asked) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: */*\r\n\r\n", Asked::Page),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", Asked::Page),
            ("GET /metrics HTTP/1.1\n\n", Asked::Page),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", Asked::Head),
            ("GET / HTTP/1.1\r\n\r\n", Asked::Elsewhere),
            ("GET /metricsx HTTP/1.1\r\n\r\n", Asked::Elsewhere),
            ("POST /metrics HTTP/1.1\r\n\r\n", Asked::Otherwise),
            ("FBF1\0\0\0\r\n\r\n", Asked::Nonsense),
            ("", Asked::Nonsense),
        ] {
            assert_eq!(understand(head.as_bytes()), asked, "{head:?}");
        }
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS + 1));
        assert_eq!(understand(many.as_bytes()), Asked::Nonsense);
    }
}
