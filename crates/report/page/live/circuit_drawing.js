// The drawing of the circuit: the components of the model by layer, the first layer at the bottom, and the paths between
// them.

/** The colour of a path by the input of its receiver, and its dashes. */
const PATH_STYLES = {
  query: { color: "blue", dash: "" },
  key: { color: "vermilion", dash: "7 3" },
  value: { color: "green", dash: "2 3" },
  null: { color: "purple", dash: "10 3 2 3" },
};
const BOX = { height: 40, gap: 8, rowGap: 8, levelGap: 46, left: 70 };

/** Returns the boxes of the components, `{component, x, y, width}`, the labels of the levels, and the height. */
function circuitLayout(components, width) {
  const levels = [];
  for (const component of components) {
    const order = orderOf(component);
    if (levels.at(-1)?.order !== order) levels.push({ order, components: [] });
    levels.at(-1).components.push(component);
  }
  const room = width - BOX.left - 2;
  let bottom = 0;
  const boxes = [], labels = [];
  for (const { components: row } of levels) {
    const perLine = Math.max(1, Math.min(row.length, Math.floor((room + BOX.gap) / (48 + BOX.gap))));
    const boxWidth = Math.min(110, (room + BOX.gap) / perLine - BOX.gap) * (row[0].kind === "feed_forward" ? 1.4 : 1);
    const lines = Math.ceil(row.length / perLine);
    row.forEach((component, index) => {
      const line = Math.floor(index / perLine), inLine = Math.min(perLine, row.length - line * perLine);
      // Feed-forward layers are on the right, so that they do not cover the paths between heads.
      const space = room - inLine * (boxWidth + BOX.gap) + BOX.gap, start = BOX.left + (component.kind === "feed_forward" ? space : space / 2);
      boxes.push({ component, width: boxWidth, x: start + (index % perLine) * (boxWidth + BOX.gap), y: bottom + line * (BOX.height + BOX.rowGap) });
    });
    labels.push({ text: `layer ${row[0].layer}`, y: bottom + BOX.height / 2, isFirst: row[0].kind === "decoder" });
    bottom += lines * BOX.height + (lines - 1) * BOX.rowGap + BOX.levelGap;
  }
  const height = bottom - BOX.levelGap + 16;
  // The first layer is at the bottom.
  for (const box of boxes) box.y = height - 8 - box.y - BOX.height;
  for (const label of labels) label.y = height - 8 - label.y;
  return { boxes, labels, height };
}

/**
 * Draws components and paths. `components` have `effect` (the change of the loss when ablated; null if unknown), `top`
 * (the largest change) and `isAblated`; `paths` have the same.
 */
function drawCircuitInto(svg, components, paths, width) {
  const { boxes, labels, height } = circuitLayout(components.map(({ component }) => component), width);
  const boxOf = (component) => boxes.find((box) => isSameComponent(box.component, component));
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.style.height = `${height}px`;
  const lines = paths.map((path, index) => pathElement(path, index, boxOf(path.from), boxOf(path.to)));
  const marks = components.map((found, index) => boxElement(found, index, boxes[index]));
  const texts = labels.filter(({ isFirst }) => isFirst).map(({ text, y }) => svgElement("text", { x: 0, y: y + 4, class: "level" }, text));
  // Where lines cross, the one with the largest effect is on top and takes the click.
  const sizeOf = (line) => Math.abs(paths[Number(line.dataset.path)].effect ?? 0);
  svg.replaceChildren(...texts, ...lines.sort((a, b) => sizeOf(a) - sizeOf(b)), ...marks);
}

/** Creates the line of a path, from the top of the sender to the bottom of the receiver. */
function pathElement(path, index, from, to) {
  const { color, dash } = PATH_STYLES[path.input];
  const shift = path.input === null ? 0 : (["query", "key", "value"].indexOf(path.input) - 1) * to.width / 4;
  const [x1, y1, x2, y2] = [from.x + from.width / 2 + shift / 3, from.y, to.x + to.width / 2 + shift, to.y + BOX.height];
  const middle = (y1 + y2) / 2;
  const d = `M${x1} ${y1} C${x1} ${middle}, ${x2} ${middle}, ${x2} ${y2}`;
  const share = Math.min(Math.abs(path.effect ?? 0) / path.top, 1);
  const label = `path from ${pathInWords(path)}, ${effectInWords(path.effect)}`;
  const group = svgElement("g", { class: "path", role: "button", tabindex: -1, "aria-pressed": path.isAblated, "aria-label": label, "data-path": index });
  const stroke = svgElement("path", { d, class: "stroke", style: `stroke: var(--${color}); stroke-width: ${(1.2 + 5 * share).toFixed(1)}px; stroke-dasharray: ${dash || "none"}` });
  group.append(svgElement("title", {}, label), svgElement("path", { d, class: "reach" }), stroke, svgElement("circle", { cx: x2, cy: y2, r: 3.5, style: `fill: var(--${color})` }));
  if (path.isAblated) group.append(svgElement("text", { x: (x1 + x2) / 2, y: middle + 5, class: "cross" }, "✕"));
  return group;
}

/** Creates the box of a component: the more the loss changes when it is ablated, the darker. */
function boxElement({ component, effect, top, isAblated, kinds, inCircuit }, index, { x, y, width }) {
  const share = Math.min(Math.abs(effect ?? 0) / top, 1);
  const names = { feed_forward: width > 90 ? "feed-forward" : "mlp", cross: `${width > 70 ? "cross " : "×"}${component.layer}.${component.head}` };
  const name = names[component.kind] ?? componentName(component), change = effect === null ? missingEffect() : signedText(effect, 2);
  // The label begins with the visible text.
  const label = `${name} ${change}${hasTargets() ? " nats when ablated alone" : ""}: ${componentInWords(component)}${kinds.length > 0 ? ` (${kinds.join(", ")})` : ""}`;
  const group = svgElement("g", { class: `box ${effect < 0 ? "harmful" : ""} ${inCircuit ? "found" : ""}`, role: "button", tabindex: -1, "aria-pressed": isAblated, "aria-label": label, "data-component": componentName(component), "data-index": index, "data-effect": effect ?? "" });
  const ground = svgElement("rect", { x, y, width, height: BOX.height, rx: 5 });
  ground.style.setProperty("--share", `${Math.round(45 * share)}%`);
  group.append(svgElement("title", {}, label), ground,
    svgElement("text", { x: x + width / 2, y: y + 16, class: "name" }, `${name} `), svgElement("text", { x: x + width / 2, y: y + 31, class: "effect" }, change));
  if (isAblated) group.append(svgElement("line", { x1: x + 3, y1: y + BOX.height - 3, x2: x + width - 3, y2: y + 3, class: "strike" }));
  return group;
}

/** Formats a change with its sign. */
const signedText = (number, digits) => (Number(number.toFixed(digits)) === 0 ? "±" : number > 0 ? "+" : "") + fixed(number, digits);
const effectInWords = (effect) => (effect === null ? (hasTargets() ? "not ablated yet" : "nothing to predict") : `ablated alone: loss ${signedText(effect, 3)} nats`);
