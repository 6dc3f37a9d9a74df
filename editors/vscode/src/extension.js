// Starts `shardc lsp` for .shard files. All that is known of the language is in the server.
const { execFile } = require("node:child_process");
const path = require("node:path");
const vscode = require("vscode");
const { LanguageClient } = require("vscode-languageclient/node");

let client;

async function activate(context) {
  const command = vscode.workspace.getConfiguration("shardc").get("path", "shardc");
  client = new LanguageClient(
    "shardc",
    "shardc",
    { command, args: ["lsp"] },
    { documentSelector: [{ language: "shard" }] },
  );
  context.subscriptions.push(
    vscode.commands.registerCommand("shardc.explain", () => {
      const file = vscode.window.activeTextEditor?.document.fileName;
      if (!file) return;
      const terminal = vscode.window.createTerminal({ name: "shardc explain", shellPath: command, shellArgs: ["explain", file] });
      terminal.show();
    }),
  );
  // The code of a diagnostic links to its page, which the binary has: shardc:/spec/diagnostics/E0806.md.
  context.subscriptions.push(
    vscode.workspace.registerTextDocumentContentProvider("shardc", {
      provideTextDocumentContent: (uri) =>
        new Promise((resolve) =>
          execFile(command, ["explain-code", path.posix.basename(uri.path, ".md")], (_, page, why) => resolve(page || why)),
        ),
    }),
  );
  try {
    await client.start();
  } catch (error) {
    vscode.window.showErrorMessage(`shardc lsp did not start (${error.message}): set "shardc.path" to the binary`);
  }
}

function deactivate() {
  return client?.stop();
}

module.exports = { activate, deactivate };
