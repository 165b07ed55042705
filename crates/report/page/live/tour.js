// A tour of the model: a prediction, the head that it depends on, the ablation of this head, the head whose output it
// reads, and a replaced token. An encoder-decoder shows its cross-attention and replaces a token of its source. Without a
// circuit, the tour shows the head that the page opens on.

const KIND_DESCRIPTIONS = {
  previous_token: "attends to the previous token",
  induction: "attends to the token after an earlier occurrence of the same token",
  duplicate: "attends to earlier occurrences of the same token",
  itself: "attends to its own token",
  first_token: "attends to the first token, an attention sink",
  separator: "attends to one token wherever it occurs",
  positional: "attends to the same positions in every sequence",
  copying: "copies the tokens that it attends to",
};
/** Describes the known kinds of a head; empty if there are none. */
const describe = ({ kinds }) => kinds.map((kind) => KIND_DESCRIPTIONS[kind]).filter(Boolean).join(" and ");
const INPUT_NAMES = { query: "queries", key: "keys", value: "values" };

/** The minimum importance (rise of the loss when ablated) of the tour's head, in nats. */
const MIN_IMPORTANCE = 0.01;

/**
 * Returns the head for the tour: an induction head if there is one, else a head of a known kind, else one in the last
 * layer. Without a circuit, or if only cross-attention is important, it is the head that the page opens on; `ablated` is
 * then undefined.
 */
function tourHead() {
  const opened = { layer: firstLayer, head: data.shown.decoder[firstLayer], kinds: [] };
  if (!data.circuit) return opened;
  const important = data.circuit.components.filter(({ head, ablated }) => Number.isInteger(head) && ablated - data.circuit.loss >= MIN_IMPORTANCE);
  const heads = important.filter(({ cross }) => !cross);
  if (heads.length === 0) return important.length > 0 ? opened : null;
  return heads.find(({ kinds }) => kinds.includes("induction")) ?? heads.find(describe) ?? heads.toSorted((a, b) => b.layer - a.layer)[0];
}

/** Returns the change that ablates a head. */
const ablation = ({ layer, head }) => ({ ablated: [{ kind: "decoder", layer, head, by: DEFAULT_ABLATION }] });

/** Reads a sequence with and without a head, which the tour explains. */
async function readTourSequence(component, { tokens, source = null }) {
  const interventions = { heads: [], frozen: [], ...ablation(component) };
  const [plain, ablated] = [await live.forward(tokens, { source }), await live.forward(tokens, { source, interventions })];
  const rows = [plain, ablated].map((answer) => probabilitiesOf(answer, tokens.length));
  const weightAt = ({ layer, head }, query, key) => plain.weights.decoder[layer][head][query * tokens.length + key];
  /** Returns the weights of a cross-attention head from a query to the source. */
  const sourceWeights = ({ layer, head }, query) => Array.from(plain.weights.cross[layer][head].slice(query * source.length, (query + 1) * source.length));
  const strongestAt = (query) => largest(Array.from({ length: query + 1 }, (_, key) => weightAt(component, query, key)), 1)[0];
  const [loss, ablatedLoss] = rows.map((row) => mean(surprisals(row, tokens)));
  return { component, tokens, source, rows, weightAt, sourceWeights, strongestAt, loss, ablatedLoss };
}

/** Returns true if the token before `key` occurs again at `query`, so that an induction head attends to the key. */
const isRepeat = ({ tokens }, query, key) => key > 0 && key <= query && tokens[key - 1] === tokens[query];

/** Finds the position in a sequence where the head raises the probability of the true next token most. */
function bestExample(read) {
  const { component, tokens, rows: [row, ablatedRow], strongestAt } = read;
  let best = null;
  for (let query = 1; query + 1 < tokens.length; query++) {
    const key = strongestAt(query);
    if (component.kinds.includes("induction") && !(isRepeat(read, query, key) && tokens[key] === tokens[query + 1])) continue;
    const gain = row[query][tokens[query + 1]] - ablatedRow[query][tokens[query + 1]];
    if (!best || gain > best.gain) best = { query, key, gain };
  }
  return best;
}

/** Returns an element that shows the token at a position of the tour's sequence. */
const tourToken = (position) => tokenElement(live.tokenizer.token(tour.tokens[position]));
/** Returns the token that the tour follows after a position: the next one, or after the last one the prediction. */
const tourTarget = (query) => tour.tokens[query + 1] ?? largest(tour.rows[0][query], 1)[0];
const isTourHead = () => state.layer === tour.component.layer && state.head === tour.component.head;
const lossInWords = (loss) => `${loss < data.circuit.loss ? "lowers" : "raises"} the loss from ${fixed(data.circuit.loss, 2)} to ${fixed(loss, 2)} nats`;

