// A tour of the analysis in five steps: a prediction, the head that it depends on, the ablation of this head, the head
// whose output it reads, and a replaced token.

const KIND_DESCRIPTIONS = {
  previous_token: "attends to the previous token",
  induction: "attends to the token after an earlier occurrence of the same token",
  duplicate: "attends to earlier occurrences of the same token",
  itself: "attends to its own token",
  first_token: "attends to the first token, an attention sink",
  separator: "attends to one token wherever it occurs",
  positional: "attends by position only",
  copying: "copies the tokens that it attends to",
};
/** Describes the known kinds of a head; empty if there are none. */
const describe = ({ kinds }) => kinds.map((kind) => KIND_DESCRIPTIONS[kind]).filter(Boolean).join(" and ");
const INPUT_NAMES = { query: "queries", key: "keys", value: "values" };

/** The minimum importance (rise of the loss when ablated) of the tour's head, in nats. */
const MIN_IMPORTANCE = 0.01;

/**
 * Returns the head for the tour: an induction head if there is one, else a head of a known kind, else one in the last
 * layer.
 */
function tourHead() {
  const heads = (data.circuit?.components ?? []).filter(({ head, cross, ablated }) => Number.isInteger(head) && !cross && ablated - data.circuit.loss >= MIN_IMPORTANCE);
  return heads.find(({ kinds }) => kinds.includes("induction")) ?? heads.find(describe) ?? heads.toSorted((a, b) => b.layer - a.layer)[0] ?? null;
}

/** Returns the change that ablates a head. */
const ablation = ({ layer, head }) => ({ ablated: [{ kind: "decoder", layer, head, by: DEFAULT_ABLATION }] });

/** Finds the position in a sequence where a head raises the probability of the true next token most. */
async function findExample(component, { tokens, source = null }) {
  const isInduction = component.kinds.includes("induction");
  const interventions = { heads: [], frozen: [], ...ablation(component) };
  const [plain, ablated] = [await live.forward(tokens, { source }), await live.forward(tokens, { source, interventions })];
  const rows = [plain, ablated].map((answer) => probabilitiesOf(answer, tokens.length));
  const map = plain.weights.decoder[component.layer][component.head];
  const weightsOf = (query) => Array.from(map.subarray(query * tokens.length, query * tokens.length + query + 1));
  let best = null;
  for (let query = 1; query + 1 < tokens.length; query++) {
    const weights = weightsOf(query);
    const key = largest(weights, 1)[0];
    // The token that an induction head attends to follows an earlier occurrence of the query token.
    if (isInduction && !(key > 0 && tokens[key - 1] === tokens[query] && tokens[key] === tokens[query + 1])) continue;
    const [probability, ablatedProbability] = rows.map((row) => row[query][tokens[query + 1]]);
    const gain = probability - ablatedProbability;
    if (!best || gain > best.gain) best = { query, key, probability, ablatedProbability, gain, weight: weights[key], target: tokens[query + 1] };
  }
  if (!best) return null;
  // The prediction after the token that the head attends to is replaced.
  const replacement = tokens.find((id) => id !== tokens[best.key] && id !== tokens[best.query]) ?? (tokens[best.key] + 1) % live.config.vocab;
  const replaced = probabilitiesOf(await live.forward(tokens.with(best.key, replacement), { source }), tokens.length)[best.query];
  const [predicted] = largest(replaced, 1);
  const [loss, ablatedLoss] = rows.map((row) => mean(surprisals(row, tokens)));
  const { scores } = await live.trace(tokens, { source, interventions: null }, { kind: "decoder", layer: component.layer, head: component.head, query: best.query, key: best.key });
  const [, second] = largest(scores.slice(0, best.query + 1), 2);
  const weightAt = ({ layer, head }, row, column) => plain.weights.decoder[layer][head][row * tokens.length + column];
  return { ...best, weightAt, lead: scores[best.key] - scores[second], replacement, predicted, predictedProbability: replaced[predicted], loss, ablatedLoss };
}

