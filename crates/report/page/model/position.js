// Where tokens stand. A scheme adds to the embeddings, turns queries and keys, or adds to the scores.

/** Nothing: only the causal mask tells first from last. */
class NoPosition {
  /** The most tokens that the scheme has places for. */
  most = Infinity;

  /** Adds to the embeddings of `time` tokens, `[time, width]`, the first of which stands at `start`. */
  add(_stream, _start, _time, _width) {}

  /** Turns a head's query or key, `width` numbers from `from` on, by its place. */
  turn(_numbers, _from, _width, _place) {}

  /**
   * What is added to the score of a key that lies `back` places before the query; null for nothing.
   *
   * @type {((head: number, back: number) => number) | null}
   */
  bias = null;
}

/** A learned vector for each place. */
class LearnedPosition extends NoPosition {
  constructor(table) {
    super();
    this.table = table.values;
    this.most = table.shape[0];
  }

  add(stream, start, time, width) {
    for (let at = 0; at < time * width; at++) stream[at] += this.table[start * width + at];
  }
}

const frequency = (theta, pair, width) => theta ** (-2 * pair / width);

/** Fixed sines and cosines (Vaswani et al., 2017). */
class SinusoidalPosition extends NoPosition {
  add(stream, start, time, width) {
    for (let place = 0; place < time; place++) {
      for (let k = 0; k < width; k++) {
        const angle = (start + place) * frequency(10_000, k >> 1, width);
        stream[place * width + k] += Math.fround(k % 2 === 0 ? Math.sin(angle) : Math.cos(angle));
      }
    }
  }
}

/** Fixed sines and cosines of places that were drawn (Ruoss et al., 2023): the program's own draw for each length. */
class RandomSinusoidalPosition extends NoPosition {
  /** @param {number[][]} draws the distances of places from the ones before, of the context and of each longer sequence */
  constructor(draws) {
    super();
    this.draws = draws.map((distances) => {
      let place = 0;
      return distances.map((distance) => (place += distance));
    });
    this.context = draws[0].length;
    this.most = this.context + draws.length - 1;
  }

  add(stream, start, time, width) {
    const places = this.draws[Math.max(start + time - this.context, 0)];
    for (let at = 0; at < time; at++) {
      for (let k = 0; k < width; k++) {
        const angle = places[start + at] * frequency(10_000, k >> 1, width);
        stream[at * width + k] += Math.fround(k % 2 === 0 ? Math.sin(angle) : Math.cos(angle));
      }
    }
  }
}

/** Pairs of elements turned in their planes (Su et al., 2021), as slowly as the scaling says. */
class RotaryPosition extends NoPosition {
  constructor(config) {
    super();
    const width = config.d_head;
    this.frequencies = Array.from({ length: width / 2 }, (_, pair) => scaled(config, frequency(config.rope_theta, pair, width)));
    this.tables = []; // cosine and sine of each pair, by place
  }

  turn(numbers, from, width, place) {
    for (let made = this.tables.length; made <= place; made++) {
      this.tables.push(Float32Array.from(this.frequencies.flatMap((turn) => [Math.cos(made * turn), Math.sin(made * turn)])));
    }
    const table = this.tables[place];
    for (let k = 0; k < width; k += 2) {
      const x = numbers[from + k], y = numbers[from + k + 1];
      numbers[from + k] = x * table[k] - y * table[k + 1];
      numbers[from + k + 1] = x * table[k + 1] + y * table[k];
    }
  }
}

/** The angle from a place to the next. */
function scaled(config, angle) {
  if (config.rope_scaling === "linear") return angle / config.rope_factor;
  if (config.rope_scaling !== "llama3") return angle;
  const { rope_low_frequency_factor: low, rope_high_frequency_factor: high, rope_factor, rope_original_context } = config;
  const turns = rope_original_context * angle / (2 * Math.PI);
  const kept = Math.min(Math.max((turns - low) / (high - low), 0), 1);
  return kept * angle + (1 - kept) * angle / rope_factor;
}

/** Scores lowered in proportion to the distance (Press et al., 2021). */
class AlibiPosition extends NoPosition {
  constructor(heads, looksBoth) {
    super();
    const geometric = (count) => Array.from({ length: count }, (_, head) => 2 ** (-8 * (head + 1) / count));
    const below = 2 ** Math.floor(Math.log2(heads));
    const slopes = [...geometric(below), ...geometric(2 * below).filter((_, at) => at % 2 === 0)].map(Math.fround);
    this.bias = (head, back) => -slopes[head] * (looksBoth ? Math.abs(back) : Math.max(back, 0));
  }
}

/** A learned number for each head and range of distances (Raffel et al., 2020). */
class RelativePosition extends NoPosition {
  constructor(table, looksBoth) {
    super();
    const { values, shape: [buckets, heads] } = table;
    this.bias = (head, back) => values[bucket(back, looksBoth, buckets) * heads + head];
  }
}

/** From this distance on all keys share the last bucket. */
const LARGEST_DISTANCE = 128;

/** The range of distances that a key `back` places before the query belongs to. */
function bucket(back, looksBoth, buckets) {
  const half = looksBoth ? buckets / 2 : buckets;
  const first = looksBoth && back < 0 ? half : 0;
  const distance = looksBoth ? Math.abs(back) : Math.max(back, 0);
  const exact = half / 2;
  if (distance < exact) return first + distance;
  // In single precision, as the program has it.
  const ratio = (number) => Math.fround(Math.log(Math.fround(number / exact)));
  const steps = Math.fround(Math.fround(ratio(distance) / ratio(LARGEST_DISTANCE)) * (half - exact));
  return first + Math.min(exact + Math.trunc(steps), half - 1);
}

/** The scheme of a stack: its tensors have names that begin with `name`. */
function positionOf(weights, config, name, looksBoth) {
  switch (config.position) {
    case "learned": return new LearnedPosition(weights.tensor(`${name}.weight`));
    case "sinusoidal": return new SinusoidalPosition();
    case "random_sinusoidal": return new RandomSinusoidalPosition(config.draws[name]);
    case "rotary": return new RotaryPosition(config);
    case "alibi": return new AlibiPosition(config.heads, looksBoth);
    case "relative": return new RelativePosition(weights.tensor(`${name}.weight`), looksBoth);
    case "none": return new NoPosition();
    default: throw new Error(`no position scheme ${config.position}`);
  }
}
