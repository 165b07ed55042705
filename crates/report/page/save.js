// Saves each panel of a page as SVG, PNG or CSV, in the light theme and without its controls. An SVG holds text, lines and
// the pixels of maps as the browser laid them out, so that every program can read it.

/**
 * A panel that can be saved: the ids of its elements, its name in files, the rows of its CSV, and the elements that are
 * drawn in their own way, by id, each at a position. A heading names what only the controls of the panel show. `more` are
 * the ids of controls that a page of this panel alone needs, and `exists` returns false if the page lacks its data.
 *
 * @typedef {{ids: string[], name: string, rows: () => any[][], heading?: () => string, more?: string[], exists?: () => boolean, drawings?: Record<string, (x: number, y: number) => Element>}} Panel
 */

/** The parts of a panel that are not content; the style sheet hides most of them while a panel is saved. */
const NOT_SAVED = ".controls, .switch, .save, .explain, .note, fieldset, textarea, #weight-open, #weight-close, #intervene, #generate, .spoken, :is(#component-table, #path-table) :is(th, td):last-child";

/** The number of pixels of a PNG per CSS pixel, and the maximum width and height of a PNG. */
const PNG_SCALE = 2;
const MAX_PNG_SIDE = 8192;

const imageElement = (canvas, x, y, width, height) =>
  svgElement("image", { x, y, width, height, preserveAspectRatio: "none", "image-rendering": "pixelated", href: canvas.toDataURL() });

/** Copies an SVG element of the page with the styles of the style sheet. */
function styledCopy(svg, { left, top, width, height }) {
  const copy = svg.cloneNode(true);
  const [sources, copies] = [svg, copy].map((root) => [root, ...root.querySelectorAll("*")]);
  sources.forEach((source, i) => {
    const style = getComputedStyle(source);
    for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity", "font-size", "font-family", "font-weight", "text-anchor"]) {
      copies[i].style.setProperty(name, style.getPropertyValue(name));
    }
  });
  for (const [name, value] of Object.entries({ x: left, y: top, width, height, overflow: "visible" })) copy.setAttribute(name, value);
  return copy;
}

/** Returns the lines of a text node as displayed, each with its position. */
function textLines(node) {
  const lines = [];
  const range = document.createRange();
  for (let i = 0; i < node.length;) {
    const character = String.fromCodePoint(node.data.codePointAt(i));
    range.setStart(node, i);
    range.setEnd(node, i += character.length);
    const { left, right, top, width, height } = range.getBoundingClientRect();
    const line = lines.at(-1);
    // A mark on a letter has no width; a space that is not displayed has none either.
    if (width === 0 && (!line || /\s/.test(character))) continue;
    if (line && Math.abs(line.top - top) < height / 2) Object.assign(line, { text: line.text + character, left: Math.min(line.left, left), right: Math.max(line.right, right) });
    else lines.push({ text: character, left, right, top, height });
  }
  return lines;
}

/** Returns the distance of the baseline of a font from the top of its lines, as a fraction of their height. */
function baselineOf(style) {
  const pen = document.createElement("canvas").getContext("2d");
  pen.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
  const { fontBoundingBoxAscent: ascent, fontBoundingBoxDescent: descent } = pen.measureText("x");
  return ascent / (ascent + descent);
}

const textElement = (text, x, y, style) =>
  svgElement("text", { x, y, fill: style.color, "font-size": style.fontSize, "font-family": style.fontFamily, "font-weight": style.fontWeight, "xml:space": "preserve" }, text);

