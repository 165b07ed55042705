// The drawing of the residual stream: a line from the embedding at the bottom to the logits at the top, with what each
// component adds to it, and the prediction after each layer.

const FLOW = { spine: 16, left: 44, box: 52, gap: 8, laneGap: 2, stage: 46 };

/**
 * Makes the buttons of a drawing reachable by arrow keys, and activates one by a click, Enter or Space. `buttons` returns
 * them in the order of the keys; one of them is in the tab order.
 */
function makeRoving(svg, buttons, activate) {
  const buttonOf = (event) => event.target.closest('[role="button"]');
  svg.addEventListener("click", (event) => {
    if (!buttonOf(event)) return;
    svg.dataset.focus = buttons().indexOf(buttonOf(event));
    activate(buttonOf(event));
  });
  svg.addEventListener("keydown", (event) => {
    const all = buttons(), now = all.indexOf(document.activeElement);
    if (now >= 0 && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      activate(all[now]);
    }
    const next = { ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined || !all[next]) return;
    event.preventDefault();
    svg.dataset.focus = String(next);
    restoreRoving(svg, buttons);
    all[next].focus();
  });
}

/** Puts one button of a drawing into the tab order; after a redraw, `hadFocus` moves the focus back to it. */
function restoreRoving(svg, buttons, hadFocus = false) {
  const all = buttons();
  const now = all[Math.min(Number(svg.dataset.focus ?? 0), all.length - 1)];
  for (const button of all) button.setAttribute("tabindex", button === now ? "0" : "-1");
  if (hadFocus) now?.focus();
}

/** Returns the rows of the drawing from the bottom: boxes of components and stages of the stream. */
function flowRows({ parts, stages, neurons }) {
  const isLast = (part) => part.kind === "embedding" || part.kind === "feed_forward";
  /** @type {any[]} */
  const rows = [];
  for (const part of parts) {
    const last = rows.at(-1);
    if (last?.parts?.[0].kind === part.kind && last.parts[0].layer === part.layer) last.parts.push(part);
    else rows.push({ parts: [part], neurons: neurons.filter(({ layer }) => part.kind === "feed_forward" && layer === part.layer) });
    if (isLast(part)) rows.push({ depth: part.kind === "embedding" ? 0 : part.layer + 1, stage: stages[part.kind === "embedding" ? 0 : part.layer + 1] });
  }
  // The biases of all layers are one component, before the prediction.
  return rows.at(-1).parts ? [...rows.slice(0, -2), rows.at(-1), rows.at(-2)] : rows;
}

/** Draws the residual stream that `traceStream` decomposes. `text` returns the text of a token. */
function drawFlowInto(svg, found, space, text) {
  const width = space - 2; // for the frames
  const rows = flowRows(found);
  const top = found.parts.reduce((most, { logit }) => Math.max(most, Math.abs(logit ?? 0)), 1e-9);
  const longest = found.parts.reduce((most, { length }) => Math.max(most, length), 1e-9);
  const perLine = Math.max(1, Math.floor((width - FLOW.left + FLOW.gap) / (76 + FLOW.gap)));
  const heightOf = ({ parts, neurons }) => {
    if (!parts) return FLOW.stage;
    const below = neurons.length > 0 && width < 560 ? 17 * neurons.length : 0;
    return flowLines(parts, perLine, longest).reduce((sum, { lanes }) => sum + lanes + FLOW.box, 8) + below;
  };
  const height = rows.reduce((sum, row) => sum + heightOf(row), 24);
  svg.setAttribute("viewBox", `0 0 ${space} ${height}`);
  svg.style.height = `${height}px`;
  const longestStream = found.stages.reduce((most, { length }) => Math.max(most, length), 1e-9);
  const [lines, marks] = [[], []];
  let bottom = height - 4, thickness = 2;
  for (const row of rows) {
    const y = bottom - heightOf(row);
    const isStage = row.parts === undefined;
    if (isStage) thickness = 2 + 10 * row.stage.length / longestStream;
    lines.push(svgElement("line", { class: "spine", x1: FLOW.spine, x2: FLOW.spine, y1: bottom, y2: y, "stroke-width": thickness.toFixed(1) }));
    if (isStage) marks.push(...stageMarks(row, found.target, y, width, text));
    else componentMarks(row, { y, width, perLine, top, longest, text }, lines, marks);
    bottom = y;
  }
  const arrow = svgElement("path", { class: "arrow", d: `M${FLOW.spine - 9} ${bottom + 2} L${FLOW.spine} ${bottom - 12} L${FLOW.spine + 9} ${bottom + 2} Z` });
  const end = svgElement("text", { x: FLOW.left, y: bottom - 2, class: "title" }, `logits: ${short(text(found.target), 12)} ${signedText(found.logit, 2)} above the mean`);
  svg.replaceChildren(...lines, arrow, end, ...marks);
}

/**
 * Divides the components of a row into lines of boxes. Each component has a connection with a thickness by its length, in
 * a lane of its own above the boxes; `lanes` is the height of all lanes.
 */
function flowLines(parts, perLine, longest) {
  return Array.from({ length: Math.ceil(parts.length / perLine) }, (_, line) => {
    const boxes = parts.slice(line * perLine, (line + 1) * perLine);
    const strokes = boxes.map(({ length }) => 1 + 5 * length / longest);
    return { boxes, strokes, lanes: strokes.reduce((sum, stroke) => sum + stroke + FLOW.laneGap, 5) };
  });
}

