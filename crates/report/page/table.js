// A table with sortable columns and selectable rows. A column is `{ name, of, text, digits }`: `of` returns the value
// of a row; `text` formats it, or `digits` is its number of decimals.

/** Returns true if a value is a finite number. */
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** Formats a value of a column. */
function cellText(column, value) {
  if (value === null || value === undefined) return "–";
  if (!isNumber(value)) return String(value);
  if (column.text) return column.text(value);
  return column.digits === undefined ? significant(value) : fixed(value, column.digits);
}

/** Returns the values of columns as rows, below their names. */
const valueRows = (columns, rows) => [columns.map(({ name }) => name), ...rows.map((row) => columns.map((column) => column.of(row)))];

/** Returns rows sorted by a column: ascending, numbers come before text; missing values are last in both directions. */
function sortedBy(rows, column, descending) {
  const missing = (value) => value === null || value === undefined;
  const order = (a, b) => {
    const [left, right] = [column.of(a), column.of(b)];
    if (missing(left) || missing(right)) return Number(missing(left)) - Number(missing(right));
    const textOrder = isNumber(left) === isNumber(right) ? String(left).localeCompare(String(right)) : Number(isNumber(right)) - Number(isNumber(left));
    const ascendingOrder = isNumber(left) && isNumber(right) ? left - right : textOrder;
    return descending ? -ascendingOrder : ascendingOrder;
  };
  return [...rows].sort(order);
}

/**
 * Fills a table. `sort` is null or `{ name, descending }`, with the name of the column to sort by. `id` returns the id
 * of a row, and `page` the address that its first cell links to, or undefined.
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
      const text = cellText(column, column.of(row));
      if (i > 0) return element("td", {}, text);
      const address = page(row);
      return element("th", { scope: "row" }, address ? element("a", { href: address }, text) : text);
    });
    return element("tr", { "data-row": id(row), tabindex: 0 }, ...cells);
  });
  table.replaceChildren(element("thead", {}, head), element("tbody", {}, ...body));
}

/** Marks the chosen row. */
function markRow(table, chosen) {
  for (const row of table.querySelectorAll("tbody tr")) {
    row.classList.toggle("chosen", row.dataset.row === String(chosen));
    row.setAttribute("aria-selected", row.dataset.row === String(chosen));
  }
}

/**
 * Calls `sort` with the name of a clicked column, whose heading keeps the focus, and `choose` with the id of a chosen
 * row.
 */
function followTable(table, sort, choose) {
  const chooseRow = (event) => {
    const row = event.target.closest("tr[data-row]");
    if (row) choose(row.dataset.row);
  };
  table.addEventListener("click", (event) => {
    const button = event.target.closest("button[data-column]");
    if (!button) return chooseRow(event);
    const name = button.dataset.column;
    sort(name);
    table.querySelector(`button[data-column="${CSS.escape(name)}"]`).focus();
  });
  table.addEventListener("keydown", (event) => event.key === "Enter" && !event.target.closest("button, a") && chooseRow(event));
}
