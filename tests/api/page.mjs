// Runs the page of /docs in Node, on a document as small as the page needs, and says what came of it.
//
//   node page.mjs <folder of the page> < openapi.json

import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const folder = mkdtempSync(join(tmpdir(), "page-"));
for (const name of ["view.js", "docs.js"]) copyFileSync(join(process.argv[2], name), join(folder, name));
writeFileSync(join(folder, "package.json"), '{"type": "module"}');
const described = JSON.parse(readFileSync(0, "utf8"));

const byId = {};
const listeners = [];
class Element {
  constructor(tag) { this.tag = tag; this.attributes = {}; this.children = []; this.dataset = {}; this.text = ""; }
  setAttribute(name, value) {
    if (name.startsWith("on") || name === "style") throw new Error(`${name} is an attribute that the policy forbids`);
    this.attributes[name] = value;
    if (name === "id") { if (byId[value]) throw new Error(`${value} is twice on the page`); byId[value] = this; }
    if (name.startsWith("data-")) this.dataset[name.slice(5)] = value;
  }
  append(...children) { this.children.push(...children); }
  replaceChildren(...children) { this.children = children; }
  addEventListener(kind, listener) { listeners.push([this, kind, listener]); }
  set textContent(text) { this.text = String(text); this.children = []; }
  get textContent() { return this.text + this.children.map((each) => each.textContent).join(""); }
  closest() { return null; }
  get value() { return this.attributes.value ?? ""; }
}
for (const id of ["version", "contents", "operations", "filter", "key", "theme", "said"]) new Element("div").setAttribute("id", id);
globalThis.document = {
  getElementById: (id) => byId[id] ?? null,
  createElement: (tag) => new Element(tag),
  createTextNode: (text) => ({ textContent: text, children: [] }),
  querySelectorAll: () => [],
  addEventListener: () => {},
  documentElement: new Element("html"),
};
globalThis.location = { origin: "http://127.0.0.1:8080", hash: "" };

const sent = [];
globalThis.fetch = async (url, options) => {
  sent.push({ url, ...options });
  return { status: 200, statusText: "OK", json: async () => described, text: async () => '{"fine": "<b>"}' };
};
globalThis.FormData = function FormData(form) { return form.values; };

await import(pathToFileURL(join(folder, "docs.js")));
rmSync(folder, { recursive: true });
await new Promise((done) => setTimeout(done, 50));

const all = (node, found = []) => { found.push(node); (node.children ?? []).forEach((each) => all(each, found)); return found; };
const nodes = [...all(byId.operations), ...all(byId.contents)];

// Somebody fills in a form and sends it.
const submit = listeners.find(([, kind]) => kind === "submit")[2];
byId.key.attributes.value = "pk_1";
submit({ preventDefault() {}, target: { dataset: { operation: "send_messages" }, values: [["queue", "a/b"], ["Idempotency-Key", "k"], ["·body", '{"data": 1}']] } });
await new Promise((done) => setTimeout(done, 50));

console.log(JSON.stringify({
  version: byId.version.textContent,
  articles: nodes.filter((each) => each.tag === "article").map((each) => each.attributes.id),
  links: nodes.filter((each) => each.tag === "a").map((each) => each.attributes.href),
  curls: Object.fromEntries(Object.entries(byId).filter(([id]) => id.endsWith("-curl")).map(([id, each]) => [id.slice(0, -5), each.textContent])),
  text: byId.operations.textContent,
  sent,
  answer: byId["send_messages-answer"].textContent,
}));
