// Interventions: ablate a head, scale its output at all queries or at one, or freeze its attention pattern. The list of
// changes has an undo button for each.

/** Returns the position of the query that a change applies to; null for all queries. */
const changedQuery = () => (at("here-only").checked ? state.query : null);

const isSame = (a, b) => a.kind === b.kind && a.layer === b.layer && a.head === b.head && a.position === b.position;
const isHead = ({ kind, layer, head }) => kind === state.kind && layer === state.layer && head === state.head;

/** Returns the strength of the chosen head at a query; null for all queries. */
function strengthOf(position) {
  const target = { kind: state.kind, layer: state.layer, head: state.head, position };
  return input.heads.find((other) => isSame(other, target))?.strength ?? 1;
}

/** Returns how the chosen head is ablated at the query of changes, or at all queries; null if it is not. */
const chosenAblation = () => (changedQuery() === null ? ablationOf({ kind: state.kind, layer: state.layer, head: state.head }) : strengthOf(changedQuery()) === 0 ? "zero" : null);

/** Returns how a click ablates the chosen head: a single query and heads of the encoder only by zero. */
const nextAblation = () => (changedQuery() === null && state.kind !== "encoder" ? ablateBy : "zero");

/** Ablates the chosen head, or restores it. */
function toggleChosen() {
  const { kind, layer, head } = state;
  if (changedQuery() !== null) return setChosenStrength(chosenAblation() ? 1 : 0);
  const isShown = state.sample === TYPED_SAMPLE;
  const computed = setAblation({ kind, layer, head }, chosenAblation() ? null : nextAblation());
  if (!isShown) showTyped({ layer, head });
  return computed;
}

/** Sets the strength of a head, at one query or at all queries; 1 is the strength as trained. */
function setStrength(target, strength, options) {
  const others = input.heads.filter((other) => !isSame(other, target));
  return change({ heads: strength === 1 ? others : [...others, { ...target, strength }] }, options);
}

function setChosenStrength(strength, options) {
  const isShown = state.sample === TYPED_SAMPLE;
  const { kind, layer, head } = state;
  const computed = setStrength({ kind, layer, head, position: changedQuery() }, strength, options);
  if (!isShown) showTyped({ layer, head });
  return computed;
}

/** Freezes the pattern of the chosen head on the current tokens, or unfreezes it. */
function freeze(isFrozen) {
  const { kind, layer, head } = state;
  const others = input.frozen.filter((other) => !isHead(other));
  // A refused input has no pattern: freeze the pattern on display.
  const { tokens, source } = isRefused && shownAnswer ? shownAnswer : { tokens: readTokens(), source: input.source };
  change({ frozen: isFrozen ? [...others, { kind, layer, head, tokens, source }] : others });
}

/** Updates the controls to match the chosen head. */
function drawIntervene() {
  const strength = strengthOf(changedQuery());
  at("strength").value = strength;
  at("strength-text").replaceChildren(strength === 0 ? "zero" : fixed(strength, 2));
  at("strength").setAttribute("aria-valuetext", strength === 0 ? "zero" : fixed(strength, 2));
  const by = chosenAblation();
  // The strength has no effect on a replaced output.
  at("strength").disabled = by !== null && by !== "zero";
  at("switch-off").setAttribute("aria-pressed", by !== null);
  at("switch-off").replaceChildren(by ? "Restore" : nextAblation() === "zero" ? "Zero-ablate" : "Mean-ablate");
  at("ablate-head-by").value = by ?? nextAblation();
  at("ablate-head-by").disabled = by !== null || nextAblation() !== ablateBy;
  at("here-only-at").replaceChildren(`only for the query at position ${state.query}`);
  at("freeze").checked = input.frozen.some(isHead);
  at("intervene-on").hidden = state.sample === TYPED_SAMPLE;
  const isUnbinned = maps().bin === 1;
  at("difference").checked = state.difference;
  at("difference").disabled = !maps().weightBefore;
  at("difference-field").hidden = !isUnbinned || state.sample !== TYPED_SAMPLE;
}

/** Marks the thumbnails of changed heads. */
function markChanged() {
  for (const [name, button] of thumbnails) {
    const [layer, head] = name.split(" ").map(Number);
    const isShown = ({ kind, layer: l, head: h }) => state.sample === TYPED_SAMPLE && kind === state.kind && l === layer && h === head;
    button.classList.toggle("changed", [input.heads, input.frozen, input.ablated].some((changes) => changes.some(isShown)));
  }
}

