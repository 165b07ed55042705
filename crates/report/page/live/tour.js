// A tour of the analysis in five steps: a head that the prediction depends on, shown on a sequence where it matters,
// then ablated, and the head that it reads from.

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
const describe = ({ kinds }) => kinds.map((kind) => KIND_DESCRIPTIONS[kind]).filter(Boolean).join(" and ");
const SIDES = { query: "queries", key: "keys", value: "values" };

/** The minimum importance (rise of the loss when ablated) of the head in a tour, in nats. */
const MIN_RISE = 0.01;

/** Returns the head for the tour: an induction head if there is one, else a head of a known kind, else one in the last layer. */
function tourHead() {
  const heads = (data.circuit?.components ?? []).filter(({ head, cross, mean_ablated_loss: ablated }) => Number.isInteger(head) && !cross && ablated - data.circuit.loss >= MIN_RISE);
  return heads.find(({ kinds }) => kinds.includes("induction")) ?? heads.find(describe) ?? heads.toSorted((a, b) => b.layer - a.layer)[0] ?? null;
}

const off = ({ layer, head }) => ({ kind: "decoder", layer, head, strength: 0, position: null });

/** Finds the position in a sequence where a head raises the probability of the true next token most. */
async function findPlace(part, { tokens, source = null }) {
  const isInduction = part.kinds.includes("induction");
  const given = { source, interventions: { heads: [{ ...off(part), positions: null }], frozen: [] } };
  const [whole, without] = [await live.forward(tokens, { source }), await live.forward(tokens, given)];
  const rows = [whole, without].map((answer) => probabilitiesOf(answer, tokens.length));
  const map = whole.weights.decoder[part.layer][part.head];
  const row = (query) => Array.from(map.subarray(query * tokens.length, query * tokens.length + query + 1));
  let best = null;
  for (let query = 1; query + 1 < tokens.length; query++) {
    const key = largest(row(query), 1)[0];
    // The token that an induction head attends to follows an earlier occurrence of the query token.
    if (isInduction && !(key > 0 && tokens[key - 1] === tokens[query] && tokens[key] === tokens[query + 1])) continue;
    const [now, then] = rows.map((row) => row[query][tokens[query + 1]]);
    if (!best || now - then > best.now - best.then) best = { query, key, now, then, weight: row(query)[key], target: tokens[query + 1] };
  }
  if (!best) return null;
  // Replace the token that the head attends to: what does the model expect now?
  const stranger = tokens.find((id) => id !== tokens[best.key] && id !== tokens[best.query]) ?? (tokens[best.key] + 1) % live.config.vocab;
  const exchanged = probabilitiesOf(await live.forward(tokens.with(best.key, stranger), { source }), tokens.length)[best.query];
  const [expected] = largest(exchanged, 1);
  return { ...best, stranger, expected, sure: exchanged[expected], loss: mean(surprises(rows[0], tokens)), without: mean(surprises(rows[1], tokens)) };
}

