// The lines view: queries on the left, keys on the right, and a line for each weight (Vig, 2019, arXiv 1906.05714).

/** The maximum number of queries and of keys in the view. */
const MAX_LINES = 64;
/** The height of a token, and the width of both columns of tokens and of the lines between them, in the units of the drawing. */
const LINE_HEIGHT = 18, LINE_COLUMN = 100, LINE_WIDTH = 220;
/** The minimum absolute weight with a line. */
const MIN_LINE_WEIGHT = 0.01;

/** Draws the tokens and the lines of all queries; `markLines` highlights those of the current query. */
function drawLines() {
  const { queries, keys, weight } = maps();
  const isLong = Math.max(queries.length, keys.length) > MAX_LINES;
  at("lines-note").hidden = !isLong;
  at("lines").toggleAttribute("hidden", isLong);
  if (isLong) return at("lines").replaceChildren();
  const { layer, head } = state;
  const top = scaleEnd(layer, head);
  const middle = (index) => (index + 0.5) * LINE_HEIGHT;
  const width = 2 * LINE_COLUMN + LINE_WIDTH, height = Math.max(queries.length, keys.length) * LINE_HEIGHT;
  const svg = at("lines");
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.maxWidth = `${width}px`;
  const token = (cell, index, isQuery) => svgElement("text", { x: isQuery ? LINE_COLUMN - 6 : LINE_COLUMN + LINE_WIDTH + 6, y: middle(index) + 4, class: isQuery ? "query" : "key", "text-anchor": isQuery ? "end" : "start" }, isolated(short(cell.text)));
  const groups = queries.map((_, query) => {
    const group = svgElement("g", { "data-query": query });
    keys.forEach((_, key) => {
      const value = weight(layer, head, query, key);
      if (value === null || !(Math.abs(value) >= MIN_LINE_WEIGHT)) return;
      group.append(svgElement("line", { x1: LINE_COLUMN, y1: middle(query), x2: LINE_COLUMN + LINE_WIDTH, y2: middle(key), "stroke-opacity": Math.min(onScale(Math.abs(value) / top), 1).toFixed(3), "data-key": key, ...(value < 0 ? { class: "negative" } : {}) }));
    });
    return group;
  });
  svg.replaceChildren(...groups, ...queries.map((cell, index) => token(cell, index, true)), ...keys.map((cell, index) => token(cell, index, false)));
  markLines();
}

/** Highlights the lines of the current query, and its tokens by their weights. */
function markLines() {
  const { query, layer, head } = state;
  const { weight } = maps();
  for (const group of at("lines").querySelectorAll("g")) group.classList.toggle("chosen", Number(group.dataset.query) === query);
  at("lines").querySelector("g.chosen")?.parentElement.append(at("lines").querySelector("g.chosen"));
  at("lines").querySelectorAll("text.query").forEach((text, index) => text.classList.toggle("chosen", index === query));
  at("lines").querySelectorAll("text.key").forEach((text, index) => text.classList.toggle("chosen", weight(layer, head, query, index) >= 0.1));
}

function startLines() {
  const svg = at("lines");
  const queryAt = (event) => {
    const { height } = svg.viewBox.baseVal;
    const { y } = offset(event, svg);
    return Math.min(Math.max(Math.floor(y / svg.getBoundingClientRect().height * height / LINE_HEIGHT), 0), maps().queries.length - 1);
  };
  const choice = (query) => ({ query, ...strongest({ query }) });
  svg.addEventListener("pointermove", (event) => queryAt(event) !== state.query && update(choice(queryAt(event)), { isPreview: true }));
  svg.addEventListener("pointerleave", endPreview);
  svg.addEventListener("click", (event) => update(choice(queryAt(event))));
  svg.addEventListener("keydown", (event) => {
    const last = maps().queries.length - 1;
    const next = { ArrowUp: state.query - 1, ArrowDown: state.query + 1, Home: 0, End: last }[event.key];
    if (event.key === "Enter" && live) return openWeight({ hasFocus: true });
    if (next === undefined) return;
    event.preventDefault();
    update(choice(Math.min(Math.max(next, 0), last)));
  });
}
