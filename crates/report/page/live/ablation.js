// Ablation of components and of the paths between them, as a part of the input's changes.

/** The heads and feed-forward layers of the decoder, in model order. */
const allComponents = live ? Array.from({ length: live.config.layers }, (_, layer) => {
  const heads = (kind) => Array.from({ length: live.config.heads }, (_, head) => ({ kind, layer, head }));
  if (live.config.architecture === "one_layer") return heads("decoder");
  return [...heads("decoder"), ...(live.config.encoder_decoder ? heads("cross") : []), { kind: "feed_forward", layer, head: null }];
}).flat() : [];

/** True if the residual stream is the sum of the outputs of components, so that paths can be ablated. */
const hasPaths = live !== null && live.config.norm !== "post" && live.config.architecture !== "one_layer";

/** The ways to ablate, by name, with what the output becomes. */
const ABLATIONS = {
  zero: "zero",
  input: "its mean over all positions of this input",
  stored: `its mean over all positions of ${data.model?.stored_sequences ?? 0} validation sequences`,
};
const hasStoredMeans = (data.model?.stored_sequences ?? 0) > 0;
/** The default everywhere: mean ablation, as in the program, over the stored sequences if the page has any. */
const DEFAULT_ABLATION = hasStoredMeans ? "stored" : "input";
/** The way to ablate that clicks use. */
let ablateBy = DEFAULT_ABLATION;

/** Returns the component with a name such as 1.3, cross.1.3 or 1.mlp; throws if there is none. */
function componentNamed(name) {
  const found = allComponents.find((component) => componentName(component) === name);
  if (!found) throw new RangeError(`unknown component: ${name}; components are ${componentName(allComponents[0])} to ${componentName(allComponents.at(-1))}`);
  return found;
}

/** Returns the way to ablate with a name; throws if the page lacks it. */
function checkedBy(by) {
  if (!(by in ABLATIONS)) throw new RangeError(`unknown ablation: ${by}; pass "zero", "input" or "stored"`);
  if (by === "stored" && !hasStoredMeans) throw new RangeError('this page lacks the means over stored sequences; pass "zero" or "input"');
  return by;
}

const isSameComponent = (a, b) => a.kind === b.kind && a.layer === b.layer && a.head === b.head;
const isSamePath = (a, b) => isSameComponent(a.from, b.from) && isSameComponent(a.to, b.to) && a.input === b.input;

/** Returns the order of a component in the model: a component reads the outputs of those with a lower one. */
const orderOf = ({ kind, layer }) => 3 * layer + ["decoder", "cross", "feed_forward"].indexOf(kind);
/** Returns the inputs through which a component reads the residual stream. */
const inputsOf = ({ kind }) => ({ decoder: ["query", "key", "value"], cross: ["query"], feed_forward: [null] })[kind];

/** Returns the reason why a path does not exist; empty for one that does. */
function pathProblem({ from, to, input: into }) {
  const name = `the path from ${componentName(from)} to ${componentName(to)}`;
  if (!hasPaths) return "paths do not exist in one-layer and post-norm decoders";
  if (orderOf(from) >= orderOf(to)) return `${name} does not exist: the receiver must come later in the model`;
  const names = inputsOf(to).map((input) => (input === null ? "null" : `"${input}"`));
  return inputsOf(to).includes(into) ? "" : `${name} does not have the input ${JSON.stringify(into)}; pass ${names.join(", ")}`;
}

const pathInWords = ({ from, to, input: into }) => `${componentInWords(from)} to ${into ? `the ${INPUT_NAMES[into]} of ` : ""}${componentInWords(to)}`;

/** Returns how a component is ablated: zero, input or stored; null if it is not. */
function ablationOf(component) {
  const isOff = input.heads.some((other) => isSameComponent(other, component) && other.strength === 0 && other.position === null);
  return isOff ? "zero" : input.ablated.find((other) => isSameComponent(other, component))?.by ?? null;
}

/** Ablates a component, or restores it with `by` null. A head with zero ablation has strength 0. */
function setAblation(component, by) {
  const heads = input.heads.filter((other) => !isSameComponent(other, component) || other.position !== null);
  const ablated = input.ablated.filter((other) => !isSameComponent(other, component));
  const isOff = by === "zero" && component.kind !== "feed_forward";
  if (isOff) heads.push({ ...component, strength: 0, position: null });
  else if (by) ablated.push({ ...component, by });
  return change({ heads, ablated });
}

/** Ablates a path, or restores it with `by` null. */
function setPathAblation(path, by) {
  const paths = input.paths.filter((other) => !isSamePath(other, path));
  return change({ paths: by ? [...paths, { from: path.from, to: path.to, input: path.input, by }] : paths });
}

/** Describes the ablations, each with a function that undoes it. */
function ablationsInWords() {
  const components = input.ablated.map((component) => ({
    text: `${componentInWords(component)}: output replaced by ${ABLATIONS[component.by]}`,
    undo: () => setAblation(component, null),
  }));
  const paths = input.paths.map((path) => ({
    text: `path from ${pathInWords(path)} ablated (sender replaced by ${ABLATIONS[path.by]})`,
    undo: () => setPathAblation(path, null),
  }));
  return [...components, ...paths];
}