/** Appends the boxes of components to `marks`, and their connections to the stream to `lines`. */
function componentMarks({ parts, neurons }, { y, width, perLine, top, longest, text }, lines, marks) {
  const boxWidth = Math.min(112, (width - FLOW.left + FLOW.gap) / Math.min(perLine, parts.length) - FLOW.gap);
  let boxY = y + 4;
  for (const { boxes, strokes, lanes } of flowLines(parts, perLine, longest)) {
    boxY += lanes;
    let lane = boxY - 3;
    boxes.forEach((part, index) => {
      const x = FLOW.left + index * (boxWidth + FLOW.gap), stroke = strokes[index];
      // The first box has the lowest lane, so that no connection crosses another one.
      const bus = lane - stroke / 2;
      lane -= stroke + FLOW.laneGap;
      lines.push(svgElement("path", { class: `adds ${part.logit < 0 ? "negative" : "positive"}`, d: `M${x + boxWidth / 2} ${boxY} V${bus.toFixed(1)} H${FLOW.spine}`, "stroke-width": stroke.toFixed(1) }));
      marks.push(partElement(part, { x, y: boxY, width: boxWidth, share: Math.abs(part.logit ?? 0) / top }));
    });
    boxY += FLOW.box;
  }
  neurons.forEach((neuron, index) => {
    const isBelow = width < 560;
    const x = isBelow ? FLOW.left : FLOW.left + boxWidth + 14;
    const y = boxY + (isBelow ? 14 : 13 - FLOW.box) + 17 * index;
    marks.push(svgElement("text", { x, y, class: "neuron" }, neuronInWords(neuron, text, (width - x) / CHARACTER)));
  });
}

/** The width of a character in the description of a neuron, in pixels. */
const CHARACTER = 6.8;

/**
 * Describes a neuron: its activation here, its share, and the tokens of the input that drive it most, as many as fit into
 * `room` characters.
 */
function neuronInWords({ neuron, activation, logit, drivers }, text, room) {
  const tokens = drivers.map(({ id, position }) => `${short(text(id), 8)} at ${position}`);
  const active = `neuron ${neuron}: ${fixed(activation, 1)}`;
  const share = logit === null ? "" : `, share ${signedText(logit, 2)}`;
  const forms = [`${active}${share}; most active on ${tokens.join(", ")}`, ...tokens.map((_, dropped) => `${active}; ${tokens.slice(0, tokens.length - dropped).join(", ")}`)];
  return forms.find(({ length }) => length <= room) ?? active;
}

/** The name of a component in its box. */
const shortPart = ({ kind, layer, head }) => ({ embedding: "embedding", biases: "biases", feed_forward: `${layer}.mlp`, decoder: `${layer}.${head}`, cross: `cross ${layer}.${head}` })[kind];

/** Creates the box of a component: its share of the logit and its length. A head is a button that selects its map. */
function partElement(part, { x, y, width, share }) {
  const { kind, layer, head, logit, length } = part;
  const isChosen = head !== null && kind === state.kind && layer === state.layer && head === state.head;
  const name = shortPart(part), shown = logit === null ? "" : signedText(logit, 2), size = `length ${fixed(length, 1)}`;
  const button = head === null ? {} : { role: "button", tabindex: -1, "aria-pressed": isChosen, "aria-label": `${name} ${shown} ${size}: ${partInWords(part)}` };
  const group = svgElement("g", { class: `part ${logit < 0 ? "negative" : ""} ${isChosen ? "chosen" : ""}`, "data-kind": kind, "data-layer": layer ?? "", "data-head": head ?? "", "data-logit": logit ?? "", ...button });
  const ground = svgElement("rect", { x, y, width, height: FLOW.box, rx: 5 });
  ground.style.setProperty("--share", `${Math.round(50 * share)}%`);
  const line = (offset, style, content) => svgElement("text", { x: x + width / 2, y: y + offset, class: style }, `${content} `);
  group.append(svgElement("title", {}, partInWords(part)), ground, line(16, "name", name), line(31, "share", shown), line(46, "size", size));
  return group;
}

/** Creates the prediction from the stream at a depth: its most likely tokens, each a button that selects the token. */
function stageMarks({ depth, stage }, target, y, width, text) {
  const isListed = stage.top.some(({ id }) => id === target);
  const all = [...stage.top, ...(isListed ? [] : [{ id: target, probability: stage.probability }])];
  const room = Math.min(92, (width - FLOW.left + FLOW.gap) / all.length - FLOW.gap);
  const title = svgElement("text", { x: FLOW.left, y: y + 14, class: "title" }, depth === 0 ? "prediction from the embedding" : `prediction after layer ${depth - 1}`);
  const pills = all.map(({ id, probability }, index) => {
    const x = FLOW.left + index * (room + FLOW.gap), name = short(text(id), Math.max(Math.floor(room / 9) - 5, 3)), shown = fixed(probability, 2);
    const group = svgElement("g", { class: `predicted ${id === target ? "chosen" : ""}`, role: "button", tabindex: -1, "aria-pressed": id === target, "aria-label": `${name} ${shown}: probability of ${isolated(short(text(id), 20))}`, "data-id": id, "data-depth": depth });
    group.append(svgElement("rect", { x, y: y + 19, width: room, height: 22, rx: 4, class: "ground" }), svgElement("rect", { x, y: y + 37, width: Math.max(room * probability, 1), height: 4, class: "bar" }),
      svgElement("text", { x: x + 6, y: y + 33, class: "id" }, `${name} `), svgElement("text", { x: x + room - 5, y: y + 33, class: "probability" }, shown));
    return group;
  });
  return [svgElement("circle", { cx: FLOW.spine, cy: y + 30, r: 8, class: "stop" }), title, ...pills];
}
