// The matrix view: the map of one head with its tokens, and the cell under the cursor.

const LABEL_FONT = '11px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const TITLE_FONT = '12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
/** The minimum distance between labels, and the minimum size of cells with grid lines, in CSS pixels. */
const LABEL_SPACING = 13;
const MIN_GRID_CELL = 10;
/** The largest size of the map, the least height that it shrinks to, and the largest cell, in CSS pixels. */
const MAX_MAP = 640;
const MIN_MAP_HEIGHT = 230;
const MAX_CELL = 48;
let layout = null;
/**
 * The width available for the map, and the height of the input and the controls above it, cached on resize, since reading
 * them while tokens change would force a layout.
 */
let stageWidth = 0;
let aboveStage = 0;

/** Returns the height from the input, or else from the controls of the map, to the map. */
function heightAboveStage() {
  const first = ["input-area", "attention"].map(at).find(({ offsetHeight }) => offsetHeight > 0);
  return first ? Math.max(at("stage").getBoundingClientRect().top - first.getBoundingClientRect().top, 0) : 0;
}

/** Computes the layout of the cells in CSS pixels, from the available width and the labels. */
function matrixLayout(canvas) {
  const { queries, keys, bin } = maps();
  const pen = canvas.getContext("2d");
  pen.font = LABEL_FONT;
  const labels = (cells) => cells.map((cell) => (bin > 1 ? integer(cell.from) : short(cell.text)));
  const [down, across] = [labels(queries), labels(keys)];
  const widest = (texts) => Math.max(...texts.map((text) => pen.measureText(text).width));
  // Labels of several positions are positions themselves.
  const positionWidth = bin > 1 ? 0 : widest([queries, keys].map((cells) => String(cells.at(-1).positions)));
  const left = widest(down) + 28 + (positionWidth && positionWidth + 6);
  const room = Math.min(stageWidth || at("stage").clientWidth, MAX_MAP) - left - 2;
  const depth = (flat) => (flat ? 46 : widest(across) + 36) + (positionWidth && 14);
  // Together with the input above it and its labels, the map fits into the window.
  const cellAbove = (labels) => {
    const height = Math.min(Math.max(window.innerHeight - aboveStage - labels - 16, MIN_MAP_HEIGHT), MAX_MAP);
    return Math.min(room / keys.length, MAX_CELL, Math.max(height / queries.length, room / keys.length / 2));
  };
  // Draw every label if there is room, else every second, fifth, tenth...
  const stepOf = (cell, size) => [1, 2, 5, 10, 20, 50, 100, 200, 500].find((step) => step * cell >= size) ?? 1000;
  const isFlat = (cell) => stepOf(cell, widest(across) + 6) <= stepOf(cell, LABEL_SPACING);
  const flat = isFlat(cellAbove(depth(true)));
  const cell = cellAbove(depth(flat));
  const step = (size) => stepOf(cell, size);
  const [width, height] = [cell * keys.length, cell * queries.length];
  const strides = { down: step(LABEL_SPACING), across: flat ? step(widest(across) + 6) : step(LABEL_SPACING) };
  const top = 7; // half a label
  const positions = positionWidth && {
    left: left - widest(down) - 12, below: flat ? 25 : widest(across) + 16, stride: Math.ceil(step(positionWidth + 6) / strides.across) * strides.across,
  };
  return { queries, keys, down, across, strides, flat, positions, left, top, cell, width, height, below: depth(flat) };
}

function drawMatrix() {
  const canvas = at("matrix");
  layout = matrixLayout(canvas);
  const { queries, keys, left, top, cell, width, height, below } = layout;
  const pixelRatio = window.devicePixelRatio || 1;
  const size = { width: left + width + 2, height: top + height + below };
  for (const side of ["width", "height"]) {
    canvas[side] = Math.round(size[side] * pixelRatio);
    canvas.style[side] = `${size[side]}px`;
  }
  Object.assign(canvas.dataset, { left, top, cell, queries: queries.length, keys: keys.length });
  const pen = canvas.getContext("2d");
  pen.scale(pixelRatio, pixelRatio);
  pen.imageSmoothingEnabled = cell * pixelRatio < 1;
  pen.drawImage(thumbnails.get(`${state.layer} ${state.head}`).querySelector("canvas"), left, top, width, height);
  if (cell >= MIN_GRID_CELL) {
    pen.strokeStyle = themed("paper");
    pen.lineWidth = 0.5;
    pen.beginPath();
    for (let edge = 1; edge < keys.length; edge++) {
      pen.moveTo(left + edge * cell, top);
      pen.lineTo(left + edge * cell, top + height);
    }
    for (let edge = 1; edge < queries.length; edge++) {
      pen.moveTo(left, top + edge * cell);
      pen.lineTo(left + width, top + edge * cell);
    }
    pen.stroke();
  }
  pen.strokeStyle = themed("grid");
  pen.lineWidth = 1;
  pen.strokeRect(left - 0.5, top - 0.5, width + 1, height + 1);
  drawLabels(pen);
  drawCell(pen);
  drawBar();
}

