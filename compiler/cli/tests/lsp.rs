//! A scripted editor against `shardc lsp`.

use std::io::{BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use lsp_server::{Message, Notification, Request, RequestId, Response};
use serde_json::{Value, json};

const MLP: &str = include_str!("files/mlp.shard");
const URI: &str = "file:///work/space%20here/mlp.shard";

/// An editor with one file open.
struct Editor {
    server: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    requests: i32,
    /// Notifications and requests of the server that nobody has looked at.
    heard: Vec<Message>,
}

impl Editor {
    fn open(text: &str) -> Editor {
        let mut server = Command::new(env!("CARGO_BIN_EXE_shardc"))
            .arg("lsp")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let (to, from) =
            (server.stdin.take().expect("piped"), server.stdout.take().expect("piped"));
        let mut editor =
            Editor { server, to, from: BufReader::new(from), requests: 0, heard: Vec::new() };
        let capabilities = json!({"workspace": {"inlayHint": {"refreshSupport": true}}});
        let answer = editor.ask("initialize", json!({"capabilities": capabilities}));
        assert_eq!(answer["capabilities"]["hoverProvider"], true);
        editor.tell("initialized", json!({}));
        let document = json!({"uri": URI, "languageId": "shard", "version": 1, "text": text});
        editor.tell("textDocument/didOpen", json!({"textDocument": document}));
        editor
    }

    fn change(&mut self, version: i32, text: &str) {
        let document = json!({"uri": URI, "version": version});
        self.tell(
            "textDocument/didChange",
            json!({"textDocument": document, "contentChanges": [{"text": text}]}),
        );
    }

    fn send(&mut self, message: Message) {
        message.write(&mut self.to).expect("written");
        self.to.flush().expect("flushed");
    }

    fn tell(&mut self, method: &str, params: Value) {
        self.send(Message::Notification(Notification::new(method.to_string(), params)));
    }

    /// The next message. Answers to requests whose id could not be read are skipped.
    fn receive(&mut self) -> Message {
        loop {
            match Message::read(&mut self.from) {
                Ok(message) => return message.expect("the server is there"),
                Err(error) => assert!(error.to_string().contains(r#"\"id\":"#), "{error}"),
            }
        }
    }

    fn respond(&mut self, method: &str, params: Value) -> Response {
        self.requests += 1;
        let id = RequestId::from(self.requests);
        self.send(Message::Request(Request::new(id.clone(), method.to_string(), params)));
        loop {
            match self.receive() {
                Message::Response(response) if response.id == id => return response,
                other => self.heard.push(other),
            }
        }
    }

    fn ask(&mut self, method: &str, params: Value) -> Value {
        let response = serde_json::to_value(self.respond(method, params)).expect("JSON");
        assert!(response["error"].is_null(), "{method}: {response}");
        response["result"].clone()
    }

    /// Asks about the place `on` bytes after the first occurrence of `near` in the source.
    fn ask_at(&mut self, method: &str, source: &str, near: &str, on: usize) -> Value {
        self.ask(method, json!({"textDocument": {"uri": URI}, "position": place(source, near, on)}))
    }

    /// The diagnostics of a version. They are published twice, by checking and after lowering;
    /// `whole` waits for the second time.
    fn diagnostics(&mut self, version: i32, whole: bool) -> Vec<Value> {
        let mut wanted = if whole { 2 } else { 1 };
        loop {
            let message = if self.heard.is_empty() { self.receive() } else { self.heard.remove(0) };
            let Message::Notification(note) = message else { continue };
            if note.method == "textDocument/publishDiagnostics" && note.params["version"] == version
            {
                wanted -= 1;
                if wanted == 0 {
                    return note.params["diagnostics"].as_array().expect("a list").clone();
                }
            }
        }
    }

    fn close(mut self) {
        self.ask("shutdown", Value::Null);
        self.tell("exit", Value::Null);
        assert!(self.server.wait().expect("it ends").success());
    }
}

fn place(source: &str, near: &str, on: usize) -> Value {
    let at = source.find(near).unwrap_or_else(|| panic!("{near:?} is in the text")) + on;
    let line = source[..at].matches('\n').count();
    let start = source[..at].rfind('\n').map_or(0, |end| end + 1);
    json!({"line": line, "character": at - start})
}

fn whole_file() -> Value {
    json!({"start": {"line": 0, "character": 0}, "end": {"line": 999, "character": 0}})
}

/// The source after the edits of an answer.
fn edited(source: &str, edits: &Value) -> String {
    let offset = |place: &Value| {
        let (line, character) = (
            place["line"].as_u64().expect("a line"),
            place["character"].as_u64().expect("a column"),
        );
        let start: usize = source.split_inclusive('\n').take(line as usize).map(str::len).sum();
        start + character as usize
    };
    let mut edits: Vec<(usize, usize, &str)> = edits
        .as_array()
        .expect("edits")
        .iter()
        .map(|e| {
            (
                offset(&e["range"]["start"]),
                offset(&e["range"]["end"]),
                e["newText"].as_str().expect("text"),
            )
        })
        .collect();
    edits.sort_unstable();
    let mut text = source.to_string();
    for (start, end, new) in edits.into_iter().rev() {
        text.replace_range(start..end, new);
    }
    text
}

#[test]
fn an_error_is_published_with_its_range_and_a_quick_fix_that_mends_it() {
    let wrong = MLP.replace("gelu(h)", "gelu(hh)");
    let mut editor = Editor::open(&wrong);
    let found = editor.diagnostics(1, false);
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(found[0]["range"]["start"], place(&wrong, "hh)", 0));
    assert_eq!(found[0]["severity"], 1);
    assert_eq!(found[0]["codeDescription"]["href"], "shardc:/spec/diagnostics/E0601.md");
    let params = json!({"textDocument": {"uri": URI}, "range": found[0]["range"], "context": {"diagnostics": []}});
    let actions = editor.ask("textDocument/codeAction", params);
    let mended = edited(&wrong, &actions[0]["edit"]["changes"][URI]);
    assert_eq!(mended, MLP);
    editor.change(2, &mended);
    assert!(editor.diagnostics(2, true).iter().all(|d| d["severity"] != 1));
    editor.close();
}

#[test]
fn hover_tells_type_local_shape_and_layout_in_words() {
    let mut editor = Editor::open(MLP);
    let text = editor.ask_at("textDocument/hover", MLP, "x:", 0)["contents"]["value"].to_string();
    for part in ["x: bf16 BLE_xyz", "E split over x then y then z (64 ways)", "local [512, 1, 288]"]
    {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let text = editor.ask_at("textDocument/hover", MLP, "xyz,", 1)["contents"]["value"].to_string();
    assert!(text.contains("mesh axis `y` of 4 (64 devices in all)"), "{text}");
    let text =
        editor.ask_at("textDocument/hover", MLP, "gelu(", 1)["contents"]["value"].to_string();
    assert!(text.contains("gelu(a)") && text.contains("Gaussian error linear unit"), "{text}");
    // After lowering, the hover shows the layout that the compiler chose.
    editor.diagnostics(1, true);
    let text =
        editor.ask_at("textDocument/hover", MLP, "let h", 4)["contents"]["value"].to_string();
    assert!(text.contains("h: bf16 BLF_yz(partialsum-x)"), "{text}");
    // In a file that does not parse to its end, the hover of a dim shows what its line says.
    let broken = MLP.replace("return y", "retrun y");
    editor.change(2, &broken);
    let text =
        editor.ask_at("textDocument/hover", &broken, "dim E", 4)["contents"]["value"].to_string();
    assert!(text.contains("dim E = 18432"), "{text}");
    editor.close();
}

#[test]
fn hints_show_inferred_layouts_and_inserted_collectives_with_their_cost() {
    let mut editor = Editor::open(MLP);
    editor.diagnostics(1, true);
    let hints = editor.ask(
        "textDocument/inlayHint",
        json!({"textDocument": {"uri": URI}, "range": whole_file()}),
    );
    let labels: Vec<&str> =
        hints.as_array().expect("hints").iter().filter_map(|h| h["label"].as_str()).collect();
    assert!(labels.contains(&": BLF_yz(partialsum-x)"), "{labels:?}");
    assert!(labels.contains(&"+ all-gather yz along E of x 16.4 us"), "{labels:?}");
    editor.close();
}

#[test]
fn hints_show_the_layouts_that_were_chosen_for_open_parameters() {
    let mut editor = Editor::open(&MLP.replace("bf16 E_xF_yz", "bf16 EF?"));
    editor.diagnostics(1, true);
    let hints = editor.ask(
        "textDocument/inlayHint",
        json!({"textDocument": {"uri": URI}, "range": whole_file()}),
    );
    let labels: Vec<&str> =
        hints.as_array().expect("hints").iter().filter_map(|h| h["label"].as_str()).collect();
    assert!(labels.contains(&" = E_xF_yz"), "{labels:?}");
    editor.close();
}

#[test]
fn the_time_of_a_step_stands_above_its_layer() {
    let mut editor = Editor::open(MLP);
    editor.diagnostics(1, true);
    let lenses = editor.ask("textDocument/codeLens", json!({"textDocument": {"uri": URI}}));
    let lenses = lenses.as_array().expect("lenses");
    let [lens] = lenses.as_slice() else { panic!("{lenses:?}") };
    assert_eq!(lens["command"]["title"], "219 us a step");
    let line = lens["range"]["start"]["line"].as_u64().expect("a line") as usize;
    assert!(MLP.lines().nth(line).expect("a line").contains("layer mlp"), "{lens}");
    editor.close();
}

#[test]
fn hints_of_an_older_version_are_not_shown() {
    let mut editor = Editor::open(MLP);
    editor.diagnostics(1, true);
    let wrong = MLP.replace("gelu(h)", "gelu(hh)");
    editor.change(2, &wrong);
    let hints = editor.ask(
        "textDocument/inlayHint",
        json!({"textDocument": {"uri": URI}, "range": whole_file()}),
    );
    assert!(hints.is_null(), "{hints}");
    editor.close();
}

/// A file whose search takes minutes: eight feed-forward layers without any layouts, on a mesh of
/// five axes.
fn long_search() -> String {
    let (mut params, mut body, mut last) = (String::new(), String::new(), "x".to_string());
    for i in 0..8 {
        params += &format!(", v{i}: weight bf16 EF?, u{i}: weight bf16 FE?");
        body += &format!("  let h{i} = gelu(einsum(rmsnorm({last} over E), v{i} -> BLF))\n");
        body += &format!("  let y{i} = {last} + einsum(h{i}, u{i} -> BLE)\n");
        last = format!("y{i}");
    }
    format!(
        "hardware tpu-v4\nmesh x=2, y=2, z=2, w=2, v=2\ndim B = 1024\ndim L = 1024\ndim E = \
            4096\ndim F = 4096\n\
         layer f(x: bf16 BLE?{params}) -> bf16 BLE? {{\n{body}  return {last}\n}}\n"
    )
}

#[test]
fn an_edit_ends_the_search_for_the_version_before() {
    let mut editor = Editor::open(&long_search());
    assert_eq!(editor.diagnostics(1, false), Vec::<Value>::new());
    // Long enough for the search to have begun, far too short for it to end.
    std::thread::sleep(Duration::from_millis(1500));
    let edited = Instant::now();
    editor.change(2, MLP);
    editor.diagnostics(2, true);
    assert!(edited.elapsed() < Duration::from_secs(20), "{:?}", edited.elapsed());
    // A version with an error, which needs no search, also ends the search of the version before.
    editor.change(3, &long_search());
    editor.diagnostics(3, false);
    std::thread::sleep(Duration::from_millis(500));
    editor.change(4, &MLP.replace("gelu(h)", "gelu(hh)"));
    editor.change(5, MLP);
    let edited = Instant::now();
    editor.diagnostics(5, true);
    assert!(edited.elapsed() < Duration::from_secs(20), "{:?}", edited.elapsed());
    editor.close();
}

#[test]
fn renaming_an_axis_rewrites_the_words_that_need_another_form() {
    let mut editor = Editor::open(MLP);
    let at = place(MLP, "x=4", 0);
    let params = json!({"textDocument": {"uri": URI}, "position": at, "newName": "data"});
    let renamed = edited(MLP, &editor.ask("textDocument/rename", params)["changes"][URI]);
    assert!(
        renamed.contains("mesh data=4, y=4, z=4") && renamed.contains("BLE_{data,y,z}"),
        "{renamed}"
    );
    editor.change(2, &renamed);
    assert_eq!(editor.diagnostics(2, true).iter().filter(|d| d["severity"] == 1).count(), 0);
    for taken in ["y", "Data", "let x"] {
        let params = json!({"textDocument": {"uri": URI}, "position": at, "newName": taken});
        assert!(
            serde_json::to_value(editor.respond("textDocument/rename", params)).expect("JSON")["error"].is_object()
        );
    }
    // A rename would miss a line that does not parse, so it is refused.
    editor.change(3, &renamed.replace("return y", "retrun y"));
    let params = json!({"textDocument": {"uri": URI}, "position": at, "newName": "other"});
    let refused = serde_json::to_value(editor.respond("textDocument/rename", params));
    let refused = refused.expect("JSON")["error"]["message"].to_string();
    assert!(refused.contains("mend them first"), "{refused}");
    editor.close();
}

#[test]
fn words_that_begin_something_else_rename_neither_axes_nor_phases_nor_labels() {
    let text = "mesh x=2, y=2\ndim B = 8\nphase one { B = 8 }\n\
        layer f(a: f32 B_{x,y}) -> f32 B {\n  let b: f32 B?kept = a\n  return b\n}\n";
    let mut editor = Editor::open(text);
    let mut renamed = |what: &str, to: &str| {
        let at = place(text, what, 0);
        let params = json!({"textDocument": {"uri": URI}, "position": at, "newName": to});
        let answer = editor.respond("textDocument/rename", params);
        serde_json::to_value(answer).expect("JSON")["error"].is_null()
    };
    for what in ["x=2", "one", "kept"] {
        for word in ["let", "expect", "return"] {
            assert!(!renamed(what, word), "{what} as {word}");
        }
        assert!(renamed(what, "other"), "{what}");
    }
    assert!(!renamed("one", "mesh") && !renamed("one", "layer"));
    editor.close();
}

#[test]
fn definition_completion_and_formatting_answer() {
    let untidy = MLP.replace("  let a", "      let   a");
    let mut editor = Editor::open(&untidy);
    let places = editor.ask_at("textDocument/definition", &untidy, "gelu(h", 5);
    assert_eq!(places[0]["range"]["start"], place(&untidy, "let h", 4));
    let labels = |answer: Value| -> Vec<String> {
        answer
            .as_array()
            .expect("items")
            .iter()
            .map(|i| i["label"].as_str().expect("a label").to_string())
            .collect()
    };
    // Completion offers axes after the `_` of a dim, dims in a layout word, and values and
    // operations in an expression.
    let axes = labels(editor.ask_at("textDocument/completion", &untidy, "F_yzE_x", 6));
    assert_eq!(axes, ["x"], "y and z split F already");
    let axes = labels(editor.ask_at("textDocument/completion", &untidy, "F_yzE_x", 2));
    assert_eq!(axes, ["x", "y", "z"]);
    let dims = labels(editor.ask_at("textDocument/completion", &untidy, "BLE_xyz", 1));
    assert!(dims.contains(&"F".to_string()) && !dims.contains(&"gelu".to_string()), "{dims:?}");
    let words = labels(editor.ask_at("textDocument/completion", &untidy, "gelu(h", 5));
    assert!(
        ["x", "w_in", "h", "gelu", "einsum"].iter().all(|w| words.iter().any(|l| l == w)),
        "{words:?}"
    );
    let params =
        json!({"textDocument": {"uri": URI}, "options": {"tabSize": 2, "insertSpaces": true}});
    let tidy = edited(&untidy, &editor.ask("textDocument/formatting", params));
    assert!(tidy.contains("\n  let a = "), "{tidy}");
    editor.close();
}

#[test]
fn completion_offers_what_the_place_takes() {
    let text = "hardware tpu-v5e\nmesh x=4, y=2, data=2\ndim B = 64\ndim E = 64\n\
                layer f(a: bf16 B_xE, b: bf16 BE(partialsum-x)) -> bf16 B_(xy)E {\n  \
                let s = sum(a over E)\n  return reshard(a + b, B_{x,y}E)\n}\n";
    let mut editor = Editor::open(text);
    let mut at = |place: &str, offset: usize| -> Vec<(String, String)> {
        let answer = editor.ask_at("textDocument/completion", text, place, offset);
        let text = |value: &Value| value.as_str().expect("text").to_string();
        let items = answer.as_array().expect("items").iter();
        items.map(|i| (text(&i["label"]), text(&i["textEdit"]["newText"]))).collect()
    };
    let labels = |all: &[(String, String)]| -> Vec<String> {
        all.iter().map(|(label, _)| label.clone()).collect()
    };
    assert!(labels(&at("hardware tpu-v5e", 9)).contains(&"h100".to_string()));
    // A longer axis puts the letters before it in braces, in their place.
    assert_eq!(labels(&at("B_xE,", 3)), ["y", "{x,data}"]);
    assert_eq!(labels(&at("partialsum-x", 11)), ["x", "y", "{data}"]);
    assert_eq!(labels(&at("B_(xy)", 3)), ["x", "y", "{data}"]);
    assert_eq!(labels(&at("B_{x,y}E", 5)), ["y", "data"]);
    assert_eq!(labels(&at("over E", 5)), ["B", "E"]);
    // The letters typed of a longer axis name are not read as axes of one letter.
    let half = text.replace("B_xE,", "B_xdaE,");
    editor.change(2, &half);
    let answer = editor.ask_at("textDocument/completion", &half, "B_xdaE,", 5);
    assert_eq!(answer[1]["textEdit"]["newText"], "{x,data}", "{answer}");
    editor.close();
}

/// The text of the parameter that the cursor is in, and the text of its signature.
fn active(help: &Value) -> (String, String) {
    let signature = &help["signatures"][0];
    let label = signature["label"].as_str().expect("a label");
    let part = &signature["parameters"]
        [help["activeParameter"].as_u64().expect("a number") as usize]["label"];
    let [start, end] = [0, 1].map(|i| part[i].as_u64().expect("an offset") as usize);
    (label[start..end].to_string(), label.to_string())
}

#[test]
fn signature_help_tells_which_operand_or_slot_the_cursor_is_in() {
    let text = MLP
        .replace("let a = gelu(h)", "let a = rope(gelu(h) over F at L, )")
        .replace("return y", "return split(y, E -> [G, H])")
        + "\nlayer twice(v: bf16 BLE?) -> bf16 BLE? { return mlp(v, v, v) }\n";
    let mut editor = Editor::open(&text);
    for (near, on, part) in [
        ("rope(gelu", 5, "a"),
        ("rope(gelu", 10, "a"),
        ("over F at", 5, "dim"),
        ("at L, )", 3, "position"),
        ("at L, )", 6, "extent"),
    ] {
        let (found, label) = active(&editor.ask_at("textDocument/signatureHelp", &text, near, on));
        let wanted = if near == "rope(gelu" && on == 10 {
            ("a", "gelu(a)")
        } else {
            (part, "rope(a over dim at position[, extent])")
        };
        assert_eq!((found.as_str(), label.as_str()), wanted, "{near:?} {on}");
    }
    let help = editor.ask_at("textDocument/signatureHelp", &text, "einsum(x, w_in -> BLF", 18);
    assert_eq!(active(&help).0, "dims");
    let help = editor.ask_at("textDocument/signatureHelp", &text, "mlp(v, v, v)", 7);
    assert_eq!(active(&help).0, "w_in: weight bf16 E_xF_yz");
    let help = editor.ask_at("textDocument/signatureHelp", &text, "let h", 2);
    assert!(help.is_null(), "{help}");
    editor.close();
}

#[test]
fn the_outline_has_layers_with_what_they_take_and_name() {
    let mut editor = Editor::open(MLP);
    let outline = editor.ask("textDocument/documentSymbol", json!({"textDocument": {"uri": URI}}));
    let names = |list: &Value| -> Vec<String> {
        let list = list.as_array().expect("a list").iter();
        list.map(|entry| entry["name"].as_str().expect("a name").to_string()).collect()
    };
    assert_eq!(names(&outline), ["tpu-v4-flat", "mesh", "B", "L", "E", "F", "mlp"]);
    assert_eq!(names(&outline[1]["children"]), ["x", "y", "z"]);
    assert_eq!(outline[5]["detail"], "= 4 * E");
    assert_eq!(names(&outline[6]["children"]), ["x", "w_in", "w_out", "h", "a", "y"]);
    assert_eq!(outline[6]["children"][1]["detail"], "weight bf16 E_xF_yz");
    editor.close();
}

#[test]
fn answers_that_need_no_lowering_come_within_50_ms() {
    // The largest example of the repository.
    let examples = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let mut files = Vec::new();
    for folder in std::fs::read_dir(examples).expect("examples").flatten().map(|e| e.path()) {
        if folder.is_dir() && folder.file_name().is_some_and(|n| n != "errors") {
            files.extend(std::fs::read_dir(folder).expect("a folder").flatten().map(|e| e.path()));
        }
    }
    let texts = files
        .iter()
        .filter(|p| p.extension().is_some_and(|e| e == "shard"))
        .map(std::fs::read_to_string);
    let text = texts.flatten().max_by_key(String::len).expect("an example");
    let mut editor = Editor::open(&text);
    editor.diagnostics(1, false);
    let name = text.find("layer ").expect("a layer");
    let at = place(&text, "layer ", 6);
    let mut fastest = Duration::MAX;
    for version in 2..8 {
        let start = Instant::now();
        editor.change(version, &format!("{text}\n"));
        editor.diagnostics(version, false);
        editor.ask("textDocument/hover", json!({"textDocument": {"uri": URI}, "position": at}));
        editor
            .ask("textDocument/completion", json!({"textDocument": {"uri": URI}, "position": at}));
        let options =
            json!({"textDocument": {"uri": URI}, "options": {"tabSize": 2, "insertSpaces": true}});
        editor.ask("textDocument/formatting", options);
        fastest = fastest.min(start.elapsed());
    }
    assert!(name > 0 && fastest < Duration::from_millis(50), "{fastest:?}");
    editor.close();
}

#[test]
fn completion_behind_a_letter_that_is_not_ascii_answers() {
    let text = MLP.replace("layer mlp", "caf\u{e9}\u{1f600}\nlayer mlp");
    let mut editor = Editor::open(&text);
    let line = text.lines().position(|line| line.starts_with("caf")).expect("the line");
    for character in 0..10 {
        let place = json!({"line": line, "character": character});
        let answer = editor.ask(
            "textDocument/completion",
            json!({"textDocument": {"uri": URI}, "position": place}),
        );
        assert!(answer.is_array(), "{answer}");
    }
    editor.close();
}

#[test]
fn nothing_is_offered_in_a_comment() {
    let text = MLP.replace("layer mlp", "// ge\nlayer mlp");
    let mut editor = Editor::open(&text);
    let line = text.lines().position(|line| line == "// ge").expect("the comment");
    for (character, offers) in [(0, true), (4, false), (5, false)] {
        let place = json!({"line": line, "character": character});
        let answer = editor.ask(
            "textDocument/completion",
            json!({"textDocument": {"uri": URI}, "position": place}),
        );
        let offered = answer.as_array().is_some_and(|items| !items.is_empty());
        assert_eq!(offered, offers, "at {character}: {answer}");
    }
    editor.close();
}

#[test]
fn no_message_ends_the_server() {
    let mut editor = Editor::open(MLP);
    editor.diagnostics(1, true);
    for (method, params) in [
        ("textDocument/didOpen", json!(null)),
        (
            "textDocument/didOpen",
            json!({"textDocument": {"uri": "", "languageId": 1, "version": 1e99, "text": []}}),
        ),
        (
            "textDocument/didOpen",
            json!({"textDocument": {"uri": " :", "languageId": "", "version": 1, "text": ""}}),
        ),
        (
            "textDocument/didChange",
            json!({"textDocument": {"uri": URI, "version": 7}, "contentChanges": []}),
        ),
        ("textDocument/didChange", json!([[], {}])),
        ("textDocument/didClose", json!({"textDocument": {"uri": "file:///never/opened"}})),
        ("textDocument/didClose", json!("a")),
        ("$/cancelRequest", json!({"id": 3})),
    ] {
        editor.tell(method, params);
    }
    let far = json!({"line": u32::MAX, "character": u32::MAX});
    let at = json!({"textDocument": {"uri": URI}, "position": far, "newName": "\u{202e}", "options": {},
        "range": {"start": far, "end": {"line": 0, "character": 0}}, "context": {"diagnostics": [], "includeDeclaration": true}});
    for method in [
        "hover",
        "definition",
        "references",
        "rename",
        "completion",
        "formatting",
        "codeAction",
        "inlayHint",
        "codeLens",
        "signatureHelp",
        "documentSymbol",
    ] {
        for params in [json!(null), json!({"textDocument": 1}), at.clone()] {
            editor.respond(&format!("textDocument/{method}"), params);
        }
    }
    let document = format!(r#"{{"uri": "{URI}", "version": 2}}"#);
    for body in [
        // Half a surrogate pair, as editors send while the other half is being typed.
        format!(
            r#"{{"method": "textDocument/didChange", "params": {{"textDocument": {document}, "contentChanges": [{{"text": "// \ud83d"}}]}}}}"#
        ),
        r#"{"method": "textDocument/hover", "id": 99999999999}"#.to_string(),
        "{\u{e9}".to_string(),
        "[]".to_string(),
    ] {
        write!(editor.to, "Content-Length: {}\r\n\r\n{body}", body.len()).expect("written");
    }
    write!(editor.to, "Content-Length: 18446744073709551615\r\n\r\n{{}}").expect("written");
    assert_eq!(
        editor.diagnostics(2, false),
        Vec::<Value>::new(),
        "the text with the half pair was checked"
    );
    editor.change(3, MLP);
    editor.diagnostics(3, true);
    editor.close();
}
