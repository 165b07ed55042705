// Tests of the components of the page's model, on numbers that can be checked by hand.
//
//     node --test tests/page/layers.test.mjs

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const read = (name) => readFileSync(new URL(`../../crates/report/page/model/${name}.js`, import.meta.url), "utf8");
// The page's files are plain scripts without exports; each uses the ones before it.
const scripts = ["linear", "norm", "position", "component", "changes", "attention", "feed_forward", "model", "trace", "flow", "circuit", "patching"].map(read).join("\n");
const { RandomSinusoidalPosition, ACTIVATIONS, AlibiPosition, Cache, Changes, NO_MASK, FeedForward, Heads, CAUSAL_MASK, maskOf, LearnedPosition, Linear, Model, Norm, RelativePosition, RotaryPosition, SinusoidalPosition, Weights, bucket, half, softmaxOf } =
  new Function(`"use strict"; ${scripts}
    return { RandomSinusoidalPosition, ACTIVATIONS, AlibiPosition, Cache, Changes, NO_MASK, FeedForward, Heads, CAUSAL_MASK, maskOf, LearnedPosition, Linear, Model, Norm, RelativePosition, RotaryPosition, SinusoidalPosition, Weights, bucket, half, softmaxOf };`)();

const numbers = (...values) => Float64Array.from(values);
/** Asserts that numbers agree to `digits` decimals. */
function close(found, wanted, digits = 12) {
  assert.equal(found.length, wanted.length);
  wanted.forEach((number, at) => assert.ok(Math.abs(found[at] - number) <= 10 ** -digits, `${at}: ${found[at]}, not ${number}`));
}
/** Returns weights as stored by the program, from a shape and values by name. */
const stored = (tensors) => ({
  optional: (name) => tensors[name] && { shape: tensors[name][0], values: Float64Array.from(tensors[name][1]) },
  tensor(name) { return this.optional(name); },
});

test("linear layers compute any number of rows", () => {
  // [inputs 2, outputs 3], as stored by the program.
  const layer = Linear.stored(stored({ "a.weight": [[2, 3], [1, 2, 3, 10, 20, 30]], "a.bias": [[3], [0.5, 0, -0.5]] }), "a");
  const row = (x, y) => [x + 10 * y + 0.5, 2 * x + 20 * y, 3 * x + 30 * y - 0.5];
  const inputs = [[1, 0], [0, 1], [2, -1], [3, 5], [-4, 7]];
  close(layer.forward(numbers(...inputs.flat()), 5), inputs.flatMap(([x, y]) => row(x, y)));
  close(layer.forward(numbers(2, -1), 1), row(2, -1));
  const wide = Linear.stored(stored({ "b.weight": [[1, 7], [1, 2, 3, 4, 5, 6, 7]] }), "b");
  close(wide.forward(numbers(2), 1), [2, 4, 6, 8, 10, 12, 14]);
});

test("only layer norm subtracts the mean", () => {
  // The mean of 1 and 3 is 2, and the variance is 1.
  close(new Norm(numbers(10, 10), numbers(0.5, 0.5), false, 0).forward(numbers(1, 3, 3, 1)), [-9.5, 10.5, 10.5, -9.5]);
  // The mean square of 3 and 4 is 12.5; epsilon makes it 16.
  close(new Norm(numbers(1, 2), null, true, 3.5).forward(numbers(3, 4)), [0.75, 2]);
});

test("half-precision numbers are decoded from their bits", () => {
  const read = [0x3c00, 0xc000, 0x7bff, 0x0001, 0x3555, 0x7c00, 0xfc00].map(half);
  assert.deepEqual(read, [1, -2, 65504, 2 ** -24, 0.333251953125, Infinity, -Infinity]);
  assert.ok(Number.isNaN(half(0x7e00)));
  const weights = new Weights([{ name: "a", shape: [1, 1] }, { name: "b", shape: [2] }], new Uint8Array([0, 0x3c, 0, 0xc0, 0, 0x38]), "f16");
  assert.deepEqual([...weights.tensor("a").values, ...weights.tensor("b").values], [1, -2, 0.5]);
  assert.throws(() => weights.tensor("c"), /lacks the weights `c`/);
});

test("learned positions are table rows, sinusoidal positions sines and cosines", () => {
  const learned = new LearnedPosition({ values: numbers(1, 2, 3, 4, 5, 6), shape: [3, 2] });
  const stream = numbers(10, 10, 10, 10);
  learned.add(stream, 1, 2, 2);
  close(stream, [13, 14, 15, 16]);
  assert.equal(learned.maxPositions, 3);
  const sines = numbers(0, 0, 0, 0);
  new SinusoidalPosition().add(sines, 3, 1, 4);
  close(sines, [Math.sin(3), Math.cos(3), Math.sin(0.03), Math.cos(0.03)], 6);
});

