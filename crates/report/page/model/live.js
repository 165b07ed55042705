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
    losses: ([tokens, options]) => model.losses(tokens, options),
    patch: ([given, variants]) => model.patch(given, variants),
    begin: ([tokens, options]) => { writer = model.write(tokens, options); return writer.read(); },
    append: ([id]) => { writer.tokens.push(id); return writer.read(); },
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

  /** Computes the loss at each token but the first; see `targetLosses`. */
  losses(tokens, options = {}) {
    return this.ask("losses", [tokens, options]);
  }

  /** Restores activations of a corrupted sequence; see `patchedDifferences`. */
  patch(given, variants) {
    return this.ask("patch", [given, variants]);
  }

  /** Reads a prompt, which `append` continues; returns what `Writer.read` returns. */
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

  /**
   * Ablates components of the model on the input of the page, without its changes. A component has the name that the
   * program gives it, such as "1.3", "cross.1.3" or "1.mlp"; `by` is "zero", "input" or "stored".
   */
  async ablate(names, by = DEFAULT_ABLATION) {
    const ablated = [names].flat().map((name) => ({ ...componentNamed(name), by: checkedBy(by) }));
    return this.lossesWith({ ablated });
  }

  /** Ablates the path from one component to an input of a later one: "query", "key" or "value" of a head. */
  async ablatePath(from, to, input = null, by = DEFAULT_ABLATION) {
    const path = { from: componentNamed(from), to: componentNamed(to), input, by: checkedBy(by) };
    const problem = pathProblem(path);
    if (problem) throw new RangeError(problem);
    return this.lossesWith({ paths: [path] });
  }

  async lossesWith(changes) {
    if (!shownAnswer) throw new Error("the page has no input; type one");
    const { tokens, source } = shownAnswer;
    const losses = await live.losses(tokens, { source, interventions: changes });
    return { losses, loss: mean(losses.filter((_, position) => countedTargets(tokens)[position])) };
  }

  /**
   * Patches activations of a clean sequence into a corrupted one of the same length, as `explain` does. Returns the logit
   * differences `clean` and `corrupted` of two answers after the last token, and the recovered shares `heads[layer][head]`,
   * `cross`, `feed_forward[layer]` and `stream[depth][position]`.
   */
  async patching(clean, corrupted, answers, source = null) {
    const given = { clean: checkedIds(clean, "clean sequence"), corrupted: checkedIds(corrupted, "corrupted sequence"), answers: checkedIds(answers, "list of answers"), source };
    if (given.clean.length !== given.corrupted.length || given.answers.length !== 2) throw new RangeError("pass two sequences of the same length and two answers");
    const cells = Array.from({ length: live.config.layers + 1 }, (_, depth) => given.clean.map((_, position) => ({ depth, position }))).flat();
    const found = await live.patch(given, [...allComponents.map((component) => [component]), ...cells]);
    const shares = found.patched.map((patched) => (patched - found.corrupted) / (found.clean - found.corrupted));
    const layers = Array.from({ length: live.config.layers }, (_, layer) => layer);
    const of = (kind) => layers.map((layer) => shares.filter((_, at) => allComponents[at]?.kind === kind && allComponents[at].layer === layer));
    const stream = shares.slice(allComponents.length);
    return {
      clean: found.clean, corrupted: found.corrupted, heads: of("decoder"), cross: of("cross"), feed_forward: of("feed_forward").flat(),
      stream: [...layers, live.config.layers].map((depth) => stream.slice(depth * given.clean.length, (depth + 1) * given.clean.length)),
    };
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
