// The state in the address of the page: the input, its changes and the view, so that a link restores them.

/** Formats numbers for the address. */
const joined = (numbers) => numbers.join(".");

/** Returns an input with its changes as the parts of an address. */
function inputParts({ tokens, first, source, before, heads, frozen, ablated, paths }) {
  const parts = [["tokens", joined(tokens)]];
  if (first > 0) parts.push(["first", first]);
  if (source) parts.push(["source", joined(source)]);
  if (before) parts.push(["before", joined(before)]);
  for (const { kind, layer, head, strength, position } of heads) parts.push(["head", [kind, layer, head, strength, ...(position === null ? [] : [position])].join("_")]);
  for (const { kind, layer, head, tokens, source } of frozen) parts.push(["frozen", [kind, layer, head, joined(tokens), ...(source ? [joined(source)] : [])].join("_")]);
  for (const { by, ...component } of ablated) parts.push(["ablated", `${componentName(component)}_${by}`]);
  for (const { from, to, input: into, by } of paths) parts.push(["path", [componentName(from), componentName(to), into ?? "", by].join("_")]);
  return parts;
}

/** Returns the state as the fragment of an address. */
function addressOf() {
  const { kind, layer, head, query, key, view, sample, position } = state;
  const parts = inputParts(input);
  // Another sequence than the input follows, with its position.
  parts.push(["shown", [kind, layer, head, query, key, view, Number(state.difference), ...(sample === TYPED_SAMPLE ? [] : [sample, position])].join("_")]);
  if (state.scale !== "linear") parts.push(["scale", state.scale]);
  const isKept = other.sample !== null && other.sample === keptSample;
  if (at("pair").open) parts.push(["pair", [other.layer ?? "", other.head ?? "", isKept ? "kept" : other.sample === TYPED_SAMPLE ? "input" : other.sample ?? ""].join("_")]);
  if (at("pair").open && isKept) parts.push(...inputParts(keptInput).map(([name, value]) => [`kept-${name}`, value]));
  return `#${parts.filter(([, value]) => value !== "").map(([name, value]) => `${name}=${value}`).join("&")}`;
}

/** Parses a non-negative integer below `end`; throws if the text is not one. */
function below(text, end) {
  const number = Number(text);
  if (!/^\d+$/.test(text ?? "") || number >= end) throw new RangeError(text);
  return number;
}

const ids = (text) => (text === "" ? [] : text.split(".").map((id) => below(id, live.config.vocab)));

/** Parses the kind of attention, layer and head in a part of an address. */
function headOf([kind, layer, head]) {
  if (!data.maps[0].some((maps) => maps.kind === kind)) throw new RangeError(kind);
  const index = below(layer, data.layers.length);
  return { kind, layer: index, head: below(head, data.layers[index]) };
}

/** Parses the head and the sequence that the selected ones are compared with; empty parts are the same as selected. */
function pairOf([layer, head, sample]) {
  const [index, isSame] = [layer === "" ? null : below(layer, data.layers.length), layer === ""];
  const samples = { "": null, undefined: null, kept: TYPED_SAMPLE + 1, input: TYPED_SAMPLE };
  return { layer: index, head: isSame ? null : below(head, data.layers[index]), sample: sample in samples ? samples[sample] : below(sample, TYPED_SAMPLE) };
}

/** Parses an input with its changes; `one` returns the value of a part by its name, and `each` the values split by `_`. */
function readInput(one, each) {
  const tokens = ids(one("tokens"));
  const optional = (name) => (one(name) === undefined ? null : ids(one(name)));
  return {
    tokens,
    first: one("first") === undefined ? 0 : below(one("first"), tokens.length),
    source: optional("source"),
    before: optional("before"),
    heads: each("head").map((parts) => {
      const strength = Number(parts[3]);
      if (!(strength >= 0 && strength <= 2)) throw new RangeError(parts[3]);
      return { ...headOf(parts), strength, position: parts[4] === undefined ? null : below(parts[4], tokens.length) };
    }),
    frozen: each("frozen").map((parts) => ({ ...headOf(parts), tokens: ids(parts[3]), source: parts[4] === undefined ? null : ids(parts[4]) })),
    ablated: each("ablated").map(([name, by]) => ({ ...componentNamed(name), by: checkedBy(by) })),
    paths: each("path").map(([from, to, into, by]) => {
      const path = { from: componentNamed(from), to: componentNamed(to), input: into || null, by: checkedBy(by) };
      if (pathProblem(path)) throw new RangeError(pathProblem(path));
      return path;
    }),
  };
}

