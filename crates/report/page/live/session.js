// The user's input and changes, and the model's answer. The answer is a further sequence of the page, which all panels
// show like the others.

/** The index of the typed sequence. */
const TYPED_SAMPLE = data.readings.length;
/** The maximum number of input tokens: the context, or 512 if that is more. All pairs of tokens are drawn. */
const MAX_TOKENS = live ? Math.max(live.config.context ?? 0, 512) : 0;
/** The maximum number of input characters; a longer text has too many tokens in any case, and is not tokenized. */
const MAX_CHARACTERS = 64 * Math.max(MAX_TOKENS, live?.config.source_context ?? 0);
/** The maximum number of changes that can be undone. */
const MAX_UNDO_STEPS = 200;

/**
 * @typedef {{kind: string, layer: number, head: number, strength: number, position: number | null}} Strength the
 *   strength of a head, at one query or at all queries
 * @typedef {{kind: string, layer: number, head: number, tokens: number[], source: number[] | null}} Frozen the
 *   frozen pattern of a head on these tokens
 * @typedef {{tokens: number[], first: number, source: number[] | null, heads: Strength[], frozen: Frozen[], before: number[] | null}} Input
 *   `first` is the position from which the model reads, `before` the tokens before one was replaced
 */

/** @type {Input} */
let input = { tokens: [], first: 0, source: null, heads: [], frozen: [], before: null };
/** @type {{input: Input, typing: boolean}[]} */
const undone = [];
/** The displayed answer with its input; null before the first answer. */
let answered = null;
/** The reason why the typed text cannot be read; empty if it can be read. */
let unreadable = "";
/** True if the input is refused: the panels then show the last accepted input, marked as stale. */
let isRefused = false;
/** The callbacks for a changed input, and for a new answer. */
const inputViews = [];
const answerViews = [];
/** The callbacks for an input that is accepted or refused. */
const refusalViews = [];

/** Changes the input and records the change for undo; consecutive typing is undone in one step. */
function change(changes, { typing = false } = {}) {
  if (!(typing && undone.at(-1)?.typing)) undone.push({ input, typing });
  if (undone.length > MAX_UNDO_STEPS) undone.shift();
  // The typed text stays unchanged if only heads are changed.
  const keepsText = typing || changes.tokens === undefined;
  if (!keepsText) unreadable = "";
  unknownAddress = "";
  input = { ...input, ...changes };
  for (const view of inputViews) view({ typing: keepsText });
  return compute();
}

function undo() {
  const last = undone.pop();
  if (!last) return;
  const keepsText = last.input.tokens === input.tokens;
  input = last.input;
  if (!keepsText) unreadable = "";
  for (const view of inputViews) view({ typing: keepsText });
  compute();
}

/** Returns the tokens that the model reads: for a long continuation the last ones. */
const readTokens = () => input.tokens.slice(input.first);
const isChanged = () => input.heads.length > 0 || input.frozen.length > 0 || input.before !== null;

/** Returns the reason why the input is refused, or a note on its answer, in the wording of the program. */
function remark() {
  const [tokens, { context, source_context, ends_with_context: ends }] = [readTokens(), live.config];
  const refused = (text) => ({ refused: true, text });
  if (unreadable) return refused(unreadable);
  if (tokens.length === 0) return refused("the input is empty; type at least one token");
  if (live.config.encoder_decoder && !(input.source?.length > 0)) return refused("an encoder-decoder answers a source; type one");
  const sides = [["input", tokens.length, context], ["source", input.source?.length ?? 0, source_context]];
  const [longest] = sides.filter(([, time, context]) => context !== null && time > context);
  const longer = longest && `the ${longest[0]} of ${longest[1]} tokens is longer than the training context of ${longest[2]} tokens`;
  if (longer && ends) return refused(`${longer}, beyond which there are no learned positions; shorten it`);
  for (const [what, time, context] of sides) {
    const most = Math.max(context ?? 0, MAX_TOKENS);
    if (time > most) return refused(`this page reads at most ${most} tokens, but the input has ${time}; shorten the ${what}`);
  }
  if (longer) return { refused: false, text: `${longer}; the model extrapolates to positions it was not trained on` };
  if (input.first > 0) return { refused: false, text: `the context of ${context} tokens is full; the last ${tokens.length} are read, the ${input.first} before them are dropped` };
  return { refused: false, text: "" };
}

