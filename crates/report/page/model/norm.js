// Norms of the residual stream and of queries and keys, applied to each position separately.

/** Layer norm or, with `isRms`, RMS norm, which divides by the root mean square without subtracting the mean. */
class Norm {
  /**
   * @param {Float64Array} gamma the gains
   * @param {Float64Array | null} beta the shifts; null for an RMS norm
   * @param {boolean} isRms
   * @param {number} epsilon the number added to the variance or the mean square
   * @param {boolean} hasOffset true if the gains are stored minus one
   */
  constructor(gamma, beta, isRms, epsilon, hasOffset = false) {
    this.gamma = hasOffset ? gamma.map((gain) => 1 + gain) : gamma;
    this.beta = beta;
    this.isRms = isRms;
    this.epsilon = epsilon;
  }

  /** Loads a norm as stored by the program; returns null if there is no such norm. */
  static stored(weights, name, isRms, epsilon, hasOffset = false) {
    const gamma = weights.optional(`${name}.gamma`)?.values;
    if (!gamma) return null;
    return new Norm(gamma, weights.optional(`${name}.beta`)?.values ?? null, isRms, epsilon, isRms && hasOffset);
  }

  /** Normalises each vector of the input `[.., width]`. */
  forward(input) {
    const output = input.slice();
    for (let from = 0; from < input.length; from += this.gamma.length) this.apply(output, from);
    return output;
  }

  /** Returns the share of a vector in the norm of `whole`, of which it is a part, without the shift. The divisor stays that of `whole`. */
  part(vector, whole) {
    const meanOf = (numbers) => (this.isRms ? 0 : numbers.reduce((sum, number) => sum + number, 0) / numbers.length);
    const [middle, center] = [vector, whole].map(meanOf);
    const divisor = Math.sqrt(whole.reduce((sum, number) => sum + (number - center) ** 2, 0) / whole.length + this.epsilon);
    return Float64Array.from(vector, (number, k) => ((number - middle) * this.gamma[k]) / divisor);
  }

  /** Normalises in place the vector that begins at `from`. */
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