/** Appends the background, the border and the outline of an element. */
function appendBox(parts, style, { left: x, top: y, width, height }) {
  const isVisible = (color) => color !== "rgba(0, 0, 0, 0)" && color !== "transparent";
  const sides = ["Top", "Right", "Bottom", "Left"].map((side) => ({ width: parseFloat(style[`border${side}Width`]), color: style[`border${side}Color`], style: style[`border${side}Style`] }));
  const rect = { x, y, width, height, rx: parseFloat(style.borderTopLeftRadius) || 0 };
  if (isVisible(style.backgroundColor)) parts.push(svgElement("rect", { ...rect, fill: style.backgroundColor }));
  const drawn = sides.map((side) => side.width > 0 && side.style !== "none" && isVisible(side.color));
  const dash = (side) => ({ dashed: "7 3", dotted: "2 3" }[side.style] ?? "none");
  if (drawn.every(Boolean)) parts.push(svgElement("rect", { ...rect, fill: "none", stroke: sides[0].color, "stroke-width": sides[0].width, "stroke-dasharray": dash(sides[0]) }));
  else {
    const ends = [[x, y, x + width, y], [x + width, y, x + width, y + height], [x, y + height, x + width, y + height], [x, y, x, y + height]];
    sides.forEach((side, i) => {
      const [x1, y1, x2, y2] = ends[i];
      if (drawn[i]) parts.push(svgElement("line", { x1, y1, x2, y2, stroke: side.color, "stroke-width": side.width, "stroke-dasharray": dash(side) }));
    });
  }
  const outline = /^(rgba?\([^)]*\)) 0px 0px 0px (\d+)px/.exec(style.boxShadow);
  if (outline) parts.push(svgElement("rect", { ...rect, fill: "none", stroke: outline[1], "stroke-width": outline[2] }));
}

/** The SVG elements of a panel, in coordinates of the window, with their bounds. */
class Drawing {
  parts = [];
  bounds = { left: Infinity, top: Infinity, right: -Infinity, bottom: -Infinity };
  constructor(drawings = {}) { this.drawings = drawings; }

  /** Extends the bounds by a rectangle. */
  extend({ left, top, right, bottom }) {
    const { bounds } = this;
    this.bounds = { left: Math.min(bounds.left, left), top: Math.min(bounds.top, top), right: Math.max(bounds.right, right), bottom: Math.max(bounds.bottom, bottom) };
  }

  /** Appends an element or a text node of the page. */
  append(node) {
    if (node instanceof Text) return this.appendText(node);
    if (!(node instanceof Element) || node.matches(NOT_SAVED) || !node.checkVisibility()) return;
    const rect = node.getBoundingClientRect();
    const { left, top, width, height } = rect;
    const count = this.parts.length;
    const drawing = this.drawings[node.id];
    if (drawing) this.parts.push(drawing(left, top));
    else if (node instanceof HTMLCanvasElement) this.parts.push(imageElement(node, left, top, width, height));
    else if (node instanceof SVGSVGElement) this.parts.push(styledCopy(node, rect));
    else appendBox(this.parts, getComputedStyle(node), rect);
    if (this.parts.length > count) this.extend(rect);
    if (!(node instanceof HTMLElement)) return;
    if (node.matches("ol:not(.bars) > li")) this.appendNumber(node, rect);
    for (const child of node.childNodes) this.append(child);
    // The weight below a highlighted token.
    if (node.dataset.shown) {
      const text = textElement(node.dataset.shown, left + width / 2, rect.bottom - 5, getComputedStyle(node, "::after"));
      text.setAttribute("text-anchor", "middle");
      this.parts.push(text);
    }
  }

  /** Appends the number of an item of a list. */
  appendNumber(item, { left, top }) {
    const style = getComputedStyle(item.firstElementChild ?? item), number = Array.from(item.parentElement.children).indexOf(item) + 1;
    const text = textElement(`${number}.`, left - 6, top + 0.95 * parseFloat(style.fontSize) + 2, style);
    text.setAttribute("text-anchor", "end");
    this.parts.push(text);
  }

  /** Appends a line of text above the panel. */
  appendHeading(text) {
    const { left, top } = this.bounds;
    const style = getComputedStyle(document.body);
    this.parts.push(textElement(text, left, top - 10, { color: style.color, fontSize: "14px", fontFamily: style.fontFamily, fontWeight: "600" }));
    const pen = document.createElement("canvas").getContext("2d");
    pen.font = `600 14px ${style.fontFamily}`;
    this.extend({ left, top: top - 26, right: left + pen.measureText(text).width, bottom: top });
  }