function drawLabels(pen) {
  const { queries, keys, down, across, strides, flat, positions, left, top, cell, width, height, below } = layout;
  const bottom = top + height;
  const write = (text, x, y, rotated, align) => {
    pen.save();
    pen.translate(x, y);
    if (rotated) pen.rotate(-Math.PI / 2);
    pen.direction = "ltr";
    pen.textAlign = align;
    pen.textBaseline = "middle";
    pen.fillText(text, 0, 0);
    pen.restore();
  };
  pen.font = LABEL_FONT;
  pen.fillStyle = themed("ink");
  down.forEach((text, i) => i % strides.down === 0 && write(isolated(text), left - 6, top + (i + 0.5) * cell, false, "right"));
  across.forEach((text, i) => {
    if (i % strides.across !== 0) return;
    if (flat) write(isolated(text), left + (i + 0.5) * cell, bottom + 11, false, "center");
    else write(isolated(text), left + (i + 0.5) * cell, bottom + 6, true, "right");
  });
  pen.fillStyle = themed("muted");
  if (positions) {
    queries.forEach(({ positions: text }, i) => i % strides.down === 0 && write(text, positions.left, top + (i + 0.5) * cell, false, "right"));
    keys.forEach(({ positions: text }, i) => i % positions.stride === 0 && write(text, left + (i + 0.5) * cell, bottom + positions.below, false, "center"));
  }
  pen.font = TITLE_FONT;
  const position = maps().bin > 1 ? " position" : "";
  write(`query${position}`, 8, top + height / 2, true, "center");
  write(`key${position}`, left + width / 2, bottom + below - 9, false, "center");
}

/** Marks the row of the current query, the column of the current key, and their cell. */
function drawCell(pen) {
  const { left, top, cell, width, height } = layout;
  const { query, key } = state;
  pen.strokeStyle = themed("muted");
  pen.lineWidth = 1;
  // The row is marked at the keys that the query can see, the column at the queries that can see the key.
  const { keyRange, queries } = maps();
  const [first, end] = keyRange(query);
  const seesKey = queries.map((_, other) => key >= keyRange(other)[0] && key < keyRange(other)[1]);
  const [begin, last] = [seesKey.indexOf(true), seesKey.lastIndexOf(true)];
  pen.strokeRect(left + first * cell, top + query * cell, (end - first) * cell, Math.max(cell, 1));
  pen.strokeRect(left + key * cell, top + begin * cell, Math.max(cell, 1), (last + 1 - begin) * cell);
  const markSize = Math.max(cell, 6);
  pen.strokeStyle = "#ff7a1a";
  pen.lineWidth = 2;
  pen.strokeRect(left + (key + 0.5) * cell - markSize / 2, top + (query + 0.5) * cell - markSize / 2, markSize, markSize);
}

