// The model: embedding, blocks, final norm and head, and the encoder of an encoder-decoder.

/** The tensors of the trained weights by name. */
class Weights {
  /**
   * @param {{name: string, shape: number[]}[]} tensors in the order of their values
   * @param {Uint8Array} bytes the values, little-endian
   * @param {"f32" | "f16"} precision
   */
  constructor(tensors, bytes, precision) {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    const size = precision === "f32" ? 4 : 2;
    this.tensors = new Map();
    let at = 0;
    for (const { name, shape } of tensors) {
      const values = new Float64Array(shape.reduce((count, side) => count * side, 1));
      for (let k = 0; k < values.length; k++, at += size) {
        values[k] = size === 4 ? view.getFloat32(at, true) : half(view.getUint16(at, true));
      }
      this.tensors.set(name, { values, shape });
    }
  }

  optional(name) {
    return this.tensors.get(name);
  }

  tensor(name) {
    const found = this.tensors.get(name);
    if (!found) throw new Error(`this page lacks the weights \`${name}\`; regenerate the page`);
    return found;
  }
}

/** Decodes a half-precision number from its bits. */
function half(bits) {
  const sign = bits & 0x8000 ? -1 : 1, exponent = bits >> 10 & 31, fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}

/** A block: attention and feed-forward layers with residual connections and norms. */
class Block {
  constructor(weights, name, config, position, mask, layer) {
    const norm = (part) => Norm.stored(weights, `${name}.${part}`, config.norm_kind === "rms", config.norm_epsilon, config.norm_unit_offset);
    this.placement = config.norm;
    /** True if the residual stream is the sum of what the layers add. */
    this.isSum = config.norm !== "post";
    this.isParallel = Boolean(config.parallel);
    const outputNorm = (part) => norm(`output_norms.${part}`);
    this.outputNorms = [outputNorm("attention"), outputNorm("cross_attention"), outputNorm("feed_forward")];
    this.norms = [norm("attention_norm"), norm("cross_attention_norm"), norm("feed_forward_norm")];
    this.attention = new SelfAttention(weights, `${name}.attention`, config, position, mask, layer);
    this.cross = this.norms[1] && new CrossAttention(weights, `${name}.cross_attention`, config);
    this.feedForward = new FeedForward(weights, `${name}.feed_forward`, config.activation);
  }

  /**
   * Computes a sub-layer `f` with its norms: `x + f(norm(x))`, `norm(x + f(x))`, `x + norm(f(norm(x)))` or `x + norm(f(x))`.
   * Appends `x`, the input and the output of `f` to `seen`. A parallel layer reads another stream than it is added to.
   */
  add(index, stream, layer, seen, read = stream) {
    const input = this.input(index, read);
    const output = layer(input);
    const part = { stream, input, output: output.slice(), after: null };
    seen?.push(part);
    const sum = this.added(index, output).map((number, at) => number + stream[at]);
    return (part.after = this.placement === "post" ? this.norms[index].forward(sum) : sum);
  }

  /** Returns the input of a sub-layer that reads the residual stream. */
  input(index, stream) {
    return this.placement === "pre" || this.placement === "sandwich" ? this.norms[index].forward(stream) : stream;
  }

  /** Returns the norm of a sub-layer's output; undefined if the output is added as it is. */
  outputNorm(index) {
    return { sandwich: this.outputNorms[index], output: this.norms[index] }[this.placement];
  }

  /** Returns what a sub-layer adds to the residual stream. */
  added(index, output) {
    return this.outputNorm(index)?.forward(output) ?? output;
  }

  /** Returns what a part of a sub-layer's `output` at one position adds, with the divisor of its norm frozen. */
  addedPart(index, part, output) {
    return this.outputNorm(index)?.part(part, output) ?? part;
  }

  /** Computes the residual stream `[time, d_model]` after the block, for the positions that follow the cached ones. */
  forward(stream, time, { cache, memory }, [changes, crossChanges, innerChanges], [maps, crossMaps], seen) {
    const start = cache.time, width = stream.length / time;
    let x = this.add(0, stream, (input) => changes.add(this.attention.forward(input, time, cache, changes, maps), width, start), seen);
    if (this.cross) {
      x = this.add(1, x, (input) => crossChanges.add(this.cross.forward(input, time, start, memory, crossChanges, crossMaps), width, start), seen);
    }
    return this.add(2, x, (input) => innerChanges?.replacement(time, width, start) ?? this.feedForward.forward(input, time), seen, this.isParallel ? stream : x);
  }
}

