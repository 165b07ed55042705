// The user's changes to the model: scaled heads, frozen attention patterns, and replaced outputs and inputs of components.

/** The changes to the heads of one layer and kind of attention, or to a feed-forward layer. */
class Changes {
  /**
   * @param {any} interventions the changes `heads` and `frozen`, and those that `prepared` adds; or null
   * @param {"decoder" | "cross" | "encoder" | "feed_forward"} kind
   * @param {number} layer
   */
  constructor(interventions, kind, layer) {
    const isHere = (change) => change.kind === kind && change.layer === layer;
    this.heads = (interventions?.heads ?? []).filter(isHere);
    this.frozen = (interventions?.frozen ?? []).filter(isHere);
    this.outputs = (interventions?.outputs ?? []).filter(isHere);
    this.inputs = (interventions?.inputs ?? []).filter(isHere);
    this.isSquare = kind !== "cross";
  }

  /** Adds the replaced outputs of heads to the output of attention `[time, d_model]` from position `start` on. */
  add(output, width, start) {
    for (const { rows } of this.outputs) addRows(output, rows, width, start);
    return output;
  }

  /** Returns the replaced output of a feed-forward layer at `time` positions from `start` on; null without one. */
  replacement(time, width, start) {
    const { rows } = this.outputs[0] ?? this.inputs[0] ?? {};
    return rows ? addRows(new Float64Array(time * width), rows, width, start) : null;
  }

  /** Returns the changes to a head, as functions of a query's position minus `start`. */
  of(head, start = 0) {
    const scaled = this.heads.filter((change) => change.head === head);
    const pattern = this.frozen.find((change) => change.head === head);
    const isReplaced = this.outputs.some((change) => change.head === head);
    const inputs = Object.fromEntries(this.inputs.filter((change) => change.head === head).map(({ input, rows }) => [input, rows]));
    return {
      inputs,
      replaced: this.outputs.find((change) => change.head === head)?.rows ?? null,
      strength: isReplaced ? () => 0 : (position) => scaled.reduce((factor, { strength, positions }) =>
        !positions || positions.includes(position + start) ? factor * strength : factor, 1),
      frozen: pattern && { row: (position, visible, row) => frozenRow(pattern, this.isSquare, position + start, visible, row) },
    };
  }
}

/** Adds rows of `width` numbers, one for each position or one for all, to those of an output from position `start` on. */
function addRows(output, rows, width, start) {
  for (let at = 0; at < output.length; at++) output[at] += rows.length === width ? rows[at % width] : rows[start * width + at];
  return output;
}

/**
 * Fills a row with the frozen pattern at a position, for the first `visible` keys; returns false if the pattern lacks
 * the position.
 */
function frozenRow({ weights, keys }, isSquare, position, visible, row) {
  const width = keys ?? (isSquare ? Math.round(Math.sqrt(weights.length)) : visible);
  if ((position + 1) * width > weights.length) return false;
  for (let key = 0; key < visible; key++) row[key] = key < width ? weights[position * width + key] : 0;
  return true;
}
