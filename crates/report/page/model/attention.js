// Attention: `softmax(Q K^T / sqrt(d_head) + bias) V`, head by head, over the keys and values of a KV cache. Options are
// another scale of the products, a bound of the scores, sinks in the softmax, gates of the heads' outputs, and the
// difference of two maps in each head.

/** A growing KV cache: the keys and values of the positions read so far, `[time, key_heads * d_head]`. */
class Cache {
  constructor(width) {
    this.width = width;
    this.time = 0;
    /** @type {Float64Array} */
    this.keys = new Float64Array(0);
    /** @type {Float64Array} */
    this.values = new Float64Array(0);
  }

  /** Makes room for `time` more positions. */
  grow(time) {
    const needed = (this.time + time) * this.width;
    if (needed <= this.keys.length) return;
    const larger = (part) => {
      const copy = new Float64Array(Math.max(needed, 2 * part.length, 64 * this.width));
      copy.set(part);
      return copy;
    };
    this.keys = larger(this.keys);
    this.values = larger(this.values);
  }
}

/** A mask maps the position of a query and the number of keys to the range of visible keys, end exclusive. */
const NO_MASK = (_position, keys) => [0, keys];
const CAUSAL_MASK = (position, _keys) => [0, position + 1];

/** Returns true if a decoder's layer has a window. */
function isLocal({ window, layer_pattern: pattern = [] }, layer) {
  return Boolean(window) && pattern[layer % pattern.length] !== "global";
}

/** Returns the mask of a decoder's layer: causal, with the window of a local layer. */
function maskOf(config, layer) {
  if (!isLocal(config, layer)) return CAUSAL_MASK;
  const { window } = config;
  return (position, _keys) => [Math.max(position + 1 - window, 0), position + 1];
}

/** The attention heads of one layer, with the user's changes applied. */
class Heads {
  /**
   * @param {{heads: number, d_head: number}} config
   * @param {number} keyHeads the number of key-value heads, each shared by a group of query heads
   */
  constructor(config, keyHeads) {
    this.heads = config.heads;
    this.width = config.d_head;
    this.keyHeads = keyHeads;
    this.scale = 1 / Math.sqrt(config.d_head);
    /** @type {number | null} the bound of the scores */
    this.cap = null;
    /** @type {ArrayLike<number> | null} the sink of each map */
    this.sinks = null;
    /** @type {Differential | null} the subtraction of two maps per head */
    this.differential = null;
  }

  /** Fills a row with the weights of a map on the keys from `first` to `end`, given the function for their scores. */
  weigh(row, map, [first, end], score) {
    for (let key = first; key < end; key++) row[key] = this.bounded(score(key));
    softmaxOf(row, first, end, this.sinks?.[map]);
  }

  /**
   * Fills a row with the weights of a head on the keys from `first` to `end`, given the function for the scores of a
   * number of elements from one of the head's elements on.
   */
  weighHead(row, head, range, score) {
    const { differential, width } = this;
    if (!differential) return this.weigh(row, head, range, (key) => score(key, 0, width));
    const second = new Float64Array(row.length), half = width / 2;
    this.weigh(row, 2 * head, range, (key) => score(key, 0, half));
    this.weigh(second, 2 * head + 1, range, (key) => score(key, half, half));
    for (let key = range[0]; key < range[1]; key++) row[key] -= differential.lambda * second[key];
  }

  /** Normalises in place a context of a differential head that begins at `from`, summed with weights times `strength`. */
  normalise(contexts, from, strength) {
    const { differential, width } = this;
    if (!differential || strength === 0) return;
    for (let k = 0; k < width; k++) contexts[from + k] /= strength;
    differential.norm.apply(contexts, from);
    for (let k = 0; k < width; k++) contexts[from + k] *= strength;
  }

  /** Bounds a score with its position bias. */
  bounded(score) {
    return this.cap === null ? score : this.cap * Math.tanh(score / this.cap);
  }

  /** Returns the index of the key-value head that a query head reads. */
  keyHead(head) {
    return Math.floor(head * this.keyHeads / this.heads);
  }

