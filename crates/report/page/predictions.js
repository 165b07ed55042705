// The model's predictions along a sequence, each given the true preceding tokens.

/** Returns the outcome of a prediction. Only a task with a known rule has undetermined targets. */
function outcome(target, [likeliest]) {
  if (target === null) return "open";
  if (target.role === "undetermined") return "unknowable";
  return likeliest?.id === target.id ? "hit" : "miss";
}

const OUTCOMES = { hit: "right", miss: "wrong", unknowable: "undetermined", open: "nothing is known to follow" };

/** Summarises the outcomes of a sequence in words. */
function counted({ targets }, outcomes) {
  const count = (kind) => outcomes.filter((outcome) => outcome === kind).length;
  const [right, judged, unknowable] = [count("hit"), count("hit") + count("miss"), count("unknowable")];
  const known = targets.filter((target) => target !== null);
  if (known.length > 0 && known.every(({ role }) => role === "unknown")) {
    const mean = known.reduce((sum, { probability }) => sum + probability, 0) / known.length;
    return `${right} of ${judged} tokens are right; the true token is given a probability of ${fixed(mean, 3)} in the mean`;
  }
  const parts = [];
  if (judged > 0) parts.push(`${right} of ${judged} determined targets are right`);
  if (unknowable > 0) parts.push(`${unknowable} undetermined`);
  return parts.join("; ");
}

function drawPredictions() {
  const reading = data.readings[state.sample];
  const { source, targets, likeliest } = reading;
  at("source").hidden = !source;
  at("source").replaceChildren("The encoder reads ", ...(source ?? []).flatMap((token) => [tokenElement(token), " "]));
  const outcomes = targets.map((target, position) => outcome(target, likeliest[position]));
  at("predictions").replaceChildren(...targets.map((target, position) => {
    const [truth, predicted] = [target?.text, likeliest[position][0]?.token];
    const cell = element("span", { role: "option", id: `prediction-${position}`, class: outcomes[position], "data-index": position });
    const spoken = (text) => element("span", { class: "spoken" }, text);
    cell.append(spoken(`position ${position}, true `), truth === undefined ? "–" : tokenElement(truth));
    cell.append(spoken(", predicted "), predicted === undefined ? "–" : tokenElement(predicted, { class: "predicted" }));
    return cell;
  }));
  at("predictions-count").replaceChildren(counted(reading, outcomes));
  at("predictions-legend").replaceChildren(
    element("li", {}, "above the true token, below the likeliest one"),
    ...Object.keys(OUTCOMES).filter((kind) => outcomes.includes(kind)).map((kind) =>
      element("li", {}, element("i", { class: `square ${kind}` }), OUTCOMES[kind])));
}

/** Shows the most likely tokens at the current position. */
function readPrediction() {
  const { inputs, targets, likeliest } = data.readings[state.sample];
  const box = at("prediction");
  box.hidden = targets.length === 0;
  if (targets.length === 0) return;
  const position = Math.min(state.position, targets.length - 1);
  const [target, probable, after] = [targets[position], likeliest[position], inputs[position]];
  Object.assign(box.dataset, {
    sample: state.sample, position, after, truth: target?.text ?? "", truthProbability: target?.probability ?? "",
    predicted: probable[0]?.token ?? "", probability: probable[0]?.probability ?? "",
  });
  const line = ["after ", tokenElement(after), ` at ${position}`];
  if (target !== null) line.push(" follows ", tokenElement(target.text), `, which the model ${target.was === undefined ? "gave" : `gave ${fixed(target.was, 4)} before the changes, and now gives`} ${fixed(target.probability, 4)}`);
  line.push("; its likeliest tokens:");
  box.querySelector(".reading").replaceChildren(...line);
  at("probabilities").replaceChildren(...probable.map(({ token, probability, was }) =>
    barRow([tokenElement(token)], probability, fixed(probability, 4) + (was === undefined ? "" : ` (was ${fixed(was, 4)})`), token === target?.text ? { class: "true" } : {})));
  const list = at("predictions");
  for (const cell of list.children) cell.setAttribute("aria-selected", Number(cell.dataset.index) === position);
  list.setAttribute("aria-activedescendant", `prediction-${position}`);
}

function startPredictions() {
  choosable(at("predictions"), () => state.position, (position) => update({ position }));
}
