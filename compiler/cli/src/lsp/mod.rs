//! `shardc lsp`: the language server, over standard input and output.
//!
//! What the parser and the checker know is answered at once. Layouts that the compiler infers and
//! what they cost come from a thread of their own ([`background`]) and are shown when they are
//! there.

mod background;
mod completion;
mod document;
mod hints;
mod hover;
mod lenses;
mod outline;
mod position;
mod protocol;
mod signature;
mod symbols;
#[cfg(test)]
mod tests;
mod wire;

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lsp_server::{ErrorCode, Message, Notification, Request, RequestId, Response};
use lsp_types::notification::{self, Notification as _};
use lsp_types::request::{self, Request as _};
use lsp_types::{
    CodeAction, CodeActionKind, CodeActionOptions, CodeActionOrCommand, CodeActionParams,
    CodeActionProviderCapability, CodeLensOptions, CompletionOptions, DocumentSymbolResponse,
    GotoDefinitionResponse, Hover, HoverContents, HoverProviderCapability, Location, MarkupContent,
    MarkupKind, OneOf, Position, Range, RenameOptions, ServerCapabilities, SignatureHelpOptions,
    TextDocumentSyncCapability, TextDocumentSyncKind, TextEdit, Uri, WorkspaceEdit,
};
use serde::Serialize;
use serde::de::{DeserializeOwned, Error as _};
use serde_json::{Value, json};
use shard_grammar::{SourceFile, Span};

use background::{Background, Lowered};
use document::Document;
use position::{offset_of, range_of};
use protocol::{edit_of, formatted, publication, to_client};
use symbols::{Occurrence, Symbols};
use wire::Client;

/// How a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    /// The client said that it has enough, or is gone.
    Clean,
    /// The client ended the server without asking it to shut down.
    Abrupt,
}

/// Serves one client until it says that it has enough.
pub(crate) fn serve() -> End {
    let client = Client::new(std::io::stdout());
    let messages = wire::listen(std::io::BufReader::new(std::io::stdin()), client.clone());
    let end = Server::new(client.clone()).run(&messages);
    client.end();
    end
}

fn capabilities() -> ServerCapabilities {
    ServerCapabilities {
        text_document_sync: Some(TextDocumentSyncCapability::Kind(TextDocumentSyncKind::FULL)),
        hover_provider: Some(HoverProviderCapability::Simple(true)),
        definition_provider: Some(OneOf::Left(true)),
        references_provider: Some(OneOf::Left(true)),
        rename_provider: Some(OneOf::Right(RenameOptions {
            prepare_provider: Some(true),
            work_done_progress_options: Default::default(),
        })),
        completion_provider: Some(CompletionOptions {
            trigger_characters: Some(["_", "{", ","].map(str::to_string).to_vec()),
            ..CompletionOptions::default()
        }),
        signature_help_provider: Some(SignatureHelpOptions {
            trigger_characters: Some(["(", ",", ">"].map(str::to_string).to_vec()),
            retrigger_characters: Some([" ", ")"].map(str::to_string).to_vec()),
            ..SignatureHelpOptions::default()
        }),
        document_symbol_provider: Some(OneOf::Left(true)),
        document_formatting_provider: Some(OneOf::Left(true)),
        code_action_provider: Some(CodeActionProviderCapability::Options(CodeActionOptions {
            code_action_kinds: Some(vec![CodeActionKind::QUICKFIX]),
            ..CodeActionOptions::default()
        })),
        inlay_hint_provider: Some(OneOf::Left(true)),
        code_lens_provider: Some(CodeLensOptions { resolve_provider: Some(false) }),
        ..ServerCapabilities::default()
    }
}

struct Server {
    client: Client,
    documents: BTreeMap<Uri, Document>,
    /// The texts that came since the last check, by file: where edits queue up, only the newest
    /// text is checked.
    unchecked: BTreeMap<Uri, (i32, String)>,
    /// The newest answers of the background thread.
    lowered: Arc<Mutex<BTreeMap<Uri, Lowered>>>,
    background: Background,
    /// The stage of the session.
    state: SessionState,
}