  /**
   * Computes the context vectors of the last `time` positions.
   *
   * @param {Float64Array} queries rows of `stride` numbers, which begin with the queries of all heads
   * @param {Cache} cache the keys and values
   * @param {(position: number, keys: number) => number[]} mask with a causal mask, the queries are at the last positions
   * @param {((head: number, back: number) => number) | null} bias see `NoPosition.bias`
   * @param {{of: (head: number) => {strength: (position: number) => number, frozen: any, inputs: any}}} changes see `Changes`
   * @param {?Float32Array[]} maps receives the attention map of each head, `[time, keys]`
   * @param {((query: number, head: number, k: number) => number) | null} gate the gate of an element of a head
   * @returns {Float64Array} `[time, heads * d_head]`
   */
  attend(queries, stride, time, cache, mask, bias, changes, maps, gate = null) {
    const { heads, width, scale } = this;
    const keyTime = cache.time, start = mask === NO_MASK ? 0 : keyTime - time;
    const contexts = new Float64Array(time * heads * width);
    const row = new Float64Array(keyTime);
    for (let head = 0; head < heads; head++) {
      const map = maps && new Float32Array(time * keyTime);
      const { frozen, strength, inputs } = changes.of(head);
      // The numbers, the index of the first one, and the numbers per position.
      const shared = this.keyHead(head) * width, own = (rows) => [rows, 0, width];
      const [queryRows, queryAt, queryStride] = inputs.query ? own(inputs.query) : [queries, head * width, stride];
      const [keys, keyAt, keyStride] = inputs.key ? own(inputs.key) : [cache.keys, shared, cache.width];
      const [values, valueAt, valueStride] = inputs.value ? own(inputs.value) : [cache.values, shared, cache.width];
      for (let query = 0; query < time; query++) {
        const position = start + query;
        const [visible, end] = mask(position, keyTime);
        const from = query * queryStride + queryAt;
        const isFrozen = frozen?.row(position, end, row);
        // A frozen pattern replaces all weights, also those outside a window.
        const first = isFrozen ? 0 : visible;
        if (!isFrozen) {
          this.weighHead(row, head, [first, end], (key, at, count) => {
            const score = dot(queryRows, from + at, keys, key * keyStride + keyAt + at, count) * scale;
            return bias ? score + bias(head, position - key) : score;
          });
        }
        if (map) map.set(row.subarray(first, end), query * keyTime + first);
        const factor = strength(position);
        if (factor === 0) continue;
        const to = (query * heads + head) * width;
        for (let key = first; key < end; key++) {
          const weight = row[key] * factor;
          if (weight === 0) continue;
          const value = key * valueStride + valueAt;
          for (let k = 0; k < width; k++) contexts[to + k] += weight * values[value + k];
        }
        this.normalise(contexts, to, factor);
        if (gate) for (let k = 0; k < width; k++) contexts[to + k] *= gate(query, head, k);
      }
      maps?.push(map);
    }
    return contexts;
  }
}

/** Differential attention (Ye et al., 2024): the second map of a head is subtracted, and its output is normalised. */
class Differential {
  /** @param {number} layer the index of the layer, from 0 */
  constructor(weights, name, config, layer) {
    const exp = (half) => Math.exp(weights.tensor(`${name}.query_${half}`).values.reduce((sum, number, k) => sum + number * weights.tensor(`${name}.key_${half}`).values[k], 0));
    this.lambdaInit = 0.8 - 0.6 * Math.exp(-0.3 * layer);
    /** The factor of the second maps. */
    this.lambda = exp(1) - exp(2) + this.lambdaInit;
    /** The norm of the heads' outputs, with the factor `1 - lambda_init` in its gains. */
    this.norm = Norm.stored(weights, `${name}.norm`, true, config.norm_epsilon, config.norm_unit_offset);
    this.norm.gamma = this.norm.gamma.map((gain) => gain * (1 - this.lambdaInit));
  }
}

/** Applies softmax in place to the numbers from `first` to `end`, exclusive, with one more term of the sum, a sink. */
function softmaxOf(numbers, first, end, sink = -Infinity) {
  let largest = sink, sum = 0;
  for (let at = first; at < end; at++) largest = Math.max(largest, numbers[at]);
  if (sink > -Infinity) sum = Math.exp(sink - largest);
  for (let at = first; at < end; at++) sum += numbers[at] = Math.exp(numbers[at] - largest);
  for (let at = first; at < end; at++) numbers[at] /= sum;
}

/** Self-attention with one projection for queries, keys and values. */
class SelfAttention {
  constructor(weights, name, config, position, mask, layer) {
    this.qkv = Linear.stored(weights, `${name}.qkv`);
    this.output = Linear.stored(weights, `${name}.output`);
    const norm = (part) => Norm.stored(weights, `${name}.${part}`, true, config.norm_epsilon, config.norm_unit_offset);
    this.queryNorm = norm("query_norm");
    this.keyNorm = norm("key_norm");
    this.position = position;
    this.mask = mask;
    this.heads = new Heads(config, config.key_value_heads);
    if (config.differential) {
      this.heads.differential = new Differential(weights, `${name}.differential`, config, layer);
      this.heads.scale *= Math.SQRT2; // each map has half of the elements
    }
    this.heads.scale = config.attention_scale ?? this.heads.scale;
    this.heads.cap = config.attention_softcap ?? null;
    this.heads.sinks = config.sinks === "off_by_one" ? new Float64Array(config.heads * (config.differential ? 2 : 1)) : weights.optional(`${name}.scores.sinks`)?.values ?? null;
    this.gate = weights.optional(`${name}.gate.weight`) ? Linear.stored(weights, `${name}.gate`) : null;
  }

