// All heads: their maps as thumbnails and a table of their scores, both sortable by any score.

/** Returns the score that sorts the heads; scores exist only for the decoder's self-attention. */
const sortingScore = () => (state.kind === "decoder" ? findScore(state.sort) : undefined);

/** Returns all heads sorted by the chosen score, highest or lowest first; heads without a score come last. */
function sortedHeads() {
  if (!sortingScore()) return allHeads;
  const value = ({ layer, head }) => data.heads[layer][head][state.sort];
  const order = (a, b) => {
    if (value(a) === null || value(b) === null) return Number(value(a) === null) - Number(value(b) === null);
    return state.ascending ? value(a) - value(b) : value(b) - value(a);
  };
  return [...allHeads].sort((a, b) => order(a, b) || a.layer - b.layer || a.head - b.head);
}

const thumbnails = new Map();

/** Creates the thumbnails of a sample; `orderThumbnails` sorts them. */
function drawThumbnails() {
  const { keys } = maps();
  const widest = Math.max(...data.layers);
  at("thumbnails").style.setProperty("--heads", widest);
  at("thumbnails").classList.toggle("many", widest > 8);
  thumbnails.clear();
  for (const { layer, head } of allHeads) {
    const canvas = mapImage(layer, head);
    canvas.setAttribute("aria-hidden", "true");
    canvas.classList.toggle("coarse", keys.length <= 160);
    const name = widest > 8 ? `L${layer} H${head}` : layerHead(layer, head);
    const button = element("button", { type: "button", "data-layer": layer, "data-head": head, title: layerHead(layer, head) }, canvas, name, element("span", { class: "value" }));
    button.addEventListener("click", () => update({ layer, head }));
    thumbnails.set(`${layer} ${head}`, button);
  }
}

function orderThumbnails() {
  const score = sortingScore();
  const ordered = sortedHeads().map(({ layer, head }) => {
    const button = thumbnails.get(`${layer} ${head}`);
    const value = score ? data.heads[layer][head][score.key] : null;
    button.dataset.value = value ?? "";
    button.querySelector(".value").replaceChildren(score ? `${score.name} ${fixed(value, score.digits)}` : "");
    return button;
  });
  at("thumbnails").replaceChildren(...ordered);
  markThumbnail();
}

/** Marks the chosen head. Only its thumbnail is in the tab order; arrow keys reach the others. */
function markThumbnail() {
  const chosen = (button) => Number(button.dataset.layer) === state.layer && Number(button.dataset.head) === state.head;
  for (const button of at("thumbnails").children) {
    button.setAttribute("aria-pressed", chosen(button));
    button.tabIndex = chosen(button) ? 0 : -1;
  }
}

/** Sorts by a score, highest first; sorting by the same score again reverses the order. */
function sortBy(key) {
  update({ sort: key, ascending: state.sort === key && !state.ascending });
}

function drawScoreTable() {
  at("score-table").hidden = data.scores.length === 0 || state.kind !== "decoder";
  at("measured").replaceChildren(`Measured on ${data.measured_on}. Click a heading to sort, here and above; click again to reverse. Below them is the `, element("button", { type: "button", class: "term", "data-term": "chance" }, "chance level"), ".");
  // The pressed button is recreated and gets the focus back.
  const focused = /** @type {?HTMLElement} */ (document.activeElement?.closest("#scores button"))?.dataset;
  const heading = data.scores.map((score) => {
    const sorted = score.key !== state.sort ? "none" : state.ascending ? "ascending" : "descending";
    const button = element("button", { type: "button", title: score.meaning, "data-score": score.key }, score.name);
    return element("th", { scope: "col", "aria-sort": sorted }, button);
  });
  const head = element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "head"), ...heading));
  const rows = sortedHeads().map(({ layer, head }) => {
    const button = element("button", { type: "button", "data-layer": layer, "data-head": head }, layerHead(layer, head));
    const cells = data.scores.map((score) => element("td", {}, fixed(data.heads[layer][head][score.key], score.digits)));
    const row = element("tr", {}, element("th", { scope: "row" }, button), ...cells);
    row.classList.toggle("chosen", layer === state.layer && head === state.head);
    return row;
  });
  // Layers with a window see fewer keys, so their chance levels differ.
  const levels = new Map();
  data.chance.forEach((chance, layer) => levels.set(JSON.stringify(chance), [...(levels.get(JSON.stringify(chance)) ?? []), layer]));
  const chance = Array.from(levels.values(), (layers) => element("tr", {},
    element("th", { scope: "row" }, termElement("chance", "chance"), levels.size === 1 ? "" : `, ${layers.length === 1 ? "layer" : "layers"} ${layers.join(", ")}`),
    ...data.scores.map((score) => element("td", {}, fixed(chanceOf(score, layers[0]), score.digits)))));
  at("scores").replaceChildren(head, element("tbody", {}, ...rows), element("tfoot", {}, ...chance));
  if (!focused) return;
  const again = focused.score ? `[data-score="${focused.score}"]` : `[data-layer="${focused.layer}"][data-head="${focused.head}"]`;
  at("scores").querySelector(`button${again}`)?.focus();
}

/** Returns the chance level of a score: the score of a head of this layer that attends to all visible keys equally. */
const chanceOf = (score, layer = state.layer) => data.chance[layer]?.[score.key] ?? null;

/** Returns the chance level of a score as a note, or nothing for a score without one. */
const chanceInWords = (score, layer = state.layer) => (chanceOf(score, layer) === null ? "" : element("span", { class: "muted" }, " (", termElement("chance", "chance"), ` ${fixed(chanceOf(score, layer), score.digits)})`));

/** Names the chosen head and lists its scores, which exist only for the decoder's self-attention. */
function drawChosen() {
  at("chosen").replaceChildren(componentInWords(state));
  for (const id of ["scores-of", "head-scores"]) at(id).hidden = state.kind !== "decoder" || data.scores.length === 0;
  at("scores-of").replaceChildren(`Scores on ${data.measured_on}${data.measured_on.includes("validation") ? ", not on your input" : ""}${earlierFrame(state.sample) ? ", at the end of training" : ""}:`);
  at("head-scores").replaceChildren(...data.scores.flatMap((score) => [
    element("dt", { title: score.meaning }, score.name),
    element("dd", { "data-score": score.key, "data-chance": chanceOf(score) ?? "" }, fixed(data.heads[state.layer][state.head][score.key], score.digits), chanceInWords(score)),
  ]));
}

function startHeads() {
  at("sort").append(element("option", { value: "" }, "layer and head"));
  at("sort").append(...data.scores.map((score) => element("option", { value: score.key }, score.name)));
  at("sort").addEventListener("change", (event) => update({ sort: event.target.value, ascending: false }));
  at("scores").addEventListener("click", (event) => {
    const chosen = event.target.closest("button")?.dataset;
    if (chosen?.score) sortBy(chosen.score);
    else if (chosen) update({ layer: Number(chosen.layer), head: Number(chosen.head) });
  });
  at("thumbnails").addEventListener("keydown", (event) => {
    const list = at("thumbnails");
    const now = Array.from(list.children).indexOf(document.activeElement);
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, ArrowUp: above(list, now, -1), ArrowDown: above(list, now, 1), Home: 0, End: list.children.length - 1 }[event.key];
    if (now < 0 || next === undefined || !list.children[next]) return;
    event.preventDefault();
    list.children[next].focus();
  });
}
