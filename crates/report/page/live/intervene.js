// Interventions: a head switched off, weakened or strengthened, at all queries or at one; its attention pattern frozen; and
// the list of changes, each with a button that undoes it.

/** Returns the query that a change applies to; null for all queries. */
const scope = () => (at("here-only").checked ? state.query : null);

const isSame = (a, b) => a.kind === b.kind && a.layer === b.layer && a.head === b.head && a.position === b.position;
const isHead = ({ kind, layer, head }) => kind === state.kind && layer === state.layer && head === state.head;

/** Returns the strength of the chosen head at a query; null for all queries. */
function strengthOf(position) {
  const place = { kind: state.kind, layer: state.layer, head: state.head, position };
  return input.heads.find((other) => isSame(other, place))?.strength ?? 1;
}

/** Sets the strength of a head; 1 is the strength as trained. */
function setStrength(place, strength, options) {
  const others = input.heads.filter((other) => !isSame(other, place));
  return change({ heads: strength === 1 ? others : [...others, { ...place, strength }] }, options);
}

function setChosenStrength(strength, options) {
  const shownAlready = state.sample === TYPED_SAMPLE;
  const { kind, layer, head } = state;
  const done = setStrength({ kind, layer, head, position: scope() }, strength, options);
  if (!shownAlready) showTyped({ layer, head });
  return done;
}

/** Freezes the pattern of the chosen head on the current tokens, or unfreezes it. */
function freeze(isFrozen) {
  const { kind, layer, head } = state;
  const others = input.frozen.filter((other) => !isHead(other));
  // A refused input has no pattern: freeze the displayed one.
  const { tokens, source } = isRefused && answered ? answered : { tokens: readTokens(), source: input.source };
  change({ frozen: isFrozen ? [...others, { kind, layer, head, tokens, source }] : others });
}

/** Updates the controls to match the chosen head. */
function drawIntervene() {
  const strength = strengthOf(scope());
  at("strength").value = strength;
  at("strength-text").replaceChildren(strength === 0 ? "off" : fixed(strength, 2));
  at("strength").setAttribute("aria-valuetext", strength === 0 ? "off" : fixed(strength, 2));
  at("switch-off").setAttribute("aria-pressed", strength === 0);
  at("switch-off").replaceChildren(strength === 0 ? "Switch on" : "Switch off");
  at("here-only-at").replaceChildren(`only for the query at position ${state.query}`);
  at("freeze").checked = input.frozen.some(isHead);
  at("intervene-on").hidden = state.sample === TYPED_SAMPLE;
  const whole = maps().bin === 1;
  at("difference").checked = state.difference;
  at("difference").disabled = !maps().was;
  at("difference-field").hidden = !whole || state.sample !== TYPED_SAMPLE;
}

/** Marks the thumbnails of changed heads. */
function markChanged() {
  for (const [name, button] of thumbnails) {
    const [layer, head] = name.split(" ").map(Number);
    const of = ({ kind, layer: l, head: h }) => state.sample === TYPED_SAMPLE && kind === state.kind && l === layer && h === head;
    button.classList.toggle("changed", input.heads.some(of) || input.frozen.some(of));
  }
}

/** Returns a head in words, with its kind if there are several kinds. */
const headInWords = ({ kind, layer, head }) => `${data.maps[0].length > 1 ? `${KINDS[kind].name}, ` : ""}${layerHead(layer, head)}`;

/** Returns all changes in words, each with a function that undoes it. */
function changesInWords() {
  const heads = input.heads.map((place) => ({
    text: `${headInWords(place)} ${place.strength === 0 ? "off" : `at strength ${fixed(place.strength, 2)}`}${place.position === null ? "" : ` for the query at position ${place.position}`}`,
    back: () => setStrength(place, 1),
  }));
  const frozen = input.frozen.map((place) => ({
    text: `${headInWords(place)}: pattern frozen`,
    back: () => change({ frozen: input.frozen.filter((other) => other !== place) }),
  }));
  const exchanged = input.before === null ? [] : input.before.flatMap((id, position) => {
    const place = position + input.first;
    if (input.tokens[place] === id || input.tokens[place] === undefined) return [];
    const [now, was] = [input.tokens[place], id].map((id) => isolated(short(live.tokenizer.token(id))));
    return [{ text: `${now} instead of ${was} at position ${position}`, back: () => exchange(place, id) }];
  });
  return [...exchanged, ...heads, ...frozen];
}

function drawChanges() {
  const list = changesInWords();
  at("changes").hidden = list.length === 0;
  at("changes").replaceChildren(...list.map(({ text, back }) => {
    const button = element("button", { type: "button", "aria-label": `undo: ${text}` }, "×");
    button.addEventListener("click", () => {
      back();
      at("undo").focus();
    });
    return element("li", {}, text, " ", button);
  }));
  at("undo").disabled = undone.length === 0;
  at("restore").disabled = list.length === 0;
}

/** Shows the largest change of a target's probability at any position, and of any token's at the last position. */
function drawEffect({ input: asked, tokens, probabilities, were }) {
  const effect = at("effect");
  effect.hidden = !were;
  if (!were) return effect.replaceChildren();
  const last = tokens.length - 1;
  const differences = tokens.slice(0, last).map((_, position) => {
    const target = (asked.before ?? tokens)[position + 1];
    return { position, target, by: were[position] && target !== undefined ? probabilities[position][target] - were[position][target] : 0 };
  });
  const most = differences.reduce((best, other) => (Math.abs(other.by) > Math.abs(best.by) ? other : best), { by: 0 });
  const end = were.length === probabilities.length
    ? largest(probabilities[last].map((value, id) => Math.abs(value - were[last][id])), 1)[0] : undefined;
  const from = (row, before, id) => `from ${fixed(before[id], 3)} to ${fixed(row[id], 3)}`;
  const line = [];
  if (Math.abs(most.by) >= 5e-4) {
    const { position, target } = most;
    line.push("Largest change: after ", tokenElement(live.tokenizer.token(tokens[position])), ` at ${position}, the probability of `, tokenElement(live.tokenizer.token(target)), ` changes ${from(probabilities[position], were[position], target)}. `);
  }
  if (end !== undefined && Math.abs(probabilities[last][end] - were[last][end]) >= 5e-4) line.push("At the end, the probability of ", tokenElement(live.tokenizer.token(end)), ` changes ${from(probabilities[last], were[last], end)}.`);
  effect.replaceChildren(...line);
}

function startIntervene() {
  at("intervene").hidden = false;
  at("strength").addEventListener("input", (event) => setChosenStrength(Number(event.target.value), { typing: true }));
  at("switch-off").addEventListener("click", () => setChosenStrength(strengthOf(scope()) === 0 ? 1 : 0));
  at("here-only").addEventListener("change", drawIntervene);
  at("freeze").addEventListener("change", (event) => {
    freeze(event.target.checked);
    showTyped({ layer: state.layer, head: state.head });
  });
  at("difference").addEventListener("change", (event) => update({ difference: event.target.checked }));
  at("undo").addEventListener("click", undo);
  at("restore").addEventListener("click", () => {
    const { tokens, first, before } = input;
    const exchanged = before ? { tokens: [...tokens.slice(0, first), ...before, ...tokens.slice(first + before.length)] } : {};
    change({ ...exchanged, heads: [], frozen: [], before: null });
  });
  inputViews.push(drawIntervene, drawChanges, markChanged);
  answerViews.push(drawEffect);
}
