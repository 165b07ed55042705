// What the model predicted along a sequence, each time after the true tokens.

/** How a prediction came out. Only a task whose rule is known says what cannot be known. */
function outcome({ truth, determined, probable }) {
  if (truth === null) return "open";
  if (determined === false) return "unknowable";
  return probable.length > 0 && probable[0].token === truth ? "hit" : "miss";
}

const OUTCOMES = { hit: "right", miss: "wrong", unknowable: "cannot be known", open: "nothing is known to follow" };

/** What came out of all predictions of a sequence, in words. */
function counted(predictions) {
  const outcomes = predictions.map(outcome);
  const count = (kind) => outcomes.filter((outcome) => outcome === kind).length;
  const [right, judged, unknowable] = [count("hit"), count("hit") + count("miss"), count("unknowable")];
  const parts = [];
  if (predictions.some(({ determined }) => determined !== null)) {
    if (judged > 0) parts.push(`${right} of the ${judged} tokens that can be known are right`);
    if (unknowable > 0) parts.push(`${unknowable} cannot be known`);
  } else if (judged > 0) {
    const given = predictions.filter(({ truth_probability }) => truth_probability !== null).map(({ truth_probability }) => truth_probability);
    parts.push(`${right} of ${judged} tokens are right`);
    parts.push(`the true token is given a probability of ${fixed(given.reduce((sum, p) => sum + p, 0) / given.length, 3)} in the mean`);
  }
  return parts.join("; ");
}

function drawPredictions() {
  const { predictions, source } = data.samples[state.sample];
  at("source").hidden = !source;
  at("source").replaceChildren("The encoder reads ", ...(source ?? []).flatMap((token) => [tokenElement(token), " "]));
  const outcomes = predictions.map(outcome);
  at("predictions").replaceChildren(...predictions.map(({ truth, probable }, position) => {
    const predicted = probable.length > 0 ? probable[0].token : null;
    const cell = element("span", { role: "option", id: `prediction-${position}`, class: outcomes[position], "data-index": position });
    cell.append(truth === null ? "–" : tokenElement(truth));
    cell.append(predicted === null ? "–" : tokenElement(predicted, { class: "predicted" }));
    const said = (token, none) => (token === null ? none : isolated(short(token, 60)));
    cell.setAttribute("aria-label", `position ${position}, true ${said(truth, "unknown")}, predicted ${said(predicted, "nothing")}`);
    return cell;
  }));
  at("predictions-count").replaceChildren(counted(predictions));
  at("predictions-legend").replaceChildren(
    element("li", {}, "above the true token, below the likeliest one"),
    ...Object.keys(OUTCOMES).filter((kind) => outcomes.includes(kind)).map((kind) => {
      const square = element("i", { class: `square ${kind}` });
      return element("li", {}, square, OUTCOMES[kind]);
    }));
}

/** Tells the likeliest tokens at the current position. */
function readPrediction() {
  const { predictions } = data.samples[state.sample];
  const box = at("prediction");
  box.hidden = predictions.length === 0;
  if (predictions.length === 0) return;
  const position = Math.min(state.position, predictions.length - 1);
  const prediction = predictions[position];
  const { truth } = prediction;
  const [likeliest] = prediction.probable;
  const after = data.samples[state.sample].inputs[position];
  Object.assign(box.dataset, {
    sample: state.sample, position, after, truth: truth ?? "", truthProbability: prediction.truth_probability ?? "",
    predicted: likeliest?.token ?? "", probability: likeliest?.probability ?? "",
  });
  const line = ["after ", tokenElement(after), ` at ${position}`];
  if (truth !== null) line.push(" follows ", tokenElement(truth));
  if (truth !== null && prediction.truth_probability !== null) line.push(`, which the model gave ${fixed(prediction.truth_probability, 4)}`);
  line.push("; its likeliest tokens:");
  box.querySelector(".reading").replaceChildren(...line);
  at("probabilities").replaceChildren(...prediction.probable.map(({ token, probability }) =>
    barRow([tokenElement(token)], probability, fixed(probability, 4), token === truth ? { class: "true" } : {})));
  const list = at("predictions");
  for (const cell of list.children) cell.setAttribute("aria-selected", Number(cell.dataset.index) === position);
  list.setAttribute("aria-activedescendant", `prediction-${position}`);
}

function startPredictions() {
  choosable(at("predictions"), () => state.position, (position) => update({ position }));
}
