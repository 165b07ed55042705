// The token view: pointing at a token highlights the tokens that it attends to, or those that attend to it.

/** Returns true if queries and keys are the same tokens, which one list shows. */
const isSelf = () => KINDS[state.kind].sides[0] === KINDS[state.kind].sides[1];
const isBy = () => state.direction === "by";
/** Returns the index of the token pointed at. */
const pointed = () => (isBy() ? state.key : state.query);

/** Creates the tokens to point at and, if others are highlighted, a second list for these; `lightTokens` colours them. */
function drawTokens() {
  const { queries, keys } = maps();
  const options = (places, name) => places.map((place, i) =>
    tokenElement(place.text, { role: "option", id: `${name}-${i}`, "data-index": i, "data-token": place.text, title: `position ${place.at}` }));
  at("tokens").replaceChildren(...options(isBy() ? keys : queries, "token"));
  at("lit").hidden = isSelf();
  at("lit").replaceChildren(...(isSelf() ? [] : options(isBy() ? queries : keys, "lit")));
  at("tokens-title").replaceChildren(isSelf() ? "" : `Hover over a ${isBy() ? "key" : "query"} to highlight its ${isBy() ? "queries" : "keys"}.`);
}

function lightTokens() {
  const { weight } = maps();
  const { layer, head } = state;
  const lit = Array.from((isSelf() ? at("tokens") : at("lit")).children);
  const weights = lit.map((_, i) => (isBy() ? weight(layer, head, i, state.key) : weight(layer, head, state.query, i)));
  const most = Math.max(...weights.map((weight) => weight || 0), 1e-9);
  const [paper, blue] = [channels(themed("paper")), channels(themed("blue"))];
  lit.forEach((token, i) => {
    const weight = weights[i];
    // Highlights are relative to the strongest link, so that evenly spread attention is visible too.
    const share = (weight || 0) / most;
    const ground = mix(paper, blue, share);
    token.style.background = share > 0.01 ? `rgb(${ground.join(",")})` : "";
    token.style.color = share > 0.01 ? (contrast(ground, [0, 0, 0]) > contrast(ground, [255, 255, 255]) ? "#000" : "#fff") : "";
    token.classList.toggle("unseen", weight === null);
    token.dataset.weight = weight ?? "";
    token.dataset.shown = Number.isNaN(weight) || (weight !== null && weight >= 0.005) ? fixed(weight, 2) : "";
  });
  Array.from(at("tokens").children).forEach((token, i) => token.setAttribute("aria-selected", i === pointed()));
  at("tokens").setAttribute("aria-activedescendant", `token-${pointed()}`);
}

/** Makes the options of a list selectable by arrow keys and by the pointer events `pointers`. */
function choosable(list, current, choose, pointers = ["pointermove", "pointerdown"]) {
  const position = (event) => event.target.closest("[data-index]")?.dataset.index;
  // Excludes events that also fire when the list scrolls under a resting pointer, since scrolling selects nothing.
  for (const kind of pointers) {
    list.addEventListener(kind, (event) => {
      const pointed = position(event);
      if (pointed !== undefined && Number(pointed) !== current()) choose(Number(pointed));
    });
  }
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

/** Returns the option above or below another one. */
function above(list, now, direction) {
  const boxes = Array.from(list.children, (child) => child.getBoundingClientRect());
  const from = boxes[now];
  const middle = (box) => box.left + box.width / 2;
  const lines = boxes.map((box) => Math.round((box.top - from.top) * direction)).filter((away) => away > 4);
  if (lines.length === 0) return now;
  const line = Math.min(...lines);
  const onLine = boxes.map((box, i) => ({ box, i })).filter(({ box }) => Math.abs((box.top - from.top) * direction - line) <= 4);
  return onLine.reduce((best, option) =>
    Math.abs(middle(option.box) - middle(from)) < Math.abs(middle(best.box) - middle(from)) ? option : best).i;
}

/** Returns the strongest link of the token pointed at, which the token view shows. */
function strongest(changes = {}) {
  const next = { ...state, ...changes };
  return next.direction === "by" ? {} : { key: strongestKey(next.layer, next.head, next.query) };
}

function startTokens() {
  choosable(at("tokens"), pointed, (place) => update(isBy() ? { key: place } : { query: place, ...strongest({ query: place }) }));
  at("directions").addEventListener("change", (event) => {
    // The token pointed at stays the same if there is one list.
    const place = pointed();
    const direction = event.target.value;
    update({ direction, ...(isSelf() ? { query: place, key: place } : {}), ...(direction === "to" ? strongest({ direction, query: isSelf() ? place : state.query }) : {}) });
  });
}
