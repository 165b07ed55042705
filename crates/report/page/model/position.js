// Position schemes. A scheme adds vectors to the embeddings, rotates queries and keys, or adds a bias to the scores.

/** No position scheme: only the causal mask conveys the order. The base class of all schemes. */
class NoPosition {
  /** The maximum number of positions. */
  maxPositions = Infinity;

  /** Adds the positions to the embeddings of `time` tokens, `[time, width]`, beginning with position `start`. */
  add(_stream, _start, _time, _width) {}

  /** Rotates a head's query or key, `width` numbers from index `from` on, by its position. */
  rotate(_numbers, _from, _width, _position) {}

  /**
   * Returns the bias of a head's score for a key `back` positions before the query; null for schemes without a bias.
   *
   * @type {((head: number, back: number) => number) | null}
   */
  bias = null;

  /**
   * A sentence that explains the bias of a score; null for schemes without a bias.
   *
   * @type {string | null}
   */
  aboutBias = null;
}

/** Learned positions: a vector for each position. */
class LearnedPosition extends NoPosition {
  constructor(table) {
    super();
    this.table = table.values;
    this.maxPositions = table.shape[0];
  }

  add(stream, start, time, width) {
    for (let at = 0; at < time * width; at++) stream[at] += this.table[start * width + at];
  }
}

const frequency = (theta, pair, width) => theta ** (-2 * pair / width);

/** Sinusoidal positions: fixed sines and cosines (Vaswani et al., 2017). */
class SinusoidalPosition extends NoPosition {
  add(stream, start, time, width) {
    for (let row = 0; row < time; row++) {
      for (let k = 0; k < width; k++) {
        const angle = (start + row) * frequency(10_000, k >> 1, width);
        stream[row * width + k] += Math.fround(k % 2 === 0 ? Math.sin(angle) : Math.cos(angle));
      }
    }
  }
}

/** Sinusoidal positions at random distances (Ruoss et al., 2023); the program stores the distances for each length. */
class RandomSinusoidalPosition extends NoPosition {
  /**
   * @param {number[][]} draws the distances between successive positions, for the context and for each longer sequence
   */
  constructor(draws) {
    super();
    this.draws = draws.map((distances) => {
      let position = 0;
      return distances.map((distance) => (position += distance));
    });
    this.context = draws[0].length;
    this.maxPositions = this.context + draws.length - 1;
  }

  add(stream, start, time, width) {
    const positions = this.draws[Math.max(start + time - this.context, 0)];
    for (let row = 0; row < time; row++) {
      for (let k = 0; k < width; k++) {
        const angle = positions[start + row] * frequency(10_000, k >> 1, width);
        stream[row * width + k] += Math.fround(k % 2 === 0 ? Math.sin(angle) : Math.cos(angle));
      }
    }
  }
}

/** Rotary positions: pairs of elements rotated in their planes (Su et al., 2021), with optional scaling. */
class RotaryPosition extends NoPosition {
  /** @param {number | null} localTheta the base of the frequencies in local layers, which are not scaled */
  constructor(config, localTheta = null) {
    super();
    // Only the first elements of a head are rotated, or of each half of a differential head.
    const parts = config.differential ? 2 : 1, size = config.d_head / parts;
    const width = 2 * Math.floor((config.rotary_fraction ?? 1) * size / 2 + 1e-9);
    const ofPart = Array.from({ length: size / 2 }, (_, pair) => {
      if (2 * pair >= width) return 0;
      return localTheta === null ? scaled(config, frequency(config.rope_theta, pair, width)) : frequency(localTheta, pair, width);
    });
    this.frequencies = Array.from({ length: parts }, () => ofPart).flat();
    this.tables = []; // cosine and sine of each pair, by position
  }

