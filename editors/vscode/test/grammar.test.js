// The TextMate grammar over the repository's examples: a few scopes by name, and nothing left without one that matters.
const assert = require("node:assert");
const fs = require("node:fs");
const path = require("node:path");
const { test } = require("node:test");
const oniguruma = require("vscode-oniguruma");
const textmate = require("vscode-textmate");

async function grammar() {
  const wasm = fs.readFileSync(require.resolve("vscode-oniguruma/release/onig.wasm"));
  await oniguruma.loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength));
  const registry = new textmate.Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () =>
      textmate.parseRawGrammar(fs.readFileSync(path.join(__dirname, "../syntaxes/shard.tmLanguage.json"), "utf8"), "g.json"),
  });
  return registry.loadGrammar("source.shard");
}

/** `text` -> innermost scope, for every token of a line. */
function tokens(grammar, line) {
  return grammar
    .tokenizeLine(line, textmate.INITIAL)
    .tokens.map((t) => [line.slice(t.startIndex, t.endIndex), t.scopes.at(-1)])
    .filter(([text]) => text.trim() !== "");
}

test("the words of the language have scopes", async () => {
  const g = await grammar();
  const has = (line, text, scope) =>
    assert.ok(
      tokens(g, line).some(([t, s]) => t === text && s === scope),
      `${text} is no ${scope} in ${line}: ${JSON.stringify(tokens(g, line))}`,
    );
  has("layer mlp(x: bf16 BLE_xyz) -> bf16 BLE_xyz {", "mlp", "entity.name.function.shard");
  has("layer mlp(x: bf16 BLE_xyz)", "xyz", "variable.parameter.axis.shard");
  has("layer mlp(x: bf16 BLE_xyz)", "E", "entity.name.type.dim.shard");
  has("  w: weight int8 [Embed_{fsdp,model}, Hidden],", "weight", "storage.modifier.shard");
  has("  w: weight int8 [Embed_{fsdp,model}, Hidden],", "{fsdp,model}", "variable.parameter.axis.shard");
  has("  let h: bf16 BLF_yz(partialsum-x) = einsum(x, w -> BLF)", "partialsum", "keyword.other.partial.shard");
  has("  let h = einsum(x, w -> BLF)", "einsum", "support.function.shard");
  has("  expect no all-gather of w_in", "all-gather", "support.constant.measure.shard");
  has("/// the width", "/// the width", "comment.line.documentation.shard");
});

test("every example is read to its end", async () => {
  const g = await grammar();
  const root = path.join(__dirname, "../../../examples");
  const files = fs.readdirSync(root, { recursive: true }).filter((f) => f.endsWith(".shard") && !f.startsWith("errors"));
  assert.ok(files.length > 5);
  for (const file of files) {
    let state = textmate.INITIAL;
    for (const line of fs.readFileSync(path.join(root, file), "utf8").split("\n")) {
      state = g.tokenizeLine(line, state).ruleStack;
    }
    assert.strictEqual(state.depth, 1, `${file} ends inside something`);
  }
});