test("rotary scores depend only on the distance", () => {
  const rotary = new RotaryPosition({ d_head: 4, rope_theta: 10_000 });
  const rotated = (position) => { const vector = numbers(9, 1, 0, 0, 2); rotary.rotate(vector, 1, 4, position); return vector; };
  close(rotated(3), [9, Math.cos(3), Math.sin(3), -2 * Math.sin(0.03), 2 * Math.cos(0.03)], 6);
  const score = (query, key) => rotated(query).slice(1).reduce((sum, x, at) => sum + x * rotated(key)[at + 1], 0);
  close([score(7, 5)], [score(2, 0)], 6);
  const slowly = new RotaryPosition({ d_head: 2, rope_theta: 10_000, rope_scaling: "linear", rope_factor: 4 });
  close(slowly.frequencies, [0.25]);
});

test("ALiBi lowers scores by distance and head slope", () => {
  const { bias } = new AlibiPosition(8, false);
  assert.equal(bias(0, 3), -1.5);
  assert.equal(bias(7, 256), -1);
  assert.equal(bias(0, -3), -0, "keys after the query");
  assert.equal(new AlibiPosition(8, true).bias(0, -3), -1.5, "an encoder is bidirectional");
  // Six heads take the slopes of four heads, and every other slope of eight heads.
  const six = new AlibiPosition(6, false);
  close([0, 1, 2, 3, 4, 5].map((head) => six.bias(head, 1)), [2, 4, 6, 8, 1, 3].map((power) => -(2 ** -power)));
});

test("only near distances have their own buckets", () => {
  assert.deepEqual([0, 1, 15, -5].map((back) => bucket(back, false, 32)), [0, 1, 15, 0]);
  // 16 logarithmic buckets from 16 to 128: 32 is a third of the way, and 128 is the end.
  assert.deepEqual([16, 32, 127, 128, 5000].map((back) => bucket(back, false, 32)), [16, 21, 31, 31, 31]);
  assert.deepEqual([7, -7, -128].map((back) => bucket(back, true, 32)), [7, 23, 31]);
  const { bias } = new RelativePosition({ values: Float64Array.from({ length: 64 }, (_, at) => at), shape: [32, 2] }, false);
  assert.equal(bias(1, 3), 7, "row 3, head 1");
});

test("activations match tabulated values", () => {
  const at = (name, ...inputs) => inputs.map(ACTIVATIONS[name]);
  close(at("gelu", 0, 1, -1, 2, 9, -9), [0, 0.8413447460685429, -0.15865525393145707, 1.9544997361036416, 9, 0], 7);
  close(at("gelu_tanh", 0, 1, -1), [0, 0.8411919906082768, -0.15880800939172324]);
  close(at("silu", 0, Math.log(3)), [0, 0.75 * Math.log(3)]);
  assert.deepEqual([...at("relu", -2, 3), ...at("relu2", -2, 3)], [0, 3, 0, 9]);
});

test("the first half gates the second half", () => {
  const weights = stored({ "f.up.weight": [[1, 2], [Math.log(3), 5]], "f.down.weight": [[1, 1], [2]] });
  close(new FeedForward(weights, "f", "swiglu").forward(numbers(1), 1), [0.75 * Math.log(3) * 5 * 2]);
  const plain = stored({ "f.up.weight": [[1, 2], [3, -3]], "f.down.weight": [[2, 1], [1, 10]], "f.down.bias": [[1], [0.5]] });
  close(new FeedForward(plain, "f", "relu2").forward(numbers(1, 2), 2), [9.5, 36.5]);
});

/** Runs two query heads of width 1 that share one key-value head, over three positions. */
function attend({ changes = {}, sees = CAUSAL_MASK, bias = null, queries = [0, 1, 0, 1, 0, 1] } = {}) {
  const cache = new Cache(1);
  Object.assign(cache, { keys: numbers(0, Math.log(2), Math.log(5)), values: numbers(8, 16, 32), time: 3 });
  const maps = [];
  const contexts = new Heads({ heads: 2, d_head: 1 }, 1).attend(numbers(...queries), 2, 3, cache, sees, bias, new Changes(changes, "decoder", 0), maps);
  return { contexts: Array.from(contexts), maps: maps.map((map) => Array.from(map)) };
}

