// The circuit on the input: the change of the loss when each component and each path is ablated, computed by the page's
// model. A click ablates a component or a path in all panels.

/** The maximum number of components between which paths are searched. */
const MAX_SEARCHED = 12;
/** The minimum change of the loss for which a path is shown, as a share of the change when all components are ablated. */
const MIN_PATH_EFFECT = 0.02;

/** The effects of ablations on an input: losses by the name of a component or path. */
let circuitEffects = { key: "", loss: 0, losses: new Map() };
/** The paths found on an input, with the key of their effects; null before a search. */
let foundPaths = null;
/** The number of the last request, whose answer is shown. */
let circuitRequest = 0;

const pathName = ({ from, to, input: into }) => `${componentName(from)} ${componentName(to)} ${into}`;

/** Returns the component of a circuit file. */
const storedComponent = (layer, head, isCross) => ({ kind: head === null || head === undefined ? "feed_forward" : isCross ? "cross" : "decoder", layer, head: head ?? null });
/** Returns the components and paths that the analysis found. */
const analysedComponents = () => (data.circuit?.components ?? []).map((found) => ({ ...found, component: storedComponent(found.layer, found.head, found.cross) }));
const analysedPaths = () => (hasPaths ? data.circuit?.edges ?? [] : []).map((edge) => ({
  from: storedComponent(...edge.from, edge.from_cross), to: storedComponent(...edge.to, edge.to_cross), input: edge.input ?? null, ablated: edge.ablated,
}));
/** Returns the paths found on the input and the paths of the analysis. */
function shownPaths() {
  const found = foundPaths?.key === circuitEffects.key ? foundPaths.paths : [];
  return [...found, ...analysedPaths().filter((path) => !found.some((other) => isSamePath(other, path)))];
}

/** Returns the mean loss of the input with changes, over the targets that count. */
async function lossWith(tokens, source, changes) {
  const losses = await live.losses(tokens, { source, interventions: changes });
  return mean(losses.filter((_, position) => countedTargets(tokens)[position]));
}

/** Ablates each component and path of the circuit on the input, one after another, and draws the effects. */
async function computeCircuit() {
  const request = ++circuitRequest;
  const isCurrent = () => request === circuitRequest && at("components").open && shownAnswer !== null && !isGenerating;
  if (!isCurrent()) return;
  const { tokens, source } = shownAnswer, by = ablateBy;
  const key = JSON.stringify([tokens, source, by]);
  if (circuitEffects.key !== key) circuitEffects = { key, loss: NaN, losses: new Map() };
  const effects = circuitEffects;
  drawCircuit();
  if (tokens.length < 2) return;
  const compute = async (name, changes) => {
    if (effects.losses.has(name) || !isCurrent()) return;
    effects.losses.set(name, await lossWith(tokens, source, changes));
    // Further components follow after the keystrokes that wait.
    if (isCurrent()) requestCircuitDrawing();
  };
  if (Number.isNaN(effects.loss)) effects.loss = await lossWith(tokens, source, null);
  for (const component of [...analysedComponents().map(({ component }) => component), ...allComponents]) await compute(componentName(component), { ablated: [{ ...component, by }] });
  for (const path of shownPaths()) await compute(pathName(path), { paths: [{ ...path, by }] });
}

const requestCircuitDrawing = oncePerFrame(() => drawCircuit());

/** Searches the paths between the components with the largest effects on the input. */
async function findPaths() {
  const button = at("find-paths");
  if (!shownAnswer || !hasTargets() || button.ariaDisabled === "true") return;
  const { tokens, source } = shownAnswer, by = ablateBy, effects = circuitEffects;
  // A disabled button would lose the focus.
  button.ariaDisabled = "true";
  const effect = (component) => Math.abs((effects.losses.get(componentName(component)) ?? effects.loss) - effects.loss);
  const ends = allComponents.length <= MAX_SEARCHED ? allComponents : allComponents.toSorted((a, b) => effect(b) - effect(a)).slice(0, MAX_SEARCHED);
  const candidates = ends.flatMap((from) => ends.filter((to) => orderOf(from) < orderOf(to)).flatMap((to) => inputsOf(to).map((into) => ({ from, to, input: into }))));
  const all = await lossWith(tokens, source, { ablated: allComponents.map((component) => ({ ...component, by })) });
  const found = [];
  for (const [index, path] of candidates.entries()) {
    if (effects !== circuitEffects || !at("components").open) break;
    const loss = await lossWith(tokens, source, { paths: [{ ...path, by }] });
    if (Math.abs(loss - effects.loss) >= MIN_PATH_EFFECT * Math.abs(all - effects.loss)) {
      effects.losses.set(pathName(path), loss);
      found.push(path);
    }
    if (index % 10 === 0) at("circuit-reading").replaceChildren(`${index} of ${candidates.length} paths are ablated …`);
  }
  button.ariaDisabled = "false";
  if (effects !== circuitEffects) return;
  const hasOthers = analysedPaths().some((path) => !found.some((other) => isSamePath(other, path)));
  const note = `${found.length} of ${candidates.length} paths change the loss by at least ${100 * MIN_PATH_EFFECT} % of the change when all components are ablated.${hasOthers ? " Paths that the analysis found on the validation sequences stay on display." : ""}`;
  foundPaths = { key: effects.key, paths: found, note };
  drawCircuit();
}

