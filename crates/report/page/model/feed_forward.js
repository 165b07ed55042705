// The feed-forward layer, `f(x W_up + b_up) W_down + b_down` at every position.

class FeedForward {
  /** Loads the layer named `name`. */
  constructor(weights, name, activation) {
    this.up = Linear.stored(weights, `${name}.up`);
    this.down = Linear.stored(weights, `${name}.down`);
    this.isGated = ["swiglu", "geglu", "geglu_tanh"].includes(activation);
    this.activation = ACTIVATIONS[activation];
  }

  /** Maps `[time, d_model]` to the same shape. */
  forward(input, time) {
    return this.down.forward(this.hidden(input, time), time);
  }

  /** Computes the activations of the neurons, `[time, d_inner]`. */
  hidden(input, time) {
    const inner = this.up.forward(input, time);
    const width = this.down.inputs;
    const active = this.isGated ? new Float64Array(time * width) : inner;
    for (let position = 0; position < time; position++) {
      for (let k = 0; k < width; k++) {
        const at = position * width + k;
        // In a gated layer the first half of each row is the gate of the second half.
        const gate = this.isGated ? inner[2 * position * width + k] : inner[at];
        active[at] = this.activation(gate) * (this.isGated ? inner[2 * position * width + width + k] : 1);
      }
    }
    return active;
  }
}

const gelu = (x) => 0.5 * x * (1 + erf(x * Math.SQRT1_2));
const geluTanh = (x) => 0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x ** 3)));
const silu = (x) => x / (1 + Math.exp(-x));

const ACTIVATIONS = {
  gelu,
  geglu: gelu,
  gelu_tanh: geluTanh,
  geglu_tanh: geluTanh,
  relu: (x) => Math.max(x, 0),
  relu2: (x) => Math.max(x, 0) ** 2,
  silu,
  swiglu: silu,
};

/** The number of table steps per unit, and the argument from which erf is 1 in double precision. */
const STEPS_PER_UNIT = 64, ERF_LIMIT = 6;
/** The values of erf and of its derivative at each step. */
const ERF = [new Float64Array(ERF_LIMIT * STEPS_PER_UNIT + 1), new Float64Array(ERF_LIMIT * STEPS_PER_UNIT + 1)];
for (let step = 1, at = 0; step <= ERF_LIMIT * STEPS_PER_UNIT; step++) {
  // Simpson's rule on 8 parts of a step; the total error is below 1e-14.
  const derivative = (x) => 2 / Math.sqrt(Math.PI) * Math.exp(-x * x);
  const from = (step - 1) / STEPS_PER_UNIT, part = 1 / STEPS_PER_UNIT / 8;
  for (let k = 0; k < 8; k += 2) {
    at += part / 3 * (derivative(from + k * part) + 4 * derivative(from + (k + 1) * part) + derivative(from + (k + 2) * part));
  }
  ERF[0][step] = at;
  ERF[1][step] = derivative(step / STEPS_PER_UNIT);
  ERF[1][0] = derivative(0);
}

/** Computes the error function to within 1e-8, with its third-degree Taylor polynomial around the nearest step. */
function erf(x) {
  const size = Math.abs(x);
  if (size >= ERF_LIMIT) return Math.sign(x);
  const step = Math.round(size * STEPS_PER_UNIT);
  const near = step / STEPS_PER_UNIT;
  const h = size - near;
  const value = ERF[0][step] + ERF[1][step] * h * (1 - near * h + (2 * near * near - 1) * h * h / 3);
  return x < 0 ? -value : value;
}