/** Returns the steps of the tour, each with the input to set first, the view to show, and the text. */
function tourSteps(part, start, place) {
  const { tokens, source = null } = start;
  const token = (at) => tokenElement(live.tokenizer.token(tokens[at]));
  const name = layerHead(part.layer, part.head);
  const plain = { tokens, source, first: 0, before: null, heads: [], frozen: [] };
  const isInduction = part.kinds.includes("induction");
  const look = { kind: "decoder", layer: part.layer, head: part.head, query: place.query, key: place.key, position: place.query, view: "matrix", difference: false };
  const edge = data.circuit.edges.find(({ to, from_cross, to_cross }) => to[0] === part.layer && to[1] === part.head && !from_cross && !to_cross);
  const feeder = edge && data.circuit.components.find(({ layer, head, cross }) => layer === edge.from[0] && head === edge.from[1] && !cross);
  const other = data.circuit.components.find((other) => other !== part && !other.cross);
  const nats = (value) => fixed(value, 2);
  const effect = (loss) => `${loss < data.circuit.loss ? "lowers" : "raises"} the loss from ${nats(data.circuit.loss)} to ${nats(loss)}`;
  const stranger = tokenElement(live.tokenizer.token(place.stranger));
  // If the query attends to its own position, the query token itself is replaced.
  const asked = place.key === place.query ? stranger.cloneNode(true) : token(place.query);
  const all = `On the validation sequences, mean-ablating it ${effect(part.mean_ablated_loss)} nats.`;
  return [
    { input: plain, show: look, target: "chips", say: isInduction
      ? [token(place.query), ` at ${place.query} repeats position ${place.key - 1}, where `, token(place.key), ` followed. The model expects `, token(place.query + 1), ` to follow again, with probability ${fixed(place.now, 2)}.`]
      : ["After ", token(place.query), ` at ${place.query} follows `, token(place.query + 1), `. The model gives it a probability of ${fixed(place.now, 2)}. Why?`] },
    { input: plain, show: look, target: "explorer", say: [`See where ${name} attends: ${describe(part) ? `it ${describe(part)}` : "it is not of a known kind"}. In the row of `, token(place.query), ` at ${place.query} it has a weight of ${fixed(place.weight, 2)} on `, token(place.key), ` at ${place.key}, the marked cell.`] },
    { input: { ...plain, heads: [off(part)] }, show: { ...look }, target: "try", say: [`Now ${name} is ablated. The probability of `, token(place.query + 1), ` after position ${place.query} changes from ${fixed(place.now, 3)} to ${fixed(place.then, 3)}, and the loss on this input from ${nats(place.loss)} to ${nats(place.without)}. ${all}`] },
    edge
      ? { input: plain, show: { ...look, layer: edge.from[0], head: edge.from[1] }, target: "explorer", say: [`The head is restored. It depends on another head: through its ${SIDES[edge.input]} it reads ${layerHead(...edge.from)}${feeder && describe(feeder) ? `, which ${describe(feeder)}` : ""}. Ablating this path ${effect(edge.path_ablated_loss)}.`] }
      : { input: plain, show: look, target: "explorer", say: [other ? `The head is restored. The next component of the circuit is ${Number.isInteger(other.head) ? layerHead(other.layer, other.head) : `the feed-forward layer of layer ${other.layer}`}: mean-ablating it ${effect(other.mean_ablated_loss)}.` : "The head is restored. On its own, it recovers nearly all of the gain."] },
    { input: { ...plain, tokens: tokens.with(place.key, place.stranger), before: tokens }, show: look, target: "try", say: ["Your turn. ", token(place.key), ` at ${place.key}, to which it attended, is replaced by `, stranger, ". After ", asked, ` at ${place.query} the model ${place.expected === place.target ? "still" : "now"} expects `, tokenElement(live.tokenizer.token(place.expected)), ` (${fixed(place.sure, 2)}). Replace another token, ablate other heads, or try another sequence.`] },
  ];
}

let tour = null;
let tourStep = 0;

/** Shows a step of the tour. */
async function goTo(step) {
  tourStep = step;
  const { input: wanted, show, target, say: words } = tour[step];
  at("tour-step").replaceChildren(`Step ${step + 1} of ${tour.length}`);
  at("tour-text").replaceChildren(...words);
  at("tour-back").disabled = step === 0;
  at("tour-next").replaceChildren(step + 1 === tour.length ? "End the tour" : "Next");
  at("tour").hidden = false;
  await change(wanted);
  showTyped(show);
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  at(target).scrollIntoView({ block: "start", behavior: calm ? "auto" : "smooth" });
}

async function beginTour(part) {
  let found = null;
  // Search the first sequences for one in which the head has a large effect.
  for (const start of data.starts.slice(0, 20)) {
    const place = await findPlace(part, start);
    if (place && (!found || place.now - place.then > found.place.now - found.place.then)) found = { start, place };
    if (found && found.place.now - found.place.then > 0.5) break;
  }
  if (!found) return say("the head found by the analysis has little effect on these sequences");
  tour = tourSteps(part, found.start, found.place);
  await goTo(0);
  at("tour").focus();
}

function endTour() {
  at("tour").hidden = true;
  at("tour-begin").focus();
}

function startTour() {
  const part = tourHead();
  at("tour-begin").hidden = part === null || data.starts.length === 0;
  if (!part) return;
  at("tour-begin").addEventListener("click", () => beginTour(part));
  at("tour-back").addEventListener("click", () => goTo(Math.max(tourStep - 1, 0)));
  at("tour-next").addEventListener("click", () => (tourStep + 1 < tour.length ? goTo(tourStep + 1) : endTour()));
  at("tour-end").addEventListener("click", endTour);
  at("tour").addEventListener("keydown", (event) => event.key === "Escape" && endTour());
}
