// The model of the page, which computes in a worker so that the page stays responsive.

/** Returns the softmax of logits divided by a temperature. */
function softmax(logits, temperature) {
  let largest = -Infinity, sum = 0;
  for (const logit of logits) largest = Math.max(largest, logit);
  const probabilities = Float32Array.from(logits, (logit) => Math.exp((logit - largest) / temperature));
  for (const probability of probabilities) sum += probability;
  return probabilities.map((probability) => probability / sum);
}

/** Returns the function that answers requests in the worker; the first request loads the model. */
function work(engine) {
  let model = null, writer = null;
  const answers = {
    load: ([description, bytes]) => { model = new (engine().Model)(description, bytes); return null; },
    forward: ([tokens, options]) => model.forward(tokens, options),
    trace: ([tokens, options, cell]) => model.trace(tokens, options, cell),
    stream: ([tokens, options, position, target]) => model.stream(tokens, options, position, target),
    begin: ([tokens, options]) => { writer = model.write(tokens, options); return writer.next(); },
    append: ([id]) => writer.append(id),
  };
  return (name, given) => answers[name](given);
}

/** The page's model in its worker; requests are answered in order. */
class Live {
  constructor(description, numbers, stored) {
    const { config, sizes } = description;
    this.config = {
      ...config, vocab: sizes.vocab, context: sizes.context, source_context: sizes.source_context,
      ends_with_context: config.position === "learned" && config.architecture !== "one_layer",
      encoder_decoder: config.architecture === "encoder_decoder",
    };
    this.tokenizer = new Tokenizer(stored);
    // The promises of pending requests, by their numbers.
    this.pending = new Map();
    this.number = 0;
    const source = `"use strict";\n${engine}\n${work}\nconst answer = work(engine);
onmessage = ({ data: [number, name, given] }) => {
  try { postMessage([number, answer(name, given), null]); } catch (error) { postMessage([number, null, error.message]); }
};`;
    this.worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
    this.worker.onmessage = ({ data: [number, answer, problem] }) => {
      const { resolve, reject } = this.pending.get(number);
      this.pending.delete(number);
      if (problem === null) resolve(answer); else reject(new Error(problem));
    };
    this.worker.onerror = (event) => {
      event.preventDefault();
      for (const { reject } of this.pending.values()) reject(new Error("the model of this page has stopped; reload the page"));
      this.pending.clear();
    };
    this.ask("load", [description, numbers]);
  }

  ask(name, given) {
    return new Promise((resolve, reject) => {
      this.pending.set(++this.number, { resolve, reject });
      this.worker.postMessage([this.number, name, given]);
    });
  }

  /** Computes the logits `[time * vocab]` and the maps `[layer][head] [query * key]` of each kind of attention. */
  forward(tokens, options = {}) {
    return this.ask("forward", [tokens, options]);
  }

  /** Computes one attention weight step by step; see `traceWeight`. */
  trace(tokens, options, cell) {
    return this.ask("trace", [tokens, options, cell]);
  }

  /** Decomposes the residual stream at a position; see `traceStream`. */
  stream(tokens, options, position, target) {
    return this.ask("stream", [tokens, options, position, target]);
  }

  /** Reads a prompt, which `append` continues; returns the logits of the next token. */
  begin(tokens, options = {}) {
    return this.ask("begin", [tokens, options]);
  }

  append(id) {
    return this.ask("append", [id]);
  }
}

const live = data.model ? new Live(data.model, bytes.slice(data.model.start), data.model.tokenizer) : null;

const isBelow = (number, end) => Number.isInteger(number) && number >= 0 && number < end;

/** Returns a list of ids that the model can read; throws if the argument is not one. */
function checkedIds(given, what) {
  const ids = Array.from(given ?? []);
  const { vocab } = live.config;
  const invalid = ids.findIndex((id) => !isBelow(id, vocab));
  const problem = ids.length === 0 ? "is empty" : invalid >= 0 ? `contains ${JSON.stringify(ids[invalid])} at index ${invalid}` : null;
  if (problem) throw new RangeError(`the ${what} ${problem}; pass a list of ids from 0 to ${vocab - 1}`);
  return ids;
}

/** The scripting interface of the model, as described in the page's help. */
class ScriptedModel {
  constructor() {
    this.zeroed = [];
  }

  /**
   * Runs the model on tokens, or on a source and an answer for an encoder-decoder; returns plain arrays `[time][vocab]`
   * and `[layer][head][query][key]`.
   */
  async forward(...given) {
    const source = live.config.encoder_decoder ? checkedIds(given.shift(), "source") : null;
    const tokens = checkedIds(given[0], source ? "answer" : "input");
    const { logits, weights } = await live.forward(tokens, { source, interventions: { heads: this.zeroed, frozen: [] } });
    const rows = (values, count) => Array.from({ length: count }, (_, row) => Array.from(values.subarray(row * values.length / count, (row + 1) * values.length / count)));
    const maps = (layers, count) => layers.map((heads) => heads.map((map) => rows(map, count)));
    const logitRows = rows(logits, tokens.length);
    const others = source ? { cross: maps(weights.cross, tokens.length), encoder: maps(weights.encoder, source.length) } : {};
    return {
      logits: logitRows, probabilities: logitRows.map((row) => Array.from(softmax(row, 1))),
      weights: maps(weights.decoder, tokens.length), ...others,
    };
  }

  /** Computes a weight on the input of the page, with its changes, step by step. */
  async weight(layer, head, query, key, kind = "decoder") {
    if (!shownAnswer) throw new Error("the page has no input; type one");
    const { tokens, source } = shownAnswer;
    this.checkHead(layer, head);
    if (!data.maps[0].some((maps) => maps.kind === kind)) throw new RangeError(`unknown kind of attention: ${kind}`);
    const [queries, keys] = KINDS[kind].sides.map((side) => (side === "inputs" ? tokens : source).length);
    if (!isBelow(query, queries) || !isBelow(key, keys)) throw new RangeError(`unknown cell: query ${query}, key ${key}; queries are 0 to ${queries - 1}, keys 0 to ${keys - 1}`);
    return live.trace(tokens, { source, interventions: await interventions(shownAnswer.input) }, { kind, layer, head, query, key });
  }

  /** Zero-ablates a head of the decoder's self-attention in later calls. */
  zeroHead(layer, head) {
    this.checkHead(layer, head);
    this.zeroed.push({ kind: "decoder", layer, head, strength: 0, positions: null });
  }

  checkHead(layer, head) {
    const { heads, layers } = live.config;
    if (!isBelow(layer, layers) || !isBelow(head, heads)) throw new RangeError(`unknown head: layer ${layer}, head ${head}; layers are 0 to ${layers - 1}, heads 0 to ${heads - 1}`);
  }

  /** Undoes all ablations. */
  restore() {
    this.zeroed = [];
  }
}

if (live) Object.assign(window, { model: new ScriptedModel() });
