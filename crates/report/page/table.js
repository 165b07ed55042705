// A table that is sorted by a click on a column's name, and whose rows are chosen. A column is `{ name, of, text, digits }`:
// its value of a row, and how that is written.

/** Whether a value is a number that can be drawn. */
const known = (value) => typeof value === "number" && Number.isFinite(value);

/** A value of a column as text. */
function shown(column, value) {
  if (value === null || value === undefined) return "–";
  if (!known(value)) return String(value);
  if (column.text) return column.text(value);
  return column.digits === undefined ? significant(value) : fixed(value, column.digits);
}

/** Rows in the order of a column: numbers before words, and what is not there last, whichever way the rest is sorted. */
function sortedBy(rows, column, descending) {
  const missing = (value) => value === null || value === undefined;
  const order = (a, b) => {
    const [left, right] = [column.of(a), column.of(b)];
    if (missing(left) || missing(right)) return Number(missing(left)) - Number(missing(right));
    const words = known(left) === known(right) ? String(left).localeCompare(String(right)) : Number(known(right)) - Number(known(left));
    const rising = known(left) && known(right) ? left - right : words;
    return descending ? -rising : rising;
  };
  return [...rows].sort(order);
}

/**
 * Fills a table. `sort` is `{ name, descending }` of the column that sorts, or null; `id` names a row, and `page` is the
 * address of what its first cell leads to, or nothing.
 */
function fillTable(table, columns, rows, sort, id, page = (row) => undefined) {
  const head = element("tr");
  for (const column of columns) {
    const order = sort?.name === column.name ? (sort.descending ? "descending" : "ascending") : "none";
    const button = element("button", { type: "button", "data-column": column.name }, column.name);
    head.append(element("th", { scope: "col", "aria-sort": order }, button));
  }
  const column = columns.find((column) => column.name === sort?.name);
  const body = (column ? sortedBy(rows, column, sort.descending) : rows).map((row) => {
    const cells = columns.map((column, i) => {
      const text = shown(column, column.of(row));
      if (i > 0) return element("td", {}, text);
      const address = page(row);
      return element("th", { scope: "row" }, address ? element("a", { href: address }, text) : text);
    });
    return element("tr", { "data-row": id(row), tabindex: 0 }, ...cells);
  });
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
}

/** Marks the row that is chosen. */
function markRow(table, chosen) {
  for (const row of table.querySelectorAll("tbody tr")) {
    row.classList.toggle("chosen", row.dataset.row === String(chosen));
    row.setAttribute("aria-selected", row.dataset.row === String(chosen));
  }
}

/** Tells `sort` the name of a column that is clicked, which keeps the focus, and `choose` the row. */
function followTable(table, sort, choose) {
  const chosen = (event) => {
    const row = event.target.closest("tr[data-row]");
    if (row) choose(row.dataset.row);
  };
  table.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-column]");
    if (!button) return chosen(event);
    const name = button.dataset.column;
    sort(name);
    table.querySelector(`button[data-column="${CSS.escape(name)}"]`).focus();
  });
  table.addEventListener("keydown", (event) => event.key === "Enter" && !event.target.closest("button, a") && chosen(event));
}