  rotate(numbers, from, width, position) {
    for (let next = this.tables.length; next <= position; next++) {
      this.tables.push(Float32Array.from(this.frequencies.flatMap((angle) => [Math.cos(next * angle), Math.sin(next * angle)])));
    }
    const table = this.tables[position];
    for (let k = 0; k < width; k += 2) {
      const x = numbers[from + k], y = numbers[from + k + 1];
      numbers[from + k] = x * table[k] - y * table[k + 1];
      numbers[from + k + 1] = x * table[k + 1] + y * table[k];
    }
  }
}

/** Returns the position scheme of a layer, given that of the stack; `isLocal` is true if the layer has a window. */
function positionOfLayer(config, position, layer, isLocal) {
  if (!(position instanceof RotaryPosition)) return position;
  if (config.rotary_skip_every && (layer + 1) % config.rotary_skip_every === 0) return new NoPosition();
  return isLocal && config.rope_theta_local ? new RotaryPosition(config, config.rope_theta_local) : position;
}

/** Returns the scaled rotation angle per position. */
function scaled(config, angle) {
  if (config.rope_scaling === "linear") return angle / config.rope_factor;
  if (config.rope_scaling !== "llama3") return angle;
  const { rope_low_frequency_factor: low, rope_high_frequency_factor: high, rope_factor, rope_original_context } = config;
  const rotations = rope_original_context * angle / (2 * Math.PI);
  const unscaled = Math.min(Math.max((rotations - low) / (high - low), 0), 1);
  return unscaled * angle + (1 - unscaled) * angle / rope_factor;
}

/** ALiBi: scores lowered in proportion to the distance (Press et al., 2021). */
class AlibiPosition extends NoPosition {
  constructor(heads, isBidirectional) {
    super();
    const geometric = (count) => Array.from({ length: count }, (_, head) => 2 ** (-8 * (head + 1) / count));
    const power = 2 ** Math.floor(Math.log2(heads));
    const slopes = [...geometric(power), ...geometric(2 * power).filter((_, at) => at % 2 === 0)].map(Math.fround);
    this.aboutBias = "ALiBi lowers the score in proportion to the distance; each head has its own slope.";
    this.bias = (head, back) => -slopes[head] * (isBidirectional ? Math.abs(back) : Math.max(back, 0));
  }
}

/** Relative positions: a learned bias for each head and bucket of distances (Raffel et al., 2020). */
class RelativePosition extends NoPosition {
  constructor(table, isBidirectional) {
    super();
    const { values, shape: [buckets, heads] } = table;
    this.aboutBias = "A learned number for this distance and head is added.";
    this.bias = (head, back) => values[bucket(back, isBidirectional, buckets) * heads + head];
  }
}

/** The distance at and beyond which all keys share the last bucket. */
const MAX_DISTANCE = 128;

/** Returns the bucket of a key `back` positions before the query. */
function bucket(back, isBidirectional, buckets) {
  const half = isBidirectional ? buckets / 2 : buckets;
  const first = isBidirectional && back < 0 ? half : 0;
  const distance = isBidirectional ? Math.abs(back) : Math.max(back, 0);
  // The distances below `exact` have a bucket each.
  const exact = half / 2;
  if (distance < exact) return first + distance;
  // In single precision, as in the program.
  const ratio = (number) => Math.fround(Math.log(Math.fround(number / exact)));
  const steps = Math.fround(Math.fround(ratio(distance) / ratio(MAX_DISTANCE)) * (half - exact));
  return first + Math.min(exact + Math.trunc(steps), half - 1);
}

/** Creates the position scheme of a stack; the names of its tensors begin with `name`. */
function positionOf(weights, config, name, isBidirectional) {
  switch (config.position) {
    case "learned": return new LearnedPosition(weights.tensor(`${name}.weight`));
    case "sinusoidal": return new SinusoidalPosition();
    case "random_sinusoidal": return new RandomSinusoidalPosition(config.draws[name]);
    case "rotary": return new RotaryPosition(config);
    case "alibi": return new AlibiPosition(config.heads, isBidirectional);
    case "relative": return new RelativePosition(weights.tensor(`${name}.weight`), isBidirectional);
    case "none": return new NoPosition();
    default: throw new Error(`unknown position scheme \`${config.position}\``);
  }
}