/** Token and position embeddings, blocks, and an optional final norm. */
class Stack {
  /** @param {(layer: number) => (position: number, keys: number) => number[]} mask returns the mask of a layer */
  constructor(weights, prefix, config, mask) {
    const isRms = config.norm_kind === "rms";
    this.table = weights.tensor(`${prefix}embedding.token.weight`);
    this.scale = config.embedding_scale;
    const norm = (name, epsilon) => Norm.stored(weights, `${prefix}${name}`, isRms, epsilon, config.norm_unit_offset);
    this.embeddingNorm = norm("embedding.norm", config.embedding_norm_epsilon);
    this.position = positionOf(weights, config, `${prefix}position`, mask(0) === NO_MASK);
    this.norm = norm("norm", config.norm_epsilon);
    this.blocks = Array.from({ length: config.layers }, (_, layer) =>
      new Block(weights, `${prefix}blocks.${layer}`, config, positionOfLayer(config, this.position, layer, isLocal(config, layer) && mask(0) !== NO_MASK), mask(layer), layer));
  }

  /** Computes the initial residual stream of tokens from position `start` on, `[time, d_model]`. */
  embed(tokens, start) {
    if (start + tokens.length > this.position.maxPositions) {
      throw new Error(`a sequence of ${start + tokens.length} tokens is longer than the ${this.position.maxPositions} positions of this model; shorten it`);
    }
    const width = this.table.shape[1];
    const stream = new Float64Array(tokens.length * width);
    tokens.forEach((token, at) => {
      for (let k = 0; k < width; k++) stream[at * width + k] = this.table.values[token * width + k] * this.scale;
    });
    this.position.add(stream, start, tokens.length, width);
    return this.embeddingNorm?.forward(stream) ?? stream;
  }

  /**
   * Computes the residual stream after the last block and norm. Appends the maps of each layer to `maps`, and what each
   * part of a layer reads and writes to `seen`, if they are given.
   */
  forward(tokens, layers, changes, maps, seen = null) {
    let stream = this.embed(tokens, layers[0].cache.time);
    this.blocks.forEach((block, layer) => {
      const received = maps?.map(() => []) ?? [];
      seen?.push([]);
      stream = block.forward(stream, tokens.length, layers[layer], changes[layer], received, seen?.at(-1));
      maps?.forEach((map, kind) => map.push(received[kind]));
    });
    return this.norm?.forward(stream) ?? stream;
  }

  newLayers() {
    return this.blocks.map((block) => ({ cache: block.attention.newCache(), memory: null }));
  }
}

/** The one-layer decoder: embedding and attention, without positions or a residual stream. */
class OneLayer {
  constructor(weights, config) {
    this.table = weights.tensor("embedding.weight");
    this.position = new NoPosition();
    this.attention = new SelfAttention(weights, "attention", config, this.position, maskOf(config, 0), 0);
  }

  forward(tokens, layers, changes, maps, seen = null) {
    const stream = Stack.prototype.embed.call({ ...this, scale: 1 }, tokens, layers[0].cache.time);
    const received = maps && [];
    const start = layers[0].cache.time;
    const output = changes[0][0].add(this.attention.forward(stream, tokens.length, layers[0].cache, changes[0][0], received), this.table.shape[1], start);
    seen?.push([{ stream, input: stream, output }]);
    maps?.[0].push(received);
    return output;
  }

  newLayers() {
    return [{ cache: this.attention.newCache(), memory: null }];
  }
}

/** The trained model of a run. */
class Model {
  /**
   * @param {{config: any, sizes: any, tensors: {name: string, shape: number[]}[], precision: "f32" | "f16"}} description
   * @param {Uint8Array} bytes the values of the tensors
   */
  constructor(description, bytes) {
    const weights = new Weights(description.tensors, bytes, description.precision);
    this.weights = weights;
    this.config = description.config;
    this.sizes = description.sizes;
    const isOneLayer = this.config.architecture === "one_layer";
    /** @type {any} */
    this.stack = isOneLayer ? new OneLayer(weights, this.config) : new Stack(weights, "", this.config, (layer) => maskOf(this.config, layer));
    this.encoder = this.config.architecture === "encoder_decoder" ? new Stack(weights, "encoder.", this.config, () => NO_MASK) : null;
    const { values, shape: [vocab, width] } = this.stack.table;
    this.head = weights.optional("head.weight") ? Linear.stored(weights, "head") : new Linear(values, null, width, vocab);
  }

  /** Creates the caches for a new text; an encoder-decoder also encodes the source. */
  begin(source, interventions, maps, seen = null) {
    const layers = this.stack.newLayers();
    const changes = layers.map((_, layer) => [new Changes(interventions, "decoder", layer), new Changes(interventions, "cross", layer), new Changes(interventions, "feed_forward", layer)]);
    if (this.encoder) {
      const encoderLayers = this.encoder.newLayers();
      const encoderChanges = encoderLayers.map((_, layer) => [new Changes(interventions, "encoder", layer)]);
      const memory = this.encoder.forward(source, encoderLayers, encoderChanges, maps && [maps], seen);
      this.stack.blocks.forEach((block, layer) => { layers[layer].memory = block.cross.project(memory, source.length); });
    }
    return { layers, changes };
  }