/** Parses an address; returns null if it holds no input, and throws if it is invalid. */
function readAddress(address) {
  if (!address.startsWith("#tokens=")) return null;
  const all = address.slice(1).split("&").map((part) => { const split = part.indexOf("="); return [part.slice(0, split), part.slice(split + 1)]; });
  const one = (name) => all.find(([other]) => other === name)?.[1];
  const each = (name) => all.filter(([other]) => other === name).map(([, value]) => value.split("_"));
  const found = readInput(one, each);
  const pair = one("pair") === undefined ? null : pairOf(one("pair").split("_"));
  const isKept = pair?.sample === TYPED_SAMPLE + 1;
  const kept = isKept ? readInput((name) => one(`kept-${name}`), (name) => each(`kept-${name}`)) : null;
  const scale = one("scale") ?? "linear";
  if (!["linear", "root", "head"].includes(scale)) throw new RangeError(scale);
  const look = { scale, pair, kept };
  const shown = one("shown")?.split("_");
  if (!shown) return { input: found, ...look, shown: null };
  const [query, key] = [below(shown[3], Infinity), below(shown[4], Infinity)];
  const sequence = shown[7] === undefined ? {} : { sample: below(shown[7], TYPED_SAMPLE), position: below(shown[8], Infinity) };
  return { input: found, ...look, shown: { ...sequence, ...headOf(shown), query, key, view: ["tokens", "lines"].find((view) => view === shown[5]) ?? "matrix", difference: shown[6] === "1" } };
}

/** Keeps an input for comparison as if it had been typed before, but without a step to undo. */
async function restoreKept(kept) {
  if (keptInput && JSON.stringify(inputParts(keptInput)) === JSON.stringify(inputParts(kept))) return;
  const before = input;
  input = kept;
  await compute();
  if (shownAnswer?.input === kept) storeKept();
  input = before;
}

/** Restores the state from the address; returns true if the address holds a valid state. */
async function restoreAddress() {
  let found = null;
  try {
    found = readAddress(location.hash);
  } catch {
    addressProblem = "this link does not match the model of this page and is ignored; copy a new link from this page";
    const { refused, text } = inputRemark();
    showNote(text, refused);
    return false;
  }
  if (!found) return false;
  if (found.kept) await restoreKept(found.kept);
  // The browser's Back returns to the input before the last change.
  const before = undoStack.at(-1)?.input;
  const isUndo = before && JSON.stringify(inputParts(before)) === JSON.stringify(inputParts(found.input));
  await (isUndo ? undo() : change(found.input));
  for (const choice of at("scales").querySelectorAll("input")) choice.checked = choice.value === found.scale;
  update({ scale: found.scale });
  at("pair").open = found.pair !== null;
  if (found.pair) {
    // An input that the model refuses cannot be compared.
    const { sample } = found.pair;
    Object.assign(other, found.pair, { sample: sample !== null && data.readings[sample] === undefined ? null : sample });
    drawPair();
  }
  if (found.shown?.sample !== undefined) {
    // A reloaded page has restored the same sequence already, with the latest position.
    if (!isReloaded || state.sample !== found.shown.sample) update(found.shown);
  } else if (found.shown && shownAnswer) {
    const { queries, keys } = maps(TYPED_SAMPLE, found.shown.kind);
    const { query, key } = found.shown;
    showTyped({ ...found.shown, position: Math.min(query, shownAnswer.tokens.length - 1), query: Math.min(query, queries.length - 1), key: Math.min(key, keys.length - 1) });
  }
  return true;
}

/** The error about the address, cleared by the next change; empty if there is none. */
let addressProblem = "";
/** The timer of the next write; null if none is due. */
let writeTimer = null;

/** The number of undo steps at the last write. */
let writtenSteps = 0;
/** True until the first change of the address if the page was reloaded. */
let isReloaded = /** @type {?PerformanceNavigationTiming} */ (performance.getEntriesByType("navigation")[0])?.type === "reload";
/** False if the page has no address of its own, as in `<iframe srcdoc>`. */
const hasAddress = location.protocol !== "about:";

/**
 * Writes the state into the address, at most a few times per second, since browsers refuse more. The first state is
 * written at once, so that Back returns to it from the first change.
 */
function writeAddress() {
  if (!hasAddress) return;
  if (location.hash === "") writeNow();
  else writeTimer ??= setTimeout(writeNow, 300);
}

/** Writes the state into the address. Each step that can be undone is an entry of the browser's history. */
function writeNow() {
  writeTimer = null;
  // A link must not restore a refused input.
  if (isRefused) return;
  const address = addressOf();
  at("link").setAttribute("href", address);
  const isStep = undoStack.length > writtenSteps;
  writtenSteps = undoStack.length;
  if (location.hash === address) return;
  if (isStep) window.history.pushState(null, "", address);
  else window.history.replaceState(null, "", address);
}

/** Copies the address of the current state, and confirms it. */
async function copyLink(event) {
  event.preventDefault();
  const status = (text) => {
    at("link-status").replaceChildren(text);
    setTimeout(() => at("link-status").textContent === text && at("link-status").replaceChildren(), 6000);
  };
  if (isRefused || inputRemark().refused) return status("No link was copied, because the input was rejected; change the input first.");
  const address = new URL(addressOf(), location.href).href;
  const isCopied = await navigator.clipboard?.writeText(address).then(() => true, () => false);
  status(isCopied ? "Copied." : "The browser refused to copy it; copy it from the address bar.");
  window.history.replaceState(null, "", address);
}

function startAddress() {
  at("link").hidden = !hasAddress;
  at("link").addEventListener("click", copyLink);
  inputViews.push(writeAddress);
  for (const name of ["change", "toggle", "click"]) at("pair").addEventListener(name, writeAddress);
  window.addEventListener("hashchange", () => {
    isReloaded = false;
    if (location.hash !== addressOf()) restoreAddress();
  });
}
