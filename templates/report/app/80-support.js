// The support table of a compiler: a row for each operator, a column for each type, or one for the calls; a cell opens its case.
const STATE_TONES = { served: "pass", "some-samples": "warn", partly: "warn", "by-aten": "fell", "fell-back": "fell", right: "pass", wrong: "bad", raised: "odd" };
const FACETS = { state: "", backend: "backend", dtype: "type" };

T.supportView = (state) => {
  T.keys = { Escape: () => T.go({ view: "summary" }) };
  if (D.cells) return tableView(state);
  const view = T.el("div", { class: "view" }, T.el("p", { class: "dim" }, "Loading …"));
  T.part("support").then((support) => {
    D.cells = cellsOf(support);
    D.states = support.states;
    D.compilers = Object.entries(support.compilers).map(([name, text]) => `${name}: ${text}`).join(", ");
    if (view.isConnected) T.render();
  }).catch((error) => view.append(T.el("p", { class: "failed" }, error.message)));
  return { nodes: [view], ready: () => {} };
};

const cellsOf = (support) => support.cells.map(([table, operator, dtype, kind, ran, i]) => {
  const [backend, suite] = support.tables[table], reason = D.reasons[D.reason[i]][1];
  return { backend, table: `${backend}: ${suite}`, operator, dtype, kind, state: support.states[kind][0], ran, i, reason, text: `${operator} ${ran} ${reason}`.toLowerCase() };
});

const tableView = (state) => {
  const { shown, counts } = filteredCells(state), used = new Set(shown.map((cell) => cell.dtype));
  const types = [...used].sort();
  const rows = rowsOf(state, shown, types), longest = Math.max(...rows.map((row) => (row.operator || "").length));
  const columns = `minmax(150px, ${Math.max(300, Math.min(8 * longest, 560))}px) repeat(${types.length || 1}, minmax(112px, 1fr))`;
  const [by, isDown] = sortOf(state);
  const heads = ["operator", ...types].map((name) => T.el("span", { role: "columnheader", "aria-sort": by !== name ? null : isDown ? "descending" : "ascending" },
    T.el("button", { class: "link", title: `sort by ${name}`, "data-mark": `sort ${name}`, onclick: () => T.go({ ...state, sort: by === name && !isDown ? `-${name}` : name }) }, name, by !== name ? "" : isDown ? " ▼" : " ▲")));
  const list = T.virtual({
    count: rows.length, height: 30, label: "Operators by type", role: "table", row: (at) => rowNode(state, rows[at], at, columns, types),
    above: [filters(state, counts), T.el("div", { class: "srow head", role: "row", style: { gridTemplateColumns: columns } }, heads)],
  });
  const choose = (at, column) => { list.show(at); list.node(at).querySelector(`[data-mark="${at} ${column}"]`).focus({ preventScroll: true }); };
  const move = (down, right) => {
    const mark = /^(\d+) (\d+)$/.exec(document.activeElement.dataset.mark || "") || [0, -1, 0];
    let at = Number(mark[1]), column = Number(mark[2]);
    do { at += at < 0 ? 1 : down; column += right; } while (rows[at] && types[column] && !(rows[at].cells && rows[at].cells.has(types[column])));
    if (rows[at] && types[column]) choose(at, column);
  };
  Object.assign(T.keys, { ArrowDown: () => move(1, 0), ArrowUp: () => move(-1, 0), ArrowRight: () => move(0, 1), ArrowLeft: () => move(0, -1) });
  const help = T.el("span", { class: "dim keys" }, T.el("kbd", {}, "←↑↓→"), " move, ", T.el("kbd", {}, "Enter"), " open, ", T.el("kbd", {}, "/"), " search");
  const view = T.el("div", { class: "view flush" }, T.statusbar(state, [shown.length, D.cells.length, "cell"], help), list.box);
  const ready = () => {
    list.draw();
    const cell = D.cells.find((cell) => cell.i === T.opened), at = cell ? rows.findIndex((row) => row.cells && row.cells.get(cell.dtype) === cell) : -1;
    if (at >= 0) choose(at, types.indexOf(cell.dtype));
    T.opened = -1;
  };
  return { nodes: [view], ready };
};

