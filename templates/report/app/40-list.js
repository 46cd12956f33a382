// Lists of any length: the rows in sight alone are in the document.
const LIMIT = 8_000_000; // pixels; browsers lay out no taller element

T.virtual = ({ count, height, row, label, role = "list", attributes = {} }) => {
  const whole = Math.max(count * height, 1);
  const scale = whole > LIMIT ? LIMIT / whole : 1;
  const sizer = T.el("div", { class: "sizer", role: "presentation", style: { height: `${Math.ceil(whole * scale)}px` } });
  const box = T.el("div", { class: "list", tabindex: "0", role, "aria-label": label, "aria-rowcount": count, ...attributes }, sizer);
  let drawn = new Map();
  const draw = () => drawAt(box.scrollTop, box.clientHeight);
  // all sizes are read before the first change: a browser lays the page out again for each read after a change
  const drawAt = (scrolled, tall) => {
    const first = Math.max(0, Math.floor(scrolled / scale / height) - 8);
    const last = Math.min(count, first + Math.ceil((tall || 800) / height) + 17);
    const added = document.createDocumentFragment();
    const next = new Map();
    for (let at = first; at < last; at++) {
      const node = drawn.get(at) || row(at);
      const top = scale === 1 ? at * height : scrolled + at * height - scrolled / scale;
      node.style.top = `${top}px`;
      next.set(at, node);
      if (!drawn.has(at)) added.append(node);
    }
    for (const [at, node] of drawn) if (!next.has(at)) node.remove();
    sizer.append(added);
    drawn = next;
  };
  box.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(draw).observe(box);
  const show = (at) => {
    const top = at * height * scale, tall = box.clientHeight, scrolled = box.scrollTop;
    const to = top < scrolled ? top : top + height > scrolled + tall ? top + height - tall : scrolled;
    if (to !== scrolled) box.scrollTop = to;
    drawAt(to, tall);
  };
  return { box, draw, show, node: (at) => drawn.get(at) };
};

T.idNode = (i) => {
  const [, area, name] = D.specs[D.spec[i]];
  if (D.odd[i]) return T.el("span", { class: "id" }, T.id(i));
  return T.el("span", { class: "id" }, area && T.el("span", { class: "area" }, `${area}/`), name,
    T.el("span", { class: "pt" }, `${D.backends[D.backend[i]]}${D.points[D.point[i]] ? " · " + D.params[D.point[i]].map(([k, v]) => `${k} ${v}`).join(" · ") : ""}`));
};

let chosen = 0; // the place of the chosen case in the list

T.casesView = (state, { cases, counts }) => {
  if (T.opened !== undefined && T.opened >= 0) { const at = cases.indexOf(T.opened); chosen = at < 0 ? 0 : at; T.opened = -1; }
  chosen = Math.min(chosen, Math.max(cases.length - 1, 0));
  const open = (at) => T.go({ ...state, view: "case", id: T.id(cases[at]) });
  const list = T.virtual({
    count: cases.length, height: 30, label: "Cases", role: "listbox",
    row: (at) => {
      const i = cases[at];
      const node = T.el("div", { class: "row", role: "option", id: `row-${at}`, "aria-posinset": at + 1, "aria-setsize": cases.length, "aria-selected": String(at === chosen), title: T.id(i), onclick: () => { chosen = at; open(at); } },
        T.el("span", {}, T.chip(D.names[D.outcome[i]])), T.idNode(i),
        T.el("span", { class: "why" }, D.reasons[D.reason[i]][1]), T.el("span", { class: "num dim" }, T.seconds(D.ms[i] / 1000)));
      return node;
    },
  });
  const move = (by) => {
    const before = list.node(chosen);
    chosen = Math.max(0, Math.min(cases.length - 1, chosen + by));
    if (before) before.setAttribute("aria-selected", "false");
    list.show(chosen);
    const now = list.node(chosen);
    if (now) { now.setAttribute("aria-selected", "true"); list.box.setAttribute("aria-activedescendant", now.id); }
  };
  T.keys = { j: () => move(1), k: () => move(-1), ArrowDown: () => move(1), ArrowUp: () => move(-1), PageDown: () => move(20), PageUp: () => move(-20),
    Home: () => move(-cases.length), End: () => move(cases.length), Enter: () => cases.length && open(chosen), Escape: () => T.go({ view: "summary" }) };
  const order = T.el("select", { "aria-label": "Order", onchange: (event) => T.go({ ...state, sort: event.target.value }) },
    [["", "failures first"], ["time", "slowest first"], ["run", "order of the run"]].map(([value, text]) => T.el("option", { value, selected: (state.sort || "") === value }, text)));
  const help = T.el("span", { class: "dim" }, T.el("kbd", {}, "j"), " ", T.el("kbd", {}, "k"), " move, ", T.el("kbd", {}, "Enter"), " open, ", T.el("kbd", {}, "/"), " search");
  const view = T.el("div", { class: "view flush" }, T.statusbar(state, cases.length, order, help),
    cases.length ? list.box : T.el("div", { class: "empty" }, "No case passes these filters."));
  return { nodes: [T.sidebar(state, counts), view], ready: () => { list.show(chosen); if (T.focusList) list.box.focus({ preventScroll: true }); } };
};

// -- the matrix: a row for each spec, a column for each backend, a mark for each case --------------------------------

const MARKS = 28;