  /** Computes the logits `[time, vocab]` from the residual stream at `time` positions. */
  logits(stream, time) {
    const logits = this.head.forward(stream, time);
    const cap = this.config.softcap;
    return cap > 0 && this.config.architecture !== "one_layer" ? logits.map((logit) => cap * Math.tanh(logit / cap)) : logits;
  }

  /**
   * Computes the logits and maps of a sequence, and the range of keys visible to each query of the decoder's
   * self-attention.
   */
  forward(tokens, { source = null, interventions = null } = {}) {
    const weights = { decoder: [] };
    if (this.encoder) Object.assign(weights, { cross: [], encoder: [] });
    const { layers, changes } = this.begin(source, prepared(this, tokens, source, interventions), weights.encoder);
    const maps = this.encoder ? [weights.decoder, weights.cross] : [weights.decoder];
    const stream = this.stack.forward(tokens, layers, changes, maps);
    return { logits: Float32Array.from(this.logits(stream, tokens.length)), weights, visible: this.visible(tokens.length) };
  }

  /** Returns the range of keys that each query of the decoder sees in any layer. */
  visible(time) {
    const masks = Array.from({ length: this.config.layers }, (_, layer) => maskOf(this.config, layer));
    return Array.from({ length: time }, (_, query) => [Math.min(...masks.map((mask) => mask(query, time)[0])), query + 1]);
  }

  /** Computes one attention weight step by step; see `traceWeight`. */
  trace(tokens, options, cell) {
    return traceWeight(this, tokens, preparedOptions(this, tokens, options), cell);
  }

  /** Decomposes the residual stream at a position; see `traceStream`. */
  stream(tokens, options, position, target) {
    return traceStream(this, tokens, preparedOptions(this, tokens, options), position, target);
  }

  /** Starts generation from a prompt; see `Writer`. */
  write(tokens, { source = null, interventions = null } = {}) {
    return new Writer(this, tokens, source, interventions);
  }

  /** Computes the loss at each target of a sequence; see `targetLosses`. */
  losses(tokens, options) {
    return targetLosses(this, tokens, options);
  }

  /** Restores activations of a corrupted sequence from a clean one; see `patchedDifferences`. */
  patch(given, patches) {
    return patchedDifferences(this, given, patches);
  }
}

/** Generates a text token by token with a KV cache. When the context is full, its second half is read again. */
class Writer {
  constructor(model, tokens, source, interventions) {
    this.model = model;
    this.source = source;
    this.tokens = [...tokens];
    // Means over the input are those of the prompt.
    this.interventions = withOutputs(model, tokens, source, interventions);
    this.first = 0;
    this.readCount = 0;
    // A prompt longer than the context is read completely, unless positions end with the context.
    this.context = Math.max(model.sizes.context, tokens.length);
    this.begin();
  }

  /** Creates empty caches. */
  begin() {
    const { model, tokens, source, first } = this;
    const { layers, changes } = model.begin(source, withInputs(model, tokens.slice(first), source, this.interventions), null);
    this.layers = layers;
    this.changes = changes;
    this.readCount = first;
  }

  /**
   * Reads the tokens that are not read yet, and returns their logits `[time, vocab]` and their attention maps by kind,
   * `[layer][head] [time * keys]`, and the visible keys of all queries in the context.
   */
  read() {
    const time = this.tokens.length;
    const isFull = time - this.first > this.context;
    if (isFull) this.first = time - Math.ceil(this.model.sizes.context / 2);
    // The changed inputs of ablated paths depend on all tokens.
    if (isFull || this.interventions?.paths?.length > 0) this.begin();
    const unread = this.tokens.slice(this.readCount);
    const maps = this.model.encoder ? [[], []] : [[]];
    const stream = this.model.stack.forward(unread, this.layers, this.changes, maps);
    this.readCount = time;
    const logits = Float32Array.from(this.model.logits(stream, unread.length));
    return { logits, weights: { decoder: maps[0], ...(maps[1] ? { cross: maps[1] } : {}) }, first: this.first, count: unread.length, visible: this.model.visible(time - this.first) };
  }

  /** Returns the logits of the next token, `[vocab]`. */
  next() {
    return this.read().logits.slice(-this.model.head.outputs);
  }

  append(id) {
    this.tokens.push(id);
    return this.next();
  }
}
