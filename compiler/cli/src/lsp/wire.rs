//! Messages over standard input and output. A client may send anything: what is no message is
//! answered with an error, or logged where nothing waits for an answer, and the next message is
//! read.

use std::io::{self, BufRead, Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};

use lsp_server::{ErrorCode, Message, Notification};
use lsp_types::notification::{LogMessage, Notification as _};
use lsp_types::{LogMessageParams, MessageType};
use serde_json::{Value, json};

/// The longest body that is read: the longest legal file with every character escaped, several
/// times over.
const MAX_BODY_BYTES: u64 = 64 << 20;

/// The bytes that are kept of a line in which a header is searched.
const MAX_HEADER_BYTES: usize = 8 << 10;

/// The header that says how long the body is.
const LENGTH: &str = "content-length:";

/// Where messages for the client go.
#[derive(Clone)]
pub(super) struct Client(Arc<Mutex<dyn Write + Send>>);

impl Client {
    pub(super) fn new(to: impl Write + Send + 'static) -> Client {
        Client(Arc::new(Mutex::new(to)))
    }

    /// Sends a message. A client that is gone hears nothing: that its input has ended says so.
    pub(super) fn send(&self, message: &Message) {
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = message.write(&mut &mut *to);
    }

    /// Lets no message begin any more, and waits for one that another thread has begun: the process
    /// ends, which would cut it off.
    pub(super) fn end(&self) {
        std::mem::forget(self.0.lock());
    }

    /// Logs what went wrong where nobody waits for an answer.
    pub(super) fn log(&self, message: String) {
        let params = LogMessageParams { typ: MessageType::WARNING, message };
        self.send(&Message::Notification(Notification::new(
            LogMessage::METHOD.to_string(),
            params,
        )));
    }

    /// Answers a request with an error; the id may be of any kind, or null where it could not be
    /// read.
    fn refuse(&self, id: &Value, code: ErrorCode, message: &str) {
        let answer =
            json!({"jsonrpc": "2.0", "id": id, "error": {"code": code as i32, "message": message}})
                .to_string();
        let mut to = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = write!(to, "Content-Length: {}\r\n\r\n{answer}", answer.len())
            .and_then(|()| to.flush());
    }
}

/// What was read.
#[derive(Debug)]
enum Heard {
    Message(Message),
    /// Something that is no message, with the id under which an answer is awaited, if any is.
    Wrong {
        id: Option<Value>,
        code: ErrorCode,
        why: String,
    },
}

/// Reads messages on a thread of its own, so that the server sees how many wait. The receiver ends
/// when the input does.
pub(super) fn listen(mut from: impl BufRead + Send + 'static, client: Client) -> Receiver<Message> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        while let Ok(Some(heard)) = read(&mut from) {
            match heard {
                Heard::Message(message) => {
                    if sender.send(message).is_err() {
                        break;
                    }
                }
                Heard::Wrong { id: Some(id), code, why } => client.refuse(&id, code, &why),
                Heard::Wrong { id: None, why, .. } => client.log(format!("ignored: {why}")),
            }
        }
    });
    receiver
}

/// The next message, or what stands in its place; `None` at the end.
fn read(from: &mut impl BufRead) -> io::Result<Option<Heard>> {
    let wrong = |why: String| Ok(Some(Heard::Wrong { id: None, code: ErrorCode::ParseError, why }));
    let length = match header(from)? {
        None => return Ok(None),
        Some(Err(why)) => return wrong(why),
        Some(Ok(length)) => length,
    };
    // Memory grows with the bytes that arrive, not with the length that was stated.
    let mut body = Vec::new();
    from.take(length).read_to_end(&mut body)?;
    if body.len() as u64 != length {
        return Ok(None);
    }
    match String::from_utf8(body) {
        Ok(text) => Ok(Some(message(&text))),
        Err(_) => wrong("the body of a message is not UTF-8 text".to_string()),
    }
}

/// The length of the next body; `None` at the end. A header is searched in each line, wherever it
/// begins: behind a body of a wrong length the next header does not begin a line.
fn header(from: &mut impl BufRead) -> io::Result<Option<Result<u64, String>>> {
    let mut length = None;
    loop {
        let mut line = Vec::new();
        let (mut read, mut whole) = (0, false);
        while !whole {
            let part = from.fill_buf()?;
            if part.is_empty() {
                return Ok(None);
            }
            let end = part.iter().position(|b| *b == b'\n').map(|at| at + 1);
            whole = end.is_some();
            let taken = end.unwrap_or(part.len());
            line.extend_from_slice(&part[..taken]);
            from.consume(taken);
            read += taken;
            // A header behind other text is at the end of its line, so that the end is kept.
            let beyond = line.len().saturating_sub(MAX_HEADER_BYTES);
            line.drain(..beyond);
        }
        let line = String::from_utf8_lossy(&line).to_ascii_lowercase();
        let line = line.trim_end();
        if let Some(at) = line.rfind(LENGTH) {
            length = Some(match line[at + LENGTH.len()..].trim().parse::<u64>() {
                Ok(length) if length <= MAX_BODY_BYTES => Ok(length),
                Ok(_) => Err(format!("a message of more than {MAX_BODY_BYTES} bytes")),
                Err(_) => Err("a Content-Length that is no number".to_string()),
            });
        } else if read <= 2 && line.is_empty() {
            match length.take() {
                Some(length) => return Ok(Some(length)),
                // An empty line outside of any header.
                None => continue,
            }
        }
    }
}

