// Compares the model of a page with the program.
//
//     node tests/page/model.mjs CHROMIUM EXPECTED
//
// EXPECTED is a JSON file with a list of runs. Each run has:
// - `page`: the path of the report
// - `tokens` and `source`: the input; `source` may be null
// - `logits` [time * vocab], and `maps` by kind, [layer][head][query][key]
// - `texts`: texts with their ids
// - `greedy`: the greedy continuation of the first token
//
// Weights in half precision have eleven significant bits, so logits and maps are only close to the program's. Near ties
// may be broken differently.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { inflateSync } from "node:zlib";

const [, , , expected] = process.argv;
let checks = 0;

/** Returns the data of a page: the JSON and the binary data after it. */
function embedded(page) {
  const all = inflateSync(Buffer.from(page.match(/<script id="data"[^>]*>([^<]*)</)[1], "base64"));
  const length = all.readUInt32LE(0);
  return [JSON.parse(all.subarray(4, 4 + length)), new Uint8Array(all.subarray(4 + length))];
}

/** Loads the model and tokenizer of a page with the page's own script. */
function opened(path) {
  const page = readFileSync(path, "utf8");
  const [data, bytes] = embedded(page);
  const script = page.slice(page.lastIndexOf("<script>"));
  const part = (from, to) => script.slice(script.indexOf(from), to === null ? undefined : script.indexOf(to));
  const engine = part("function engine() {", "})().catch(");
  const tokenizer = part("/** The tokens of a run's vocabulary. */", "// The model of the page, which computes in a worker");
  const { Model } = new Function(`"use strict"; ${engine}\nreturn engine();`)();
  const Tokenizer = new Function(`"use strict"; ${tokenizer}\nreturn Tokenizer;`)();
  return [new Model(data.model, bytes.slice(data.model.start)), new Tokenizer(data.model.tokenizer), data.model.precision];
}

/** Asserts that two lists of numbers differ by at most `tolerance`, relative to the largest number. */
function close(found, wanted, tolerance, what) {
  assert.equal(found.length, wanted.length, what);
  const largest = wanted.reduce((size, number) => Math.max(size, Math.abs(number)), 1e-30);
  const error = wanted.reduce((size, number, at) => Math.max(size, Math.abs(number - found[at])), 0);
  assert.ok(error <= tolerance * largest, `${what}: off by ${error} of ${largest}`);
  checks++;
}

const argmax = (logits) => logits.reduce((best, logit, id) => (logit > logits[best] ? id : best), 0);

for (const { page, tokens, source, logits, maps, texts, greedy } of JSON.parse(readFileSync(expected, "utf8"))) {
  const [model, tokenizer, precision] = opened(page);
  const tolerance = precision === "f32" ? 1e-5 : 2e-3;
  const answer = model.forward(tokens, { source });
  close(answer.logits, logits, tolerance, `${page}: logits`);
  for (const [kind, layers] of Object.entries(maps)) {
    layers.forEach((heads, layer) => heads.forEach((map, head) =>
      close(answer.weights[kind][layer][head], map.flat(), tolerance, `${page}: ${kind} map of layer ${layer}, head ${head}`)));
  }
  const written = [tokens[0]];
  const writer = model.write(written, { source });
  let next = writer.next();
  while (written.length <= greedy.length) {
    written.push(argmax(next));
    next = writer.append(written.at(-1));
  }
  if (precision === "f32") assert.deepEqual(written.slice(1), greedy, `${page}: greedy tokens`);
  for (const [text, ids] of texts) {
    const found = tokenizer.encode(text);
    assert.deepEqual(found.map(({ id }) => id), ids, `${page}: ${text}`);
    assert.ok(found.every(({ text: part, start, end }) => text.slice(start, end) === part), `${page}: parts of ${text}`);
    checks++;
  }
  changes(model, tokens, source, `${page}: `);
  checks++;
}

/** Checks interventions: ablated heads and frozen attention patterns. */
function changes(model, tokens, source, page) {
  const plain = model.forward(tokens, { source });
  const head = { kind: "decoder", layer: 0, head: 0 };
  const by = (heads, frozen = []) => model.forward(tokens, { source, interventions: { heads, frozen } });
  close(by([{ ...head, strength: 1, positions: null }]).logits, plain.logits, 0, `${page} strength 1`);
  const off = by([{ ...head, strength: 0, positions: null }]);
  assert.notDeepEqual(off.logits, plain.logits, `${page} a head that is off`);
  const last = by([{ ...head, strength: 0, positions: [tokens.length - 1] }]);
  const vocab = plain.logits.length / tokens.length;
  close(last.logits.slice(0, -vocab), plain.logits.slice(0, -vocab), 0, `${page} off only at the last position`);
  assert.notDeepEqual(last.logits.slice(-vocab), plain.logits.slice(-vocab), `${page} off at the last position`);
  close(by([], [{ ...head, weights: plain.weights.decoder[0][0] }]).logits, plain.logits, 1e-6, `${page} frozen as it is`);
  const uniform = plain.weights.decoder[0][0].map((weight, at) => (at % tokens.length <= at / tokens.length ? 1 / (1 + Math.floor(at / tokens.length)) : 0));
  const frozen = by([], [{ ...head, weights: uniform }]);
  close(frozen.weights.decoder[0][0], uniform, 1e-6, `${page} a frozen pattern`);
  assert.notDeepEqual(frozen.logits, plain.logits, `${page} frozen to another pattern`);
}

console.log(`${checks} checks of the model passed`);