// Returns the cells that pass all filters, and for each value of a filter how many pass the others.
const filteredCells = (state) => {
  const keys = Object.keys(FACETS), words = state.q.toLowerCase().split(/\s+/).filter(Boolean);
  const counts = Object.fromEntries(keys.map((key) => [key, new Map(D.cells.map((cell) => cell[key]).sort().map((value) => [value, 0]))])), shown = [];
  for (const cell of D.cells) {
    if (words.some((word) => !cell.text.includes(word))) continue;
    const refused = keys.filter((key) => state[key].length && !state[key].includes(cell[key]));
    if (!refused.length) shown.push(cell);
    for (const key of keys) if (refused.every((one) => one === key)) counts[key].set(cell[key], counts[key].get(cell[key]) + 1);
  }
  return { shown, counts };
};

const stateChip = (word) => T.el("span", { class: `chip t-${STATE_TONES[word] || "quiet"}` }, word);

const filters = (state, counts) => {
  const button = (key, value, ...text) => {
    const isOn = state[key].includes(value), rest = state[key].filter((one) => one !== value);
    return T.el("button", { class: "filter", "aria-pressed": String(isOn), "data-mark": `${key} ${value}`, onclick: () => T.go({ ...state, [key]: isOn ? rest : [...rest, value] }) }, ...text);
  };
  const states = D.states.filter(([word]) => counts.state.has(word)).map(([word, meaning]) =>
    button("state", word, stateChip(word), T.el("b", { class: "num" }, T.number(counts.state.get(word))), T.el("span", { class: "dim" }, meaning)));
  const others = ["backend", "dtype"].filter((key) => counts[key].size > 1 || state[key].length).map((key) => T.el("div", { class: "filters", role: "group", "aria-label": FACETS[key] },
    T.el("span", { class: "dim" }, FACETS[key]), [...counts[key]].map(([value, count]) => button(key, value, value, T.el("span", { class: "dim" }, T.number(count))))));
  return T.el("div", { class: "intro" }, T.el("h1", { tabindex: "-1" }, "Support table"), D.compilers && T.el("p", { class: "dim" }, D.compilers), T.el("div", { class: "states", role: "group", "aria-label": "state" }, states), others);
};

const sortOf = (state) => (state.sort.startsWith("-") ? [state.sort.slice(1), true] : [state.sort, false]);

// The rows of the list: for each table a title, and the cells of each operator.
const rowsOf = (state, shown, types) => {
  const tables = new Map(), [by, isDown] = sortOf(state), sign = isDown ? -1 : 1;
  for (const cell of shown) {
    if (!tables.has(cell.table)) tables.set(cell.table, new Map());
    const operators = tables.get(cell.table);
    if (!operators.has(cell.operator)) operators.set(cell.operator, { operator: cell.operator, cells: new Map() });
    operators.get(cell.operator).cells.set(cell.dtype, cell);
  }
  const rank = (row) => (row.cells.has(by) ? row.cells.get(by).kind : D.states.length);
  return [...tables].flatMap(([title, operators]) => {
    const rows = [...operators.values()];
    if (by === "operator") rows.sort((a, b) => sign * (a.operator < b.operator ? -1 : 1));
    else if (types.includes(by)) rows.sort((a, b) => sign * (rank(a) - rank(b)));
    const counts = new Uint32Array(D.states.length);
    for (const row of rows) for (const cell of row.cells.values()) counts[cell.kind]++;
    return [{ title, counts: D.states.map(([word], kind) => counts[kind] && `${T.number(counts[kind])} ${word}`).filter(Boolean).join(", ") }, ...rows];
  });
};

const rowNode = (state, row, at, columns, types) => {
  if (!row.cells) return T.el("div", { class: "srow title", role: "row", title: `${row.title}: ${row.counts}` }, T.el("span", { role: "cell" }, T.el("b", {}, row.title), ` ${row.counts}`));
  return T.el("div", { class: "srow", role: "row", style: { gridTemplateColumns: columns } }, T.el("span", { class: "mono", role: "rowheader", title: row.operator }, row.operator), types.map((dtype, column) => {
    const cell = row.cells.get(dtype);
    if (!cell) return T.el("span", { role: "cell" });
    const title = [`${row.operator} ${dtype}`, cell.table, D.states[cell.kind][1], cell.ran, cell.reason].filter(Boolean).join("\n");
    return T.el("span", { role: "cell" }, T.to({ ...state, view: "case", id: T.id(cell.i), from: "support" }, { title, "data-mark": `${at} ${column}` }, stateChip(cell.state), cell.ran && T.el("span", { class: "mono dim" }, ` ${cell.ran}`)));
  }));
};
