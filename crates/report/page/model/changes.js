// The user's changes to the model: scaled or ablated heads, and frozen attention patterns.

/** The changes to the heads of one layer and kind of attention. */
class Changes {
  /**
   * @param {any} interventions `heads` and `frozen`, as described in the page's help
   * @param {"decoder" | "cross" | "encoder"} kind
   * @param {number} layer
   */
  constructor(interventions, kind, layer) {
    const here = (change) => change.kind === kind && change.layer === layer;
    this.heads = (interventions?.heads ?? []).filter(here);
    this.frozen = (interventions?.frozen ?? []).filter(here);
    this.isSquare = kind !== "cross";
  }

  /** Returns the changes to a head; `start` is the position of the first query if queries are counted from it. */
  of(head, start = 0) {
    const mine = this.heads.filter((change) => change.head === head);
    const kept = this.frozen.find((change) => change.head === head);
    return {
      strength: (place) => mine.reduce((factor, { strength, positions }) =>
        !positions || positions.includes(place + start) ? factor * strength : factor, 1),
      frozen: kept && { row: (place, seen, row) => frozenRow(kept, this.isSquare, place + start, seen, row) },
    };
  }
}

/** Fills a row with the frozen pattern; returns false if the pattern lacks the position. */
function frozenRow({ weights, keys }, isSquare, place, seen, row) {
  const width = keys ?? (isSquare ? Math.round(Math.sqrt(weights.length)) : seen);
  if ((place + 1) * width > weights.length) return false;
  for (let key = 0; key < seen; key++) row[key] = key < width ? weights[place * width + key] : 0;
  return true;
}
