// The model's predictions along a sequence, each given the true preceding tokens.

/** Returns the outcome of a prediction. Only tasks with a known rule have undetermined targets. */
function outcome(target, [most_likely]) {
  if (target === null) return "open";
  if (target.role === "undetermined") return "unknowable";
  return most_likely?.id === target.id ? "hit" : "miss";
}

const OUTCOMES = { hit: "correct", miss: "wrong", unknowable: "undetermined", open: "not a target" };

/** Summarises the outcomes of a sequence. */
function outcomeSummary({ targets }, outcomes) {
  const count = (kind) => outcomes.filter((outcome) => outcome === kind).length;
  const [right, judged, unknowable] = [count("hit"), count("hit") + count("miss"), count("unknowable")];
  const known = targets.filter((target) => target !== null);
  if (known.length > 0 && known.every(({ role }) => role === "unknown")) {
    const mean = known.reduce((sum, { probability }) => sum + probability, 0) / known.length;
    return `${right} of ${judged} tokens correct; mean probability of the true token ${fixed(mean, 3)}`;
  }
  const parts = [];
  if (judged > 0) parts.push(`${right} of ${judged} determined targets correct`);
  if (unknowable > 0) parts.push(`${unknowable} undetermined`);
  return parts.join("; ");
}

function drawPredictions() {
  const reading = data.readings[state.sample];
  const { source, targets, most_likely } = reading;
  at("source").hidden = !source;
  at("source").replaceChildren("Encoder input: ", ...(source ?? []).flatMap((token) => [tokenElement(token), " "]));
  const outcomes = targets.map((target, position) => outcome(target, most_likely[position]));
  at("predictions").replaceChildren(...targets.map((target, position) => {
    const [truth, predicted] = [target?.text, most_likely[position][0]?.token];
    const cell = element("span", { role: "option", id: `prediction-${position}`, class: outcomes[position], "data-index": position });
    const spoken = (text) => element("span", { class: "spoken" }, text);
    cell.append(spoken(`position ${position}, true `), truth === undefined ? "–" : tokenElement(truth));
    cell.append(spoken(", predicted "), predicted === undefined ? "–" : tokenElement(predicted, { class: "predicted" }));
    return cell;
  }));
  at("predictions-count").replaceChildren(outcomeSummary(reading, outcomes));
  at("predictions-legend").replaceChildren(
    element("li", {}, "top: true token; bottom: most likely token"),
    ...Object.keys(OUTCOMES).filter((kind) => outcomes.includes(kind)).map((kind) =>
      element("li", {}, element("i", { class: `square ${kind}` }), OUTCOMES[kind])));
}

/** Shows the most likely tokens at the current position. */
function readPrediction() {
  const { inputs, targets, most_likely } = data.readings[state.sample];
  const box = at("prediction");
  box.hidden = targets.length === 0;
  if (targets.length === 0) return;
  const position = Math.min(state.peeked ?? state.position, targets.length - 1);
  const [target, probable, after] = [targets[position], most_likely[position], inputs[position]];
  Object.assign(box.dataset, {
    sample: state.sample, position, after, truth: target?.text ?? "", truthProbability: target?.probability ?? "",
    predicted: probable[0]?.token ?? "", probability: probable[0]?.probability ?? "",
  });
  const line = ["after ", tokenElement(after), ` at position ${position}`];
  if (target !== null) line.push(": true token ", tokenElement(target.text), `, probability ${fixed(target.probability, 4)}${target.probabilityBefore === undefined ? "" : ` (was ${fixed(target.probabilityBefore, 4)})`}`);
  line.push("; most likely tokens:");
  box.querySelector(".reading").replaceChildren(...line);
  at("probabilities").replaceChildren(...probable.map(({ token, probability, probabilityBefore: before }) =>
    barRow([tokenElement(token)], probability, fixed(probability, 4) + (before === undefined ? "" : ` (was ${fixed(before, 4)})`), token === target?.text ? { class: "true" } : {})));
  const list = at("predictions");
  for (const cell of list.children) cell.setAttribute("aria-selected", Number(cell.dataset.index) === position);
  list.setAttribute("aria-activedescendant", `prediction-${position}`);
}

function startPredictions() {
  makeSelectable(at("predictions"), () => state.position, (position) => update({ position, peeked: null }), (peeked) => update({ peeked }, { isPreview: true }), () => update({ peeked: null }, { isPreview: true }));
}
