// Tests of a page's tokenizer, sampling and address against results computed by hand.
//
//     node --test tests/page/typed.test.mjs

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const read = (name) => readFileSync(new URL(`../../crates/report/page/${name}.js`, import.meta.url), "utf8");
const { Tokenizer } = new Function(`"use strict"; ${read("model/tokenizer")} return { Tokenizer };`)();

const ids = (tokenizer, text) => tokenizer.encode(text).map(({ id }) => id);

/** Asserts that every token has the offsets of its text. */
function assertOffsets(tokenizer, text) {
  for (const { text: part, start, end } of tokenizer.encode(text)) assert.equal(text.slice(start, end), part);
}

test("words split at spaces and commas", () => {
  const words = new Tokenizer({ kind: "symbols", tokens: ["<end>", "ab", "<script>", "\u202e"] });
  assert.deepEqual(ids(words, " ab,<script>  <end> "), [1, 2, 0]);
  assert.deepEqual(words.encode("ab zz \u202e").map(({ id, text }) => [id, text]), [[1, "ab"], [null, "zz"], [3, "\u202e"]]);
  assertOffsets(words, "ab, zz \u202e");
  assert.equal(words.join([1, 2]), "ab <script>");
  assert.equal(words.token(99), "�");
  const digits = new Tokenizer({ kind: "symbols", tokens: ["1", "2", "+", "12"] });
  assert.deepEqual(ids(digits, "12 21+2"), [3, 1, 0, 2, 1], "symbols of one character need no spaces");
  assert.deepEqual(ids(digits, "1x"), [null], "an unknown character makes the word unknown");
});

test("words of texts split at punctuation, and may be unknown", () => {
  const texts = new Tokenizer({ kind: "words", tokens: ["<end>", "<unk>", "don", "'", "t", "été", "?!", "x_1"], pieces: ["<end>", "<unk>", "don", "'", "t", "été", "?!", "x_1"], special: [["<end>", 0], ["<unk>", 1]], unknown: "<unk>" });
  assert.deepEqual(ids(texts, "don't, été?!<end>x_1 never"), [2, 3, 4, 1, 5, 6, 0, 7, 1]);
  assert.equal(texts.join([0, 2, 3, 4]), "<end> don ' t");
  assert.deepEqual(ids(texts, texts.join([2, 1, 6, 0])), [2, 1, 6, 0]);
  assertOffsets(texts, "don't?!<end>");
});

test("integers are never split", () => {
  const integers = new Tokenizer({ kind: "integers", tokens: ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "<end>"] });
  assert.deepEqual(ids(integers, "1 2 11"), [1, 2, null]);
  assert.deepEqual(ids(integers, "07 1"), [7, 1], "as the program reads it");
  assert.deepEqual(ids(integers, "1,2, 3\n<end>"), [1, 2, 3, 10]);
  assert.deepEqual(ids(integers, "10 -1 1.5 0x1 1e0"), [null, null, null, null, null]);
  assertOffsets(integers, " 1,22,\t07");
});

test("texts are read as by the program", () => {
  // The test of src/cli/prompt.rs reads the same file.
  for (const { kind, tokens, cases } of JSON.parse(readFileSync(new URL("texts.json", import.meta.url), "utf8"))) {
    const tokenizer = new Tokenizer({ kind, tokens });
    for (const [text, expected] of cases) {
      const found = ids(tokenizer, text);
      assert.deepEqual(found.includes(null) ? null : found, expected, JSON.stringify(text));
      assertOffsets(tokenizer, text);
    }
  }
});

test("a comma between digits is no separator of numbers in bins", () => {
  const bins = new Tokenizer({ kind: "symbols", tokens: ["…20", "20…"], edges: [20] });
  assert.deepEqual(ids(bins, "13.3 76, 5"), [0, 1, 0]);
  assert.deepEqual(ids(bins, "13,34 76,77"), [null, null], "these may be decimal commas");
  assert.deepEqual(ids(bins, "0x1f 1e1 [] Infinity"), [null, 0, null, null]);
  assert.deepEqual(ids(bins, "[13.5, 2e1]"), [0, 1]);
});

test("a comma can be a symbol", () => {
  const symbols = new Tokenizer({ kind: "symbols", tokens: [",", "a", "bc"] });
  assert.deepEqual(ids(symbols, "a , bc a,a"), [1, 0, 2, 1, 0, 1]);
});

test("very long text is tokenized", () => {
  const pairs = new Tokenizer({ kind: "pairs", tokens: ["a"], pieces: ["a"], merges: [], special: [] });
  assert.equal(ids(pairs, "a".repeat(200_000)).length, 200_000);
});

