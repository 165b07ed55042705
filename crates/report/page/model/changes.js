// The user's changes to the model: scaled or ablated heads, and frozen attention patterns.

/** The changes to the heads of one layer and kind of attention. */
class Changes {
  /**
   * @param {any} interventions the changes `heads` and `frozen`, or null; see `interventions` in `live/session.js`
   * @param {"decoder" | "cross" | "encoder"} kind
   * @param {number} layer
   */
  constructor(interventions, kind, layer) {
    const isHere = (change) => change.kind === kind && change.layer === layer;
    this.heads = (interventions?.heads ?? []).filter(isHere);
    this.frozen = (interventions?.frozen ?? []).filter(isHere);
    this.isSquare = kind !== "cross";
  }

  /** Returns the changes to a head, as functions of a query's position minus `start`. */
  of(head, start = 0) {
    const scaled = this.heads.filter((change) => change.head === head);
    const pattern = this.frozen.find((change) => change.head === head);
    return {
      strength: (position) => scaled.reduce((factor, { strength, positions }) =>
        !positions || positions.includes(position + start) ? factor * strength : factor, 1),
      frozen: pattern && { row: (position, visible, row) => frozenRow(pattern, this.isSquare, position + start, visible, row) },
    };
  }
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