/// What the client takes requests to refresh for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Refreshes {
    hints: bool,
    lenses: bool,
}

/// The stages of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SessionState {
    /// `initialize` is to come.
    Begun,
    Running,
    /// `exit` is to come.
    ShutDown,
}

impl Server {
    fn new(client: Client) -> Server {
        let background = Background::default();
        Server {
            client,
            documents: BTreeMap::new(),
            unchecked: BTreeMap::new(),
            lowered: Arc::default(),
            background,
            state: SessionState::Begun,
        }
    }

    /// Starts lowering in the background.
    fn lower_in_background(&mut self, refreshes: Refreshes) {
        let (client, store) = (self.client.clone(), Arc::clone(&self.lowered));
        self.background = Background::start(move |done| {
            let version = done.version;
            let news = publication(&done.uri, version, &done.file, &done.diagnostics);
            // The answer is stored before it is announced: the client may ask for it at once.
            store.lock().unwrap_or_else(PoisonError::into_inner).insert(done.uri.clone(), done);
            client.send(&news);
            let asked = [
                (refreshes.hints, "hints", request::InlayHintRefreshRequest::METHOD),
                (refreshes.lenses, "lenses", request::CodeLensRefresh::METHOD),
            ];
            for (_, what, method) in asked.into_iter().filter(|(taken, ..)| *taken) {
                let id = RequestId::from(format!("{what}-{version}"));
                let refresh = Request::new(id, method.to_string(), Value::Null);
                client.send(&Message::Request(refresh));
            }
        });
    }

