// All heads: their maps as thumbnails, and their scores, in the order of any of them.

const scoreOf = (key) => data.scores.find((score) => score.key === key);

/** All heads, the highest of the chosen score first; those without one last. */
function sortedHeads() {
  const score = scoreOf(state.sort);
  if (!score) return allHeads;
  const value = ({ layer, head }) => score.values[layer][head] ?? -Infinity;
  return [...allHeads].sort((a, b) => value(b) - value(a) || a.layer - b.layer || a.head - b.head);
}

const thumbnails = new Map();

/** Makes the thumbnails of a sample; their order is another matter. */
function drawThumbnails() {
  const { time } = maps(state.sample);
  thumbnails.clear();
  at("thumbnails").classList.toggle("many", allHeads.length > 48);
  for (const { layer, head } of allHeads) {
    const canvas = mapImage(state.sample, layer, head);
    canvas.setAttribute("aria-hidden", "true");
    canvas.classList.toggle("coarse", time <= 160);
    const value = element("span", { class: "value" });
    const button = element("button", { type: "button", "data-layer": layer, "data-head": head }, canvas, layerHead(layer, head), value);
    button.addEventListener("click", () => update({ layer, head }));
    thumbnails.set(`${layer} ${head}`, button);
  }
}

function orderThumbnails() {
  const score = scoreOf(state.sort);
  const ordered = sortedHeads().map(({ layer, head }) => {
    const button = thumbnails.get(`${layer} ${head}`);
    const value = score ? score.values[layer][head] : null;
    button.dataset.value = value ?? "";
    button.querySelector(".value").replaceChildren(score ? `${score.name} ${fixed(value, score.digits)}` : "");
    return button;
  });
  at("thumbnails").replaceChildren(...ordered);
  markThumbnail();
}

/** Marks the chosen head; one thumbnail takes part in the order of the tab key, arrows do the rest. */
function markThumbnail() {
  const chosen = (button) => Number(button.dataset.layer) === state.layer && Number(button.dataset.head) === state.head;
  for (const button of at("thumbnails").children) {
    button.setAttribute("aria-pressed", chosen(button));
    button.tabIndex = chosen(button) ? 0 : -1;
  }
}

function drawScoreTable() {
  at("score-table").hidden = data.scores.length === 0;
  at("measured").replaceChildren(`Measured on ${data.measured_on}. A heading sorts, here and above.`);
  const heading = data.scores.map((score) => {
    const button = element("button", { type: "button", title: score.meaning, "data-score": score.key }, score.name);
    button.addEventListener("click", () => update({ sort: score.key }));
    const cell = element("th", { scope: "col", "aria-sort": score.key === state.sort ? "descending" : "none" }, button);
    return cell;
  });
  const head = element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "head"), ...heading));
  const rows = sortedHeads().map(({ layer, head }) => {
    const button = element("button", { type: "button" }, layerHead(layer, head));
    button.addEventListener("click", () => update({ layer, head }));
    const cells = data.scores.map((score) => element("td", {}, fixed(score.values[layer][head], score.digits)));
    const row = element("tr", {}, element("th", { scope: "row" }, button), ...cells);
    row.classList.toggle("chosen", layer === state.layer && head === state.head);
    return row;
  });
  at("scores").replaceChildren(head, element("tbody", {}, ...rows));
}

/** Names the chosen head and lists its scores. */
function drawChosen() {
  at("chosen").replaceChildren(layerHead(state.layer, state.head));
  at("head-scores").replaceChildren(...data.scores.flatMap((score) => [
    element("dt", { title: score.meaning }, score.name),
    element("dd", { "data-score": score.key }, fixed(score.values[state.layer][state.head], score.digits)),
  ]));
}

function startHeads() {
  at("sort").append(element("option", { value: "" }, "layer and head"));
  at("sort").append(...data.scores.map((score) => element("option", { value: score.key }, score.name)));
  at("sort").addEventListener("change", (event) => update({ sort: event.target.value }));
  at("thumbnails").addEventListener("keydown", (event) => {
    const list = at("thumbnails");
    const now = Array.from(list.children).indexOf(document.activeElement);
    const next = { ArrowLeft: now - 1, ArrowRight: now + 1, ArrowUp: above(list, now, -1), ArrowDown: above(list, now, 1), Home: 0, End: list.children.length - 1 }[event.key];
    if (now < 0 || next === undefined || !list.children[next]) return;
    event.preventDefault();
    list.children[next].focus();
  });
}
