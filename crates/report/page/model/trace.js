// The computation of a single attention weight: every number from the query and the key to the output of the head.

/**
 * The head and the pair of positions whose weight is computed.
 *
 * @typedef {{kind: "decoder" | "cross" | "encoder", layer: number, head: number, query: number, key: number}} Cell
 */

/** Reads a sequence, and returns the attention of a head with functions for its vectors at each position. */
function attentionOf(model, tokens, { source = null, interventions = null }, { kind, layer, head }) {
  const isEncoder = kind === "encoder";
  const [seen, encoderSeen] = [[], []];
  const { layers, changes } = model.begin(source, interventions, null, encoderSeen);
  if (!isEncoder) model.stack.forward(tokens, layers, changes, null, seen);
  const stack = isEncoder ? model.encoder : model.stack;
  const block = stack.blocks?.[layer] ?? stack;
  const { stream, input } = (isEncoder ? encoderSeen : seen)[layer][kind === "cross" ? 1 : 0];
  const time = isEncoder ? source.length : tokens.length;
  const attention = kind === "cross" ? block.cross : block.attention;
  return { attention, stream, input, time, keyTime: kind === "cross" ? source.length : time, ...attention.vectors(input, time, head, layers[layer].memory) };
}

/**
 * Computes the attention weight of a cell step by step. `query` and `key` are the vectors that are multiplied, and
 * `unrotated` holds them before their rotation; null without rotary positions. `scores` and `weights` are the row of the
 * query, the scores before the mask; `visible` is the range of keys that the query can see. `output` is the output of
 * the head at the query, and `stream` the residual stream that it is added to. `unbounded` is the score before the bound
 * `cap`, `sink` the sink of the head, and `gate` the gates of its context; null without them. In differential attention,
 * vectors and scores are those of the first map, and `differential` holds those of the second map with its factor
 * `lambda`, the weights of the `first` map, and the `sum` of the values before the norm.
 *
 * @param {Model} model
 * @param {number[]} tokens
 * @param {{source?: number[] | null, interventions?: any}} options
 * @param {Cell} cell
 */
function traceWeight(model, tokens, options, cell) {
  const found = attentionOf(model, tokens, options, cell);
  const { attention, keyTime } = found;
  const { kind, layer, head, query, key } = cell;
  const { width, heads } = attention.heads;
  const position = attention.position ?? null;
  const [first, end] = (attention.mask ?? NO_MASK)(query, keyTime);
  const { strength, frozen, inputs, replaced } = new Changes(options.interventions, kind, layer).of(head);

  // The inputs that an ablated path changes are stored as used.
  const changed = (rows, at) => rows.slice(at * width, (at + 1) * width);
  const vector = (name, at) => (inputs[name] ? { plain: changed(inputs[name], at), used: changed(inputs[name], at) } : found[name](at));
  const valueAt = (at) => (inputs.value ? changed(inputs.value, at) : found.value(at));
  const queryVector = vector("query", query), keyVectors = Array.from({ length: keyTime }, (_, at) => vector("key", at));
  const { scale: factor, sinks, differential } = attention.heads;
  const biases = keyVectors.map((_, at) => position?.bias?.(head, query - at) ?? 0);
  const isSeen = (_, at) => at >= first && at < end;
  const used = { query: queryVector.used, keys: keyVectors.map((vector) => vector.used) };
  /** Returns a map of the head, computed from `count` elements of the vectors. */
  const mapOf = (map, from, count) => {
    const unbounded = used.keys.map((vector, at) => dot(used.query, from, vector, from, count) * factor + biases[at]);
    const scores = unbounded.map((score) => attention.heads.bounded(score));
    const row = Float64Array.from(scores);
    softmaxOf(row, first, end, sinks?.[map]);
    const [one, other] = [used.query, used.keys[key]].map((vector) => Array.from(vector.slice(from, from + count)));
    return {
      query: one, key: other, products: one.map((number, k) => number * other[k]), unbounded: unbounded[key], score: scores[key],
      sink: sinks?.[map] ?? null, scores, weights: Array.from(row, (weight, at) => (isSeen(null, at) ? weight : 0)), weight: isSeen(null, key) ? row[key] : 0,
    };
  };
  const half = width / 2;
  const map = differential ? mapOf(2 * head, 0, half) : mapOf(head, 0, width);
  const second = differential && mapOf(2 * head + 1, half, half);
  const difference = map.weights.map((weight, at) => weight - (second ? differential.lambda * second.weights[at] : 0));
  const row = Float64Array.from(difference);
  frozen?.row(query, end, row);
  const weights = Array.from(row, (weight, at) => (isSeen(null, at) ? weight : 0));

  const context = new Float64Array(heads * width);
  for (let at = first; at < end; at++) {
    const value = valueAt(at);
    for (let k = 0; k < width; k++) context[head * width + k] += weights[at] * strength(query) * value[k];
  }
  const sum = Array.from(context.subarray(head * width, (head + 1) * width));
  attention.heads.normalise(context, head * width, strength(query));
  const gate = attention.gates?.(found.input, found.time);
  if (gate) for (let k = 0; k < width; k++) context[head * width + k] *= gate(query, head, k);
  const projection = new Linear(attention.output.rows, null, heads * width, attention.output.outputs);
  const modelWidth = projection.outputs;
  const output = replaced ? addRows(new Float64Array(modelWidth), replaced, modelWidth, query) : projection.forward(context, 1);
  const isRotated = position instanceof RotaryPosition;
  const plain = (vector) => Array.from(vector.plain).slice(0, map.query.length);
  return {
    ...map, scale: 1 / factor, bias: biases[key], aboutBias: position?.aboutBias ?? null, cap: attention.heads.cap,
    differential: differential && { ...second, lambda: differential.lambda, lambdaInit: differential.lambdaInit, first: { weight: map.weight, weights: map.weights }, sum },
    unrotated: isRotated ? { query: plain(queryVector), key: plain(keyVectors[key]) } : null,
    gate: gate ? Array.from({ length: width }, (_, k) => gate(query, head, k)) : null, weight: weights[key], value: Array.from(valueAt(key)),
    context: Array.from(context.subarray(head * width, (head + 1) * width)),
    output: Array.from(output), isReplaced: Boolean(replaced),
    hasBias: Boolean((attention.qkv ?? attention.query).bias), weights, visible: [first, end], strength: strength(query), isFrozen: Boolean(frozen),
    stream: Array.from(found.stream.subarray(query * modelWidth, (query + 1) * modelWidth)),
  };
}
