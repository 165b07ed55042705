// Norms of the residual stream and of heads: each place by itself.

/** Layer norm, or with `isRms` the RMS norm: the root mean square alone is divided by, and no mean taken off. */
class Norm {
  /**
   * @param {Float64Array} gamma gains
   * @param {Float64Array | null} beta shifts, which an RMS norm has not
   * @param {boolean} isRms
   * @param {number} epsilon what is added to the variance or the mean square
   */
  constructor(gamma, beta, isRms, epsilon) {
    this.gamma = gamma;
    this.beta = beta;
    this.isRms = isRms;
    this.epsilon = epsilon;
  }

  /** A norm as the program stores it; null where there is none of this name. */
  static stored(weights, name, isRms, epsilon) {
    const gamma = weights.optional(`${name}.gamma`)?.values;
    if (!gamma) return null;
    return new Norm(gamma, weights.optional(`${name}.beta`)?.values ?? null, isRms, epsilon);
  }

  /** The norm of each `[.., width]` of the input. */
  forward(input) {
    const output = input.slice();
    for (let from = 0; from < input.length; from += this.gamma.length) this.apply(output, from);
    return output;
  }

  /** Normalises the numbers from `from` on, as many as there are gains. */
  apply(numbers, from) {
    const { gamma, beta, isRms, epsilon } = this;
    const width = gamma.length;
    let mean = 0;
    if (!isRms) {
      for (let k = 0; k < width; k++) mean += numbers[from + k];
      mean /= width;
    }
    let squares = 0;
    for (let k = 0; k < width; k++) squares += (numbers[from + k] - mean) ** 2;
    const scale = 1 / Math.sqrt(squares / width + epsilon);
    for (let k = 0; k < width; k++) {
      numbers[from + k] = (numbers[from + k] - mean) * scale * gamma[k] + (beta ? beta[k] : 0);
    }
  }
}
