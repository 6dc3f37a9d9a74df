//! The messages of an editor to `shardc lsp`: whole sessions with spoiled files. Some sessions are
//! also spoiled as bytes.

use serde_json::{Value, json};
use shard_runtime::Random;

use super::{Depth, Mutator, Shardc, Surface, Verdict, program, text_of, words};

/// The surface.
pub(super) const SURFACE: Surface =
    Surface { name: "editor", extension: "lsp", corpus, make, judge };

/// The largest file that is opened: the test reads everything that the server says about it.
const MAX_FILE: usize = 1500;

/// The files that are opened.
const URIS: &[&str] =
    &["file:///a%20b/c.shard", "untitled:Untitled-1", "file:///%F0%9F%98%80.shard"];

/// Right and wrong programs.
fn corpus(shardc: &Shardc) -> Vec<Vec<u8>> {
    program::corpus(shardc).into_iter().filter(|text| text.len() < MAX_FILE).collect()
}

/// A message with its header.
fn framed(message: &Value) -> Vec<u8> {
    let text = message.to_string();
    format!("Content-Length: {}\r\n\r\n{text}", text.len()).into_bytes()
}

/// A session: files are opened and changed, and requests ask about places inside and outside of
/// them.
fn make(corpus: &[Vec<u8>], random: &mut Random) -> Vec<u8> {
    let mut session: Vec<Vec<u8>> = Vec::new();
    let mut tell = |method: &str, params: Value, id: Option<u64>| {
        let mut message = json!({"jsonrpc": "2.0", "method": method, "params": params});
        if let Some(id) = id {
            message["id"] = json!(id);
        }
        session.push(framed(&message));
    };
    tell(
        "initialize",
        json!({"capabilities": {"workspace": {"inlayHint": {"refreshSupport": true}}}}),
        Some(0),
    );
    tell("initialized", json!({}), None);
    let mut text = String::new();
    for id in 1..4 + random.below(24) {
        let uri =
            URIS[if random.below(4) == 0 { random.below(URIS.len() as u64) as usize } else { 0 }];
        let document = json!({"uri": uri});
        let at = place(&text, random);
        let params = json!({"textDocument": document, "position": at});
        match if id == 1 { 0 } else { random.below(16) } {
            0 => {
                text = Mutator::new(random, corpus, words::SHARD).text_or_spoiled();
                let opened =
                    json!({"uri": uri, "languageId": "shard", "version": id, "text": text});
                tell("textDocument/didOpen", json!({"textDocument": opened}), None);
            }
            1 | 2 => {
                text = Mutator::new(random, corpus, words::SHARD).spoil(text);
                let version = json!({"uri": uri, "version": id});
                let changes = json!([{"text": text}]);
                tell(
                    "textDocument/didChange",
                    json!({"textDocument": version, "contentChanges": changes}),
                    None,
                );
            }
            3 => tell("textDocument/didClose", json!({"textDocument": document}), None),
            4 | 5 => tell("textDocument/completion", params, Some(id)),
            6 | 7 => tell("textDocument/hover", params, Some(id)),
            8 => tell("textDocument/definition", params, Some(id)),
            9 => {
                let context = json!({"includeDeclaration": true});
                let params = json!({"textDocument": document, "position": at, "context": context});
                tell("textDocument/references", params, Some(id));
            }
            10 => tell("textDocument/prepareRename", params, Some(id)),
            11 => {
                let name = ["h2", "B", "é", "", "let", "x", "a b"][random.below(7) as usize];
                let params = json!({"textDocument": document, "position": at, "newName": name});
                tell("textDocument/rename", params, Some(id));
            }
            12 => {
                let options = json!({"tabSize": 2, "insertSpaces": true});
                tell(
                    "textDocument/formatting",
                    json!({"textDocument": document, "options": options}),
                    Some(id),
                );
            }
            13 => {
                let range = json!({"start": at, "end": place(&text, random)});
                let params = json!({"textDocument": document, "range": range, "context": {"diagnostics": []}});
                tell("textDocument/codeAction", params, Some(id));
            }
            14 => {
                let range = json!({"start": at, "end": place(&text, random)});
                tell(
                    "textDocument/inlayHint",
                    json!({"textDocument": document, "range": range}),
                    Some(id),
                );
            }
            _ => {
                let odd =
                    [json!(null), json!([1]), json!({}), json!("x"), json!({"textDocument": 3})];
                let methods = [
                    "textDocument/didOpen",
                    "textDocument/hover",
                    "$/x",
                    "exit2",
                    "textDocument/didChange",
                ];
                let id = (random.below(2) == 0).then_some(id);
                tell(methods[random.below(5) as usize], odd[random.below(5) as usize].clone(), id);
            }
        }
    }
    tell("shutdown", Value::Null, Some(1000));
    tell("exit", Value::Null, None);
    match random.below(4) {
        0 => Mutator::new(random, &session, words::EDITOR)
            .spoil(text_of(&session.concat()))
            .into_bytes(),
        _ => session.concat(),
    }
}

