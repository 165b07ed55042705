// Strips: the weights of the selected query in every head, one strip per head. The selected head also colours the tokens
// of the input. Both follow the newest token while the model writes.

/** The maximum number of heads that are all shown; larger models show those of the selected layer. */
const MAX_STRIPS = 32;

const stripHeads = () => (allHeads.length <= MAX_STRIPS ? allHeads : allHeads.filter(({ layer }) => layer === state.layer));

/** Draws the strips, and colours the tokens of the input by the weights of the selected head. */
function drawStrips() {
  at("strips").hidden = maps().bin !== 1;
  glow();
  if (at("strips").hidden || !at("strips").open) return;
  const { keys, weight } = maps();
  const heads = stripHeads();
  drawStripKeys(keys);
  const box = at("strip-rows");
  const names = heads.map(({ layer, head }) => `${layer}.${head}`).join();
  if (box.dataset.names !== names) {
    box.dataset.names = names;
    box.replaceChildren(...heads.map(({ layer, head }) => element("button", { type: "button", "data-layer": layer, "data-head": head }, element("span", {}, `${layer}.${head}`), element("canvas", { height: 1, "aria-hidden": "true" }))));
  }
  heads.forEach(({ layer, head }, index) => {
    const button = /** @type {HTMLElement} */ (box.children[index]), canvas = button.querySelector("canvas");
    const weights = keys.map((_, key) => weight(layer, head, state.query, key));
    const isChosen = layer === state.layer && head === state.head;
    drawStrip(canvas, weights, scaleEnd(layer, head));
    const key = largest(weights.map((value) => value ?? -Infinity), 1)[0];
    button.setAttribute("aria-pressed", String(isChosen));
    button.tabIndex = isChosen ? 0 : -1;
    button.setAttribute("aria-label", `${layer}.${head}: highest weight ${fixed(weights[key], 2)} on ${isolated(short(keys[key].text, 20))} at position ${keys[key].positions}`);
    Object.assign(button.dataset, { query: state.query, key, weight: weights[key] });
  });
  readStrips();
}

/** The width of the strips, cached on resize, since reading it while tokens change would force a layout. */
let stripsWidth = 0;

/** Names the keys above the strips, if each has room. */
function drawStripKeys(keys) {
  const room = stripsWidth / keys.length;
  at("strip-keys").hidden = room < 22;
  if (room >= 22) at("strip-keys").replaceChildren(...keys.map(({ text }) => element("span", { class: "token" }, short(text, Math.floor(room / 9)))));
}

/** Draws weights as one pixel per key; a key that the query cannot see is transparent. */
function drawStrip(canvas, weights, top) {
  canvas.width = weights.length;
  const pen = canvas.getContext("2d"), image = pen.createImageData(weights.length, 1);
  weights.forEach((weight, key) => weight !== null && image.data.set([...weightColor(weight / top), 255], 4 * key));
  pen.putImageData(image, 0, 0);
}

/** Describes the highest weight of the selected head. */
function readStrips() {
  const { queries, keys, weight } = maps();
  const { layer, head, query } = state;
  const key = strongestKey(layer, head, query);
  at("strips-reading").replaceChildren(`${componentInWords(state)}: `, ...cellInWords(queries[query]), " attends most to ", ...cellInWords(keys[key]), `, with a weight of ${formatWeight(weight(layer, head, query, key))}.`);
}

/** Colours the tokens of the input by the weights of the selected head and query. */
function glow() {
  const isShown = isInputShown() && KINDS[state.kind].sides[1] === "inputs" && maps().bin === 1;
  for (const chip of at("chips").children) {
    const position = Number(chip.dataset.index ?? -1) - input.first;
    const weight = isShown && position >= 0 && position < maps().keys.length ? maps().weight(state.layer, state.head, state.query, position) : null;
    if (weight > 0.01) chip.style.setProperty("--glow", `${Math.round(45 * Math.sqrt(weight))}%`);
    else chip.style.removeProperty("--glow");
  }
}

function startStrips() {
  if (allHeads.length > MAX_STRIPS) at("strips").open = false;
  const box = at("strip-rows");
  box.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const head = { layer: Number(button.dataset.layer), head: Number(button.dataset.head) };
    const { left, width } = button.querySelector("canvas").getBoundingClientRect();
    const share = (event.clientX - left) / width;
    // A key press has no position.
    const key = event.detail > 0 && share >= 0 && share < 1 ? Math.floor(share * maps().keys.length) : strongestKey(head.layer, head.head, state.query);
    update({ ...head, query: state.query, key });
  });
  box.addEventListener("keydown", (event) => {
    const buttons = Array.from(box.children), now = buttons.indexOf(document.activeElement);
    const next = buttons[{ ArrowUp: now - 1, ArrowDown: now + 1, ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: buttons.length - 1 }[event.key]];
    if (!next) return;
    event.preventDefault();
    /** @type {HTMLElement} */ (next).focus();
  });
  at("strips").addEventListener("toggle", drawStrips);
  new ResizeObserver(([{ contentRect: { width } }]) => {
    if (width === stripsWidth || width === 0) return;
    stripsWidth = width;
    drawStripKeys(maps().keys);
  }).observe(box);
  mapViews.push([["theme", "sample", "kind", "layer", "head", "query", "scale"], drawStrips]);
  drawStrips();
}