test("causal attention averages visible values by softmax weights", () => {
  const { contexts, maps } = attend();
  // Head 0 has no preference, head 1 has weights of 1 : 2 : 5.
  close(maps[0], [1, 0, 0, 1 / 2, 1 / 2, 0, 1 / 3, 1 / 3, 1 / 3], 7);
  close(maps[1], [1, 0, 0, 1 / 3, 2 / 3, 0, 1 / 8, 2 / 8, 5 / 8], 7);
  close(contexts, [8, 8, 12, 40 / 3, 56 / 3, 25]);
  close(attend({ sees: NO_MASK }).maps[1], [1, 2, 5, 1, 2, 5, 1, 2, 5].map((share) => share / 8), 7);
  const window = attend({ sees: (position) => [Math.max(0, position - 1), position + 1] });
  close(window.maps[1], [1, 0, 0, 1 / 3, 2 / 3, 0, 0, 2 / 7, 5 / 7], 7);
  close(window.contexts.slice(4), [24, (2 * 16 + 5 * 32) / 7]);
  close(attend({ bias: (head, back) => -Math.log(2) * back }).maps[0], [1, 0, 0, 1 / 3, 2 / 3, 0, 1 / 7, 2 / 7, 4 / 7], 7);
  const huge = numbers(1e4, 1e4, -1e4);
  softmaxOf(huge, 0, 3);
  close(huge, [0.5, 0.5, 0]);
});

test("a window hides farther keys in local layers", () => {
  const config = { window: 2, layer_pattern: ["local", "global"] };
  assert.deepEqual([0, 1, 2, 5].map((position) => maskOf(config, 2)(position, 9)), [[0, 1], [0, 2], [1, 3], [4, 6]]);
  assert.deepEqual(maskOf(config, 1)(5, 9), [0, 6]);
  assert.deepEqual(maskOf({ window: 2 }, 1)(5, 9), [4, 6]);
  assert.deepEqual(maskOf({}, 0)(5, 9), [0, 6]);
  close(attend({ sees: maskOf(config, 0) }).maps[1].slice(6), [0, 2 / 7, 5 / 7], 7);
});

test("heads can be scaled, ablated or frozen", () => {
  const head = { kind: "decoder", layer: 0, head: 1 };
  const plain = attend().contexts;
  const by = (change) => attend({ changes: change }).contexts;
  const onlyHead = (factors) => plain.map((value, at) => (at % 2 === 1 ? value * factors[at >> 1] : value));
  close(by({ heads: [{ ...head, strength: 0, positions: null }] }), onlyHead([0, 0, 0]));
  close(by({ heads: [{ ...head, strength: 2, positions: [1] }] }), onlyHead([1, 2, 1]));
  close(by({ heads: [{ ...head, strength: 0.5, positions: null }, { ...head, strength: 0.5, positions: [2] }] }), onlyHead([0.5, 0.5, 0.25]));
  close(by({ heads: [{ ...head, layer: 1, strength: 0, positions: null }, { ...head, kind: "encoder", strength: 0, positions: null }] }), plain);
  // The pattern is frozen on a text of two positions; the third position is computed.
  const frozen = attend({ changes: { frozen: [{ ...head, weights: Float32Array.of(1, 0, 1, 0), keys: 2 }] } });
  close(frozen.maps[1], [1, 0, 0, 1, 0, 0, 1 / 8, 2 / 8, 5 / 8], 7);
  close(frozen.contexts, [8, 8, 12, 8, 56 / 3, 25]);
});

/** Creates a model that counts: attention adds nothing, and after token `n` of four the next one is most likely. */
function counting({ position = "none", context = 4, attention = {} } = {}) {
  const zeros = (count) => Array(count).fill(0);
  const one = [1, 0, 0, 0], rows = [0, 1, 2, 3].map((shift) => one.map((_, at) => one[(at - shift + 4) % 4]));
  const tensors = {
    "embedding.token.weight": [[4, 4], rows.flat()], "blocks.0.attention.qkv.weight": [[4, 12], zeros(48)],
    "blocks.0.attention.output.weight": [[4, 4], zeros(16)], "blocks.0.feed_forward.up.weight": [[4, 1], zeros(4)],
    "blocks.0.feed_forward.down.weight": [[1, 4], zeros(4)], "blocks.0.attention_norm.gamma": [[4], [1, 1, 1, 1]],
    "blocks.0.feed_forward_norm.gamma": [[4], [1, 1, 1, 1]], "head.weight": [[4, 4], rows.map((_, at) => rows[(at + 1) % 4]).flat()],
    "position.weight": [[context, 4], zeros(4 * context)],
    ...attention,
  };
  const config = { architecture: "decoder", layers: 1, heads: 1, key_value_heads: 1, d_head: 4, norm: "pre", norm_kind: "rms", norm_epsilon: 1e-5, activation: "relu", embedding_scale: 1, softcap: 0, position };
  const all = Object.entries(tensors);
  const bytes = new Uint8Array(Float32Array.from(all.flatMap(([, [, values]]) => values)).buffer);
  return new Model({ config, sizes: { vocab: 4, context }, tensors: all.map(([name, [shape]]) => ({ name, shape })), precision: "f32" }, bytes);
}
const argmax = (logits) => logits.indexOf(Math.max(...logits));