/** The connection into the tour's head that matters most, with the head that it comes from; undefined if there is none. */
const tourEdge = ({ layer, head }) => data.circuit.edges.find(({ from, to, from_cross, to_cross }) => Number.isInteger(from[1]) && to[0] === layer && to[1] === head && !from_cross && !to_cross);

/** The most important cross-attention head of the circuit, or else the one that the last layer shows. */
function tourCrossHead() {
  const layer = data.shown.cross.length - 1;
  return data.circuit?.components.find(({ head, cross }) => cross && Number.isInteger(head)) ?? { layer, head: data.shown.cross[layer] };
}

/** Returns the cell of this head from the chosen position to the token of the source that it attends to most. */
function sourceCell() {
  const { source, sourceWeights, chosen: { query } } = tour;
  const { layer, head } = tourCrossHead();
  // The replacement of a token that marks the end of the source would mean nothing.
  const weights = sourceWeights({ layer, head }, query).map((weight, key) => (answerStart().includes(source[key]) ? -Infinity : weight));
  return { kind: "cross", layer, head, query, key: largest(weights, 1)[0] };
}

/** Describes the prediction at the chosen position. */
function predictionText() {
  const next = tour.component.ablated === undefined ? "the next steps show a head of the model" : "the next steps show why";
  const { query, key } = tour.chosen;
  const probability = (id) => fixed(tour.rows[0][query][id], 2);
  const here = [tourToken(query), ` at position ${query} `];
  if (tour.component.kinds.includes("induction") && isRepeat(tour, query, key)) {
    return [...here, `repeats position ${key - 1}, which was followed by `, tourToken(key), `. The model gives this token a probability of ${probability(tour.tokens[key])} to follow again.`];
  }
  if (query + 1 === tour.tokens.length) {
    const target = tourTarget(query);
    return [...here, "is the last token. After it, the model predicts ", tokenElement(live.tokenizer.token(target)), ` with probability ${probability(target)}; ${next}.`];
  }
  return [...here, "is followed by ", tourToken(query + 1), `. The model gives this token a probability of ${probability(tour.tokens[query + 1])}; ${next}.`];
}

/** Describes the weight of the chosen cell, and compares its score with the highest of the other keys. */
async function weightText() {
  const { component, tokens, source, chosen: { query, key } } = tour;
  const { scores } = await live.trace(tokens, { source, interventions: null }, { kind: "decoder", layer: component.layer, head: component.head, query, key });
  const seen = scores.slice(0, query + 1);
  const other = largest(seen, 2).find((index) => index !== key);
  const lead = other === undefined ? 0 : seen[key] - seen[other];
  const compared = other === undefined || !Number.isFinite(seen[other]) ? "It is the only key that the query can see."
    : `The score of this key is ${fixed(Math.abs(lead), 2)} ${lead < 0 ? "below" : "above"} the ${lead < 0 ? "highest" : "next"} one, at position ${other}, so its weight is ${factor(Math.exp(Math.abs(lead)))} times as ${lead < 0 ? "small" : "large"}.`;
  const kind = component.ablated === undefined ? "" : describe(component) ? ` This head ${describe(component)}.` : " This head is not of a known kind.";
  return [`The map shows where ${componentInWords({ ...component, kind: "decoder" })} attends.${kind} ${isTourHead() ? "In the marked cell, " : "In the map of this head, "}`, tourToken(query), ` at position ${query} attends to `, tourToken(key),
    ` at position ${key} with a weight of ${fixed(tour.weightAt(component, query, key), 2)}. ${compared} Click the cell to see how the weight came about.`];
}

function ablationText() {
  const { component, rows, loss, ablatedLoss, chosen: { query } } = tour;
  const target = tourTarget(query);
  const [probability, ablated] = rows.map((row) => fixed(row[query][target], 3));
  const known = component.ablated !== undefined ? ` On the validation sequences, where the mean of each position replaces its output, mean-ablating it ${lossInWords(component.ablated)}.` : "";
  return [`Now ${componentInWords({ ...component, kind: "decoder" })} is mean-ablated: its output is replaced by ${ABLATIONS[DEFAULT_ABLATION]}. The probability of `, tokenElement(live.tokenizer.token(target)),
    ` after position ${query} changes from ${probability} to ${ablated}, and the loss on this input from ${fixed(loss, 2)} to ${fixed(ablatedLoss, 2)} nats.${known}`];
}

