//! As much of HTTP as it takes to be asked for one page: GET and HEAD, one request a connection, nothing kept.
//!
//! Invariant: heads, connections and waits are bounded; who sends nonsense gets words and is shown out.

use std::{cell::Cell, future::Future, rc::Rc, time::Duration};

use bytes::Bytes;
use forebay_env::{Env, Listener, ReadHalf, Stream};

/// Bytes of a request's head that is understood; a scraper's has a few hundred.
const HEAD_BYTES: usize = 8 << 10;
/// Bytes that are read of one that is not, to be able to say so.
const READ_BYTES: usize = 64 << 10;
/// Header lines in it.
const HEADERS: usize = 64;
/// Connections at a time; one more is closed at once.
const CONNECTIONS: u32 = 16;
/// How long a connection may take, from its first byte to our last.
const PATIENCE: Duration = Duration::from_secs(10);
/// After an accept that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Where the page is.
const PATH: &str = "/metrics";

/// What was asked.
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

/// Answers with what `page` makes, until it is dropped.
pub async fn serve<F>(env: Env, mut listener: Listener, content_type: &'static str, page: impl Fn() -> F + 'static)
where
    F: Future<Output = String> + 'static,
{
    let (open, page) = (Rc::new(Cell::new(0)), Rc::new(page));
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
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
            // Whoever is slower, or has gone, gets nothing.
            let _ = env_of_task.timeout(PATIENCE, answer(stream, content_type, || page())).await;
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
    // Who has gone needs no answer.
    let _ = write.write_all(&parts).await;
}

/// All bytes up to the empty line; None if the connection or our patience ends before. (Reads are buffered below.)
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
