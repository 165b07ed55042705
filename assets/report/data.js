// The run's data as the program embedded them, and how tokens and numbers read.

const data = JSON.parse(document.getElementById("data").textContent);

/** The element of an id. */
const at = (id) => document.getElementById(id);

/** A new element: text and elements as children, never markup. */
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** The same for SVG. */
function shape(tag, attributes = {}, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

/** A token as it is shown: whitespace and controls as their symbols, nothing that turns the line. */
function visible(token) {
  if (token === "") return "∅";
  const signs = { " ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\x7f": "␡" };
  return Array.from(token, (character) => {
    if (signs[character]) return signs[character];
    const code = character.codePointAt(0);
    if (code < 0x20) return String.fromCodePoint(0x2400 + code);
    const silent = (code >= 0x80 && code <= 0xa0) || code === 0xad || (code >= 0x200b && code <= 0x200f) ||
      (code >= 0x2028 && code <= 0x202f) || (code >= 0x2060 && code <= 0x206f) || code === 0x3000 || code === 0xfeff;
    return silent ? "·" : character;
  }).join("");
}

/** The same, cut for an axis. */
function short(token, most = 8) {
  const shown = Array.from(visible(token));
  return shown.length > most ? shown.slice(0, most - 1).join("") + "…" : shown.join("");
}

/** A token in an element of its own. */
function tokenElement(token, attributes = {}) {
  return element("span", { ...attributes, class: `token ${attributes.class ?? ""}`.trim(), dir: "ltr" }, visible(token));
}

const whole = (number) => number.toLocaleString("en-US");
const layerHead = (layer, head) => `layer ${layer}, head ${head}`;

/** A number with `digits` after the point and a true minus. */
function fixed(number, digits) {
  return number === null || number === undefined ? "–" : number.toFixed(digits).replace("-", "−");
}

/** A number with four digits that count. */
function significant(number) {
  if (number === null || number === undefined) return "–";
  const size = Math.abs(number);
  const text = size !== 0 && (size < 1e-3 || size >= 1e6)
    ? number.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e")
    : String(Number(number.toPrecision(4)));
  return number < 0 ? text.replace("-", "−") : text;
}

/** The text of a token of a sample's inputs. */
const inputToken = (sample, position) => data.tokens[data.samples[sample].inputs[position]];

const STEPS = 65535; // a weight is kept as so many steps of 1 / 65,535
const decoded = new Map();

/** The maps of a sample, decoded when they are first looked at. */
function maps(index) {
  if (!decoded.has(index)) {
    const { time, causal, weights } = data.samples[index];
    const bytes = atob(weights);
    const values = new Uint16Array(bytes.length / 2);
    for (let i = 0; i < values.length; i++) values[i] = bytes.charCodeAt(2 * i) | (bytes.charCodeAt(2 * i + 1) << 8);
    const size = causal ? (time * (time + 1)) / 2 : time * time;
    const offsets = [];
    let heads = 0;
    for (const count of data.layers) {
      offsets.push(Array.from({ length: count }, (_, head) => (heads + head) * size));
      heads += count;
    }
    // A query of a causal map sees the keys up to itself; the rest is not kept.
    const weight = (layer, head, query, key) => {
      if (causal && key > query) return null;
      const place = causal ? (query * (query + 1)) / 2 + key : query * time + key;
      return values[offsets[layer][head] + place] / STEPS;
    };
    decoded.set(index, { time, causal, weight, top: null });
  }
  return decoded.get(index);
}
