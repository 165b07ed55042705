// The token view: pointing at a token lights what it attends to, or what attends to it.

/** The weight between the current token and another one, in the chosen direction. */
function linkWeight(position) {
  const { weight } = maps(state.sample);
  return state.direction === "to"
    ? weight(state.layer, state.head, state.query, position)
    : weight(state.layer, state.head, position, state.query);
}

/** Puts a sample's tokens there; what they are lit with is drawn apart. */
function drawTokens() {
  const { time } = maps(state.sample);
  at("tokens").replaceChildren(...Array.from({ length: time }, (_, position) => {
    const token = inputToken(state.sample, position);
    return tokenElement(token, { role: "option", id: `token-${position}`, "data-index": position, "data-token": token });
  }));
}

function lightTokens() {
  const list = at("tokens");
  const weights = Array.from(list.children, (_, position) => linkWeight(position));
  const most = Math.max(...weights.map((weight) => weight ?? 0), 1e-9);
  Array.from(list.children).forEach((token, position) => {
    const weight = weights[position];
    // Light is relative to the strongest link, so that an even spread is seen as well.
    const share = (weight ?? 0) / most;
    token.style.background = share > 0.01 ? `color-mix(in srgb, var(--blue) ${(share * 100).toFixed(1)}%, transparent)` : "";
    token.style.color = share > 0.55 ? "var(--on-accent)" : "";
    token.classList.toggle("unseen", weight === null);
    token.dataset.weight = weight ?? "";
    token.dataset.shown = weight !== null && weight >= 0.005 ? fixed(weight, 2) : "";
    token.setAttribute("aria-selected", position === state.query);
  });
  list.setAttribute("aria-activedescendant", `token-${state.query}`);
}

/** Lets pointers and arrow keys choose among the options of a list. */
function choosable(list, current, choose) {
  const position = (event) => event.target.closest("[data-index]")?.dataset.index;
  // Not when the list scrolls under a pointer at rest: that is no choice.
  for (const kind of ["pointermove", "pointerdown"]) {
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

/** The option above or below another one. */
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

function startTokens() {
  // The reading tells the strongest link of the token.
  choosable(at("tokens"), () => state.query, (query) =>
    update({ query, key: strongestKey(state.sample, state.layer, state.head, query) }));
  at("directions").addEventListener("change", (event) => update({ direction: event.target.value }));
}