/** The cache of attention patterns for freezing, keyed by the tokens and source that they were computed on. */
const patterns = new Map();

async function pattern({ kind, layer, head, tokens, source }) {
  const name = JSON.stringify([tokens, source]);
  if (!patterns.has(name)) {
    if (patterns.size > 8) patterns.clear();
    patterns.set(name, (await live.forward(tokens, { source })).weights);
  }
  return patterns.get(name)[kind][layer][head];
}

/** Returns the changes of an input in the format of the model. */
async function interventions({ heads, frozen }) {
  return {
    heads: heads.map(({ position, ...head }) => ({ ...head, positions: position === null ? null : [position] })),
    frozen: await Promise.all(frozen.map(async (head) => ({ kind: head.kind, layer: head.layer, head: head.head, weights: await pattern(head),
      keys: (head.kind === "decoder" ? head.tokens : head.source).length }))),
  };
}

/** Returns the answer of the unchanged model to the same tokens, or to those before one was replaced; null without changes. */
async function untouched(asked, tokens) {
  if (asked.heads.length === 0 && asked.frozen.length === 0 && asked.before === null) return null;
  const reference = asked.before ?? tokens;
  return { tokens: reference, ...(await live.forward(reference, { source: asked.source })) };
}

let isComputing = null;

/**
 * Asks the model. One request runs at a time and only the newest input waits; inputs in between are skipped, so that
 * typing is never held up. Resolves when no input waits.
 */
function compute() {
  at("try").setAttribute("aria-busy", "true");
  isComputing ??= (async () => {
    await null; // so that `isComputing` is set before it is cleared
    try {
      for (let asked = null; asked !== input;) {
        asked = input;
        // Continue after an error: a newer input may be waiting.
        await ask(asked).catch((error) => say(error.message, true));
      }
    } finally {
      isComputing = null;
      at("try").setAttribute("aria-busy", "false");
    }
  })();
  return isComputing;
}

/** Asks the model about an input, and shows the answer or the reason for a refusal. */
async function ask(asked) {
  const tokens = readTokens();
  const { refused, text } = remark();
  say(text, refused);
  if (refused) return;
  const given = await interventions(asked);
  const answer = await live.forward(tokens, { source: asked.source, interventions: given });
  if (!answer.logits.every(Number.isFinite)) throw new Error("the logits for this input are not finite; change the input or undo the changes");
  const reference = await untouched(asked, tokens);
  take({ input: asked, tokens, source: asked.source, answer, reference });
}

/** Shows a note on the input, and whether the input is refused. */
function say(text, refused = false) {
  const said = [unknownAddress, text].filter(Boolean);
  at("input-note").hidden = said.length === 0;
  at("input-note").classList.toggle("refused", refused);
  const line = said.join("; ");
  if (at("input-note").textContent !== line) at("input-note").replaceChildren(line);
  isRefused = refused;
  for (const view of refusalViews) view();
}

/** Marks the panels as stale if they show another input than the text field. */
function markRefused() {
  if (isRefused) for (const id of ["input-loss", "effect"]) at(id).replaceChildren();
  if (isRefused) at("input-loss").dataset.loss = "";
  const isStale = isRefused && state.sample === TYPED_SAMPLE;
  for (const note of document.querySelectorAll(".stale-note")) note.toggleAttribute("hidden", !isStale);
  for (const id of ["explorer", "thumbnails", "predictions-count", "predictions", "prediction"]) at(id).classList.toggle("stale", isStale);
}

/** Returns the probabilities of the tokens at each position, `[time][vocab]`. */
function probabilitiesOf({ logits }, time) {
  const vocab = logits.length / time;
  const rows = Array.from({ length: time }, (_, position) => softmax(logits.subarray(position * vocab, (position + 1) * vocab), 1));
  return rows;
}

