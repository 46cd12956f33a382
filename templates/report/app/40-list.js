// Lists of any length: the rows in sight alone are in the document.
const LIMIT = 8_000_000; // pixels; browsers lay out no taller element
const BESIDE = 4; // rows above and below those in sight

T.virtual = ({ count, height, row, label, role = "list", attributes = {}, above = [] }) => {
  const whole = Math.max(count * height, 1);
  const scale = whole > LIMIT ? LIMIT / whole : 1;
  const sizer = T.el("div", { class: "sizer", role: "presentation", style: { height: `${Math.ceil(whole * scale)}px` } });
  const box = T.el("div", { class: "list", tabindex: "0", role, "aria-label": label, "aria-rowcount": count, ...attributes }, above, sizer);
  const sticky = above.at(-1); // stays in sight above the rows
  let drawn = new Map();
  const draw = () => drawAt(box.scrollTop - sizer.offsetTop, box.clientHeight);
  // all sizes are read before the first change: a browser lays the page out again for each read after a change
  const drawAt = (scrolled, tall) => {
    const first = Math.max(0, Math.floor(scrolled / scale / height) - BESIDE);
    const last = Math.min(count, first + Math.ceil((tall || 800) / height) + 2 * BESIDE + 1);
    // the document has the rows in their order: Tab follows it
    const before = document.createDocumentFragment(), after = document.createDocumentFragment();
    let added = before;
    const next = new Map();
    for (let at = first; at < last; at++) {
      const node = drawn.get(at) || row(at);
      const top = scale === 1 ? at * height : scrolled + at * height - scrolled / scale;
      node.style.top = `${top}px`;
      next.set(at, node);
      if (drawn.has(at)) added = after; else added.append(node);
    }
    for (const [at, node] of drawn) if (!next.has(at)) node.remove();
    sizer.prepend(before);
    sizer.append(after);
    drawn = next;
  };
  box.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(draw).observe(box);
  const show = (at) => {
    const begin = sizer.offsetTop, top = begin + at * height * scale, tall = box.clientHeight, scrolled = box.scrollTop, hidden = sticky ? sticky.offsetHeight : 0;
    const to = top - hidden < scrolled ? top - hidden : top + height > scrolled + tall ? top + height - tall : scrolled;
    if (to !== scrolled) box.scrollTop = to;
    drawAt(to - begin, tall);
  };
  return { box, draw, show, node: (at) => drawn.get(at) };
};

T.idNode = (i) => {
  const [, area, name] = D.specs[D.spec[i]];
  if (D.odd[i]) return T.el("span", { class: "id" }, T.id(i));
  return T.el("span", { class: "id" }, area && T.el("span", { class: "area" }, `${area}/`), name, " ",
    T.el("span", { class: "pt" }, `${D.backends[D.backend[i]]}${D.points[D.point[i]] ? " · " + D.params[D.point[i]].map(([k, v]) => `${k} ${v}`).join(" · ") : ""}`));
};

let chosen = 0; // the place of the chosen case in the list

