// Ablation of components and of the paths between them. A component is a head or a feed-forward layer of the decoder,
// `{kind, layer, head}`, where `head` is null for the kind "feed_forward". Paths are patched as in Wang et al. (2022).

/**
 * Adds to the interventions the outputs of ablated components and the changed inputs of ablated paths.
 *
 * `ablated` is a list of components with `by`: "zero", "input" (the mean over the positions of the input that have a next
 * token) or "stored" (the mean over the stored validation sequences). `paths` is a list of `{from, to, input, by}`.
 */
function prepared(model, tokens, source, interventions) {
  return withInputs(model, tokens, source, withOutputs(model, tokens, source, interventions));
}

const preparedOptions = (model, tokens, options) => ({ ...options, interventions: prepared(model, tokens, options.source ?? null, options.interventions ?? null) });

/** Adds `outputs`: the replaced outputs of the ablated components. */
function withOutputs(model, tokens, source, interventions) {
  if (!(interventions?.ablated?.length > 0 || interventions?.paths?.length > 0)) return interventions;
  const outputOf = outputWhenAblated(model, tokens, source);
  const outputs = (interventions.ablated ?? []).map((component) => ({ ...component, rows: component.rows ?? outputOf(component) }));
  const paths = (interventions.paths ?? []).map((path) => ({ ...path, rows: path.rows ?? outputOf({ ...path.from, by: path.by }) }));
  return { ...interventions, outputs, paths };
}

/** Adds `inputs`: the inputs of the receivers of ablated paths. All paths into one input are ablated together. */
function withInputs(model, tokens, source, interventions) {
  if (!(interventions?.paths?.length > 0)) return interventions;
  const recorded = record(model, tokens, source, { ...interventions, paths: [], inputs: [] });
  const groups = new Map();
  for (const path of interventions.paths) {
    const name = `${componentName(path.to)} ${path.input}`;
    groups.set(name, [...(groups.get(name) ?? []), path]);
  }
  const inputs = Array.from(groups.values(), (paths) => {
    const { to, input } = paths[0];
    return { ...to, input, rows: changedInput(model, recorded, paths.map(({ from, rows }) => ({ ...from, rows })), to, input) };
  });
  return { ...interventions, inputs };
}

/** Returns a function for the output of an ablated component, one row for all positions. */
function outputWhenAblated(model, tokens, source) {
  const width = model.head.inputs;
  let recorded = null;
  return (component) => {
    if (component.by === "zero") return new Float64Array(width);
    if (component.by === "stored") return model.weights.tensor(`mean.${componentName(component)}`).values;
    recorded ??= record(model, tokens, source, null);
    // The last token is only predicted, unless it is the only one.
    const time = Math.max(tokens.length - 1, 1), output = componentOutput(model, recorded, component), mean = new Float64Array(width);
    for (let at = 0; at < time * width; at++) mean[at % width] += output[at] / time;
    return mean;
  };
}

/** Reads a sequence, and keeps what each part of a layer reads and writes. */
function record(model, tokens, source, interventions) {
  const [seen, maps] = [[], [[], []]];
  const { layers, changes } = model.begin(source, interventions, null);
  const stream = model.stack.forward(tokens, layers, changes, maps, seen);
  return { seen, maps, layers, changes, stream, time: tokens.length };
}

/** Returns the output of a component at all positions, `[time, d_model]`. */
function componentOutput(model, { seen, maps, layers, changes, time }, { kind, layer, head }) {
  if (kind === "feed_forward") return seen[layer].at(-1).output;
  const index = kind === "cross" ? 1 : 0;
  const block = model.stack.blocks?.[layer] ?? model.stack;
  const attention = index === 1 ? block.cross : block.attention;
  const { width } = attention.heads, { outputs, inputs: contextWidth, rows } = attention.output;
  const { strength, replaced, inputs } = changes[layer][index].of(head);
  const written = new Float64Array(time * outputs);
  if (replaced) return addRows(written, replaced, outputs, 0);
  const found = attention.vectors(seen[layer][index].input, time, head, layers[layer].memory);
  const map = maps[index][layer][head], keyTime = map.length / time;
  const values = Array.from({ length: keyTime }, (_, key) => (inputs.value ? inputs.value.subarray(key * width) : found.value(key)));
  const context = new Float64Array(width), gate = attention.gates?.(seen[layer][index].input, time);
  for (let query = 0; query < time; query++) {
    context.fill(0);
    for (let key = 0; key < keyTime; key++) {
      const weight = map[query * keyTime + key] * strength(query);
      if (weight !== 0) for (let k = 0; k < width; k++) context[k] += weight * values[key][k];
    }
    attention.heads.normalise(context, 0, strength(query));
    if (gate) for (let k = 0; k < width; k++) context[k] *= gate(query, head, k);
    for (let k = 0; k < outputs; k++) written[query * outputs + k] = dot(context, 0, rows, k * contextWidth + head * width, width);
  }
  return written;
}

/**
 * Returns an input of a component when the outputs of the senders are replaced and all other heads are frozen: the
 * queries, keys or values of a head as used, or the output of a feed-forward layer.
 */
function changedInput(model, recorded, senders, to, input) {
  const { seen, layers, changes, time } = recorded;
  const { blocks } = model.stack;
  let stream = seen[0][0].stream;
  const width = stream.length / time;
  const added = (sum, numbers, sign = 1) => sum.map((number, at) => number + sign * numbers[at]);
  const rowsOf = ({ rows }) => addRows(new Float64Array(time * width), rows, width, 0);
  for (const [layer, block] of blocks.entries()) {
    const start = stream;
    const isReceiver = (kind) => to.kind === kind && to.layer === layer;
    for (const [kind, attention, index] of [["decoder", block.attention, 0], ["cross", block.cross, 1]]) {
      if (!attention) continue;
      if (isReceiver(kind)) {
        const vectors = attention.vectors(block.input(index, stream), time, to.head, layers[layer].memory);
        const rows = Array.from({ length: time }, (_, at) => (input === "value" ? vectors.value(at) : vectors[input](at).used));
        return Float64Array.from(rows.flatMap((row) => Array.from(row)));
      }
      let { output } = seen[layer][index];
      for (const sender of senders.filter((sender) => sender.kind === kind && sender.layer === layer)) {
        output = added(added(output, rowsOf(sender)), componentOutput(model, recorded, sender), -1);
      }
      stream = added(stream, block.added(index, output));
    }
    const read = () => changes[layer][2].replacement(time, width, 0) ?? block.feedForward.forward(block.input(2, block.isParallel ? start : stream), time);
    if (isReceiver("feed_forward")) return read();
    const sender = senders.find(({ kind, layer: from }) => kind === "feed_forward" && from === layer);
    stream = added(stream, block.added(2, sender ? rowsOf(sender) : read()));
  }
  throw new Error("the receiver of a path is not a component of the model");
}

/** Returns the negative log-probability of each token but the first, in nats. */
function targetLosses(model, tokens, { source = null, interventions = null }) {
  const { layers, changes } = model.begin(source, prepared(model, tokens, source, interventions), null);
  const time = tokens.length - 1, vocab = model.head.outputs;
  const stream = model.stack.forward(tokens.slice(0, Math.max(time, 1)), layers, changes, null);
  const logits = model.logits(stream, Math.max(time, 1));
  return tokens.slice(1).map((target, at) => {
    const row = logits.slice(at * vocab, (at + 1) * vocab);
    softmaxOf(row, 0, vocab);
    return -Math.log(row[target]);
  });
}