/** Draws the colours of the scale from left to right: of weights, or of differences around zero. */
function drawScale(canvas, isChange) {
  const image = new ImageData(canvas.width, 1);
  const shade = (share) => (isChange || IS_SIGNED ? differenceColor(onScale(2 * share - 1)) : color(onScale(share)));
  for (let x = 0; x < canvas.width; x++) image.data.set([...shade(x / (canvas.width - 1)), 255], x * 4);
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function drawBar() {
  const isChange = isDifference(), isSigned = isChange || IS_SIGNED;
  drawScale(at("bar"), isChange);
  const top = isChange ? differenceEnd(state.layer, state.head) : scaleEnd(state.layer, state.head);
  at("bar-bottom").replaceChildren(isSigned ? `−${significant(top)}` : "0");
  at("bar-top").replaceChildren(isSigned ? `+${significant(top)}` : top < 1 ? `≥ ${significant(top)}` : "1");
  const scale = { linear: "", root: ", square root scale", head: ", scale of this head" }[state.scale];
  at("bar-of").replaceChildren(`${!isChange ? "attention weight" : maps().isSame ? "change of the weight (0 in all heads)" : "change of the weight"}${scale}`);
}

/** Formats a weight with the precision of its byte. */
const formatWeight = (weight) => (Number.isNaN(weight) ? "NaN" : Math.abs(weight) < 0.01 ? significant(Number(weight.toPrecision(2))) : fixed(weight, 3));

/**
 * Shows the weight under the cursor, and the keys with the highest weights of its query, or the queries with the
 * highest weights on its key.
 */
function readCell() {
  const { queries, keys, bin, weight } = maps();
  const { sample, kind, layer, head } = state;
  const listsQueries = state.view === "tokens" && state.direction === "by";
  const others = listsQueries ? queries : keys;
  const linked = (i) => (listsQueries ? weight(layer, head, i, state.key) : weight(layer, head, state.query, i));
  const rows = others.map((cell, i) => ({ cell, i, value: linked(i) || 0 }));
  rows.sort((a, b) => Math.abs(b.value) - Math.abs(a.value));
  const [query, key] = listsQueries ? [rows.reduce((most, row) => (row.value > most.value ? row : most)).i, state.key] : [state.query, state.key];
  const value = weight(layer, head, query, key);
  const reading = at("reading");
  Object.assign(reading.dataset, { sample, kind, layer, head, query, key, queryToken: queries[query].text, keyToken: keys[key].text, weight: value ?? "" });
  const before = value === null ? null : (maps().weightBefore?.(layer, head, query, key) ?? null);
  const description = value === null ? "not visible" : `weight ${formatWeight(value)}${before === null ? "" : ` (${formatWeight(before)} before the changes)`}`;
  const binNote = bin > 1 ? " (sum over these keys, mean over these queries)" : "";
  reading.replaceChildren("query ", ...cellInWords(queries[query]), " → key ", ...cellInWords(keys[key]), `: ${description}${binNote}`);
  const ranked = IS_SIGNED ? "largest" : "highest";
  at("keys-title").replaceChildren(listsQueries ? `queries with the ${ranked} weights` : `keys with the ${ranked} weights`);
  at("keys").replaceChildren(...rows.slice(0, 6).filter((row) => row.value !== 0).map(({ cell, value }) =>
    barRow([tokenElement(cell.text), element("span", {}, `at ${cell.positions}`)], value, formatWeight(value))));
}

/** Creates a row of a list: a label, a bar for a share, and text. */
function barRow(label, share, text, attributes = {}) {
  const fill = element("div", { class: "fill" });
  fill.style.width = `${Math.min(Math.abs(share || 0), 1) * 100}%`; // empty for NaN
  fill.classList.toggle("negative", share < 0);
  return element("li", attributes, element("span", {}, ...label), element("div", { class: "track" }, fill), element("span", {}, text));
}

function startMatrix() {
  // The room changes with the window, with the input above the map, and when the panels next to the map appear.
  const observer = new ResizeObserver(() => {
    const [width, above] = [at("stage").clientWidth, heightAboveStage()];
    if (width === stageWidth && above === aboveStage) return;
    [stageWidth, aboveStage] = [width, above];
    if (state.view === "matrix") drawMatrix();
  });
  for (const id of ["stage", "input-area", "attention"]) observer.observe(at(id));
  const canvas = at("matrix");
  const cellAt = (event) => {
    const { x, y } = offset(event, canvas);
    const { left, top, cell, queries, keys } = layout;
    const [key, query] = [Math.floor((x - left) / cell), Math.floor((y - top) / cell)];
    return key >= 0 && key < keys.length && query >= 0 && query < queries.length ? { query, key } : null;
  };
  canvas.addEventListener("pointermove", (event) => {
    const found = cellAt(event);
    if (found) update(found, { isPreview: true });
  });
  canvas.addEventListener("pointerleave", endPreview);
  canvas.addEventListener("click", (event) => {
    const found = cellAt(event);
    if (!found) return;
    update(found);
    if (live) openWeight();
  });
  canvas.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && live) return openWeight({ hasFocus: true });
    const steps = event.shiftKey ? 10 : 1;
    const [down, across] = { ArrowUp: [-steps, 0], ArrowDown: [steps, 0], ArrowLeft: [0, -steps], ArrowRight: [0, steps] }[event.key] ?? [0, 0];
    if (down === 0 && across === 0) return;
    event.preventDefault();
    const clamped = (index, cells) => Math.min(Math.max(index, 0), cells.length - 1);
    update({ query: clamped(state.query + down, layout.queries), key: clamped(state.key + across, layout.keys) });
  });
}