test("characters are code points and include spaces", () => {
  const characters = new Tokenizer({ kind: "characters", tokens: ["␣", "a", "😀", "⏎"], pieces: [" ", "a", "😀", "\n"] });
  assert.deepEqual(ids(characters, "a 😀\na?"), [1, 0, 2, 3, 1, null]);
  assert.equal(characters.join([1, 0, 2, 3]), "a 😀\n");
  // The special tokens of texts in a table are typed by their names.
  const pairs = new Tokenizer({ kind: "characters", tokens: ["2", "+", "<", "<end>", "<sep>"], pieces: ["2", "+", "<", "<end>", "<sep>"] });
  assert.deepEqual(ids(pairs, "<end>2+2<sep>2<"), [3, 0, 1, 0, 4, 0, 2]);
  assert.equal(pairs.join([3, 0, 4, 0]), "<end>2<sep>2");
  assertOffsets(pairs, "<end>2<sep>2");
  assertOffsets(characters, "a😀a");
});

test("byte pairs merge in order and decode losslessly", () => {
  const pieces = ["h", "e", "l", "o", "Ġ", "Ã", "©", "he", "ll", "hell", "hello", "Ġhe", "Ã©", "<|end|>"];
  const merges = [["h", "e"], ["l", "l"], ["he", "ll"], ["hell", "o"], ["Ġ", "he"], ["Ã", "©"]];
  const pairs = new Tokenizer({ kind: "pairs", tokens: pieces, pieces, merges, special: [["<|end|>", 13]] });
  assert.deepEqual(ids(pairs, "hello"), [10]);
  assert.deepEqual(ids(pairs, " hello"), [4, 10], "`hell` is merged before the space merges with `he`");
  assert.deepEqual(ids(pairs, " he"), [11]);
  assert.deepEqual(ids(pairs, "é"), [12], "two bytes, one token");
  assert.deepEqual(ids(pairs, "he<|end|>lol"), [7, 13, 2, 3, 2]);
  assert.deepEqual(ids(pairs, "hx"), [0, null]);
  assert.equal(pairs.join([4, 10, 12, 13]), " helloé<|end|>");
  assertOffsets(pairs, "hello é<|end|> he");
});

/** Loads the parts of the page that do not need a document. */
function parts({ answers = null } = {}) {
  const live = { config: { vocab: 16, layers: 2, heads: 2, norm: "pre" }, tokenizer: { answers } };
  const data = { readings: [{}, {}], maps: [[{ kind: "decoder" }]], layers: [2, 2], model: { stored_sequences: 8 } };
  const state = { sample: 1, kind: "decoder", layer: 1, head: 0, query: 2, key: 1, position: 2, view: "matrix", difference: false, scale: "linear" };
  const softmax = read("model/live").match(/\/\*\* Returns the softmax of logits[\s\S]*?\n}\n/)[0];
  const scripts = [softmax, ...["live/session", "live/writing", "live/generate", "model/component", "live/ablation", "live/address"].map(read)].join("\n");
  const [at, other] = [() => ({ open: false }), { layer: null, head: null, sample: null }];
  return new Function("live", "data", "state", "at", "other", "location", `"use strict"; ${scripts}
    return { softmax, truncated, largest, sampleFrom, readAddress, addressOf: (given) => { input = given; return addressOf(); }, surprisals, countedTargets, grownAnswer };`)(live, data, state, at, other, { protocol: "file:" });
}
const { softmax, truncated, largest, sampleFrom, readAddress, addressOf, surprisals, grownAnswer } = parts();
const logits = Float32Array.from([Math.log(1), Math.log(4), Math.log(2), Math.log(1)]);
const rounded = (candidates) => candidates.map(({ id, probability }) => [id, Number(probability.toFixed(5))]);

test("temperature, top-k and top-p truncate the distribution", () => {
  assert.deepEqual(Array.from(softmax(logits, 1), (p) => Number(p.toFixed(5))), [0.125, 0.5, 0.25, 0.125]);
  assert.deepEqual(largest([1, 3, 3, 2], 3), [1, 2, 3], "ties keep the first");
  const keep = (changes) => rounded(truncated(logits, { temperature: 1, topK: 0, topP: 1, ...changes }));
  assert.deepEqual(keep({}), [[1, 0.5], [2, 0.25], [0, 0.125], [3, 0.125]]);
  assert.deepEqual(keep({ temperature: 0 }), [[1, 1]]);
  // At half the temperature 1 : 4 : 2 : 1 becomes 1 : 16 : 4 : 1.
  assert.deepEqual(keep({ temperature: 0.5 }), [[1, 0.72727], [2, 0.18182], [0, 0.04545], [3, 0.04545]]);
  assert.deepEqual(keep({ topK: 2 }), [[1, 0.66667], [2, 0.33333]]);
  assert.deepEqual(keep({ topP: 0.75 }), [[1, 0.66667], [2, 0.33333]], "the fewest that reach p");
  assert.deepEqual(keep({ topP: 0.1 }), [[1, 1]], "at least one");
  assert.deepEqual(keep({ topK: 3, topP: 0.6 }), [[1, 0.66667], [2, 0.33333]], "top-p applies after top-k");
});