/// Parses a message, or says what is wrong with it.
fn message(text: &str) -> Heard {
    let parsed = serde_json::from_str::<Value>(text).or_else(|error| match mended(text) {
        Some(mended) => serde_json::from_str(&mended),
        None => Err(error),
    });
    match parsed {
        Err(error) => {
            let why = format!(
                "a message that is no JSON (line {}, column {})",
                error.line(),
                error.column()
            );
            Heard::Wrong { id: Some(Value::Null), code: ErrorCode::ParseError, why }
        }
        Ok(value) => {
            let id = value.get("id").cloned();
            let has_method = value.get("method").is_some_and(Value::is_string);
            match serde_json::from_value(value) {
                // A request with an id of an illegal kind would pass as a notification.
                Ok(Message::Notification(_)) if id.is_some() => {
                    let why = "an id is a string or a whole number of 32 bits".to_string();
                    Heard::Wrong { id, code: ErrorCode::InvalidRequest, why }
                }
                Ok(message) => Heard::Message(message),
                Err(_) => {
                    let why = "neither a request nor a response nor a notification".to_string();
                    let id = if has_method { id } else { Some(Value::Null) };
                    Heard::Wrong { id, code: ErrorCode::InvalidRequest, why }
                }
            }
        }
    }
}

/// The text with U+FFFD, which is as long in UTF-16, for every escaped half of a surrogate pair
/// that stands alone: editors send such halves while a pair is being typed. `None` where there is
/// none.
fn mended(text: &str) -> Option<String> {
    let unit = |at: usize| {
        let digits = text.get(at..at + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let (mut out, mut at, mut changed) = (String::with_capacity(text.len()), 0, false);
    while let Some(backslash) = text[at..].find('\\').map(|i| at + i) {
        out.push_str(&text[at..backslash]);
        let escape = text[backslash + 1..].chars().next();
        let (length, new) = match unit(backslash) {
            Some(0xd800..=0xdbff) if matches!(unit(backslash + 6), Some(0xdc00..=0xdfff)) => {
                (12, None)
            }
            Some(0xd800..=0xdfff) => (6, Some("\\ufffd")),
            _ => (1 + escape.map_or(0, char::len_utf8), None),
        };
        changed |= new.is_some();
        out.push_str(new.unwrap_or(&text[backslash..backslash + length]));
        at = backslash + length;
    }
    out.push_str(&text[at..]);
    changed.then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(body: &str) -> String {
        format!("Content-Length: {}\r\n\r\n{body}", body.len())
    }

    /// The methods of the messages of a stream, and in `!` what was wrong.
    fn heard(stream: &str) -> Vec<String> {
        let mut from = stream.as_bytes();
        let mut all = Vec::new();
        while let Some(heard) = read(&mut from).expect("memory does not fail") {
            all.push(match heard {
                Heard::Message(Message::Notification(note)) => note.method,
                Heard::Message(Message::Request(request)) => {
                    format!("{}#{}", request.method, request.id)
                }
                Heard::Message(Message::Response(_)) => "response".to_string(),
                Heard::Wrong { id, .. } => {
                    format!("!{}", id.map_or(String::new(), |id| id.to_string()))
                }
            });
        }
        all
    }

    #[test]
    fn a_wrong_length_is_skipped_and_the_next_message_is_read() {
        let next = framed(r#"{"method": "a"}"#);
        for length in ["18446744073709551615", "99999999999999999999999", "-1", "x", "3000000000"] {
            let body = r#"{"method": "lost"}"#;
            assert_eq!(
                heard(&format!("Content-Length: {length}\r\n\r\n{body}{next}{next}")),
                ["!", "a", "a"],
                "{length}"
            );
        }
        assert_eq!(heard(&format!("nonsense\r\n\r\n\r\n{next}")), ["a"]);
        assert_eq!(
            heard(&format!(
                "Content-Type: x\r\ncontent-length:15\r\n\r\n{{\"method\": \"b\"}}{next}"
            )),
            ["b", "a"]
        );
        assert_eq!(
            heard("Content-Length: 10000\r\n\r\n{}"),
            Vec::<String>::new(),
            "the input ends"
        );
    }

    #[test]
    fn what_is_no_message_is_refused_by_its_id() {
        let stream: String = [
            "{",
            "[]",
            r#"{"id": 7}"#,
            r#"{"id": 4294967296, "method": "big"}"#,
            r#"{"id": [1], "method": "list"}"#,
            r#"{"method": 3}"#,
            r#"{"id": 1, "method": "fine"}"#,
        ]
        .map(framed)
        .concat();
        assert_eq!(
            heard(&stream),
            ["!null", "!null", "!null", "!4294967296", "![1]", "!null", "fine#1"]
        );
        assert_eq!(heard(&framed(&"[".repeat(100_000))), ["!null"], "deep nesting");
    }

    #[test]
    fn half_a_surrogate_pair_is_read_as_a_replacement() {
        let read = |text: &str| match message(text) {
            Heard::Message(Message::Notification(note)) => {
                note.params["text"].as_str().map(str::to_string)
            }
            _ => None,
        };
        let of = |text: &str| format!(r#"{{"method": "a", "params": {{"text": "{text}"}}}}"#);
        assert_eq!(read(&of(r"x\ud83dy")).as_deref(), Some("x\u{fffd}y"));
        assert_eq!(
            read(&of(r"\udE00\ud83d\ude00\ud83d\u0041")).as_deref(),
            Some("\u{fffd}\u{1f600}\u{fffd}A")
        );
        assert_eq!(
            read(&of(r"\\ud83d\ud83d")).as_deref(),
            Some("\\ud83d\u{fffd}"),
            "an escaped backslash is none"
        );
    }
}
