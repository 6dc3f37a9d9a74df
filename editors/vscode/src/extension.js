// Starts `shardc lsp` for .shard files. All that is known of the language is in the server.
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