T.casesView = (state, { cases, counts }) => {
  if (T.opened !== undefined && T.opened >= 0) { const at = cases.indexOf(T.opened); chosen = at < 0 ? 0 : at; T.opened = -1; }
  chosen = Math.min(chosen, Math.max(cases.length - 1, 0));
  const open = (at) => T.go({ ...state, view: "case", id: T.id(cases[at]) });
  const list = T.virtual({
    count: cases.length, height: T.narrow.matches ? 48 : 30, label: "Cases", role: "listbox",
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
  const help = T.el("span", { class: "dim keys" }, T.el("kbd", {}, "j"), " ", T.el("kbd", {}, "k"), " move, ", T.el("kbd", {}, "Enter"), " open, ", T.el("kbd", {}, "/"), " search");
  const view = T.el("div", { class: "view flush" }, T.statusbar(state, [cases.length, D.n, "case"], order, help),
    cases.length ? list.box : T.el("div", { class: "empty" }, "No case passes these filters."));
  return { nodes: [T.sidebar(state, counts), view], ready: () => { list.show(chosen); if (T.focusList) list.box.focus({ preventScroll: true }); } };
};

// -- the matrix: a row for each spec, a column for each backend, a mark for each case --------------------------------

const MARKS = 28; // a cell of more cases has a bar
const MARK = 11, GAP = 2; // pixels, as in the style: all marks of one outcome are one element, since a screen has thousands of them

T.matrixView = (state, { cases, counts }) => {
  const { totals, one, worst, used, byOutcome } = gathered(cases), outcomes = D.names.length, width = D.backends.length;
  const backends = D.backends.map((_, at) => at).filter((at) => used[at]);
  D.alphabet ||= ranks(D.prefix);
  const weight = Float64Array.from(worst, (least, spec) => (D.failure[least] ? least : outcomes) * 1e7 + D.alphabet[spec]);
  const shown = Uint32Array.from(D.prefix.keys()).filter((spec) => worst[spec] < outcomes).sort((a, b) => weight[a] - weight[b]);
  const columns = `minmax(220px, 340px) repeat(${backends.length || 1}, minmax(150px, 340px))`;
  const list = T.virtual({
    count: shown.length, height: 26, label: "Specs by backend", role: "table",
    row: (at) => {
      const spec = shown[at], [, area, name] = D.specs[spec], place = (backend) => spec * width + backend;
      return T.el("div", { class: "mrow", role: "row", "aria-rowindex": at + 1, style: { gridTemplateColumns: columns } },
        T.el("span", { class: "spec", role: "rowheader", title: D.prefix[spec] },
          T.to({ ...state, view: "cases", spec: D.prefix[spec] }, {}, area && T.el("span", { class: "area" }, `${area}/`), name)),
        backends.map((backend) => T.el("span", { role: "cell" }, cell(state, spec, backend, one[place(backend)], totals.subarray(place(backend) * outcomes, (place(backend) + 1) * outcomes)))));
    },
  });
  T.keys = { Escape: () => T.go({ view: "summary" }) };
  const head = T.el("div", { class: "mhead", style: { gridTemplateColumns: columns } }, T.el("span", {}, T.count(shown.length, "spec")), backends.map((at) => T.el("span", {}, D.backends[at])));
  const view = T.el("div", { class: "view flush" }, T.statusbar(state, [cases.length, D.n, "case"], legend(byOutcome)), head,
    shown.length ? list.box : T.el("div", { class: "empty" }, "No case passes these filters."));
  return { nodes: [T.sidebar(state, counts), view], ready: () => list.draw() };
};

// For each spec, backend and outcome how many cases there are, and one of them; the worst outcome of each spec, and what is in use at all.
const gathered = (cases) => {
  const outcomes = D.names.length, width = D.backends.length, { spec, backend, outcome } = D;
  const totals = new Uint32Array(D.specs.length * width * outcomes), one = new Uint32Array(D.specs.length * width);
  const worst = new Uint8Array(D.specs.length).fill(outcomes), used = new Uint8Array(width), byOutcome = new Uint32Array(outcomes);
  for (let at = 0; at < cases.length; at++) {
    const i = cases[at], kind = outcome[i], place = spec[i] * width + backend[i];
    totals[place * outcomes + kind]++; one[place] = i;
    used[backend[i]] = 1; byOutcome[kind]++;
    if (kind < worst[spec[i]]) worst[spec[i]] = kind;
  }
  return { totals, one, worst, used, byOutcome };
};

const ranks = (names) => {
  const found = new Uint32Array(names.length);
  names.map((_, at) => at).sort((a, b) => (names[a] < names[b] ? -1 : 1)).forEach((at, place) => { found[at] = place; });
  return found;
};

const cell = (state, spec, backend, one, totals) => {
  const count = totals.reduce((sum, n) => sum + n, 0);
  if (!count) return null;
  const words = D.names.map((name, at) => [name, totals[at]]).filter(([, n]) => n).map(([name, n]) => `${n} ${name}`).join(", ");
  const bad = D.failure.reduce((sum, fails, at) => sum + (fails ? totals[at] : 0), 0);
  const marks = count <= MARKS
    ? T.el("span", { class: "dots" }, D.names.map((name, at) => (totals[at] ? T.el("i", { class: `d-${T.tone(name)}`, style: { width: `${totals[at] * MARK - GAP}px` } }, T.glyph(name).repeat(totals[at])) : null)))
    : T.el("span", { class: "bar" }, T.stack(totals));
  const target = count === 1 ? { ...state, view: "case", id: T.id(one) } : { ...state, view: "cases", spec: D.prefix[spec], backend: [D.backends[backend]] };
  const passed = totals[D.names.indexOf("PASS")] === count;
  const text = bad ? `${bad} of ${count} failed` : passed ? String(count) : words;
  return T.to(target, { class: `cell${bad ? " bad" : ""}`, title: words, "aria-label": `${D.prefix[spec]}, ${D.backends[backend]}: ${words}` }, marks, T.el("span", { class: "n" }, text));
};

T.stack = (totals) => D.names.map((name, at) => (totals[at] ? T.el("i", { class: `f-${T.tone(name)}`, title: `${totals[at]} ${name}`, style: { flex: `${totals[at]} 0 0` } }) : null));

const legend = (totals) => T.el("span", { class: "legend dim", style: { margin: "0" } }, D.names.map((name, at) => (totals[at] ? T.el("span", {}, T.el("i", { class: `dot f-${T.tone(name)}` }, T.glyph(name)), `${name} ${T.number(totals[at])}`) : null)));
