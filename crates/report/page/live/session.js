// The user's input and changes, and the model's answer. The page treats the answer as an additional sequence, which all
// panels can show.

/** The index of the typed sequence. */
const TYPED_SAMPLE = data.readings.length;
/**
 * The maximum number of input tokens: the context or 512, whichever is larger. The maps have a cell for every pair of
 * tokens.
 */
const MAX_TOKENS = live ? Math.max(live.config.context ?? 0, 512) : 0;
/**
 * The maximum number of input characters. A longer text is refused without being tokenized, since it would have too
 * many tokens.
 */
const MAX_CHARACTERS = 64 * Math.max(MAX_TOKENS, live?.config.source_context ?? 0);
/** The maximum number of changes that can be undone. */
const MAX_UNDO_STEPS = 200;

/**
 * @typedef {{kind: string, layer: number, head: number, strength: number, position: number | null}} Strength the
 *   strength of a head, at one query or at all queries
 * @typedef {{kind: string, layer: number, head: number, tokens: number[], source: number[] | null}} Frozen the
 *   head whose pattern is frozen, with the tokens that the pattern is computed on
 * @typedef {{kind: string, layer: number, head: number | null}} Component a head or, with the kind `feed_forward`, a
 *   feed-forward layer
 * @typedef {Component & {by: string}} Ablated an ablated component; `by` is `input` or `stored` for its mean, or `zero`
 * @typedef {{from: Component, to: Component, input: string | null, by: string}} Path an ablated connection
 * @typedef {{tokens: number[], first: number, source: number[] | null, heads: Strength[], frozen: Frozen[], ablated: Ablated[], paths: Path[], before: number[] | null}} Input
 *   `first` is the index of the first token that the model reads, `before` the tokens before a replacement
 */

/** An unchanged model. */
const NO_CHANGES = { heads: [], frozen: [], ablated: [], paths: [] };

/** @type {Input} */
let input = { tokens: [], first: 0, source: null, ...NO_CHANGES, before: null };
/** @type {{input: Input, typing: string | false}[]} */
const undoStack = [];
/** The answer on display, with its input; null before the first answer. */
let shownAnswer = null;
/** The reason why the typed text cannot be read; empty if it can be read. */
let textProblem = "";
/** True if the input is refused: the panels then show the last accepted input, marked as stale. */
let isRefused = false;
/** The callbacks for a changed input, and for a new answer. */
const inputViews = [];
const answerViews = [];
/** The callbacks for when an input is accepted or refused. */
const refusalViews = [];

/**
 * Changes the input and records the change for undo. Consecutive changes with the same value of `typing` are undone in
 * one step: the name of a slider, and the word that is edited, so that typing is undone by word.
 *
 * @param {Partial<Input>} changes
 * @param {{typing?: string | false}} options
 */
function change(changes, { typing = false } = {}) {
  if (typing === false || undoStack.at(-1)?.typing !== typing) undoStack.push({ input, typing });
  if (undoStack.length > MAX_UNDO_STEPS) undoStack.shift();
  // The typed text stays unchanged if only heads are changed.
  const keepsText = typing !== false || changes.tokens === undefined;
  if (!keepsText) textProblem = "";
  addressProblem = "";
  input = { ...input, ...changes };
  for (const view of inputViews) view({ typing: keepsText });
  return compute();
}

function undo() {
  const last = undoStack.pop();
  if (!last) return;
  const keepsText = last.input.tokens === input.tokens;
  input = last.input;
  if (!keepsText) textProblem = "";
  for (const view of inputViews) view({ typing: keepsText });
  return compute();
}

/** Returns the tokens that the model reads; of a continuation longer than the context, only the last ones. */
const readTokens = () => input.tokens.slice(input.first);
const hasChanges = (request) => Object.keys(NO_CHANGES).some((name) => request[name].length > 0) || request.before !== null;
const isChanged = () => hasChanges(input);

