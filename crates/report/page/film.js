// The film of the run: the model's output for one sequence at several training steps. Each step is added as a sequence
// of the page.

/** The index of the film's first sequence. */
const FIRST_FILM_SAMPLE = data.readings.length;
for (const { reading, maps: packed } of data.film ?? []) {
  data.readings.push(reading);
  data.maps.push(packed);
}
// JSON encodes NaN as null.
for (const { targets, most_likely } of data.readings) {
  for (const token of [...targets, ...most_likely.flat()]) if (token !== null) token.probability ??= NaN;
}
/** The frames of the film, ordered by step; the last one has the weights that the page shows. */
const frames = (data.film ?? []).map(({ step }, number) => ({ sample: FIRST_FILM_SAMPLE + number, name: `step ${integer(step)}`, step }));
if (frames.length > 0) frames.push({ sample: data.sample, name: "end", step: null });

/** Returns the frame of an earlier step that a sample shows; undefined for other samples. */
const earlierFrame = (sample) => frames.find((frame) => frame.sample === sample && frame.step !== null);

/** Returns the mean loss of a sequence of the page over its targets; NaN without targets. */
function readingLoss(sample) {
  const targets = data.readings[sample].targets.filter((target) => target !== null);
  return targets.reduce((sum, { probability }) => sum - Math.log(Math.max(probability, 1e-30)), 0) / targets.length;
}

/** Draws the maps of the chosen head, with one colour scale for all frames. */
function drawFilm() {
  if (frames.length === 0) return;
  const kind = frames.every(({ sample }) => maps(sample, state.kind).bin > 0) ? state.kind : "decoder";
  const all = frames.map(({ sample }) => maps(sample, kind));
  const available = all.filter(({ bin }) => bin > 0);
  const top = Math.max(...available.map((shown) => scaleEnd(state.layer, state.head, shown)));
  if (state.scale !== "head") for (const shown of available) shown.top = top;
  at("film-head").replaceChildren(`${componentInWords(state)}, ${isolated(data.readings[data.sample].sequence)}`);
  at("film-strip").replaceChildren(...frames.map(({ sample, name }, number) => {
    const button = element("button", { type: "button", "data-frame": number, "data-sample": sample });
    if (all[number].bin > 0) button.append(weightImage(state.layer, state.head, all[number], top));
    button.append(name);
    button.addEventListener("click", () => showFrame(number));
    return button;
  }));
  markFilm();
}

/**
 * Returns the numbers of the frames around a phase: the last one at its start or earlier and the first one at its end or
 * later; -1 if there is none.
 */
function framesAround({ steps: [from, until] }) {
  const stepOf = ({ step }) => step ?? Infinity;
  return [frames.findLastIndex((frame) => stepOf(frame) <= from), frames.findIndex((frame) => stepOf(frame) >= until)];
}

/** Lists the phases of the training, with the maps before and after each of the head that changed most. */
function drawChapters() {
  at("chapters").hidden = data.chapters.length === 0;
  at("chapter-list").replaceChildren(...data.chapters.map((chapter, index) => {
    const changed = chapter.head ? { kind: "decoder", layer: chapter.head[0], head: chapter.head[1] } : {};
    const buttons = framesAround(chapter).map((number, end) => {
      if (number < 0) return "";
      const button = element("button", { type: "button", "data-frame": number }, `${end === 0 ? "before" : "after"} (${frames[number].name})`);
      button.addEventListener("click", () => showFrame(number, changed));
      return button;
    });
    const [from, until] = chapter.steps.map(integer);
    const name = `Phase ${index + 1}: steps ${from} to ${until}${chapter.head ? ` (${layerHead(...chapter.head)})` : ""}`;
    const row = element("div", { class: "row" }, element("b", {}, name), element("span", { class: "controls" }, ...buttons));
    const text = chapter.sentences.length === 0 ? "" : element("details", {}, element("summary", {}, "What happened"), ...chapter.sentences.map((sentence) => element("p", {}, sentence)));
    return element("li", {}, row, text);
  }));
}

/** Shows a frame of the film in all panels, of the given head or the selected one. */
function showFrame(number, head = {}) {
  const { sample, step } = frames[number];
  update({ sample, step, ...head });
}

/** Marks the current frame, and the panels that show the end of training meanwhile. */
function markFilm() {
  const number = frames.findIndex(({ sample }) => sample === state.sample);
  for (const button of at("film-strip").children) button.setAttribute("aria-pressed", Number(button.dataset.frame) === number);
  if (number >= 0) at("film-step").value = number;
  for (const button of at("chapter-list").querySelectorAll("[data-frame]")) button.setAttribute("aria-pressed", Number(button.dataset.frame) === number);
  at("film-step").setAttribute("aria-valuetext", frames[Math.max(number, 0)]?.name ?? "");
  const { name, step = null } = frames[number] ?? {};
  for (const note of document.querySelectorAll(".end-note")) {
    note.toggleAttribute("hidden", step === null);
    if (step !== null) note.replaceChildren(`The replay shows step ${integer(step)}. This panel shows the model at the end of training, on your input.`);
  }
  at("film-reading").dataset.frame = number;
  at("film-reading").replaceChildren(name === undefined ? "" : name === "end" ? "the weights of this page" : name);
}

/** The timer of the film while it plays; null otherwise. */
let playTimer = null;

/** Plays the film, starting over if the last frame is shown; stops the film if it is playing. */
function play() {
  const stop = () => {
    clearInterval(playTimer);
    playTimer = null;
    at("film-play").setAttribute("aria-pressed", "false");
    at("film-play").replaceChildren("Play");
  };
  if (playTimer !== null) return stop();
  const current = () => frames.findIndex(({ sample }) => sample === state.sample);
  if (current() < 0 || current() === frames.length - 1) showFrame(0);
  at("film-play").setAttribute("aria-pressed", "true");
  at("film-play").replaceChildren("Stop");
  playTimer = setInterval(() => {
    const next = current() + 1;
    // Another sequence was chosen meanwhile, or the film has ended.
    if (next === 0 || next === frames.length) return stop();
    showFrame(next);
  }, 700);
}

function startFilm() {
  at("film").hidden = frames.length === 0;
  if (frames.length === 0) return;
  drawChapters();
  at("film-step").max = frames.length - 1;
  at("film-step").value = frames.length - 1;
  at("film-step").addEventListener("input", (event) => showFrame(Number(event.target.value)));
  at("film-play").addEventListener("click", play);
}