/// A place in a text, on its border, in the middle of a pair of units, or far outside.
fn place(text: &str, random: &mut Random) -> Value {
    if random.below(8) == 0 {
        let odd = [0, 1, 1 << 16, u64::from(u32::MAX)];
        return json!({"line": odd[random.below(4) as usize], "character": odd[random.below(4) as usize]});
    }
    let lines: Vec<&str> = text.split('\n').collect();
    let line = random.below(lines.len() as u64) as usize;
    let units = lines[line].encode_utf16().count() as u64;
    json!({"line": line, "character": random.below(units + 2)})
}

fn judge(shardc: &Shardc, case: &[u8]) -> Verdict {
    let ended = shardc.run(&["lsp"], case)?;
    let Some(sent) = messages(case) else { return Ok(Depth::Refused) };
    let answers = match messages(&ended.out) {
        Some(answers) => answers,
        // A session that an error ended may be cut short.
        None if ended.status != 0 => Vec::new(),
        None => return Err("what the server sends is no stream of messages".to_string()),
    };
    // Up to the end of the session each request is answered once.
    let asked =
        sent.iter().take_while(|m| m["method"] != "exit").filter(|m| m["method"].is_string());
    let first =
        sent.first().is_some_and(|m| m["method"] == "initialize" && m["params"].is_object());
    let whole = first && sent.iter().any(|m| m["method"] == "shutdown");
    for request in asked.filter(|m| whole && m["id"].is_u64() && m["jsonrpc"] == "2.0") {
        let same =
            answers.iter().filter(|a| a["id"] == request["id"] && a["method"].is_null()).count();
        let asked = sent.iter().filter(|m| m["id"] == request["id"]).count();
        if same != asked && ended.status == 0 {
            return Err(format!(
                "{request} was answered {same} times, status {}\n{}",
                ended.status, ended.err
            ));
        }
    }
    match ended.status {
        0 => Ok(Depth::Executed),
        _ if whole && case_is_ours(&sent) => {
            Err(format!("a right session ends with {}: {}", ended.status, ended.err))
        }
        _ => Ok(Depth::Refused),
    }
}

/// Whether a session was not spoiled as bytes: it ends as the sessions of this file do.
fn case_is_ours(sent: &[Value]) -> bool {
    let ends: Vec<&Value> = sent.iter().rev().take(2).map(|m| &m["method"]).collect();
    ends == ["exit", "shutdown"]
        && sent.iter().all(|m| m["jsonrpc"] == "2.0" && m["method"].is_string())
}

/// The messages of a stream; `None` where it is not a stream of messages.
fn messages(mut bytes: &[u8]) -> Option<Vec<Value>> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
        let header = std::str::from_utf8(&bytes[..end]).ok()?;
        let length: usize = header.strip_prefix("Content-Length: ")?.parse().ok()?;
        let body = bytes.get(end + 4..(end + 4).checked_add(length)?)?;
        out.push(serde_json::from_slice(body).ok()?);
        bytes = &bytes[end + 4 + length..];
    }
    Some(out)
}
