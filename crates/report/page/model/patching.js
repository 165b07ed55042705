// Activation patching: the model reads a corrupted sequence, with activations restored from a clean one (Meng et al.,
// 2022; Wang et al., 2022).

/**
 * Returns the logit differences of two answers after both sequences, and in each variant of the corrupted pass. The
 * difference is the logit of the first answer minus that of the second, at the last position. A variant is a list of
 * components whose clean outputs are restored, or `{depth, position}`: the residual stream before a block, or after the
 * last one.
 *
 * @param {Model} model
 * @param {{clean: number[], corrupted: number[], source?: number[] | null, interventions?: any, answers: number[]}} given
 * @param {any[]} variants
 */
function patchedDifferences(model, { clean, corrupted, source = null, interventions = null, answers }, variants) {
  const changed = prepared(model, corrupted, source, interventions);
  const [cleanPass, corruptedPass] = [record(model, clean, source, prepared(model, clean, source, interventions)), record(model, corrupted, source, changed)];
  const width = model.head.inputs;
  const difference = (stream) => {
    const logits = model.logits(stream.slice(-width), 1);
    return logits[answers[0]] - logits[answers[1]];
  };
  const { blocks, norm } = model.stack;
  // The residual stream before a block; after the last one, before the final norm.
  const streamAt = ({ seen }, depth) => {
    if (depth < blocks.length) return seen[depth][0].stream;
    return seen.at(-1).at(-1).after;
  };
  const finish = (depth, stream, changes) => {
    let x = stream;
    for (let layer = depth; layer < blocks.length; layer++) {
      const { memory } = corruptedPass.layers[layer];
      x = blocks[layer].forward(x, corrupted.length, { cache: blocks[layer].attention.newCache(), memory }, changes[layer], [null, null], null);
    }
    return difference(norm?.forward(x) ?? x);
  };
  const patched = (variant) => {
    if (Array.isArray(variant)) {
      const restored = variant.map((component) => ({ ...component, rows: componentOutput(model, cleanPass, component) }));
      const isRestored = (other) => variant.some((component) => componentName(component) === componentName(other));
      const outputs = [...restored, ...(changed?.outputs ?? []).filter((other) => !isRestored(other))];
      const { changes } = model.begin(source, { ...changed, outputs }, null);
      const first = Math.min(...variant.map(({ layer }) => layer), blocks.length);
      return finish(first, streamAt(corruptedPass, first), changes);
    }
    const { depth, position } = variant;
    const stream = streamAt(corruptedPass, depth).slice();
    stream.set(streamAt(cleanPass, depth).subarray(position * width, (position + 1) * width), position * width);
    return finish(depth, stream, corruptedPass.changes);
  };
  return { clean: difference(cleanPass.stream), corrupted: difference(corruptedPass.stream), patched: variants.map(patched) };
}
