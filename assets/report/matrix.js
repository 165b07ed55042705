// The matrix view: one head's map with its tokens, and the cell under the cursor.

const LABEL_FONT = '11px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace';
const TITLE_FONT = '12px system-ui, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';
/** Cells this wide are labelled one by one, and told apart by lines. */
const LABELLED = 13;
const LINED = 10;
let layout = null;

/** Where the cells lie, in CSS pixels: it follows from the width there is and from the labels. */
function matrixLayout(canvas) {
  const { time } = maps(state.sample);
  const tokens = Array.from({ length: time }, (_, position) => short(inputToken(state.sample, position)));
  const pen = canvas.getContext("2d");
  pen.font = LABEL_FONT;
  const widest = Math.max(...tokens.map((token) => pen.measureText(token).width));
  const width = Math.min(at("stage").clientWidth, 640);
  const labelled = (width - widest - 28) / time >= LABELLED;
  const left = labelled ? widest + 28 : pen.measureText(whole(time)).width + 30;
  const side = Math.min(width - left - 2, labelled ? time * 48 : 640);
  const flat = labelled && widest + 4 <= side / time;
  const below = labelled && !flat ? widest + 34 : 44;
  const top = 7; // half a label
  return { time, tokens, left, top, side, cell: side / time, labelled, flat, width: left + side + 2, height: top + side + below };
}

function drawMatrix() {
  const canvas = at("matrix");
  layout = matrixLayout(canvas);
  const { time, left, top, side, cell, width, height } = layout;
  const sharp = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * sharp);
  canvas.height = Math.round(height * sharp);
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  Object.assign(canvas.dataset, { left, top, cell, time });
  const pen = canvas.getContext("2d");
  pen.scale(sharp, sharp);
  pen.imageSmoothingEnabled = cell * sharp < 1;
  pen.drawImage(thumbnails.get(`${state.layer} ${state.head}`).querySelector("canvas"), left, top, side, side);
  if (cell >= LINED) {
    pen.strokeStyle = themed("paper");
    pen.lineWidth = 0.5;
    pen.beginPath();
    for (let edge = 1; edge < time; edge++) {
      pen.moveTo(left + edge * cell, top);
      pen.lineTo(left + edge * cell, top + side);
      pen.moveTo(left, top + edge * cell);
      pen.lineTo(left + side, top + edge * cell);
    }
    pen.stroke();
  }
  pen.strokeStyle = themed("grid");
  pen.lineWidth = 1;
  pen.strokeRect(left - 0.5, top - 0.5, side + 1, side + 1);
  drawLabels(pen);
  drawCell(pen);
  drawBar();
}

function drawLabels(pen) {
  const { time, tokens, left, top, side, cell, labelled, flat, height } = layout;
  const bottom = top + side;
  const write = (text, x, y, turned, align) => {
    pen.save();
    pen.translate(x, y);
    if (turned) pen.rotate(-Math.PI / 2);
    pen.textAlign = align;
    pen.textBaseline = "middle";
    pen.fillText(text, 0, 0);
    pen.restore();
  };
  pen.font = LABEL_FONT;
  pen.fillStyle = themed(labelled ? "ink" : "muted");
  if (labelled) {
    tokens.forEach((token, position) => {
      const middle = (position + 0.5) * cell;
      write(token, left - 6, top + middle, false, "right");
      if (flat) write(token, left + middle, bottom + 11, false, "center");
      else write(token, left + middle, bottom + 6, true, "right");
    });
  } else {
    for (const { value } of ticks([0, time - 1], Math.max(2, Math.floor(side / 60)))) {
      if (!Number.isInteger(value)) continue;
      const middle = (value + 0.5) * cell;
      write(whole(value), left - 6, top + middle, false, "right");
      write(whole(value), left + middle, bottom + 11, false, "center");
    }
  }
  pen.font = TITLE_FONT;
  pen.fillStyle = themed("muted");
  write(labelled ? "query" : "query position", 8, top + side / 2, true, "center");
  write(labelled ? "key" : "key position", left + side / 2, height - 9, false, "center");
}