  /** Returns the gate of an element of a head for the positions of an input, `[time, d_model]`; null without gates. */
  gates(input, time) {
    if (!this.gate) return null;
    const { gate: { outputs }, heads: { heads, width } } = this;
    const gates = this.gate.forward(input, time).map((number) => 1 / (1 + Math.exp(-number)));
    return outputs === heads ? (at, head, _k) => gates[at * heads + head] : (at, head, k) => gates[at * outputs + head * width + k];
  }

  /** Projects an input to normalised queries, keys and values, `[time, (heads + 2 keyHeads) * width]`, before rotation. */
  project(input, time) {
    const { heads, width, keyHeads } = this.heads;
    const projected = this.qkv.forward(input, time);
    const [queryNorm, keyNorm] = [this.queryNorm, this.keyNorm];
    if (!queryNorm) return projected;
    for (let at = 0; at < time; at++) {
      const row = at * this.qkv.outputs;
      // A norm covers one head, or all of them.
      for (let k = 0; k < heads * width; k += queryNorm.gamma.length) queryNorm.apply(projected, row + k);
      for (let k = 0; k < keyHeads * width; k += keyNorm.gamma.length) keyNorm.apply(projected, row + heads * width + k);
    }
    return projected;
  }

  newCache() {
    return new Cache(this.heads.keyHeads * this.heads.width);
  }

  /**
   * Returns functions for a head's query and key at a position, `plain` and as `used` in the products after rotation,
   * and for its value.
   */
  vectors(input, time, head) {
    const { heads, width, keyHeads } = this.heads;
    const projected = this.project(input, time);
    const shared = this.heads.keyHead(head);
    const slice = (column, position) => {
      const from = position * this.qkv.outputs + column * width;
      return projected.slice(from, from + width);
    };
    const rotated = (column) => (position) => {
      const plain = slice(column, position);
      const used = plain.slice();
      this.position.rotate(used, 0, width, position);
      return { plain, used };
    };
    return { query: rotated(head), key: rotated(heads + shared), value: (position) => slice(heads + keyHeads + shared, position) };
  }

  /** Maps `[time, d_model]` to the same shape, for the positions that follow the cached ones. */
  forward(input, time, cache, changes, maps) {
    const { heads, width, keyHeads } = this.heads;
    const projected = this.project(input, time);
    const stride = this.qkv.outputs;
    cache.grow(time);
    for (let at = 0; at < time; at++) {
      for (let head = 0; head < heads + keyHeads; head++) {
        this.position.rotate(projected, at * stride + head * width, width, cache.time + at);
      }
      const keys = at * stride + heads * width, to = (cache.time + at) * cache.width;
      cache.keys.set(projected.subarray(keys, keys + cache.width), to);
      cache.values.set(projected.subarray(keys + cache.width, keys + 2 * cache.width), to);
    }
    cache.time += time;
    const contexts = this.heads.attend(projected, stride, time, cache, this.mask, this.position.bias, changes, maps, this.gates(input, time));
    return this.output.forward(contexts, time);
  }
}

/** Cross-attention of a decoder to the output of its encoder. */
class CrossAttention {
  constructor(weights, name, config) {
    this.query = Linear.stored(weights, `${name}.query`);
    this.key = Linear.stored(weights, `${name}.key`);
    this.value = Linear.stored(weights, `${name}.value`);
    this.output = Linear.stored(weights, `${name}.output`);
    this.heads = new Heads(config, config.heads);
  }

  /** Computes the keys and values of the encoder output, `[time, d_model]`. */
  project(memory, time) {
    const cache = new Cache(this.key.outputs);
    cache.keys = this.key.forward(memory, time);
    cache.values = this.value.forward(memory, time);
    cache.time = time;
    return cache;
  }

  /** Returns the same functions as `vectors` of self-attention; keys and values are in the cache. */
  vectors(input, time, head, cache) {
    const { width } = this.heads;
    const queries = this.query.forward(input, time);
    const slice = (numbers) => (position) => numbers.slice(position * this.query.outputs + head * width, position * this.query.outputs + (head + 1) * width);
    const unrotated = (numbers) => (position) => {
      const plain = slice(numbers)(position);
      return { plain, used: plain };
    };
    return { query: unrotated(queries), key: unrotated(cache.keys), value: slice(cache.values) };
  }

  forward(input, time, start, cache, changes, maps) {
    const queries = this.query.forward(input, time);
    const shifted = { of: (head) => changes.of(head, start) };
    return this.output.forward(this.heads.attend(queries, this.query.outputs, time, cache, NO_MASK, null, shifted, maps), time);
  }
}
