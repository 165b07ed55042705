// The data embedded by the program, and the formatting of tokens and numbers.

/**
 * Returns the element with an id.
 *
 * @param {string} id
 * @returns {any}
 */
const at = (id) => document.getElementById(id);

/** Reads the data of the page: plain JSON, or the JSON's length, the JSON and binary data, compressed with deflate. */
async function embedded() {
  const text = at("data").textContent;
  if (at("data").type === "application/json") return [JSON.parse(text), null];
  const deflated = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  const stream = new Blob([deflated]).stream().pipeThrough(new DecompressionStream("deflate"));
  const all = await new Response(stream).arrayBuffer();
  const length = new DataView(all).getUint32(0, true);
  return [JSON.parse(new TextDecoder().decode(new Uint8Array(all, 4, length))), new Uint8Array(all, 4 + length)];
}

const [data, bytes] = await embedded();

/** Returns a function that requests a call of `draw` in the next frame, one for all requests until then. */
function oncePerFrame(draw) {
  let isRequested = false;
  return () => {
    if (isRequested) return;
    isRequested = true;
    requestAnimationFrame(() => {
      isRequested = false;
      draw();
    });
  };
}

/** Creates an element; its children are text and elements, never markup. */
function element(tag, attributes = {}, ...children) {
  const created = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) created.setAttribute(name, value);
  created.append(...children);
  return created;
}

/** Creates an SVG element with text. */
function svgElement(tag, attributes = {}, text = "") {
  const created = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) created.setAttribute(name, value);
  created.textContent = text;
  return created;
}

const GRAPHEMES = new Intl.Segmenter(undefined, { granularity: "grapheme" });
/** Divides text into characters with their marks. */
const graphemes = (text) => (/[^\0-\u02ff]/.test(text) ? Array.from(GRAPHEMES.segment(text), ({ segment }) => segment) : Array.from(text));

const SYMBOLS = { " ": "␣", "\n": "⏎", "\r": "␍", "\t": "⇥", "\x7f": "␡" };

/** Characters without a shape of their own; some change the text direction. */
const INVISIBLE = /[\p{White_Space}\p{Cc}\p{Default_Ignorable_Code_Point}\u2800\ufff9-\ufffb]/u;

/** Returns the symbol of whitespace or of a control character, and the code of another invisible character. */
function visibleCharacter(character) {
  if (SYMBOLS[character]) return SYMBOLS[character];
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  return INVISIBLE.test(character) ? `\\u{${code.toString(16)}}` : character;
}

/** Returns characters that form one glyph as displayed. A joiner between two of them, and the marks of an emoji, change the glyph and are kept. */
function visibleGroup(group) {
  const characters = Array.from(group);
  const isSymbol = characters[0] > "\u2000" && !/[\p{L}\p{N}]/u.test(characters[0]) && !INVISIBLE.test(characters[0]);
  const isKept = (character, i) => (0 < i && i < characters.length - 1 && /[\u200c\u200d]/.test(character)) || (0 < i && isSymbol && /[\ufe0f\u{e0020}-\u{e007f}]/u.test(character));
  return characters.map((character, i) => (isKept(character, i) ? character : visibleCharacter(character))).join("");
}

/** Returns the characters of a token as displayed, with symbols or codes for invisible ones. */
const visibleGroups = (token) => (token === "" ? ["∅"] : /^[!-~]+$/.test(token) ? Array.from(token) : graphemes(token).map(visibleGroup));

/** Returns a token as displayed, truncated to `maxLength` characters. */
function short(token, maxLength = 10) {
  const shown = visibleGroups(token);
  return shown.length > maxLength ? shown.slice(0, maxLength - 1).join("") + "…" : shown.join("");
}

/** Isolates the text direction of a part of a line. */
const isolated = (text) => `\u2068${text}\u2069`;

/** Creates the element of a token. */
function tokenElement(token, attributes = {}) {
  return element("span", { ...attributes, class: `token ${attributes.class ?? ""}`.trim(), dir: "ltr" }, short(token, 60));
}

/** Formats an integer with thousands separators. */
const integer = (number) => number.toLocaleString("en-US");
const layerHead = (layer, head) => `layer ${layer}, head ${head}`;

/**
 * Formats a number with `digits` decimals and a typographic minus sign, but never as a negative zero. Numbers from 1e5
 * on, as in a diverged run, are in scientific notation.
 */
function fixed(number, digits) {
  if (number === null || number === undefined) return "–";
  const text = Math.abs(number) >= 1e5 ? number.toExponential(1).replace("e+", "e") : number.toFixed(digits);
  return text.replace("-", Number(text) === 0 ? "" : "−");
}

/** Formats a number with four significant digits. */
function significant(number) {
  if (number === null || number === undefined) return "–";
  const size = Math.abs(number);
  const text = size !== 0 && (size < 1e-3 || size >= 1e6)
    ? number.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e")
    : String(Number(number.toPrecision(4)));
  return number < 0 ? text.replace("-", "−") : text;
}