/** Marks the row of the current query, the column of the current key, and their cell. */
function drawCell(pen) {
  const { left, top, cell, side, time } = layout;
  const { query, key } = state;
  if (query >= time || key >= time) return;
  pen.strokeStyle = themed("muted");
  pen.lineWidth = 1;
  // A row ends at the last key that its query sees, a column begins at the first query that sees its key.
  const { causal } = maps(state.sample);
  const [end, begin] = causal ? [(query + 1) * cell, key * cell] : [side, 0];
  pen.strokeRect(left, top + query * cell, end, Math.max(cell, 1));
  pen.strokeRect(left + key * cell, top + begin, Math.max(cell, 1), side - begin);
  const grown = Math.max(cell, 6);
  pen.strokeStyle = "#ff7a1a";
  pen.lineWidth = 2;
  pen.strokeRect(left + (key + 0.5) * cell - grown / 2, top + (query + 0.5) * cell - grown / 2, grown, grown);
}

function drawBar() {
  const canvas = at("bar");
  const image = new ImageData(canvas.width, 1);
  for (let x = 0; x < canvas.width; x++) image.data.set([...color(x / (canvas.width - 1)), 255], x * 4);
  canvas.getContext("2d").putImageData(image, 0, 0);
  const top = scaleTop(state.sample);
  at("bar-top").replaceChildren(top < 1 ? `≥ ${significant(top)}` : "1");
}

/** The key on which a query puts most weight. */
function strongestKey(sample, layer, head, query) {
  const { time, weight } = maps(sample);
  let strongest = 0;
  for (let key = 0; key < time; key++) {
    if ((weight(layer, head, query, key) ?? 0) > (weight(layer, head, query, strongest) ?? 0)) strongest = key;
  }
  return strongest;
}

/** Says which weight is under the cursor, and where the rest of the attention goes, or comes from. */
function readCell() {
  const { time, weight } = maps(state.sample);
  const { sample, layer, head } = state;
  const by = state.view === "tokens" && state.direction === "by";
  const linked = (position) => (by ? weight(layer, head, position, state.query) : weight(layer, head, state.query, position));
  const rows = Array.from({ length: time }, (_, position) => ({ position, value: linked(position) ?? 0 }));
  rows.sort((a, b) => b.value - a.value);
  const [query, key] = by ? [rows[0].position, state.query] : [state.query, state.key];
  const value = weight(layer, head, query, key);
  const reading = at("reading");
  const [from, to] = [inputToken(sample, query), inputToken(sample, key)];
  Object.assign(reading.dataset, { sample, layer, head, query, key, queryToken: from, keyToken: to, weight: value ?? "" });
  const seen = value === null ? "cannot be seen" : `weight ${fixed(value, 4)}`;
  reading.replaceChildren("query ", tokenElement(from), ` at ${query} → key `, tokenElement(to), ` at ${key}: ${seen}`);
  at("keys-title").replaceChildren(by ? "attended to most by" : "attends most to");
  at("keys").replaceChildren(...rows.slice(0, 6).filter((row) => row.value > 0).map(({ position, value }) =>
    barRow([tokenElement(inputToken(sample, position)), element("span", {}, `at ${position}`)], value, fixed(value, 4))));
}

/** A row of a list: what it is of, a bar of a share, its text. */
function barRow(label, share, text, attributes = {}) {
  const fill = element("div", { class: "fill" });
  fill.style.width = `${share * 100}%`;
  return element("li", attributes, element("span", {}, ...label), element("div", { class: "track" }, fill), element("span", {}, text));
}

function startMatrix() {
  const canvas = at("matrix");
  const point = (event) => {
    const { x, y } = offset(event, canvas);
    const { left, top, cell, time } = layout;
    const [key, query] = [Math.floor((x - left) / cell), Math.floor((y - top) / cell)];
    if (key >= 0 && key < time && query >= 0 && query < time) update({ query, key });
  };
  canvas.addEventListener("pointermove", point);
  canvas.addEventListener("pointerdown", point);
  canvas.addEventListener("keydown", (event) => {
    const far = event.shiftKey ? 10 : 1;
    const [down, across] = { ArrowUp: [-far, 0], ArrowDown: [far, 0], ArrowLeft: [0, -far], ArrowRight: [0, far] }[event.key] ?? [0, 0];
    if (down === 0 && across === 0) return;
    event.preventDefault();
    const within = (position) => Math.min(Math.max(position, 0), layout.time - 1);
    update({ query: within(state.query + down), key: within(state.key + across) });
  });
}
