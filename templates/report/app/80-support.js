// The support table of a compiler: a row for each operator, a column for each type; a cell opens its case.
const STATE_TONES = { served: "pass", partly: "warn", "by-aten": "fell", "fell-back": "fell", right: "pass", wrong: "bad", raised: "odd" };
const MOST_ROWS = 3000;

T.supportView = (state) => {
  const view = T.el("div", { class: "view" }, T.el("p", { class: "dim" }, "Loading …"));
  T.keys = { Escape: () => T.go({ view: "summary" }) };
  T.part("support").then((support) => {
    if (view.isConnected) T.clear(view).append(T.el("div", { class: "wide" }, supportTable(state, support)));
  }).catch((error) => view.append(T.el("p", { class: "failed" }, error.message)));
  return { nodes: [view], ready: () => {} };
};

const supportTable = (state, support) => {
  const cells = support.cells.map(([backend, suite, operator, dtype, word, ran, id, reason]) => ({ backend, suite, operator, dtype, state: word, ran, id, reason }));
  const order = support.states.map(([word]) => word), meanings = Object.fromEntries(support.states);
  const words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const passes = (cell, but) => ["state", "backend", "dtype"].every((key) => key === but || !state[key].length || state[key].includes(cell[key]))
    && words.every((word) => `${cell.operator} ${cell.ran} ${cell.reason}`.toLowerCase().includes(word));
  const shown = cells.filter((cell) => passes(cell, ""));
  const filters = ["state", "backend", "dtype"].map((key) => {
    const known = [...new Set(cells.map((cell) => cell[key]))];
    if (key === "state") known.sort((a, b) => order.indexOf(a) - order.indexOf(b));
    if (known.length < 2 && !state[key].length) return null;
    return T.el("div", { class: "legend" }, known.map((value) => {
      const isOn = state[key].includes(value), count = cells.filter((cell) => cell[key] === value && passes(cell, key)).length;
      const rest = isOn ? state[key].filter((one) => one !== value) : [...state[key], value];
      const chip = T.el("span", { class: `chip t-${STATE_TONES[value] || "quiet"}` }, value);
      return T.to({ ...state, [key]: rest }, { role: "checkbox", "aria-checked": String(isOn), title: meanings[value] || key }, isOn ? "✓ " : "", chip, ` ${T.number(count)}`);
    }));
  });
  const tables = new Map();
  for (const cell of shown) {
    const name = `${cell.backend}: ${cell.suite}`;
    if (!tables.has(name)) tables.set(name, []);
    tables.get(name).push(cell);
  }
  const sections = [...tables].map(([name, own]) => T.el("section", {}, T.el("h2", {}, name), supportGrid(state, own, order)));
  return [T.el("h1", { tabindex: "-1" }, "Support table"), filters, T.statusbar(state, shown.length), sections];
};

const supportGrid = (state, cells, order) => {
  const types = [...new Set(cells.map((cell) => cell.dtype))], rows = new Map();
  for (const cell of cells) {
    if (!rows.has(cell.operator)) rows.set(cell.operator, new Map());
    rows.get(cell.operator).set(cell.dtype, cell);
  }
  const down = state.sort.startsWith("-"), by = down ? state.sort.slice(1) : state.sort, sign = down ? -1 : 1;
  const rank = (row) => (row.has(by) ? order.indexOf(row.get(by).state) : order.length);
  const entries = [...rows];
  if (by === "operator") entries.sort(([a], [b]) => sign * (a < b ? -1 : 1));
  else if (types.includes(by)) entries.sort(([, a], [, b]) => sign * (rank(a) - rank(b)));
  const head = (name) => T.el("th", { scope: "col", "aria-sort": by !== name ? null : down ? "descending" : "ascending" },
    T.to({ ...state, sort: by === name && !down ? `-${name}` : name }, { title: `sort by ${name}` }, name, by !== name ? "" : down ? " ▼" : " ▲"));
  const cellNode = (cell) => cell && [T.to({ view: "case", id: cell.id }, { title: cell.reason || cell.id }, T.el("span", { class: `chip t-${STATE_TONES[cell.state] || "quiet"}` }, cell.state)), cell.ran && T.el("span", { class: "mono dim" }, ` ${cell.ran}`)];
  const body = entries.slice(0, MOST_ROWS).map(([operator, row]) => T.el("tr", {}, T.el("th", { scope: "row", class: "mono" }, operator), types.map((dtype) => T.el("td", {}, cellNode(row.get(dtype))))));
  const more = entries.length > MOST_ROWS ? T.el("p", { class: "dim" }, `and ${T.count(entries.length - MOST_ROWS, "more operator")}: filter them`) : null;
  return [T.el("div", { class: "card" }, T.el("table", { class: "grid" }, T.el("thead", {}, T.el("tr", {}, head("operator"), types.map(head))), T.el("tbody", {}, body))), more];
};