/** Describes the head that the tour's head reads, and the marked cell in its map. */
function connectionText() {
  const { component } = tour;
  const edge = tourEdge(component);
  if (!edge) {
    const other = data.circuit.components.find((other) => other !== component && !other.cross);
    return [other ? `The head is restored. Another component of the circuit is ${componentInWords({ ...other, kind: Number.isInteger(other.head) ? "decoder" : "feed_forward" })}: mean-ablating it ${lossInWords(other.ablated)}.` : "The head is restored. It recovers nearly all of the gain alone."];
  }
  const [layer, head] = edge.from;
  const earlier = data.circuit.components.find((other) => other.layer === layer && other.head === head && !other.cross);
  const text = [`The head is restored. Its ${INPUT_NAMES[edge.input]} depend on the output of ${componentInWords({ kind: "decoder", layer, head })}${earlier && describe(earlier) ? `, which ${describe(earlier)}` : ""}. Ablating the path between the two heads ${lossInWords(edge.ablated)}.`];
  if (state.layer !== layer || state.head !== head || state.kind !== "decoder") return text;
  const { query, key } = state.selected;
  text.push(" In the marked cell, ", tourToken(query), ` at position ${query} attends to `, tourToken(key), ` at position ${key} with a weight of ${fixed(tour.weightAt({ layer, head }, query, key), 2)}`);
  // An induction head finds a key by the token before it, which an earlier head has written there.
  const isWritten = component.kinds.includes("induction") && edge.input === "key" && key === query - 1;
  return [...text, isWritten ? ": its key can match a query that repeats this token." : "."];
}

/** Describes the source token that the decoder reads. */
function sourceText() {
  const { source, sourceWeights, chosen: { query } } = tour;
  const { ablated } = tourCrossHead();
  const { key, ...cell } = sourceCell();
  const importance = ablated === undefined ? "" : ` Mean-ablating this head ${lossInWords(ablated)}.`;
  return [`The head is restored. The decoder reads the source by cross-attention. In the map of ${componentInWords(cell)}, `, tourToken(query), ` at position ${query} attends to the source token `, tokenElement(live.tokenizer.token(source[key])),
    ` at position ${key} with a weight of ${fixed(sourceWeights(cell, query)[key], 2)}.${importance}`];
}

/** Describes the prediction after the replacement of a source token. */
function sourceReplacementText() {
  const { source, chosen: { query } } = tour;
  const { key } = sourceCell();
  const [before, after] = [tour.rows[0], shownAnswer.probabilities].map((rows) => largest(rows[query], 1)[0]);
  return ["Your turn. The source token ", tokenElement(live.tokenizer.token(source[key])), ` at position ${key}, to which the decoder attended from position ${query}, is replaced by `, tokenElement(live.tokenizer.token(replacedSource()[key])),
    ". After ", tourToken(query), ` at position ${query}, the model ${after === before ? "still" : "now"} predicts `, tokenElement(live.tokenizer.token(after)),
    ` with probability ${fixed(shownAnswer.probabilities[query][after], 2)}. Change the source, ablate other heads, or try another sequence.`];
}

/** Returns the source with another token at the position to which the decoder attends. */
function replacedSource() {
  const { source } = tour;
  const { key } = sourceCell();
  return source.with(key, otherToken(source, [source[key]]));
}

function replacementText() {
  const { chosen: { query, key }, replacement } = tour;
  const position = state.position;
  const [before, after] = [tour.rows[0], shownAnswer.probabilities].map((rows) => largest(rows[position], 1)[0]);
  return ["Your turn. ", tourToken(key), ` at position ${key}, to which the head attended from position ${query}, is replaced by `, tokenElement(live.tokenizer.token(replacement)),
    ". After ", position === key ? tokenElement(live.tokenizer.token(replacement)) : tourToken(position), ` at position ${position}, the model ${after === before ? "still" : "now"} predicts `, tokenElement(live.tokenizer.token(after)),
    ` with probability ${fixed(shownAnswer.probabilities[position][after], 2)}. Replace another token, ablate other heads, or try another sequence.`];
}

/** Returns the steps of the tour: the changes of the input, the view to show, and the text on the selection. */
function tourSteps() {
  const nothing = () => ({});
  const steps = [
    { input: nothing, show: nothing, text: predictionText },
    { input: nothing, show: nothing, text: weightText },
    { input: () => ablation(tour.component), show: nothing, text: ablationText },
  ];
  if (live.config.encoder_decoder) {
    return [...steps, { input: nothing, show: sourceCell, text: sourceText }, { input: () => ({ source: replacedSource() }), show: sourceCell, text: sourceReplacementText }];
  }
  const replaced = { input: () => ({ tokens: tour.tokens.with(tour.chosen.key, tour.replacement), before: tour.tokens }), show: nothing, text: replacementText };
  return [...steps, ...(data.circuit ? [{ input: nothing, show: showConnection, text: connectionText }] : []), replaced];
}
/** The steps in which a selection moves the tour to another position. */
const CHOOSING_STEPS = 3;