/** Returns the steps of the tour, each with the input to set first, the view to show, and the text. */
function tourSteps(component, sequence, example) {
  const { tokens, source = null } = sequence;
  const { query, key } = example;
  const tokenAt = (position) => tokenElement(live.tokenizer.token(tokens[position]));
  const name = layerHead(component.layer, component.head);
  const plain = { tokens, source, first: 0, before: null, ...NO_CHANGES };
  const isInduction = component.kinds.includes("induction");
  const view = { kind: "decoder", layer: component.layer, head: component.head, query, key, position: query, view: "matrix", difference: false };
  const edge = data.circuit.edges.find(({ from, to, from_cross, to_cross }) => Number.isInteger(from[1]) && to[0] === component.layer && to[1] === component.head && !from_cross && !to_cross);
  const earlier = edge && data.circuit.components.find(({ layer, head, cross }) => layer === edge.from[0] && head === edge.from[1] && !cross);
  // An induction head finds a key by the token before it, which an earlier head has written there.
  const isByKey = isInduction && edge?.input === "key";
  const before = isByKey ? { query: key, key: key - 1, position: key } : {};
  const beforeInWords = isByKey
    ? [" In the marked cell, ", tokenAt(key), ` at position ${key} attends to `, tokenAt(key - 1), ` before it with a weight of ${fixed(example.weightAt({ layer: edge.from[0], head: edge.from[1] }, key, key - 1), 2)}: its key can match a query that repeats this token.`] : [];
  const other = data.circuit.components.find((other) => other !== component && !other.cross);
  const nats = (value) => fixed(value, 2);
  const effect = (loss) => `${loss < data.circuit.loss ? "lowers" : "raises"} the loss from ${nats(data.circuit.loss)} to ${nats(loss)} nats`;
  const replacement = tokenElement(live.tokenizer.token(example.replacement));
  // If the query attends to its own position, the query token itself is replaced.
  const queryToken = key === query ? replacement.cloneNode(true) : tokenAt(query);
  const kind = describe(component) ? `This head ${describe(component)}.` : "This head is not of a known kind.";
  return [
    { input: plain, show: view, text: isInduction
      ? [tokenAt(query), ` at position ${query} repeats position ${key - 1}, which was followed by `, tokenAt(key), `. The model predicts that this token follows again, with probability ${fixed(example.probability, 2)}.`]
      : [tokenAt(query), ` at position ${query} is followed by `, tokenAt(query + 1), `. The model predicts this token with probability ${fixed(example.probability, 2)}; the next steps show why.`] },
    { input: plain, show: view, text: [`The map shows where ${name} attends. ${kind} In the marked cell, `, tokenAt(query), ` at position ${query} attends to `, tokenAt(key), ` at position ${key} with a weight of ${fixed(example.weight, 2)}. The score of this key is ${nats(example.lead)} above the next one, so its weight is ${factor(Math.exp(example.lead))} times as large. Click the cell to see how the weight came about.`] },
    { input: { ...plain, ...ablation(component) }, show: { ...view }, text: [`Now ${name} is mean-ablated: its output is replaced by ${ABLATIONS[DEFAULT_ABLATION]}. The probability of `, tokenAt(query + 1), ` after position ${query} changes from ${fixed(example.probability, 3)} to ${fixed(example.ablatedProbability, 3)}, and the loss on this input from ${nats(example.loss)} to ${nats(example.ablatedLoss)} nats. On the validation sequences, mean-ablating this head ${effect(component.ablated)}.`] },
    edge
      ? { input: plain, show: { ...view, layer: edge.from[0], head: edge.from[1], ...before }, text: [`The head is restored. Its ${INPUT_NAMES[edge.input]} depend on the output of ${layerHead(...edge.from)}${earlier && describe(earlier) ? `, which ${describe(earlier)}` : ""}. Ablating the path between the two heads ${effect(edge.ablated)}.`, ...beforeInWords] }
      : { input: plain, show: view, text: [other ? `The head is restored. Another component of the circuit is ${Number.isInteger(other.head) ? layerHead(other.layer, other.head) : `the feed-forward layer of layer ${other.layer}`}: mean-ablating it ${effect(other.ablated)}.` : "The head is restored. It recovers nearly all of the gain alone."] },
    { input: { ...plain, tokens: tokens.with(key, example.replacement), before: tokens }, show: view, text: ["Your turn. ", tokenAt(key), ` at position ${key}, to which the head attended, is replaced by `, replacement, ". After ", queryToken, ` at position ${query}, the model ${example.predicted === example.target ? "still" : "now"} predicts `, tokenElement(live.tokenizer.token(example.predicted)), ` with probability ${fixed(example.predictedProbability, 2)}. Replace another token, ablate other heads, or try another sequence.`] },
  ];
}

let tour = null;
let tourStep = 0;

async function showTourStep(step) {
  tourStep = step;
  const { input: wanted, show, text } = tour[step];
  at("tour-step").replaceChildren(`Step ${step + 1} of ${tour.length}`);
  at("tour-text").replaceChildren(...text);
  at("tour-back").disabled = step === 0;
  at("tour-next").replaceChildren(step + 1 === tour.length ? "End the tour" : "Next");
  at("tour-end").hidden = step + 1 === tour.length;
  at("tour").hidden = false;
  await change(wanted);
  showTyped(show);
  const isMotionReduced = matchMedia("(prefers-reduced-motion: reduce)").matches;
  at("input-area").scrollIntoView({ block: "start", behavior: isMotionReduced ? "auto" : "smooth" });
}

async function beginTour(component) {
  let found = null;
  // Search the first sequences for one in which the head has a large effect.
  for (const sequence of data.starts.slice(0, 20)) {
    const example = await findExample(component, sequence);
    if (example && (!found || example.gain > found.example.gain)) found = { sequence, example };
    if (found && found.example.gain > 0.5) break;
  }
  if (!found) return showNote("the tour found no example for its head in the sequences of this page");
  tour = tourSteps(component, found.sequence, found.example);
  await showTourStep(0);
  at("tour").focus();
}

function endTour() {
  at("tour").hidden = true;
  at("tour-begin").focus();
}

function startTour() {
  const component = tourHead();
  at("tour-begin").hidden = component === null || data.starts.length === 0;
  if (!component) return;
  at("tour-begin").addEventListener("click", () => beginTour(component));
  at("tour-back").addEventListener("click", () => showTourStep(Math.max(tourStep - 1, 0)));
  at("tour-next").addEventListener("click", () => (tourStep + 1 < tour.length ? showTourStep(tourStep + 1) : endTour()));
  at("tour-end").addEventListener("click", endTour);
  at("tour").addEventListener("keydown", (event) => event.key === "Escape" && endTour());
}