/** Returns the components and paths on display, with their effects. */
function circuitOnDisplay() {
  const { loss, losses } = circuitEffects;
  const effectOf = (name) => (losses.has(name) ? losses.get(name) - loss : null);
  const analysed = analysedComponents();
  const components = allComponents.map((component) => {
    const found = analysed.find((other) => isSameComponent(other.component, component));
    return { component, effect: effectOf(componentName(component)), isAblated: ablationOf(component) !== null, inCircuit: Boolean(found), kinds: (found?.kinds ?? []).map((kind) => kind.replaceAll("_", " ")), stored: found?.ablated ?? null };
  });
  const isAblated = (path) => input.paths.some((other) => isSamePath(other, path));
  // An ablated path stays on display.
  const others = input.paths.filter((path) => !shownPaths().some((other) => isSamePath(other, path)));
  const known = analysedPaths();
  const storedOf = (path) => known.find((other) => isSamePath(other, path))?.ablated ?? null;
  const paths = [...shownPaths(), ...others].map((path) => ({ ...path, stored: storedOf(path), effect: effectOf(pathName(path)), isAblated: isAblated(path) }));
  const top = (all) => all.reduce((most, { effect }) => Math.max(most, Math.abs(effect ?? 0)), 1e-6);
  const tops = [top(components), top(paths)];
  return { components: components.map((found) => ({ ...found, top: tops[0] })), paths: paths.map((path) => ({ ...path, top: tops[1] })) };
}

function drawCircuit() {
  if (!at("components").open) return;
  const { components, paths } = circuitOnDisplay();
  const svg = at("circuit-drawing");
  const had = svg.contains(document.activeElement);
  drawCircuitInto(svg, components, paths, Math.max(svg.parentElement.clientWidth, 240));
  restoreRoving(svg, circuitElements, had);
  Object.assign(svg.dataset, { loss: Number.isNaN(circuitEffects.loss) ? "" : circuitEffects.loss, by: ablateBy });
  for (const item of /** @type {NodeListOf<HTMLElement>} */ (at("path-legend").querySelectorAll("[data-input]"))) item.hidden = !paths.some(({ input: into }) => String(into) === item.dataset.input);
  readCircuit();
  drawCircuitTables(components, paths);
}

/** The buttons of the drawing: components first, then paths. */
const circuitElements = () => {
  const [boxes, paths] = [".box", ".path"].map((name) => [...at("circuit-drawing").querySelectorAll(name)]);
  return [...boxes, ...paths.sort((a, b) => Number(a.dataset.path) - Number(b.dataset.path))];
};

/** Returns true if a token of the input is predicted from another one, so that the input has a loss. */
const hasTargets = () => shownAnswer === null || shownAnswer.tokens.length > 1;
/** The text in place of an effect that is not computed yet, or does not exist. */
const missingEffect = () => (hasTargets() ? "…" : "–");

/** States what is ablated, and the loss with and without it. */
function readCircuit() {
  const ablated = [...allComponents.filter(ablationOf).map(componentInWords), ...input.paths.map((path) => `the path from ${pathInWords(path)}`)];
  const { loss } = circuitEffects;
  const now = shownAnswer ? mean(shownAnswer.losses) : NaN;
  const line = !hasTargets() ? "There is nothing to predict in an input of one token; type at least two." : Number.isNaN(loss) ? ""
    : ablated.length === 0 ? `Loss on this input: ${fixed(loss, 3)} nats. The number in a box is the change of this loss when only that component is ablated (replaced by ${ABLATIONS[ablateBy]}).`
    : `With ${ablated.join(" and ")} ablated, the loss on this input changes from ${fixed(loss, 3)} to ${fixed(now, 3)} nats; all panels show the changed model.`;
  at("circuit-reading").replaceChildren(line, foundPaths?.key === circuitEffects.key ? ` ${foundPaths.note}` : "");
}

