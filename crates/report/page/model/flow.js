// The residual stream at one position: what each component adds to it, and what the model would predict from it after
// each layer (logit lens, nostalgebraist, 2020; direct logit attribution, Elhage et al., 2021).

/** The number of neurons per layer, of tokens that drive a neuron, and of tokens per prediction. */
const MAX_NEURONS = 3, MAX_DRIVERS = 3, MAX_PREDICTED = 3;

/** Returns the indices of the largest values, largest first. */
const largestOf = (values, count) => Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b).slice(0, count);

/**
 * Decomposes the residual stream at a position. `parts` holds the components in their order, each with the length of
 * the vector that it adds and its share `logit` of the logit of `target` minus the mean logit, before a softcap; null for
 * post-norm, where norms of the sum come between. `stages` holds the residual stream before the first layer and after each,
 * with its most likely tokens and the probability of `target`. Without a target, it is the most likely token.
 *
 * @param {Model} model
 * @param {number[]} tokens
 * @param {{source?: number[] | null, interventions?: any}} options
 * @param {number} position
 * @param {number | null} target
 */
function traceStream(model, tokens, { source = null, interventions = null }, position, target) {
  const [seen, maps] = [[], [[], []]];
  const { layers, changes } = model.begin(source, interventions, null);
  model.stack.forward(tokens, layers, changes, maps, seen);
  const { blocks, norm } = model.stack;
  const { inputs: width, outputs: vocab } = model.head;
  const row = (numbers) => numbers.slice(position * width, (position + 1) * width);
  const lens = (stream) => model.logits(norm?.forward(stream) ?? stream, 1);
  const streams = seen.map((sublayers) => row(sublayers[0].stream));
  streams.push(row(seen.at(-1).at(-1).after));
  const logits = lens(streams.at(-1));
  const chosen = target ?? largestOf(logits, 1)[0];

  const attribution = blocks[0].isSum ? attributionOf(model, streams.at(-1), chosen) : null;
  const part = (kind, layer, head, vector) => ({ kind, layer, head, length: Math.hypot(...vector), logit: attribution?.of(vector) ?? null });
  const parts = [part("embedding", null, null, streams[0])];
  const neurons = [];
  let biases = new Float64Array(width);
  const addBias = (bias) => { if (bias) biases = biases.map((number, k) => number + bias[k]); };
  blocks.forEach((block, layer) => {
    const outputs = seen[layer].map(({ output }) => row(output));
    /** What a part of the output of sub-layer 0 (attention), 1 (cross-attention) or 2 (feed-forward) adds. */
    const added = (index, vector) => block.addedPart(index, vector, index < 2 ? outputs[index] : outputs.at(-1));
    for (const [index, sublayer] of [block.attention, block.cross, block.feedForward].entries()) {
      if (!sublayer) continue;
      if (index < 2 && sublayer.output.bias) addBias(added(index, sublayer.output.bias));
      addBias(block.outputNorm(index)?.beta);
    }
    for (const [kind, attention, index] of [["decoder", block.attention, 0], ["cross", block.cross, 1]]) {
      for (let head = 0; attention && head < attention.heads.heads; head++) {
        const found = attention.vectors(seen[layer][index].input, tokens.length, head, layers[layer].memory);
        const { strength, inputs, replaced } = changes[layer][index].of(head);
        const value = inputs.value ? (at) => inputs.value.subarray(at * attention.heads.width) : found.value;
        const gate = attention.gates?.(seen[layer][index].input, tokens.length);
        const map = maps[index][layer][head], keyTime = map.length / tokens.length;
        const weights = map.subarray(position * keyTime, (position + 1) * keyTime);
        const output = replaced ? addRows(new Float64Array(width), replaced, width, position) : headOutput(attention, head, value, weights, strength(position), gate && ((k) => gate(position, head, k)));
        parts.push(part(kind, layer, head, added(index, output)));
      }
    }
    parts.push(part("feed_forward", layer, null, added(2, outputs.at(-1))));
    const share = (vector) => attribution?.of(added(2, vector)) ?? null;
    neurons.push(...activeNeurons(block.feedForward, seen[layer].at(-1).input, { position, tokens }, share, layer));
  });
  if (attribution) parts.push({ kind: "biases", layer: null, head: null, length: Math.hypot(...biases), logit: attribution.of(biases) + attribution.constant });
  const probabilities = (stream) => {
    const found = lens(stream);
    softmaxOf(found, 0, vocab);
    return found;
  };
  const stages = streams.map((stream) => {
    const found = probabilities(stream);
    return { length: Math.hypot(...stream), probability: found[chosen], top: largestOf(found, MAX_PREDICTED).map((id) => ({ id, probability: found[id] })) };
  });
  const uncapped = model.head.forward(norm?.forward(streams.at(-1)) ?? streams.at(-1), 1);
  const mean = uncapped.reduce((total, logit) => total + logit, 0) / vocab;
  return { target: chosen, parts, stages, neurons, logit: uncapped[chosen] - mean };
}

/** Returns the output of a head at a position, without the bias of the output projection. */
function headOutput({ heads: all, output }, head, value, weights, strength, gate) {
  const { heads, width } = all;
  const context = new Float64Array(heads * width);
  weights.forEach((weight, key) => {
    if (weight === 0) return;
    const vector = value(key);
    for (let k = 0; k < width; k++) context[head * width + k] += weight * strength * vector[k];
  });
  all.normalise(context, head * width, strength);
  if (gate) for (let k = 0; k < width; k++) context[head * width + k] *= gate(k);
  return new Linear(output.rows, null, heads * width, output.outputs).forward(context, 1);
}

/**
 * Returns the function for the share of a vector in the logit of a token minus the mean logit, with the divisor of the
 * final norm frozen, and the constant share of the biases.
 */
function attributionOf(model, stream, token) {
  const { rows, bias, inputs: width, outputs: vocab } = model.head;
  const direction = new Float64Array(width);
  for (let k = 0; k < width; k++) {
    let mean = 0;
    for (let id = 0; id < vocab; id++) mean += rows[id * width + k] / vocab;
    direction[k] = rows[token * width + k] - mean;
  }
  const constantOf = (shifts) => (shifts ? dot(shifts, 0, direction, 0, width) : 0);
  const headBias = bias ? bias[token] - bias.reduce((sum, number) => sum + number, 0) / vocab : 0;
  const { norm } = model.stack;
  if (!norm) return { of: (vector) => dot(vector, 0, direction, 0, width), constant: headBias };
  const of = (vector) => dot(norm.part(vector, stream), 0, direction, 0, width);
  return { of, constant: constantOf(norm.beta) + headBias };
}

/**
 * Returns the neurons with the largest activations at a position, each with the vector's share of the logit, and the tokens
 * of the sequence on which it is most active.
 */
function activeNeurons(feedForward, input, { position, tokens }, share, layer) {
  const all = feedForward.hidden(input, tokens.length);
  const { rows, inputs, outputs } = feedForward.down;
  const active = all.subarray(position * inputs, (position + 1) * inputs);
  return largestOf(active, MAX_NEURONS).map((neuron) => {
    const vector = Float64Array.from({ length: outputs }, (_, k) => active[neuron] * rows[k * inputs + neuron]);
    const drivers = largestOf(tokens.map((_, at) => all[at * inputs + neuron]), MAX_DRIVERS).map((at) => ({ id: tokens[at], position: at, activation: all[at * inputs + neuron] }));
    return { layer, neuron, activation: active[neuron], logit: share(vector), drivers };
  });
}