T.matrixView = (state, { cases, counts }) => {
  const { totals, starts, bySpec } = gathered(cases), outcomes = D.names.length, width = D.backends.length;
  const worst = (spec) => { let least = outcomes; for (let at = 0; at < width * outcomes; at++) if (totals[spec * width * outcomes + at]) least = Math.min(least, at % outcomes); return least; };
  const used = new Uint8Array(width);
  for (const i of cases) used[D.backend[i]] = 1;
  const backends = D.backends.map((_, at) => at).filter((at) => used[at]);
  D.alphabet ||= ranks(D.prefix);
  const shown = D.prefix.map((_, spec) => spec).filter((spec) => starts[spec + 1] > starts[spec]);
  const weight = new Map(shown.map((spec) => { const least = worst(spec); return [spec, (D.failure[least] ? least : outcomes) * 1e7 + D.alphabet[spec]]; }));
  shown.sort((a, b) => weight.get(a) - weight.get(b));
  const columns = `minmax(220px, 340px) repeat(${backends.length || 1}, minmax(150px, 340px))`;
  const list = T.virtual({
    count: shown.length, height: 26, label: "Specs by backend", role: "table",
    row: (at) => {
      const spec = shown[at], [, area, name] = D.specs[spec], own = [...bySpec.subarray(starts[spec], starts[spec + 1])];
      return T.el("div", { class: "mrow", role: "row", "aria-rowindex": at + 1, style: { gridTemplateColumns: columns } },
        T.el("span", { class: "spec", role: "rowheader", title: D.prefix[spec] },
          T.to({ ...state, view: "cases", spec: D.prefix[spec] }, {}, area && T.el("span", { class: "area" }, `${area}/`), name)),
        backends.map((backend) => T.el("span", { role: "cell" }, cell(state, spec, backend, own.filter((i) => D.backend[i] === backend), totals.subarray((spec * width + backend) * outcomes, (spec * width + backend + 1) * outcomes)))));
    },
  });
  T.keys = { Escape: () => T.go({ view: "summary" }) };
  const head = T.el("div", { class: "mhead", style: { gridTemplateColumns: columns } }, T.el("span", {}, T.count(shown.length, "spec")), backends.map((at) => T.el("span", {}, D.backends[at])));
  const view = T.el("div", { class: "view flush" }, T.statusbar(state, cases.length, legend(cases)), head,
    shown.length ? list.box : T.el("div", { class: "empty" }, "No case passes these filters."));
  return { nodes: [T.sidebar(state, counts), view], ready: () => list.draw() };
};

// The cases by spec, and for each spec, backend and outcome how many there are.
const gathered = (cases) => {
  const outcomes = D.names.length, width = D.backends.length;
  const totals = new Uint32Array(D.specs.length * width * outcomes), starts = new Uint32Array(D.specs.length + 1), bySpec = new Uint32Array(cases.length);
  for (const i of cases) { totals[(D.spec[i] * width + D.backend[i]) * outcomes + D.outcome[i]]++; starts[D.spec[i] + 1]++; }
  for (let spec = 0; spec < D.specs.length; spec++) starts[spec + 1] += starts[spec];
  const next = starts.slice();
  for (const i of cases) bySpec[next[D.spec[i]]++] = i;
  return { totals, starts, bySpec };
};

const ranks = (names) => {
  const found = new Uint32Array(names.length);
  names.map((_, at) => at).sort((a, b) => (names[a] < names[b] ? -1 : 1)).forEach((at, place) => { found[at] = place; });
  return found;
};

const cell = (state, spec, backend, cases, totals) => {
  const count = cases.length;
  if (!count) return null;
  const words = D.names.map((name, at) => [name, totals[at]]).filter(([, n]) => n).map(([name, n]) => `${n} ${name}`).join(", ");
  const bad = D.failure.reduce((sum, fails, at) => sum + (fails ? totals[at] : 0), 0);
  const marks = count <= MARKS
    ? T.el("span", { class: "dots" }, cases.sort((a, b) => D.outcome[a] - D.outcome[b]).map((i) => T.el("i", { class: `f-${T.tone(D.names[D.outcome[i]])}` })))
    : T.el("span", { class: "bar" }, T.stack(totals));
  const target = count === 1 ? { ...state, view: "case", id: T.id(cases[0]) } : { ...state, view: "cases", spec: D.prefix[spec], backend: [D.backends[backend]] };
  const passed = totals[D.names.indexOf("PASS")] === count;
  const text = bad ? `${bad} of ${count} failed` : passed ? String(count) : words;
  return T.to(target, { class: `cell${bad ? " bad" : ""}`, title: words, "aria-label": `${D.prefix[spec]}, ${D.backends[backend]}: ${words}` }, marks, T.el("span", { class: "n" }, text));
};

T.stack = (totals) => D.names.map((name, at) => (totals[at] ? T.el("i", { class: `f-${T.tone(name)}`, title: `${totals[at]} ${name}`, style: { flex: `${totals[at]} 0 0` } }) : null));

const legend = (cases) => {
  const totals = new Uint32Array(D.names.length);
  for (const i of cases) totals[D.outcome[i]]++;
  return T.el("span", { class: "legend dim", style: { margin: "0" } }, D.names.map((name, at) => (totals[at] ? T.el("span", {}, T.el("i", { class: `dot f-${T.tone(name)}` }), `${name} ${totals[at].toLocaleString("en")}`) : null)));
};
