// Explanations of the panels: terms with their definitions, and the switch that hides the explanatory text.

/** The definitions of the page's terms, worded for an introduction to attention. */
const TERMS = {
  token: "A piece of the input that the model reads at once: a character, a word, a number or a few letters.",
  query: "The position that looks: its row says how much it takes from each position.",
  key: "A position that is looked at: its column says who takes from it.",
  weight: "The share of a query's attention that a key gets. The weights of a query sum to 1.",
  head: "One of several attentions that a layer computes side by side, each with weights of its own.",
  layer: "One step of the model. Each layer reads what the layers before it wrote.",
  probability: "How sure the model is of a next token, from 0 to 1. Over all tokens it sums to 1.",
  loss: "The surprise at the true next tokens: minus the logarithm of their probability, in nats, in the mean. Lower is better.",
  temperature: "Divides the logits: below 1 the likely becomes likelier, above 1 less so; 0 always takes the likeliest.",
  "top-k": "Draws from the k likeliest tokens alone.",
  "top-p": "Draws from the likeliest tokens whose probabilities together reach p.",
  ablation: "Leaving a head out, and seeing how much the loss rises: what the prediction owes to it.",
  induction: "Looking at what followed the same token when it came before: how a model continues a pattern that it sees.",
  pattern: "The attention weights of a head on one sequence.",
  floor: "The loss of the best predictor there can be: what is random cannot be foreseen.",
};

/** Makes each `[data-term]` show its definition on hover, focus and click. */
function startTerms() {
  const box = at("definition");
  let shown = null;
  const hide = () => {
    shown?.removeAttribute("aria-describedby");
    shown = null;
    box.hidden = true;
  };
  const show = (term) => {
    hide();
    shown = term;
    box.replaceChildren(TERMS[term.dataset.term]);
    term.setAttribute("aria-describedby", "definition");
    box.hidden = false;
    const { left, bottom } = term.getBoundingClientRect();
    const room = document.documentElement.clientWidth - box.offsetWidth - 8;
    box.style.left = `${Math.max(Math.min(left, room), 8) + scrollX}px`;
    box.style.top = `${bottom + 4 + scrollY}px`;
  };
  for (const term of document.querySelectorAll("[data-term]")) {
    term.addEventListener("pointerenter", () => show(term));
    term.addEventListener("pointerleave", () => shown === term && document.activeElement !== term && hide());
    term.addEventListener("focus", () => show(term));
    term.addEventListener("blur", hide);
    term.addEventListener("click", () => show(term));
  }
  document.addEventListener("keydown", (event) => event.key === "Escape" && hide());
}

function startExplain() {
  startTerms();
  at("explanations").addEventListener("change", (event) => {
    document.documentElement.dataset.explain = event.target.checked ? "on" : "off";
  });
}