/** Returns the reason why the input is refused, or a note on its answer; both have the wording of the program. */
function inputRemark() {
  const [tokens, { context, source_context, ends_with_context: ends }] = [readTokens(), live.config];
  const refused = (text) => ({ refused: true, text });
  if (textProblem) return refused(textProblem);
  if (tokens.length === 0) return refused("the input is empty; type at least one token");
  if (live.config.encoder_decoder && !(input.source?.length > 0)) return refused("an encoder-decoder needs a source; type one");
  const sides = [["input", tokens.length, context], ["source", input.source?.length ?? 0, source_context]];
  const [tooLong] = sides.filter(([, time, context]) => context !== null && time > context);
  const problem = tooLong && `the ${tooLong[0]} of ${tooLong[1]} tokens is longer than the training context of ${tooLong[2]} tokens`;
  if (problem && ends) return refused(`${problem}, which is the number of learned positions; shorten it`);
  for (const [what, time, context] of sides) {
    const limit = Math.max(context ?? 0, MAX_TOKENS);
    if (time > limit) return refused(`this page reads at most ${limit} tokens, but the ${what} has ${time}; shorten the ${what}`);
  }
  if (hasLostReturns) return { refused: false, text: "the text field replaced the carriage returns (␍) of the pasted text by line breaks (⏎)" };
  if (problem) return { refused: false, text: `${problem}; the model extrapolates to positions it was not trained on` };
  if (input.first > 0) return { refused: false, text: `the context of ${context} tokens is full; the last ${tokens.length} are read, the ${input.first} before them are dropped` };
  return { refused: false, text: "" };
}

/** The attention weights for frozen patterns, by the tokens and source that they were computed on. */
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
async function interventions({ heads, frozen, ablated, paths }) {
  return {
    ablated, paths,
    heads: heads.map(({ position, ...head }) => ({ ...head, positions: position === null ? null : [position] })),
    frozen: await Promise.all(frozen.map(async (head) => ({ kind: head.kind, layer: head.layer, head: head.head, weights: await pattern(head),
      keys: (head.kind === "decoder" ? head.tokens : head.source).length }))),
  };
}

/** Returns the answer of the unchanged model to the tokens before any replacement; null without changes. */
async function referenceAnswer(request, tokens) {
  if (!hasChanges(request)) return null;
  const original = request.before ?? tokens;
  return { tokens: original, ...(await live.forward(original, { source: request.source })) };
}

let isComputing = null;

/**
 * Computes the answer to the input. One request runs at a time, then the newest input is next; inputs in between are
 * skipped, so that typing is never held up. Resolves when no input waits.
 */
function compute() {
  at("try").setAttribute("aria-busy", "true");
  isComputing ??= (async () => {
    await null; // `isComputing` must be set before it is cleared
    try {
      for (let request = null; request !== input;) {
        request = input;
        // Continue after an error: a newer input may be waiting.
        await ask(request).catch((error) => showNote(error.message, true));
      }
    } finally {
      isComputing = null;
      at("try").setAttribute("aria-busy", "false");
    }
  })();
  return isComputing;
}

/** Asks the model about an input, and shows the answer or the reason for a refusal. */
async function ask(request) {
  const tokens = readTokens();
  const { refused, text } = inputRemark();
  showNote(text, refused);
  if (refused) return;
  const answer = await live.forward(tokens, { source: request.source, interventions: await interventions(request) });
  if (!answer.logits.every(Number.isFinite)) throw new Error("the logits for this input are not finite; change the input or undo the changes");
  const reference = await referenceAnswer(request, tokens);
  showAnswer({ input: request, tokens, source: request.source, answer, reference });
}

/** Shows a note on the input, and marks the input as refused or accepted. */
function showNote(text, refused = false) {
  const note = [addressProblem, text].filter(Boolean).join("; ");
  at("input-note").hidden = note === "";
  at("input-note").classList.toggle("refused", refused);
  if (at("input-note").textContent !== note) at("input-note").replaceChildren(note);
  isRefused = refused;
  for (const view of refusalViews) view();
}

/** Marks the panels of the typed sequence as stale while the input is refused. */
function markRefused() {
  if (isRefused) for (const id of ["input-loss", "effect"]) at(id).replaceChildren();
  if (isRefused) at("input-loss").dataset.loss = "";
  const isStale = isRefused && state.sample === TYPED_SAMPLE;
  for (const note of document.querySelectorAll(".stale-note")) note.toggleAttribute("hidden", !isStale);
  for (const id of ["explorer", "weight", "strips", "flow", "components", "patching", "pair", "thumbnails", "predictions-count", "predictions", "prediction"]) at(id).classList.toggle("stale", isStale);
}

