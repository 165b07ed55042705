// The token view: pointing at a token highlights the tokens that it attends to, or the tokens that attend to it.

/** Returns true if queries and keys are the same tokens, so that the view has one list. */
const isSelf = () => KINDS[state.kind].sides[0] === KINDS[state.kind].sides[1];
/** Returns true if the view highlights the queries that attend to the token, instead of its keys. */
const showsQueries = () => state.direction === "by";
/** Returns the index of the token pointed at. */
const pointed = () => (showsQueries() ? state.key : state.query);

/** Creates the list of tokens to point at and, if queries and keys differ, a second list of tokens to highlight. */
function drawTokens() {
  const { queries, keys } = maps();
  const options = (cells, name) => cells.map((cell, i) =>
    tokenElement(cell.text, { role: "option", id: `${name}-${i}`, "data-index": i, "data-token": cell.text, title: `position ${cell.positions}` }));
  at("tokens").replaceChildren(...options(showsQueries() ? keys : queries, "token"));
  at("lit").hidden = isSelf();
  at("lit").replaceChildren(...(isSelf() ? [] : options(showsQueries() ? queries : keys, "lit")));
  at("tokens-title").replaceChildren(isSelf() ? "" : `Hover over a ${showsQueries() ? "key" : "query"} to highlight its ${showsQueries() ? "queries" : "keys"}.`);
}

/** Colours the highlighted tokens by their weights. */
function highlightTokens() {
  const { weight } = maps();
  const { layer, head } = state;
  const highlighted = Array.from((isSelf() ? at("tokens") : at("lit")).children);
  const weights = highlighted.map((_, i) => (showsQueries() ? weight(layer, head, i, state.key) : weight(layer, head, state.query, i)));
  const largest = Math.max(...weights.map((weight) => Math.abs(weight || 0)), 1e-9);
  highlighted.forEach((token, i) => {
    const weight = weights[i];
    // Highlights are relative to the strongest link, so that evenly spread attention is visible too.
    const share = (weight || 0) / largest, isLit = Math.abs(share) > 0.01;
    const ground = differenceColor(share);
    token.style.background = isLit ? `rgb(${ground.join(",")})` : "";
    token.style.color = isLit ? (contrast(ground, [0, 0, 0]) > contrast(ground, [255, 255, 255]) ? "#000" : "#fff") : "";
    token.classList.toggle("unseen", weight === null);
    token.dataset.weight = weight ?? "";
    token.dataset.shown = Number.isNaN(weight) || (weight !== null && Math.abs(weight) >= 0.005) ? fixed(weight, 2) : "";
  });
  Array.from(at("tokens").children).forEach((token, i) => token.setAttribute("aria-selected", i === pointed()));
  at("tokens").setAttribute("aria-activedescendant", `token-${pointed()}`);
}

/**
 * Makes the options of a list selectable by clicks and arrow keys. `preview` is called with the option under the
 * pointer, and `leave` when the pointer leaves the list.
 */
function makeSelectable(list, current, choose, preview = null, leave = () => {}) {
  const indexOf = (event) => event.target.closest("[data-index]")?.dataset.index;
  list.addEventListener("pointerdown", (event) => indexOf(event) !== undefined && choose(Number(indexOf(event))));
  // This event does not fire when the list scrolls under a resting pointer, since scrolling selects nothing.
  if (preview) list.addEventListener("pointermove", (event) => indexOf(event) !== undefined && preview(Number(indexOf(event))));
  list.addEventListener("pointerleave", leave);
  list.addEventListener("keydown", (event) => {
    const last = list.children.length - 1;
    const now = current();
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, ArrowUp: above(list, now, -1), ArrowDown: above(list, now, 1), Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    choose(Math.min(Math.max(next, 0), last));
    list.children[Math.min(Math.max(next, 0), last)].scrollIntoView({ block: "nearest" });
  });
}

/** Returns the index of the nearest option in the line above (`direction` -1) or below (1) the current one. */
function above(list, now, direction) {
  const boxes = Array.from(list.children, (child) => child.getBoundingClientRect());
  const from = boxes[now];
  const middle = (box) => box.left + box.width / 2;
  const lines = boxes.map((box) => Math.round((box.top - from.top) * direction)).filter((distance) => distance > 4);
  if (lines.length === 0) return now;
  const line = Math.min(...lines);
  const onLine = boxes.map((box, i) => ({ box, i })).filter(({ box }) => Math.abs((box.top - from.top) * direction - line) <= 4);
  return onLine.reduce((best, option) =>
    Math.abs(middle(option.box) - middle(from)) < Math.abs(middle(best.box) - middle(from)) ? option : best).i;
}

/**
 * Returns the key with the largest weight of the query, if the token view highlights keys, as a change of the state.
 */
function strongest(changes = {}) {
  const next = { ...state, ...changes };
  return next.direction === "by" ? {} : { key: strongestKey(next.layer, next.head, next.query) };
}

function startTokens() {
  const choice = (index) => (showsQueries() ? { key: index } : { query: index, ...strongest({ query: index }) });
  makeSelectable(at("tokens"), pointed, (index) => update(choice(index)), (index) => update(choice(index), { isPreview: true }), endPreview);
  at("directions").addEventListener("change", (event) => {
    // With one list, the token pointed at stays the same.
    const index = pointed();
    const direction = event.target.value;
    update({ direction, ...(isSelf() ? { query: index, key: index } : {}), ...(direction === "to" ? strongest({ direction, query: isSelf() ? index : state.query }) : {}) });
  });
}
