use std::io::Write;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use lsp_server::{Message, Notification, Request, RequestId};
use serde_json::{Value, json};

use super::wire::Client;
use super::{End, Server};

/// Bytes that are kept.
#[derive(Clone, Default)]
struct KeptBytes(Arc<Mutex<Vec<u8>>>);

impl Write for KeptBytes {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn note(method: &str, params: Value) -> Message {
    Message::Notification(Notification::new(method.to_string(), params))
}

fn request(id: i32, method: &str, params: Value) -> Message {
    Message::Request(Request::new(RequestId::from(id), method.to_string(), params))
}

/// What a server says to messages that are all there before it begins.
fn said(messages: Vec<Message>) -> (End, Vec<Message>) {
    let (sender, receiver) = channel();
    messages.into_iter().for_each(|message| sender.send(message).expect("the receiver is there"));
    drop(sender);
    let kept = KeptBytes::default();
    let end = Server::new(Client::new(kept.clone())).run(&receiver);
    let bytes = kept.0.lock().expect("no panic").clone();
    let mut from = bytes.as_slice();
    let mut all = Vec::new();
    while let Some(message) = Message::read(&mut from).expect("well-formed") {
        all.push(message);
    }
    (end, all)
}

#[test]
fn of_edits_that_queue_up_only_the_newest_is_checked() {
    let uri = "file:///a.shard";
    let mut messages = vec![
        request(1, "initialize", json!({"capabilities": {}})),
        note("initialized", json!({})),
        note(
            "textDocument/didOpen",
            json!({"textDocument": {"uri": uri, "languageId": "shard", "version": 1, "text": "nonsense 1"}}),
        ),
    ];
    for version in 2..100 {
        let text = format!("nonsense {version}");
        let document = json!({"uri": uri, "version": version});
        messages.push(note(
            "textDocument/didChange",
            json!({"textDocument": document, "contentChanges": [{"text": text}]}),
        ));
    }
    // A question is about the text of its time.
    messages.insert(
        53,
        request(2, "textDocument/formatting", json!({"textDocument": {"uri": uri}, "options": {}})),
    );
    messages.push(request(3, "shutdown", Value::Null));
    messages.push(note("exit", Value::Null));
    let (end, all) = said(messages);
    let versions: Vec<i64> = all
        .iter()
        .filter_map(|message| match message {
            Message::Notification(note) => note.params["version"].as_i64(),
            Message::Request(_) | Message::Response(_) => None,
        })
        .collect();
    assert_eq!((end, versions), (End::Clean, vec![51]), "99 has nobody left to read it");
}

#[test]
fn a_session_that_is_not_begun_or_is_shut_down_answers_nothing_else() {
    let hover =
        || json!({"textDocument": {"uri": "file:///a"}, "position": {"line": 0, "character": 0}});
    let (end, all) = said(vec![
        request(1, "textDocument/hover", hover()),
        note("textDocument/didOpen", json!(3)),
        request(2, "initialize", json!([])),
        request(3, "initialize", json!({})),
        request(4, "shutdown", Value::Null),
        request(5, "textDocument/hover", hover()),
        note("exit", Value::Null),
    ]);
    let refused: Vec<bool> = all
        .iter()
        .filter_map(|message| match message {
            Message::Response(response) => Some(response.response_result.is_err()),
            Message::Request(_) | Message::Notification(_) => None,
        })
        .collect();
    assert_eq!((end, refused), (End::Clean, vec![true, false, true, false, true]));
    assert_eq!(
        said(vec![request(1, "initialize", json!({})), note("exit", Value::Null)]).0,
        End::Abrupt
    );
}