  appendText(node) {
    if (node.data.trim() === "") return;
    const style = getComputedStyle(node.parentElement);
    const baseline = baselineOf(style);
    for (const { text, left, top, right, height } of textLines(node)) {
      this.parts.push(textElement(text, left, top + baseline * height, style));
      this.extend({ left, top, right, bottom: top + height });
    }
  }
}

/** Returns a panel as SVG text, with its width and height. */
function panelSvg(panel) {
  const root = document.documentElement;
  const isDark = hasTheme("dark");
  const scrolled = window.scrollY;
  root.classList.add("saving");
  if (isDark) {
    root.dataset.printed = "true";
    themeColors.clear();
    draw(["theme"]);
  }
  const drawing = new Drawing(panel.drawings);
  try {
    for (const id of panel.ids) drawing.append(at(id));
    if (panel.heading) drawing.appendHeading(panel.heading());
  } finally {
    root.classList.remove("saving");
    if (isDark) {
      delete root.dataset.printed;
      themeColors.clear();
      draw(["theme"]);
    }
    window.scrollTo(window.scrollX, scrolled);
  }
  const MARGIN_AROUND = 8;
  const { left, top, right, bottom } = drawing.bounds;
  const [x, y] = [left - MARGIN_AROUND, top - MARGIN_AROUND].map(Math.floor);
  const [width, height] = [right + MARGIN_AROUND - x, bottom + MARGIN_AROUND - y].map(Math.ceil);
  const svg = svgElement("svg", { width, height, viewBox: `${x} ${y} ${width} ${height}` });
  svg.append(svgElement("title", {}, `${document.title}: ${panel.name}`), svgElement("rect", { x, y, width, height, fill: "#ffffff" }), ...drawing.parts);
  return { text: new XMLSerializer().serializeToString(svg), width, height };
}

/** Returns a panel as PNG. */
async function panelPng(panel) {
  const { text, width, height } = panelSvg(panel);
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const scale = Math.min(PNG_SCALE, MAX_PNG_SIDE / Math.max(width, height));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [width, height].map((side) => Math.round(side * scale));
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

/** Formats rows as CSV (RFC 4180). */
function csv(rows) {
  const cell = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return rows.map((row) => `${row.map(cell).join(",")}\r\n`).join("");
}

/** Returns the rows of a table as displayed. */
const tableRows = (id) => Array.from(at(id).rows, (row) => Array.from(row.cells, (cell) => cell.textContent.trim().replaceAll("−", "-")));

/** Saves a panel of the page named `page` as a file, without a request. */
async function savePanel(panel, page, format) {
  const blob = {
    svg: () => new Blob([panelSvg(panel).text], { type: "image/svg+xml" }),
    png: () => panelPng(panel),
    csv: () => new Blob([csv(panel.rows())], { type: "text/csv" }),
  }[format];
  const href = URL.createObjectURL(await blob());
  const name = `${page}-${panel.name}`.replace(/[^\p{L}\p{N}._-]+/gu, "-");
  element("a", { href, download: `${name}.${format}` }).click();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}

/**
 * Adds the buttons to the end of each panel.
 *
 * @param {Panel[]} panels
 * @param {string} page the name of the page in files
 */
function startSave(panels, page) {
  for (const panel of panels) {
    const last = at(panel.ids.at(-1)).closest(".scroll") ?? at(panel.ids.at(-1));
    const name = panel.name.replaceAll("-", " ");
    const buttons = ["SVG", "PNG", "CSV"].map((format) => {
      const button = element("button", { type: "button", "aria-label": `Save ${name} as ${format}` }, format);
      button.addEventListener("click", () => savePanel(panel, page, format.toLowerCase()));
      return button;
    });
    const row = element("details", { class: "save small", "data-panel": panel.name }, element("summary", {}, "Save", element("span", { class: "spoken" }, ` ${name}`)), element("div", {}, ...buttons));
    const isBox = last.matches("div:not(.scroll, .tokens, #thumbnails, #film-strip, #prediction), aside, details");
    if (isBox) last.append(row);
    else last.after(row);
  }
}