/** Describes all changes, each with a function that undoes it. */
function changesInWords() {
  const heads = input.heads.map((head) => ({
    text: `${componentInWords(head)} ${head.strength === 0 ? "zero-ablated" : `at strength ${fixed(head.strength, 2)}`}${head.position === null ? "" : ` for the query at position ${head.position}`}`,
    undo: () => setStrength(head, 1),
  }));
  const frozen = input.frozen.map((head) => ({
    text: `${componentInWords(head)}: pattern frozen`,
    undo: () => change({ frozen: input.frozen.filter((other) => other !== head) }),
  }));
  const replaced = input.before === null ? [] : input.before.flatMap((id, position) => {
    const index = position + input.first;
    if (input.tokens[index] === id || input.tokens[index] === undefined) return [];
    const [current, original] = [input.tokens[index], id].map((id) => isolated(short(live.tokenizer.token(id))));
    return [{ text: `${current} instead of ${original} at position ${position}`, undo: () => replaceToken(index, id) }];
  });
  return [...replaced, ...heads, ...frozen, ...ablationsInWords()];
}

function drawChanges() {
  const list = changesInWords();
  at("changes").hidden = list.length === 0;
  at("changes").replaceChildren(...list.map(({ text, undo: undoChange }) => {
    const button = element("button", { type: "button", "aria-label": `undo: ${text}` }, "×");
    button.addEventListener("click", () => {
      undoChange();
      at("undo").focus();
    });
    return element("li", {}, text, " ", button);
  }));
  for (const [id, count] of /** @type {[string, number][]} */ ([["undo", undoStack.length], ["restore", list.length]])) {
    const hadFocus = document.activeElement === at(id);
    at(id).disabled = count === 0;
    // A disabled button cannot keep the focus.
    if (hadFocus && count === 0) at("input-text").focus();
  }
}

/**
 * Shows the largest change of the probability of a target at any position, and the largest change of the probability of
 * any token at the last position.
 */
function drawEffect({ input: request, tokens, probabilities, probabilitiesBefore }) {
  const effect = at("effect");
  effect.hidden = !probabilitiesBefore;
  if (!probabilitiesBefore) return effect.replaceChildren();
  const last = tokens.length - 1;
  const differences = tokens.slice(0, last).map((_, position) => {
    const target = (request.before ?? tokens)[position + 1];
    return { position, target, change: probabilitiesBefore[position] && target !== undefined ? probabilities[position][target] - probabilitiesBefore[position][target] : 0 };
  });
  const biggest = differences.reduce((best, other) => (Math.abs(other.change) > Math.abs(best.change) ? other : best), { change: 0 });
  const lastToken = probabilitiesBefore.length === probabilities.length
    ? largest(probabilities[last].map((value, id) => Math.abs(value - probabilitiesBefore[last][id])), 1)[0] : undefined;
  const fromTo = (row, before, id) => `from ${fixed(before[id], 3)} to ${fixed(row[id], 3)}`;
  const line = [];
  if (Math.abs(biggest.change) >= 5e-4) {
    const { position, target } = biggest;
    line.push("Largest change: after ", tokenElement(live.tokenizer.token(tokens[position])), ` at position ${position}, the probability of `, tokenElement(live.tokenizer.token(target)), ` changes ${fromTo(probabilities[position], probabilitiesBefore[position], target)}. `);
  }
  if (lastToken !== undefined && Math.abs(probabilities[last][lastToken] - probabilitiesBefore[last][lastToken]) >= 5e-4) {
    line.push("At the last position, the probability of ", tokenElement(live.tokenizer.token(lastToken)), ` changes ${fromTo(probabilities[last], probabilitiesBefore[last], lastToken)}.`);
  }
  effect.replaceChildren(...line);
}

function startIntervene() {
  at("intervene").hidden = false;
  at("strength").addEventListener("input", (event) => setChosenStrength(Number(event.target.value), { typing: `strength ${[state.kind, state.layer, state.head, changedQuery()]}` }));
  at("switch-off").addEventListener("click", toggleChosen);
  at("here-only").addEventListener("change", drawIntervene);
  at("freeze").addEventListener("change", (event) => {
    freeze(event.target.checked);
    showTyped({ layer: state.layer, head: state.head });
  });
  at("difference").addEventListener("change", (event) => update({ difference: event.target.checked }));
  at("undo").addEventListener("click", undo);
  at("restore").addEventListener("click", () => {
    const { tokens, first, before } = input;
    const restored = before ? { tokens: [...tokens.slice(0, first), ...before, ...tokens.slice(first + before.length)] } : {};
    change({ ...restored, ...NO_CHANGES, before: null });
  });
  inputViews.push(drawIntervene, drawChanges, markChanged);
  answerViews.push(drawEffect);
}