/** Returns the probabilities of the tokens at each position, `[time][vocab]`. */
function probabilitiesOf({ logits }, time) {
  const vocab = logits.length / time;
  return Array.from({ length: time }, (_, position) => softmax(logits.subarray(position * vocab, (position + 1) * vocab), 1));
}

/** Returns the indices of the `count` largest values, largest first. */
function largest(values, count) {
  if (count > 100) return Array.from(values.keys()).sort((a, b) => values[b] - values[a] || a - b).slice(0, count);
  const best = [];
  values.forEach((value, id) => {
    if (best.length === count && !(value > values[best[count - 1]])) return;
    const rank = best.findIndex((other) => value > values[other]);
    best.splice(rank < 0 ? best.length : rank, 0, id);
    best.length = Math.min(best.length, count);
  });
  return best;
}

/** Shows an answer as the typed sequence of the page. */
function showAnswer(computed) {
  const { tokens, source, answer, reference } = computed;
  const name = (id) => live.tokenizer.token(id);
  const probabilities = probabilitiesOf(answer, tokens.length);
  const probabilitiesBefore = reference && probabilitiesOf(reference, reference.tokens.length);
  const counted = countedTargets(tokens);
  const probability = (rows, position, id) => rows?.[position]?.[id];
  shownAnswer = { ...computed, probabilities, probabilitiesBefore, losses: surprisals(probabilities, tokens), lossesBefore: probabilitiesBefore && surprisals(probabilitiesBefore, reference.tokens) };
  data.readings[TYPED_SAMPLE] = {
    sequence: "your input",
    source: source?.map(name) ?? null,
    inputs: tokens.map(name),
    targets: tokens.map((_, position) => (!counted[position] ? null
      : { id: tokens[position + 1], text: name(tokens[position + 1]), probability: probability(probabilities, position, tokens[position + 1]),
        probabilityBefore: probability(probabilitiesBefore, position, tokens[position + 1]), role: "unknown" })),
    most_likely: probabilities.map((row, position) => largest(row, 5).map((id) => ({ id, token: name(id), probability: row[id], probabilityBefore: probability(probabilitiesBefore, position, id) }))),
  };
  data.maps[TYPED_SAMPLE] = data.maps[0].map(({ kind }) => ({ kind, start: 0, bin: 1, visible: kind === "decoder" ? answer.visible : null }));
  for (const { kind } of data.maps[TYPED_SAMPLE]) unpacked.set(`${TYPED_SAMPLE} ${kind}`, answerMaps(kind, TYPED_SAMPLE, answer, reference));
  for (const view of answerViews) view(shownAnswer);
}

/**
 * Returns, for each token but the first, true if it counts as a target. A model that learned only answers counts the tokens
 * from the one that begins an answer up to the end of the answer; an input without answers counts whole.
 */
function countedTargets(tokens) {
  const { answers } = live.tokenizer;
  const begins = (id) => answers?.begin.includes(id) ?? false;
  const hasAnswer = tokens.some(begins);
  let isAnswer = !hasAnswer;
  return tokens.slice(1).map((target, position) => {
    isAnswer ||= begins(tokens[position]);
    const counts = isAnswer;
    if (hasAnswer && target === answers?.end) isAnswer = false;
    return counts;
  });
}

/** Returns the negative log-probability of each target that counts, in nats; their mean is the loss. */
function surprisals(probabilities, tokens) {
  const counted = countedTargets(tokens);
  const losses = tokens.slice(1).map((id, position) => -Math.log(Math.max(probabilities[position][id], 1e-30)));
  return losses.filter((_, position) => counted[position]);
}
const mean = (values) => values.reduce((sum, value) => sum + value, 0) / Math.max(values.length, 1);

/**
 * Returns the maps of the answer to a sample in the format of the page's own sequences; `weightBefore` returns a weight
 * before the changes.
 */