const encoding = (data) => new Function("color", "data", `"use strict"; ${read("maps")} return { weightOf, byteOf };`)(() => [0, 0, 0], data);

test("NaN weights are not zero", () => {
  const { weightOf, byteOf } = encoding({});
  assert.deepEqual([NaN, 0, 1, null].map(byteOf), [255, 0, 254, null]);
  assert.deepEqual([255, 0, 254, null].map(weightOf), [NaN, 0, 1, null]);
});

test("signed weights have zero in the middle", () => {
  const { weightOf, byteOf } = encoding({ signed_limit: 1.25 });
  assert.deepEqual([NaN, -1.25, -0.3125, 0, 0.3125, 1.25, 2, null].map(byteOf), [255, 0, 63, 127, 191, 254, 254, null]);
  assert.deepEqual([255, 0, 127, 254, null].map(weightOf), [NaN, -1.25, 0, 1.25, null]);
});

test("candidates are sampled by their probability", () => {
  const random = Math.random;
  const draw = (number) => { Math.random = () => number; return sampleFrom(truncated(logits, { temperature: 1, topK: 0, topP: 1 })); };
  try {
    assert.deepEqual([0, 0.49, 0.51, 0.74, 0.76, 0.9999].map(draw), [1, 1, 2, 2, 0, 3]);
  } finally {
    Math.random = random;
  }
});

test("surprisals are negative log-probabilities", () => {
  assert.deepEqual(surprisals([[0.5, 0.25], [1, 0], [0.5, 0.5]], [0, 1, 0]), [Math.log(4), -Math.log(1)]);
});

test("a model that learned only answers counts their targets", () => {
  const { countedTargets, surprisals } = parts({ answers: { begin: [7, 8], end: 9 } });
  assert.deepEqual(countedTargets([9, 1, 7, 2, 9]), [false, false, true, true]);
  assert.deepEqual(countedTargets([1, 8, 2, 9, 3, 8, 4]), [false, true, true, false, false, true]);
  assert.deepEqual(countedTargets([1, 2, 9]), [true, true], "without an answer, all tokens count");
  assert.deepEqual(surprisals([{ 7: 0.5 }, { 2: 0.25 }], [1, 7, 2]), [Math.log(4)], "the source does not count");
});

test("rows of new tokens extend an answer", () => {
  const before = { logits: Float32Array.of(1, 2, 3, 4), weights: { decoder: [[Float32Array.of(1, 0, 0.5, 0.5)]], cross: [[Float32Array.of(0.1, 0.9, 0.3, 0.7)]], encoder: [[Float32Array.of(7)]] } };
  const read = { logits: Float32Array.of(5, 6), count: 1, visible: [[0, 1], [0, 2], [1, 3]], weights: { decoder: [[Float32Array.of(0.25, 0.25, 0.5)]], cross: [[Float32Array.of(0.4, 0.6)]] } };
  const { logits, weights, visible } = grownAnswer(before, read, 3);
  assert.deepEqual(Array.from(logits), [1, 2, 3, 4, 5, 6]);
  assert.deepEqual(Array.from(weights.decoder[0][0]), [1, 0, 0, 0.5, 0.5, 0, 0.25, 0.25, 0.5]);
  assert.deepEqual(weights.cross[0][0], Float32Array.of(0.1, 0.9, 0.3, 0.7, 0.4, 0.6));
  assert.deepEqual([weights.encoder, visible], [before.weights.encoder, read.visible]);
  const again = grownAnswer(before, { logits: Float32Array.of(9, 9), count: 1, weights: { decoder: [[Float32Array.of(1)]] } }, 1);
  assert.deepEqual([Array.from(again.logits), Array.from(again.weights.decoder[0][0])], [[9, 9], [1]]);
});

