// A line chart over training steps, with a cursor for pointer and keyboard.

/** Returns at most `most` round values within a range, with their labels. */
function ticks([low, high], most) {
  const least = (high - low) / Math.max(most, 1);
  const power = 10 ** Math.floor(Math.log10(least));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= least * 0.999);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i <= high / step + 1e-9; i++) values.push(i * step || 0); // avoids -0
  const longest = Math.max(Math.abs(low), Math.abs(high)) >= 1e6;
  const label = (value) => (value === 0 ? "0" : digits > 3 || longest ? significant(value) : value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−"));
  return values.map((value) => ({ value, label: label(value) }));
}

/** Returns the ticks of a logarithmic axis, whose range is given as decimal logarithms. */
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

/** The margins of every chart, shared so that the time axes of the loss chart and the score chart line up. */
const BORDER = { left: 68, right: 58, top: 8, bottom: 44 };

/**
 * Draws a chart into an SVG element. `spec` has the ranges `x` and `y`, the `title` of the y axis and
 * the `curves`: `{ x, y, color, width, dash, right }`, where `right` is the range of a separate right axis.
 * The x axis counts steps unless `spec` has `xTitle`; `xTicks` and `yTicks` replace the default ticks.
 * Returns the conversions between values and pixels.
 */
function drawChart(svg, spec) {
  const width = svg.clientWidth;
  const height = svg.clientHeight;
  // A page that is not visible yet has no width.
  const inner = { width: Math.max(width - BORDER.left - BORDER.right, 1), height: Math.max(height - BORDER.top - BORDER.bottom, 1) };
  const bottom = BORDER.top + inner.height;
  const place = {
    x: (step) => BORDER.left + ((step - spec.x[0]) / (spec.x[1] - spec.x[0])) * inner.width,
    y: (value, [low, high] = spec.y) => bottom - ((value - low) / (high - low)) * inner.height,
    step: (x) => spec.x[0] + ((x - BORDER.left) / inner.width) * (spec.x[1] - spec.x[0]),
  };
  svg.replaceChildren();
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  for (const { value, label } of spec.yTicks ?? ticks(spec.y, Math.floor(inner.height / 42))) {
    const y = place.y(value);
    svg.append(shape("line", { class: "grid", x1: BORDER.left, x2: BORDER.left + inner.width, y1: y, y2: y }));
    svg.append(shape("text", { x: BORDER.left - 7, y: y + 4, "text-anchor": "end" }, label));
  }
  for (const { value, label } of spec.xTicks ?? ticks(spec.x, Math.floor(inner.width / 80))) {
    if (!spec.xTicks && !Number.isInteger(value)) continue;
    const x = place.x(value);
    svg.append(shape("line", { class: "axis", x1: x, x2: x, y1: bottom, y2: bottom + 4 }));
    svg.append(shape("text", { x, y: bottom + 18, "text-anchor": "middle" }, spec.xTicks ? label : whole(value)));
  }
  svg.append(shape("line", { class: "axis", x1: BORDER.left, x2: BORDER.left + inner.width, y1: bottom, y2: bottom }));
  svg.append(shape("text", { x: BORDER.left + inner.width / 2, y: bottom + 39, "text-anchor": "middle" }, spec.xTitle ?? "step"));
  const rotated = `translate(12 ${BORDER.top + inner.height / 2}) rotate(-90)`;
  svg.append(shape("text", { transform: rotated, "text-anchor": "middle" }, spec.title));

  const clip = shape("clipPath", { id: `${svg.id}-clip` });
  clip.append(shape("rect", { x: BORDER.left, y: BORDER.top, width: inner.width, height: inner.height + 1 }));
  svg.append(clip);
  const curves = shape("g", { "clip-path": `url(#${svg.id}-clip)` });
  for (const curve of spec.curves) {
    let path = "";
    let drawing = false;
    curve.x.forEach((step, i) => {
      const value = curve.y[i];
      if (value !== null) path += `${drawing ? "L" : "M"}${place.x(step).toFixed(1)} ${place.y(value, curve.right).toFixed(1)}`;
      drawing = value !== null;
    });
    const look = { class: "curve", d: path, stroke: curve.color, "stroke-width": curve.width, "stroke-dasharray": curve.dash ?? "none" };
    curves.append(shape("path", look));
    // Draw the points of a sparse curve; a single point would be invisible otherwise.
    if (curve.dots || curve.x.length === 1) {
      curve.x.forEach((step, i) => {
        if (curve.y[i] === null) return;
        curves.append(shape("circle", { cx: place.x(step), cy: place.y(curve.y[i], curve.right), r: curve.radius ?? 3, fill: curve.color }));
      });
    }
    if (curve.right) rightAxis(svg, place, curve, BORDER.left + inner.width, inner.height);
  }
  svg.append(curves);
  return place;
}

function rightAxis(svg, place, curve, x, height) {
  for (const { value, label } of ticks(curve.right, Math.floor(height / 60))) {
    const y = place.y(value, curve.right);
    svg.append(shape("line", { x1: x, x2: x + 4, y1: y, y2: y, stroke: curve.color }));
    svg.append(shape("text", { x: x + 7, y: y + 4, style: `fill: ${curve.color}` }, label));
  }
}

/** Draws the cursor of a chart at a step, with a dot at each value. */
function drawCursor(svg, place, step, dots) {
  svg.querySelector(".marks")?.remove();
  const marks = shape("g", { class: "marks", "pointer-events": "none" });
  const x = place.x(step);
  const bottom = svg.clientHeight - BORDER.bottom;
  marks.append(shape("line", { class: "cursor", x1: x, x2: x, y1: BORDER.top, y2: bottom, "stroke-dasharray": "2 3" }));
  for (const { value, color, range } of dots) {
    const y = place.y(value, range);
    if (y >= BORDER.top - 1 && y <= bottom + 1) marks.append(shape("circle", { cx: x, cy: y, r: 4, fill: color }));
  }
  svg.append(marks);
}