/** Fills the tables, which hold the same numbers as the drawing. */
function drawCircuitTables(components, paths) {
  const { loss } = circuitEffects;
  const analysis = data.circuit && !data.circuit.no_circuit ? data.circuit : null;
  const changeOf = (stored) => (stored === null || stored === undefined ? "–" : signedText(stored - analysis.loss, 3));
  const table = (head, rows) => [
    element("thead", {}, element("tr", {}, ...head.map((text) => element("th", { scope: "col" }, text)))),
    element("tbody", {}, ...rows.map(([name, ...cells]) => element("tr", {}, element("th", { scope: "row" }, name), ...cells.map((cell) => element("td", {}, cell)))))];
  // A circuit of several sequences takes a mean for each position.
  const onData = analysis ? [`change on ${analysis.sequences ?? "the"} validation sequences, ${analysis.sequences === 1 ? "one mean for all positions" : "a mean for each position"}`] : [];
  const onInput = `change on this input, ${ablateBy === "zero" ? "zero" : "one mean for all positions"}`;
  at("means-note").hidden = !analysis || analysis.sequences === 1 || ablateBy === "zero";
  const lossText = (effect) => (effect === null ? missingEffect() : fixed(loss + effect, 3));
  const changed = (effect) => (effect === null ? missingEffect() : signedText(effect, 3));
  // Lines of the drawing can hide each other.
  const toggle = (index, { isAblated }) => element("button", { type: "button", class: "toggle", "aria-pressed": isAblated, ...index }, isAblated ? "restore" : "ablate");
  at("component-table").replaceChildren(...table(["component", "kind", "loss when ablated", onInput, ...onData, "all panels"], components.map((found, index) =>
    [componentInWords(found.component), found.kinds.join(", "), lossText(found.effect), changed(found.effect), ...(analysis ? [changeOf(found.stored)] : []), toggle({ "data-index": index }, found)])));
  at("path-table").hidden = paths.length === 0;
  at("path-table").replaceChildren(...table(["path from", "to", "loss when ablated", onInput, ...onData, "all panels"], paths.map((path, index) =>
    [componentInWords(path.from), `${path.input ? `${INPUT_NAMES[path.input]} of ` : ""}${componentInWords(path.to)}`, lossText(path.effect), changed(path.effect), ...(analysis ? [changeOf(path.stored)] : []), toggle({ "data-path": index }, path)])));
}

/** Ablates or restores the component or path of an element of the drawing. */
async function toggleAblation(target) {
  const { components, paths } = circuitOnDisplay();
  const found = target.dataset.index !== undefined ? components[Number(target.dataset.index)] : paths[Number(target.dataset.path)];
  const by = found.isAblated ? null : ablateBy;
  const shown = keptSelection();
  const done = found.component ? setAblation(found.component, by) : setPathAblation(found, by);
  drawCircuit();
  await done;
  showTyped(shown);
}

function startCircuit() {
  at("components").hidden = false;
  const options = Object.entries(ABLATIONS).filter(([by]) => by !== "stored" || hasStoredMeans);
  for (const id of ["ablate-by", "ablate-head-by"]) {
    at(id).append(...options.map(([by, text]) => element("option", { value: by }, text)));
    at(id).addEventListener("change", (event) => {
      ablateBy = event.target.value;
      at("ablate-by").value = ablateBy;
      drawIntervene();
      computeCircuit();
    });
  }
  at("ablate-by").value = ablateBy;
  for (const id of ["find-paths", "path-legend"]) at(id).hidden = !hasPaths;
  at("find-paths").addEventListener("click", findPaths);
  for (const id of ["component-table", "path-table"]) at(id).addEventListener("click", (event) => event.target.closest(".toggle") && toggleAblation(event.target.closest(".toggle")));
  at("components").addEventListener("toggle", computeCircuit);
  makeRoving(at("circuit-drawing"), circuitElements, toggleAblation);
  answerViews.push(computeCircuit);
}