    fn run(mut self, messages: &Receiver<Message>) -> End {
        let end = loop {
            let message = match messages.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Disconnected) => break End::Clean,
                Err(TryRecvError::Empty) => {
                    self.check();
                    match messages.recv() {
                        Ok(message) => message,
                        Err(_) => break End::Clean,
                    }
                }
            };
            match message {
                Message::Request(request) => {
                    let (id, method) = (request.id.clone(), request.method.clone());
                    // A defect of an answer must not end the session.
                    let answer = catch_unwind(AssertUnwindSafe(|| self.answer(request)));
                    let answer = answer.unwrap_or_else(|_| {
                        let message = format!("internal error: `{method}` ended unexpectedly");
                        Response::new_err(id, ErrorCode::InternalError as i32, message)
                    });
                    self.client.send(&Message::Response(answer));
                }
                Message::Notification(note) if note.method == notification::Exit::METHOD => {
                    break if self.state == SessionState::ShutDown {
                        End::Clean
                    } else {
                        End::Abrupt
                    };
                }
                Message::Notification(note) => {
                    let method = note.method.clone();
                    if let Err(why) = self.hear(note) {
                        self.client.log(format!("ignored: `{method}`: {why}"));
                    }
                }
                Message::Response(_) => {}
            }
        };
        self.background.close();
        end
    }

    fn hear(&mut self, note: Notification) -> Result<(), serde_json::Error> {
        if self.state != SessionState::Running {
            return Ok(());
        }
        match note.method.as_str() {
            notification::DidOpenTextDocument::METHOD => {
                let opened: lsp_types::DidOpenTextDocumentParams =
                    serde_json::from_value(note.params)?;
                let document = opened.text_document;
                self.unchecked.insert(document.uri, (document.version, document.text));
            }
            notification::DidChangeTextDocument::METHOD => {
                let changed: lsp_types::DidChangeTextDocumentParams =
                    serde_json::from_value(note.params)?;
                // The server asks for whole texts; a change of a part cannot be read.
                let whole =
                    changed.content_changes.into_iter().rev().find(|change| change.range.is_none());
                let text = whole
                    .ok_or_else(|| serde_json::Error::custom("no change with the whole text"))?
                    .text;
                self.unchecked
                    .insert(changed.text_document.uri, (changed.text_document.version, text));
            }
            notification::DidCloseTextDocument::METHOD => {
                let closed: lsp_types::DidCloseTextDocumentParams =
                    serde_json::from_value(note.params)?;
                let uri = closed.text_document.uri;
                self.unchecked.remove(&uri);
                self.background.forget(&uri);
                self.answers().remove(&uri);
                if let Some(document) = self.documents.remove(&uri) {
                    self.client.send(&publication(&uri, document.version, &document.file, &[]));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks the newest texts. What the checker finds is sent at once, the rest when it is
    /// lowered.
    fn check(&mut self) {
        while let Some((uri, (version, text))) = self.unchecked.pop_first() {
            // A defect of the checker must not end the session: the next text may be fine again.
            let Ok(document) =
                catch_unwind(AssertUnwindSafe(|| Document::new(&uri, version, text)))
            else {
                self.documents.remove(&uri);
                self.background.forget(&uri);
                self.client.log(format!(
                    "internal error: checking version {version} of `{}` failed",
                    uri.as_str()
                ));
                continue;
            };
            self.client.send(&publication(
                &uri,
                version,
                &document.file,
                &document.checked.diagnostics,
            ));
            if document.checked.has_errors() {
                self.background.forget(&uri)
            } else {
                self.background.lower(uri.clone(), version, document.file.clone())
            }
            self.documents.insert(uri, document);
        }
    }

    fn answers(&self) -> MutexGuard<'_, BTreeMap<Uri, Lowered>> {
        self.lowered.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&mut self, request: Request) -> Response {
        let Request { id, method, params } = request;
        match self.session(&method, &params) {
            None => {}
            Some(Ok(value)) => return Response::new_ok(id, value),
            Some(Err((code, message))) => return Response::new_err(id, code as i32, message),
        }
        // The request is about the newest text.
        self.check();
        match self.of_texts(&method, params) {
            Ok(value) => Response::new_ok(id, value),
            Err((code, message)) => Response::new_err(id, code as i32, message),
        }
    }

    /// Answers requests about the session, and refuses those that come too early or too late.
    /// `None` for requests about files.
    fn session(&mut self, method: &str, params: &Value) -> Option<Answer<Value>> {
        match (self.state, method) {
            (SessionState::Begun, request::Initialize::METHOD) => {
                self.state = SessionState::Running;
                let workspace = &params["capabilities"]["workspace"];
                let takes = |what: &str| workspace[what]["refreshSupport"].as_bool() == Some(true);
                self.lower_in_background(Refreshes {
                    hints: takes("inlayHint"),
                    lenses: takes("codeLens"),
                });
                Some(Ok(json!({"capabilities": capabilities()})))
            }
            (SessionState::Begun, _) => {
                Some(Err((ErrorCode::ServerNotInitialized, "`initialize` comes first".to_string())))
            }
            (SessionState::Running, request::Initialize::METHOD) => {
                Some(Err((ErrorCode::InvalidRequest, "the session has begun already".to_string())))
            }
            (SessionState::Running, request::Shutdown::METHOD) => {
                self.state = SessionState::ShutDown;
                Some(Ok(Value::Null))
            }
            (SessionState::Running, _) => None,
            (SessionState::ShutDown, _) => {
                Some(Err((ErrorCode::InvalidRequest, "the session is shut down".to_string())))
            }
        }
    }

    /// Answers requests about files.
    fn of_texts(&self, method: &str, params: Value) -> Answer<Value> {
        match method {
            request::HoverRequest::METHOD => respond(params, |p: lsp_types::HoverParams| {
                let at = p.text_document_position_params;
                Ok(self.hover(&at.text_document.uri, at.position))
            }),
            request::GotoDefinition::METHOD => {
                respond(params, |p: lsp_types::GotoDefinitionParams| {
                    let at = p.text_document_position_params;
                    let places =
                        self.places(&at.text_document.uri, at.position, |o| o.is_definition);
                    Ok(places.map(GotoDefinitionResponse::Array))
                })
            }
            request::References::METHOD => respond(params, |p: lsp_types::ReferenceParams| {
                let (at, all) = (p.text_document_position, p.context.include_declaration);
                Ok(self.places(&at.text_document.uri, at.position, |o| all || !o.is_definition))
            }),
            request::PrepareRenameRequest::METHOD => {
                respond(params, |p: lsp_types::TextDocumentPositionParams| {
                    let range = self.at(&p.text_document.uri, p.position, |document, _, name| {
                        Some(range_of(&document.file, name.span))
                    });
                    Ok(range)
                })
            }
            request::Rename::METHOD => respond(params, |p: lsp_types::RenameParams| {
                let at = p.text_document_position;
                self.rename(&at.text_document.uri, at.position, &p.new_name)
            }),
            request::Completion::METHOD => respond(params, |p: lsp_types::CompletionParams| {
                let at = p.text_document_position;
                let document = self.documents.get(&at.text_document.uri);
                Ok(document.map(|document| completion::completions(document, at.position)))
            }),
            request::SignatureHelpRequest::METHOD => {
                respond(params, |p: lsp_types::SignatureHelpParams| {
                    let at = p.text_document_position_params;
                    let document = self.documents.get(&at.text_document.uri);
                    Ok(document.and_then(|document| {
                        signature::help(document, offset_of(&document.file, at.position))
                    }))
                })
            }
            request::DocumentSymbolRequest::METHOD => {
                respond(params, |p: lsp_types::DocumentSymbolParams| {
                    let document = self.documents.get(&p.text_document.uri);
                    Ok(document
                        .map(|document| DocumentSymbolResponse::Nested(outline::outline(document))))
                })
            }
            request::Formatting::METHOD => {
                respond(params, |p: lsp_types::DocumentFormattingParams| {
                    Ok(self.documents.get(&p.text_document.uri).and_then(formatted))
                })
            }
            request::CodeActionRequest::METHOD => respond(params, |p: CodeActionParams| {
                Ok(self.actions(&p.text_document.uri, p.range))
            }),
            request::InlayHintRequest::METHOD => {
                respond(params, |p: lsp_types::InlayHintParams| {
                    Ok(self.of_plans(&p.text_document.uri, |document, known| {
                        hints::hints(&document.file, &document.tree, known, p.range)
                    }))
                })
            }
            request::CodeLensRequest::METHOD => respond(params, |p: lsp_types::CodeLensParams| {
                Ok(self.of_plans(&p.text_document.uri, |document, known| {
                    lenses::lenses(&document.file, &document.tree, known)
                }))
            }),
            _ => Err((ErrorCode::MethodNotFound, format!("`{method}` is not offered"))),
        }
    }

    /// Asks something about the plans of a file, if they are those of its newest version.
    fn of_plans<T>(&self, uri: &Uri, ask: impl FnOnce(&Document, &Lowered) -> T) -> Option<T> {
        let (document, answers) = (self.documents.get(uri)?, self.answers());
        let known = answers.get(uri).filter(|known| known.version == document.version)?;
        Some(ask(document, known))
    }

    /// Asks something about the name at a place.
    fn at<T>(
        &self,
        uri: &Uri,
        place: Position,
        ask: impl FnOnce(&Document, &Symbols<'_>, &Occurrence) -> Option<T>,
    ) -> Option<T> {
        let document = self.documents.get(uri)?;
        let symbols = Symbols::of(&document.tree);
        let name = symbols.at(offset_of(&document.file, place))?;
        ask(document, &symbols, name)
    }

    fn hover(&self, uri: &Uri, place: Position) -> Option<Hover> {
        let of_name = self.at(uri, place, |document, _, name| {
            let answers = self.answers();
            let known = answers.get(uri).filter(|known| known.version == document.version);
            Some((hover::hover(document, known, name)?, name.span))
        });
        let document = self.documents.get(uri)?;
        let (value, span) =
            of_name.or_else(|| hover::op(document, offset_of(&document.file, place)))?;
        let contents = HoverContents::Markup(MarkupContent { kind: MarkupKind::Markdown, value });
        Some(Hover { contents, range: Some(range_of(&document.file, span)) })
    }

    fn places(
        &self,
        uri: &Uri,
        place: Position,
        wanted: impl Fn(&Occurrence) -> bool,
    ) -> Option<Vec<Location>> {
        self.at(uri, place, |document, symbols, name| {
            let same = symbols.same_as(name).filter(|o| wanted(o));
            Some(
                same.map(|o| Location {
                    uri: uri.clone(),
                    range: range_of(&document.file, o.span),
                })
                .collect(),
            )
        })
    }

    fn rename(
        &self,
        uri: &Uri,
        place: Position,
        to: &str,
    ) -> Result<Option<WorkspaceEdit>, (ErrorCode, String)> {
        let wrong = |message: String| Err((ErrorCode::InvalidParams, message));
        let renamed = self.at(uri, place, |document, symbols, name| {
            // Names in a line that does not parse would not be renamed.
            if !shard_grammar::parse(&document.file).errors.is_empty() {
                return Some(wrong("the file has errors of syntax: mend them first".to_string()));
            }
            if !name.kind.admits(to) {
                return Some(wrong(format!(
                    "`{to}` cannot name this: see the language's rules for names"
                )));
            }
            if symbols
                .all
                .iter()
                .any(|o| o.kind == name.kind && o.name == to && o.name != name.name)
            {
                return Some(wrong(format!("there is a `{to}` already")));
            }
            let edits = symbols.renamed(name, to);
            // The parser knows which words mean something else at a place: an axis cannot be `let`
            // where axes come first, nor a phase `mesh`.
            if breaks(&document.file, &edits) {
                return Some(wrong(format!(
                    "`{to}` cannot name this: the language has another use for the word"
                )));
            }
            let edits = edits.into_iter().map(|(span, new_text)| TextEdit {
                range: range_of(&document.file, span),
                new_text,
            });
            Some(Ok(edit_of(uri, edits.collect())))
        });
        renamed.transpose()
    }

    /// The helps of diagnostics that touch a range, as edits.
    fn actions(&self, uri: &Uri, range: Range) -> Option<Vec<CodeActionOrCommand>> {
        let document = self.documents.get(uri)?;
        let answers = self.answers();
        let lowered = answers.get(uri).filter(|known| known.version == document.version);
        let found = lowered.map_or(&document.checked.diagnostics, |known| &known.diagnostics);
        let (start, end) =
            (offset_of(&document.file, range.start), offset_of(&document.file, range.end));
        let touches = |span: Span| span.start <= end && start <= span.end;
        let mut actions = Vec::new();
        for diagnostic in found.iter().filter(|d| d.primary_span().is_some_and(touches)) {
            for help in diagnostic.helps.iter().filter(|help| !help.edits.is_empty()) {
                let edits = help.edits.iter().map(|edit| TextEdit {
                    range: range_of(&document.file, edit.span),
                    new_text: edit.replacement.clone(),
                });
                actions.push(CodeActionOrCommand::CodeAction(CodeAction {
                    title: help.text.clone(),
                    kind: Some(CodeActionKind::QUICKFIX),
                    diagnostics: Some(vec![to_client(uri, &document.file, diagnostic)]),
                    edit: Some(edit_of(uri, edits.collect())),
                    is_preferred: Some(diagnostic.helps.first() == Some(help)),
                    ..CodeAction::default()
                }));
            }
        }
        Some(actions)
    }
}

/// Whether the edits put more errors of syntax into a file.
fn breaks(file: &SourceFile, edits: &[(Span, String)]) -> bool {
    let mut edits: Vec<&(Span, String)> = edits.iter().collect();
    edits.sort_by_key(|(span, _)| span.start);
    let mut text = file.text.to_string();
    for (span, new) in edits.iter().rev() {
        text.replace_range(span.start..span.end, new);
    }
    let errors = |file: &SourceFile| shard_grammar::parse(file).errors.len();
    errors(&SourceFile::new(file.name.clone(), text)) > errors(file)
}

type Answer<T> = Result<T, (ErrorCode, String)>;

fn respond<P: DeserializeOwned, T: Serialize>(
    params: Value,
    answer: impl FnOnce(P) -> Answer<T>,
) -> Answer<Value> {
    let params =
        serde_json::from_value(params).map_err(|e| (ErrorCode::InvalidParams, e.to_string()))?;
    serde_json::to_value(answer(params)?).map_err(|e| (ErrorCode::InternalError, e.to_string()))
}
