// The matrix products of the model. Numbers are in double precision, so that sums are accurate and loads need no
// conversion.

/** A linear layer, `input W + bias`, applied at every position. */
class Linear {
  /**
   * @param {Float64Array} rows the transposed weight, `[outputs, inputs]`: the weights of one output are contiguous
   * @param {Float64Array | null} bias `[outputs]`
   * @param {number} inputs
   * @param {number} outputs
   */
  constructor(rows, bias, inputs, outputs) {
    this.rows = rows;
    this.bias = bias;
    this.inputs = inputs;
    this.outputs = outputs;
  }

  /** Loads a layer as stored by the program, with a weight of shape `[inputs, outputs]`. */
  static stored(weights, name) {
    const { values, shape: [inputs, outputs] } = weights.tensor(`${name}.weight`);
    const rows = new Float64Array(values.length);
    for (let input = 0; input < inputs; input++) {
      for (let output = 0; output < outputs; output++) rows[output * inputs + input] = values[input * outputs + output];
    }
    return new Linear(rows, weights.optional(`${name}.bias`)?.values ?? null, inputs, outputs);
  }

  /**
   * @param {Float64Array} input `[count, inputs]`
   * @param {number} count
   * @returns {Float64Array} `[count, outputs]`
   */
  forward(input, count) {
    const { inputs, outputs } = this;
    const output = new Float64Array(count * outputs);
    let position = 0;
    for (; position + 4 <= count; position += 4) fourPositions(this.rows, input, output, position, inputs, outputs);
    for (; position < count; position++) onePosition(this.rows, input, output, position, inputs, outputs);
    if (this.bias) {
      for (let at = 0; at < output.length; at++) output[at] += this.bias[at % outputs];
    }
    return output;
  }
}

/** Computes four positions, two columns at a time: eight sums in registers for six loads. */
function fourPositions(rows, input, output, position, inputs, outputs) {
  const a = position * inputs, b = a + inputs, c = b + inputs, d = c + inputs;
  const to = position * outputs;
  let column = 0;
  for (; column + 2 <= outputs; column += 2) {
    const first = column * inputs, second = first + inputs;
    let a0 = 0, a1 = 0, b0 = 0, b1 = 0, c0 = 0, c1 = 0, d0 = 0, d1 = 0;
    for (let k = 0; k < inputs; k++) {
      const w0 = rows[first + k], w1 = rows[second + k];
      const xa = input[a + k], xb = input[b + k], xc = input[c + k], xd = input[d + k];
      a0 += xa * w0; a1 += xa * w1;
      b0 += xb * w0; b1 += xb * w1;
      c0 += xc * w0; c1 += xc * w1;
      d0 += xd * w0; d1 += xd * w1;
    }
    output[to + column] = a0; output[to + column + 1] = a1;
    output[to + outputs + column] = b0; output[to + outputs + column + 1] = b1;
    output[to + 2 * outputs + column] = c0; output[to + 2 * outputs + column + 1] = c1;
    output[to + 3 * outputs + column] = d0; output[to + 3 * outputs + column + 1] = d1;
  }
  for (; column < outputs; column++) {
    for (let row = 0; row < 4; row++) output[to + row * outputs + column] = dot(rows, column * inputs, input, a + row * inputs, inputs);
  }
}

/** Computes one position, four columns at a time, as when a token is appended. */
function onePosition(rows, input, output, position, inputs, outputs) {
  const from = position * inputs, to = position * outputs;
  let column = 0;
  for (; column + 4 <= outputs; column += 4) {
    const first = column * inputs;
    let s0 = 0, s1 = 0, s2 = 0, s3 = 0;
    for (let k = 0; k < inputs; k++) {
      const x = input[from + k];
      s0 += x * rows[first + k];
      s1 += x * rows[first + inputs + k];
      s2 += x * rows[first + 2 * inputs + k];
      s3 += x * rows[first + 3 * inputs + k];
    }
    output[to + column] = s0; output[to + column + 1] = s1; output[to + column + 2] = s2; output[to + column + 3] = s3;
  }
  for (; column < outputs; column++) output[to + column] = dot(rows, column * inputs, input, from, inputs);
}

/** Returns the dot product of `width` numbers. */
function dot(left, at, right, from, width) {
  let sum = 0;
  for (let k = 0; k < width; k++) sum += left[at + k] * right[from + k];
  return sum;
}