test("addresses restore inputs and reject invalid states", () => {
  const input = {
    tokens: [3, 1, 4, 15], first: 1, source: [2, 7], before: [1, 4, 0],
    heads: [{ kind: "decoder", layer: 1, head: 0, strength: 0.5, position: null }, { kind: "decoder", layer: 0, head: 1, strength: 0, position: 2 }],
    frozen: [{ kind: "decoder", layer: 1, head: 1, tokens: [1, 2], source: null }],
    ablated: [{ kind: "feed_forward", layer: 1, head: null, by: "stored" }],
    paths: [{ from: { kind: "decoder", layer: 0, head: 1 }, to: { kind: "decoder", layer: 1, head: 0 }, input: "key", by: "input" }, { from: { kind: "decoder", layer: 0, head: 1 }, to: { kind: "feed_forward", layer: 0, head: null }, input: null, by: "zero" }],
  };
  const address = addressOf(input);
  assert.match(address, /^#tokens=3\.1\.4\.15&/);
  assert.deepEqual(readAddress(address).input, input);
  assert.deepEqual(readAddress(address).shown, { sample: 1, position: 2, kind: "decoder", layer: 1, head: 0, query: 2, key: 1, view: "matrix", difference: false }, "another sequence than the input");
  assert.equal(readAddress("#attention"), null);
  const bad = ["3.16", "3.x", "3&head=decoder_2_0_1", "3&head=decoder_0_0_2.5", "3&head=cross_0_0_1", "3&head=decoder_0_0_1_9", "3&first=1", "3.-1", "3&frozen=decoder_0_0_99", "3&scale=log", "3&pair=2_0_", "3&ablated=2.0_zero", "3&ablated=0.0_mean", "3&path=1.0_0.0_key_zero", "3&path=0.0_1.0__zero", "3&shown=decoder_0_0_1_0_matrix_0_9_1"];
  for (const tokens of bad) assert.throws(() => readAddress(`#tokens=${tokens}`), RangeError, tokens);
});

test("symbols with spaces need quotes only if ambiguous", () => {
  const tokenizer = new Tokenizer({ kind: "symbols", tokens: ["pay", "place", "place order", "send the bill", 'a "b" c'] });
  const every = [0, 1, 2, 3, 4];
  const text = tokenizer.join(every);
  assert.equal(text, 'pay "place" "place order" "send the bill" "a \\"b\\" c"');
  assert.deepEqual(ids(tokenizer, text), every);
  assertOffsets(tokenizer, text);
  assert.deepEqual(ids(tokenizer, "pay send the  bill pay"), [0, 3, 0]);
  // Ambiguous: one symbol, or the beginning of two.
  assert.deepEqual(ids(tokenizer, "place order"), [null, null]);
  assert.deepEqual(ids(tokenizer, "place pay"), [1, 0]);
  assert.deepEqual(ids(tokenizer, 'send the "pay"'), [null, null, 0]);
  const places = new Tokenizer({ kind: "symbols", tokens: ["Up", "Up, up", "western"] });
  assert.deepEqual(ids(places, "Up, up western"), [1, 2]);
  assert.deepEqual(ids(places, "Up, western"), [0, 2]);
  const numbers = new Tokenizer({ kind: "integers", tokens: Array.from({ length: 2000 }, (_, id) => String(id)) });
  assert.deepEqual(ids(numbers, "1,234 5"), [1, 234, 5]);
  assert.deepEqual(ids(numbers, "1,000 5"), [null, 5]);
  assert.deepEqual(ids(numbers, "1,,5"), [null]);
  const letters = new Tokenizer({ kind: "symbols", tokens: ["A", "C"] });
  assert.deepEqual(ids(letters, '"A" "C" A'), [0, 1, 0]);
});

test("different tokens look different", () => {
  const display = read("data").match(/const GRAPHEMES[\s\S]*?(?=\/\*\* Isolates)/)[0];
  const { short } = new Function(`"use strict"; ${display} return { short };`)();
  const tokens = ["", " ", "\u3000", "\u00a0", "\u2003", "\ufe0e", "\ufe0f", "a", "a\ufe0e", "a\ufe0f", "a\u200b", "a\u2060", "a\u034f", "\u3164", "\u2800", "\u{e0001}", "\ufeff", "\u202e", "\u0085", "\u0007", "❤", "❤\ufe0f", "❤\ufe0e", "x\u200d", "\u{1f469}\u200d\u{1f680}"];
  assert.equal(new Set(tokens.map((token) => short(token))).size, tokens.length);
  for (const token of tokens) assert.doesNotMatch(short(token), /^[\s\p{Default_Ignorable_Code_Point}\u2800]*$/u, escape(token));
  assert.equal(short("\u3000昨"), "\\u{3000}昨");
  assert.equal(short(" a\n\t"), "␣a⏎⇥");
  assert.equal(short("\u{1f469}\u200d\u{1f680}❤\ufe0f"), "\u{1f469}\u200d\u{1f680}❤\ufe0f", "joiners and marks of emoji stay");
  assert.equal(short("\u3000".repeat(11)), `${"\\u{3000}".repeat(9)}…`, "a code counts as one character");
});