/** Creates the counting model with a head that attends to token `n` with a weight in proportion to `2^n`, and copies `n`. */
function doubling() {
  // The norm makes each embedding 2; scores are divided by 2.
  const projection = [0, 1, 2, 3].flatMap((n) => [1, 0, 0, 0, 2 * n * Math.log(2), 0, 0, 0, n, 0, 0, 0].map((number) => number / 2));
  const identity = [0, 1, 2, 3].flatMap((row) => [0, 1, 2, 3].map((column) => Number(row === column)));
  return counting({ attention: { "blocks.0.attention.qkv.weight": [[4, 12], projection], "blocks.0.attention.output.weight": [[4, 4], identity] } });
}

test("a weight is computed step by step", () => {
  const cell = { kind: "decoder", layer: 0, head: 0, query: 2, key: 1 };
  const traced = doubling().trace([0, 1, 2, 3], {}, cell);
  close([...traced.query, ...traced.key], [1, 0, 0, 0, 2 * Math.log(2), 0, 0, 0], 3);
  close([...traced.products, traced.score, traced.bias], [2 * Math.log(2), 0, 0, 0, Math.log(2), 0], 3);
  close([...traced.weights, traced.weight], [1 / 7, 2 / 7, 4 / 7, 0, 2 / 7], 3);
  close([...traced.value, ...traced.output], [1, 0, 0, 0, 10 / 7, 0, 0, 0], 3);
  assert.deepEqual(traced.visible, [0, 3]);
  const head = { kind: "decoder", layer: 0, head: 0 };
  const halved = doubling().trace([0, 1, 2], { interventions: { heads: [{ ...head, strength: 0.5, positions: null }], frozen: [] } }, cell);
  close(halved.output, [5 / 7, 0, 0, 0], 3);
  const weights = Float32Array.of(1, 0, 0, 0, 1, 0, 0, 1, 0);
  const frozen = doubling().trace([0, 1, 2], { interventions: { heads: [], frozen: [{ ...head, weights, keys: 3 }] } }, cell);
  close([frozen.weight, frozen.output[0], frozen.score], [1, 1, Math.log(2)], 3);
});

test("the shares of a logit add up to it", () => {
  const { parts, stages, logit, target } = doubling().stream([0, 1, 2], {}, 2, 3);
  assert.deepEqual(parts.map(({ kind }) => kind), ["embedding", "decoder", "feed_forward", "biases"]);
  close(parts.map(({ length }) => length), [1, 10 / 7, 0, 0], 3);
  // The stream is (10/7, 0, 1, 0), and token 3 reads its third number; there is no final norm.
  close([parts[0].logit, parts[1].logit, logit], [0.75, -10 / 28, 0.75 - 10 / 28], 3);
  assert.equal(target, 3);
  const share = (stream) => { const all = stream.map(Math.exp); return all[1] / all.reduce((sum, number) => sum + number, 0); };
  close(stages.map(({ probability }) => probability), [share([0, 1, 0, 0]), share([10 / 7, 1, 0, 0])], 3);
});

test("generation continues beyond the context", () => {
  const model = counting();
  const { logits, weights } = model.forward([2, 0]);
  assert.deepEqual(Array.from(logits), [0, 0, 0, 1, 0, 1, 0, 0]);
  assert.deepEqual(Array.from(weights.decoder[0][0]), [1, 0, 0.5, 0.5]);
  const writer = model.write([1], {});
  const written = [argmax(writer.next())];
  while (written.length < 11) written.push(argmax(writer.append(written.at(-1))));
  assert.deepEqual(written, [2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0]);
  assert.ok(writer.tokens.length - writer.first <= 4, "at most the context is read");
  assert.equal(writer.layers[0].cache.time, writer.tokens.length - writer.first, "and the cache holds only these positions");
});

test("sequences longer than learned positions are refused", () => {
  const model = counting({ position: "learned" });
  assert.equal(model.forward([0, 1, 2, 3]).logits.length, 16);
  assert.throws(() => model.forward([0, 1, 2, 3, 0]), /5 tokens is longer than the 4 positions of this model/);
});

test("random sinusoidal positions depend on the length", () => {
  // Two tokens at positions 1 and 4; three at 0, 2 and 7.
  const position = new RandomSinusoidalPosition([[1, 3], [0, 2, 5]]);
  const added = (start, time) => {
    const stream = new Float64Array(2 * time);
    position.add(stream, start, time, 2);
    return stream;
  };
  const rows = (...positions) => positions.flatMap((position) => [Math.sin(position), Math.cos(position)]);
  close(added(0, 1), rows(1), 7);
  close(added(1, 1), rows(4), 7);
  close(added(0, 3), rows(0, 2, 7), 7);
  close(added(2, 1), rows(7), 7);
  assert.equal(position.maxPositions, 3);
});
