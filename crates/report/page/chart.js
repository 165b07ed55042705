// A line chart, usually over training steps, with a cursor.

/** Returns about `count` round values within a range, with their labels. */
function ticks([low, high], count) {
  const minStep = (high - low) / Math.max(count, 1);
  const power = 10 ** Math.floor(Math.log10(minStep));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= minStep * 0.999);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9; i++) values.push(i * step || 0); // avoids -0
  const isLarge = Math.max(Math.abs(low), Math.abs(high)) >= 1e6;
  const label = (value) => (value === 0 ? "0" : digits > 3 || isLarge ? significant(value) : value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−"));
  return values.map((value) => ({ value, label: label(value) }));
}

/** Returns the ticks of a logarithmic axis whose range is given as decimal logarithms. */
function logTicks([low, high]) {
  const marks = [];
  for (let power = Math.floor(low); power <= high; power++) {
    for (const factor of high - low > 2.5 ? [1] : [1, 2, 5]) {
      const value = power + Math.log10(factor);
      if (value >= low && value <= high) marks.push({ value, label: significant(Number((factor * 10 ** power).toPrecision(3))) });
    }
  }
  if (marks.length > 1) return marks;
  return ticks([10 ** low, 10 ** high], 5).map(({ value, label }) => ({ value: Math.log10(value), label }));
}

/** Returns the index of the value nearest to `x` in an ascending list. */
function nearest(values, x) {
  let [low, high] = [0, values.length - 1];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] < x) low = middle;
    else high = middle;
  }
  return Math.abs(values[low] - x) <= Math.abs(values[high] - x) ? low : high;
}

/** The margins of every chart, shared so that the step axes of the loss chart and the score chart line up. */
const MARGIN = { left: 68, right: 58, top: 8, bottom: 44 };

/**
 * Draws a chart into an SVG element. `spec` has the ranges `x` and `y`, the `title` of the y axis and the `curves`:
 * `{ x, y, color, width, dash, dots, radius, right }`, where `dots` marks every point with a dot of `radius`, and
 * `right` is the range of a separate right axis. The title of the x axis is `xTitle`, by default "step"; `xTicks` and
 * `yTicks` replace the default ticks. Returns the conversions between values and pixels.
 */
function drawChart(svg, spec) {
  const width = svg.clientWidth;
  const height = svg.clientHeight;
  // A page that is not visible yet has no width.
  const inner = { width: Math.max(width - MARGIN.left - MARGIN.right, 1), height: Math.max(height - MARGIN.top - MARGIN.bottom, 1) };
  const bottom = MARGIN.top + inner.height;
  const scales = {
    x: (step) => MARGIN.left + ((step - spec.x[0]) / (spec.x[1] - spec.x[0])) * inner.width,
    y: (value, [low, high] = spec.y) => bottom - ((value - low) / (high - low)) * inner.height,
    step: (x) => spec.x[0] + ((x - MARGIN.left) / inner.width) * (spec.x[1] - spec.x[0]),
  };
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (const { value, label } of spec.yTicks ?? ticks(spec.y, Math.floor(inner.height / 42))) {
    const y = scales.y(value);
    svg.append(svgElement("line", { class: "grid", x1: MARGIN.left, x2: MARGIN.left + inner.width, y1: y, y2: y }));
    svg.append(svgElement("text", { x: MARGIN.left - 7, y: y + 4, "text-anchor": "end" }, label));
  }
  for (const { value, label } of spec.xTicks ?? ticks(spec.x, Math.floor(inner.width / 80))) {
    if (!spec.xTicks && !Number.isInteger(value)) continue;
    const x = scales.x(value);
    svg.append(svgElement("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
    svg.append(svgElement("text", { x, y: bottom + 18, "text-anchor": "middle" }, spec.xTicks ? label : integer(value)));
  }
  svg.append(svgElement("line", { class: "axis", x1: MARGIN.left, x2: MARGIN.left + inner.width, y1: bottom, y2: bottom }));
  svg.append(svgElement("text", { x: MARGIN.left + inner.width / 2, y: bottom + 39, "text-anchor": "middle" }, spec.xTitle ?? "step"));
  const rotated = `translate(12 ${MARGIN.top + inner.height / 2}) rotate(-90)`;
  svg.append(svgElement("text", { transform: rotated, "text-anchor": "middle" }, spec.title));

  const clip = svgElement("clipPath", { id: `${svg.id}-clip` });
  clip.append(svgElement("rect", { x: MARGIN.left, y: MARGIN.top, width: inner.width, height: inner.height + 1 }));
  svg.append(clip);
  const curves = svgElement("g", { "clip-path": `url(#${svg.id}-clip)` });
  for (const curve of spec.curves) {
    let path = "";
    let isDrawing = false;
    curve.x.forEach((step, i) => {
      const value = curve.y[i];
      if (value !== null) path += `${isDrawing ? "L" : "M"}${scales.x(step).toFixed(1)} ${scales.y(value, curve.right).toFixed(1)}`;
      isDrawing = value !== null;
    });
    const attributes = { class: "curve", d: path, stroke: curve.color, "stroke-width": curve.width, "stroke-dasharray": curve.dash ?? "none" };
    curves.append(svgElement("path", attributes));
    // Draw the points of a sparse curve, since a single point has no line.
    if (curve.dots || curve.x.length === 1) {
      curve.x.forEach((step, i) => {
        if (curve.y[i] === null) return;
        curves.append(svgElement("circle", { cx: scales.x(step), cy: scales.y(curve.y[i], curve.right), r: curve.radius ?? 3, fill: curve.color }));
      });
    }
    if (curve.right) drawRightAxis(svg, scales, curve, MARGIN.left + inner.width, inner.height);
  }
  svg.append(curves);
  return scales;
}

function drawRightAxis(svg, scales, curve, x, height) {
  for (const { value, label } of ticks(curve.right, Math.floor(height / 60))) {
    const y = scales.y(value, curve.right);
    svg.append(svgElement("line", { x1: x, x2: x + 4, y1: y, y2: y, stroke: curve.color }));
    svg.append(svgElement("text", { x: x + 7, y: y + 4, style: `fill: ${curve.color}` }, label));
  }
}

/** Draws the cursor of a chart at a step, with a dot at each value. */
function drawCursor(svg, scales, step, dots) {
  svg.querySelector(".marks")?.remove();
  const marks = svgElement("g", { class: "marks", "pointer-events": "none" });
  const x = scales.x(step);
  const bottom = svg.clientHeight - MARGIN.bottom;
  marks.append(svgElement("line", { class: "cursor", x1: x, x2: x, y1: MARGIN.top, y2: bottom, "stroke-dasharray": "2 3" }));
  for (const { value, color, range } of dots) {
    const y = scales.y(value, range);
    if (y >= MARGIN.top - 1 && y <= bottom + 1) marks.append(svgElement("circle", { cx: x, cy: y, r: 4, fill: color }));
  }
  svg.append(marks);
}