/** Returns the view of the head whose output the tour's head reads; for the keys of an induction head, at the key. */
function showConnection() {
  const edge = tourEdge(tour.component);
  if (!edge) return {};
  const { key } = tour.chosen;
  const isByKey = tour.component.kinds.includes("induction") && edge.input === "key" && key > 0;
  return { layer: edge.from[0], head: edge.from[1], ...(isByKey ? { query: key, key: key - 1, position: key } : {}) };
}

/** The sequence that the tour explains, as read, with the chosen cell of its head; null before the tour. */
let tour = null;
let tourStep = 0;
/** True while a step changes the input and the view. */
let isTourMoving = false;
/** The number of the last request for a text, whose answer is shown. */
let tourRequest = 0;

/** Shows the text of the current step on the selection. */
async function readTour() {
  if (at("tour").hidden || isTourMoving) return;
  const request = ++tourRequest;
  const { text: describeStep, input: inputOfStep } = tourSteps()[tourStep];
  const { tokens, source } = { tokens: tour.tokens, source: tour.source, ...inputOfStep() };
  if (state.sample !== TYPED_SAMPLE || JSON.stringify([shownAnswer?.tokens, shownAnswer?.source ?? null]) !== JSON.stringify([tokens, source])) {
    return at("tour-text").replaceChildren("Another sequence is on display. Back and Next return to the sequence of the tour.");
  }
  if (tourStep < CHOOSING_STEPS) {
    const query = state.position;
    const isCell = isTourHead() && state.kind === "decoder" && state.selected.query === query && state.selected.key <= query;
    tour.chosen = { query, key: isCell ? state.selected.key : tour.strongestAt(query) };
  }
  const text = await describeStep();
  if (request === tourRequest) at("tour-text").replaceChildren(...text);
}

async function showTourStep(step) {
  tourStep = step;
  const { component, tokens, source, chosen: { query, key } } = tour;
  // The token that replaces the key differs from it and from the query.
  tour.replacement = otherToken(tokens, [tokens[key], tokens[query]]);
  const steps = tourSteps();
  const isLast = step + 1 === steps.length;
  at("tour-step").replaceChildren(`Step ${step + 1} of ${steps.length}`);
  at("tour-back").disabled = step === 0;
  at("tour-next").replaceChildren(isLast ? "End the tour" : "Next");
  at("tour-end").hidden = isLast;
  at("tour").hidden = false;
  isTourMoving = true;
  await change({ tokens, source, first: 0, before: null, ...NO_CHANGES, ...steps[step].input() });
  showTyped({ kind: "decoder", layer: component.layer, head: component.head, query, key, position: query, view: "matrix", difference: false, ...steps[step].show() });
  isTourMoving = false;
  await readTour();
  at("tour").scrollTop = 0;
  const isMotionReduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
  // On a narrow screen, the map and its text take all of the window.
  at(matchMedia("(max-width: 760px)").matches && step > 0 ? "stage" : "input-area").scrollIntoView({ block: "start", behavior: isMotionReduced ? "auto" : "smooth" });
}

async function beginTour(component) {
  let best = null;
  // Search the first sequences for one in which the head has a large effect.
  for (const sequence of data.starts.slice(0, 20)) {
    const read = await readTourSequence(component, sequence);
    const chosen = bestExample(read);
    if (chosen && (!best || chosen.gain > best.chosen.gain)) best = { ...read, chosen };
    if (best && best.chosen.gain > 0.5) break;
  }
  if (!best) return showNote("the tour found no example for its head in the sequences of this page");
  tour = best;
  await showTourStep(0);
  at("tour").focus();
}

function endTour() {
  at("tour").hidden = true;
  at("tour-begin").focus();
}

function startTour() {
  const component = tourHead();
  const hasStart = data.starts.some(({ tokens }) => tokens.length > 2);
  at("tour-begin").hidden = component === null || !hasStart;
  if (!component) return;
  at("tour-begin").replaceChildren(`Take the tour (${tourSteps().length === 5 ? "five" : "four"} steps)`);
  at("tour-begin").addEventListener("click", () => beginTour(component));
  at("tour-back").addEventListener("click", () => showTourStep(Math.max(tourStep - 1, 0)));
  at("tour-next").addEventListener("click", () => (tourStep + 1 < tourSteps().length ? showTourStep(tourStep + 1) : endTour()));
  at("tour-end").addEventListener("click", endTour);
  at("tour").addEventListener("keydown", (event) => event.key === "Escape" && endTour());
}