/** Returns the ids of the largest values, largest first. */
function largest(values, count) {
  if (count > 100) return Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b).slice(0, count);
  const best = [];
  values.forEach((value, id) => {
    if (best.length === count && !(value > values[best[count - 1]])) return;
    const place = best.findIndex((other) => value > values[other]);
    best.splice(place < 0 ? best.length : place, 0, id);
    best.length = Math.min(best.length, count);
  });
  return best;
}

/** Makes an answer the typed sequence of the page. */
function take(fresh) {
  const { tokens, source, answer, reference } = fresh;
  const name = (id) => live.tokenizer.token(id);
  const probabilities = probabilitiesOf(answer, tokens.length);
  const were = reference && probabilitiesOf(reference, reference.tokens.length);
  const probability = (rows, position, id) => rows?.[position]?.[id];
  answered = { ...fresh, probabilities, were, losses: surprises(probabilities, tokens), lossesBefore: were && surprises(were, reference.tokens) };
  data.readings[TYPED_SAMPLE] = {
    sequence: "your input",
    source: source?.map(name) ?? null,
    inputs: tokens.map(name),
    targets: tokens.map((_, position) => (position + 1 === tokens.length ? null
      : { id: tokens[position + 1], text: name(tokens[position + 1]), probability: probability(probabilities, position, tokens[position + 1]),
        was: probability(were, position, tokens[position + 1]), role: "unknown" })),
    most_likely: probabilities.map((row, position) => largest(row, 5).map((id) => ({ id, token: name(id), probability: row[id], was: probability(were, position, id) }))),
  };
  data.maps[TYPED_SAMPLE] = data.maps[0].map(({ kind }) => ({ kind, start: 0, bin: 1, visible: kind === "decoder" ? answer.visible : null }));
  for (const { kind, visible } of data.maps[TYPED_SAMPLE]) unpacked.set(`${TYPED_SAMPLE} ${kind}`, answerMaps(kind, visible, answer, reference));
  for (const view of answerViews) view(answered);
}

/** Returns the negative log-probability of each token but the first, in nats; their mean is the loss. */
function surprises(probabilities, tokens) {
  return tokens.slice(1).map((id, position) => -Math.log(Math.max(probabilities[position][id], 1e-30)));
}
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(values.length, 1);

/** Returns the maps of an answer in the format of the page's own sequences; `was` returns a weight before the changes. */
function answerMaps(kind, visible, answer, reference) {
  const [queries, keys] = KINDS[kind].sides.map((side) => places(data.readings[TYPED_SAMPLE][side], 1));
  const weights = answer.weights[kind];
  const sees = seeing(visible, keys.length);
  const within = (query, key) => query < queries.length && key >= sees(query)[0] && key < Math.min(keys.length, sees(query)[1]);
  const weight = (layer, head, query, key) => (within(query, key) ? weights[layer][head][query * keys.length + key] : null);
  const byte = (...place) => byteOf(weight(...place));
  // Maps of another length have different cells.
  const before = reference?.weights[kind];
  const was = before && before[0]?.[0]?.length === queries.length * keys.length
    ? (layer, head, query, key) => (within(query, key) ? before[layer][head][query * keys.length + key] : null) : null;
  return { queries, keys, bin: 1, sees, byte, weight, was, top: null };
}

/** Shows the typed sequence in all panels, along with `changes` of the state. */
function showTyped(changes = {}) {
  if (!answered) return;
  const last = answered.tokens.length - 1;
  if (state.sample !== TYPED_SAMPLE) {
    ended = last;
    update({ sample: TYPED_SAMPLE, query: last, position: last, ...changes });
    return changes.key === undefined && update(strongest());
  }
  const { queries, keys } = maps();
  // A selection at the last position stays at the last position.
  const isAtEnd = state.position === ended;
  ended = last;
  state.position = isAtEnd ? last : Math.min(state.position, last);
  state.query = isAtEnd && KINDS[state.kind].sides[0] === "inputs" ? last : Math.min(state.query, queries.length - 1);
  state.key = isAtEnd ? strongestKey(state.layer, state.head, state.query) : Math.min(state.key, keys.length - 1);
  draw(["sample"]);
  if (Object.keys(changes).length > 0) update(changes);
}

/** The last position of the typed sequence when it was last shown. */
let ended = 0;