function answerMaps(kind, sample, answer, reference) {
  const [queries, keys] = KINDS[kind].sides.map((side) => axisCells(data.readings[sample][side], 1));
  const weights = answer.weights[kind];
  const keyRange = keyRanges(kind === "decoder" ? answer.visible : null, keys.length);
  const isVisible = (query, key) => query < queries.length && key >= keyRange(query)[0] && key < Math.min(keys.length, keyRange(query)[1]);
  const weight = (layer, head, query, key) => (isVisible(query, key) ? weights[layer][head][query * keys.length + key] : null);
  const byte = (layer, head, query, key) => byteOf(weight(layer, head, query, key));
  // Sequences of different lengths have no cells in common.
  const before = reference?.weights[kind];
  const weightBefore = before && before[0]?.[0]?.length === queries.length * keys.length
    ? (layer, head, query, key) => (isVisible(query, key) ? before[layer][head][query * keys.length + key] : null) : null;
  return { queries, keys, bin: 1, keyRange, byte, weight, weightBefore, top: null, headTops: new Map() };
}

/** The maximum number of tokens of a sequence of the page whose maps are computed again. */
const MAX_COMPUTED_TOKENS = 256;
/** The sequences of the page whose maps were computed. */
const computedSamples = new Set();

/** Replaces the stored maps of the sequence on display, which are rounded, by those that the model computes. */
async function computeMaps() {
  const sample = state.sample;
  const ids = sample === TYPED_SAMPLE || computedSamples.has(sample) ? null : shownIds();
  if (!ids || ids.tokens.length > MAX_COMPUTED_TOKENS) return;
  computedSamples.add(sample);
  const answer = await live.forward(ids.tokens, { source: ids.source });
  for (const { kind, bin } of data.maps[sample]) if (bin === 1) unpacked.set(`${sample} ${kind}`, answerMaps(kind, sample, answer, null));
  if (state.sample === sample) draw(["sample"]);
}

/** Shows the typed sequence in all panels, and applies `changes` to the state. */
function showTyped(changes = {}) {
  if (!shownAnswer) return;
  const last = shownAnswer.tokens.length - 1;
  if (state.sample !== TYPED_SAMPLE) {
    lastShown = last;
    return update({ sample: TYPED_SAMPLE, position: last, ...changes });
  }
  const { queries, keys } = maps();
  // A selection at the last position stays at the last position.
  const isAtEnd = state.position === lastShown;
  lastShown = last;
  state.position = isAtEnd ? last : Math.min(state.position, last);
  state.query = isAtEnd && KINDS[state.kind].sides[0] === "inputs" ? last : Math.min(state.query, queries.length - 1);
  state.key = isAtEnd ? strongestKey(state.layer, state.head, state.query) : Math.min(state.key, keys.length - 1);
  state.selected = { query: state.query, key: state.key };
  draw(["sample"]);
  if (Object.keys(changes).length > 0) update(changes);
}

/** The ids of the sequences of the page, with their sources, by sample; null for a sequence that no input equals. */
const sampleIds = new Map();

/** Returns the tokens and the source of the sequence on display; null if the page's model has not read it. */
function shownIds() {
  if (state.sample === TYPED_SAMPLE) return shownAnswer;
  if (!sampleIds.has(state.sample)) {
    const { inputs, source } = data.readings[state.sample];
    const isEqual = (ids, texts) => ids.length === texts.length && ids.every((id, position) => live.tokenizer.token(id) === texts[position]);
    const found = data.starts.find(({ tokens, source: ids = null }) => isEqual(tokens, inputs) && isEqual(ids ?? [], source ?? []));
    sampleIds.set(state.sample, earlierFrame(state.sample) || !found ? null : { tokens: found.tokens, source: found.source ?? null });
  }
  return sampleIds.get(state.sample);
}

/** Returns true if the panels show the input as the model read it: typed, or an equal sequence without changes. */
function isInputShown() {
  if (state.sample === TYPED_SAMPLE) return true;
  const [shown, read] = [shownIds(), shownAnswer];
  return Boolean(shown && read && !isChanged()) && JSON.stringify([shown.tokens, shown.source]) === JSON.stringify([read.tokens, read.source ?? null]);
}

/** Returns the selection, which a change of the input on display keeps; nothing for another sequence. */
const keptSelection = () => (isInputShown() ? { position: state.position, ...state.selected } : {});

/** The last position of the typed sequence when it was last shown. */
let lastShown = 0;
