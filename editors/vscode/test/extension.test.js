// The bundle, loaded as VS Code would load it, with as much of VS Code as it touches at the start.
const assert = require("node:assert");
const Module = require("node:module");
const path = require("node:path");
const { test } = require("node:test");

test("the bundle loads and exports what VS Code calls", () => {
  const stub = new Proxy(function () {}, {
    get: (_, name) => (name === Symbol.toPrimitive ? () => 0 : stub),
    apply: () => stub,
    construct: () => stub,
  });
  // The client checks the version of its host when it is loaded, and derives classes from it.
  const vscode = new Proxy({ version: "1.85.0" }, { get: (known, name) => known[name] ?? class {} });
  const load = Module._load;
  Module._load = (name, ...rest) => (name === "vscode" ? vscode : load(name, ...rest));
  const extension = require(path.join(__dirname, "../out/extension.js"));
  Module._load = load;
  assert.strictEqual(typeof extension.activate, "function");
  assert.strictEqual(typeof extension.deactivate, "function");
});
