// The page of the run.
const SLOWEST = 20;

T.runView = () => {
  const view = T.el("div", { class: "view" }, T.el("p", { class: "dim" }, "Loading …"));
  T.keys = { Escape: () => T.go({ view: "summary" }) };
  T.part("run").then((run) => {
    if (!view.isConnected) return;
    T.clear(view).append(T.el("div", { class: "wide" }, T.el("h1", { tabindex: "-1" }, `Run ${D.head.run}`), timeline(run.timeline), slowest(), profile(run.statement), coverage("Upstream tests that cases restate", "test", run.coverage), coverage("Operators", "operator", operators()), machine(run)));
  }).catch((error) => view.append(T.el("p", { class: "failed" }, error.message)));
  return { nodes: [view], ready: () => {} };
};

const table = (heads, rows, numeric = []) => T.el("div", { class: "card" }, T.el("table", { class: "grid" }, T.el("thead", {}, T.el("tr", {}, heads.map((name, at) => T.el("th", { scope: "col", class: numeric.includes(at) ? "num" : "" }, name)))),
  T.el("tbody", {}, rows.map((row) => T.el("tr", {}, row.map((value, at) => T.el("td", { class: numeric.includes(at) ? "num" : "" }, value)))))));

const slowest = () => T.el("section", {}, T.el("h2", {}, "Slowest cases"), table(["outcome", "case", "time"], [...T.order("time").subarray(0, SLOWEST)].filter((i) => D.ms[i]).map((i) => [T.chip(D.names[D.outcome[i]]), T.to({ view: "case", id: T.id(i), sort: "time" }, {}, T.idNode(i)), T.seconds(D.ms[i] / 1000)]), [2]));

const profile = ([found]) => (found ? T.el("section", {}, T.el("h2", {}, `Profile ${found.profile} ${found.version}: ${found.conformance}`),
  table(["level", "", "required", "executed", "passed", "waived", "waived as flaky", "failed", "not executed"], found.levels, [2, 3, 4, 5, 6, 7, 8]), found.problems.map((problem) => T.el("p", {}, problem)),
  found.waivers.length ? T.el("div", { style: { marginTop: "10px" } }, table(["waiver", "issue", "until", "cases"], found.waivers.map(([reason, issue, until, count]) => [reason, T.link(issue), until, count]), [3])) : null) : null);

// The operators that cases were made of, with the cases by outcome.
const operators = () => {
  const found = new Map();
  for (let i = 0; i < D.n; i++) {
    const pair = D.params[D.point[i]].find(([key]) => key === "op"), name = D.names[D.outcome[i]];
    if (!pair) continue;
    if (!found.has(pair[1])) found.set(pair[1], {});
    found.get(pair[1])[name] = (found.get(pair[1])[name] || 0) + 1;
  }
  return [...found].sort(([a], [b]) => (a < b ? -1 : 1));
};

const coverage = (title, what, rows) => (rows.length ? T.el("section", {}, T.el("h2", {}, `${title}: ${rows.length}`), T.el("div", { class: "card" }, T.el("details", { class: "fold" }, T.el("summary", {}, `all ${T.count(rows.length, what)}`),
  table([what, "cases"], rows.slice(0, 3000).map(([name, totals]) => [T.to({ view: "cases", q: what === "operator" ? `op=${name}` : "" }, {}, name), Object.entries(totals).map(([outcome, count]) => [T.chip(outcome), ` ${count}  `])]))))) : null);

const machine = (run) => {
  const rows = (found) => T.el("table", { class: "facts" }, T.el("tbody", {}, Object.entries(found).map(([name, value]) => T.el("tr", {}, T.el("th", { scope: "row" }, name), T.el("td", { class: "mono" }, value)))));
  const given = Object.fromEntries(Object.entries(run.options).filter(([, value]) => value !== "" && value !== "None"));
  const facts = { started: D.head.started, ended: D.head.ended, version: D.head.version, ...(run.shard ? { shard: run.shard } : {}), ...(run.shuffle ? { shuffle: run.shuffle } : {}), ...(run.merged.length ? { "joined from": run.merged.join(" ") } : {}) };
  return T.el("section", {}, T.el("h2", {}, "Command and machine"), T.copyable(run.command.join(" ")), T.el("div", { style: { display: "flex", flexWrap: "wrap", gap: "8px 48px", alignItems: "flex-start", marginTop: "12px" } }, rows(facts), rows(D.head.environment), rows(run.variables), T.el("details", {}, T.el("summary", { class: "dim" }, "options"), rows(given))));
};

// Returns the color of an execution in the timeline: to ask the style for each of them takes longer than to paint.
const colors = (style) => {
  const known = new Map();
  return (outcome, isOdd) => {
    const name = outcome === "PASS" ? (isOdd ? "--passed" : "--good") : T.tone(outcome) === "quiet" ? "--faint" : `--${T.tone(outcome)}`;
    if (!known.has(name)) known.set(name, style.getPropertyValue(name));
    return known.get(name);
  };
};

const timeline = (found) => {
  const section = T.el("section", { style: { marginTop: "14px" } }, T.el("h2", {}, "Timeline of workers and GPUs"));
  if (!found.case.length) { section.append(T.el("p", { class: "dim" }, "The journal of this run does not say when its cases began: it is of an older version.")); return section; }
  const lanes = Math.max(...found.lane.slice(0, 1), ...[found.lane.reduce((most, lane) => Math.max(most, lane), 0)]) + 1;
  const gpus = [...new Set(found.gpus.flat())].sort((a, b) => a - b);
  const end = found.begun.reduce((most, begun, at) => Math.max(most, begun + found.ms[at]), 1);
  const rows = gpus.length + lanes, height = rows > 24 ? 8 : 16, canvas = T.el("canvas", { role: "img", "aria-label": `${T.count(found.case.length, "execution")} on at most ${lanes} workers at once, in ${T.seconds(end / 1000)}; the table of slowest cases has the longest` });
  const tip = T.el("div", { class: "tip", hidden: true }), box = T.el("div", { class: "tl card", style: { padding: "10px 14px" } }, canvas, tip);
  const left = 58, row = (at) => 16 + at * (height + 2);
  const places = []; // gpus above workers
  found.case.forEach((_, at) => { for (const gpu of found.gpus[at]) places.push([gpus.indexOf(gpu), at]); places.push([gpus.length + found.lane[at], at]); });
  const draw = () => {
    const width = Math.max(box.clientWidth - 28, 200), ratio = devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
    canvas.width = width * ratio; canvas.height = (row(rows) + 4) * ratio; canvas.style.height = `${row(rows) + 4}px`;
    const paint = canvas.getContext("2d"), scale = (width - left) / end, colorOf = colors(style);
    let last = null;
    paint.scale(ratio, ratio); paint.font = "11px system-ui"; paint.fillStyle = style.getPropertyValue("--dim");
    for (let at = 0; at <= 5; at++) paint.fillText(T.seconds((end * at) / 5000), Math.min(left + (scale * end * at) / 5, width - 34), 10);
    if (height > 10) for (let at = 0; at < rows; at++) paint.fillText(at < gpus.length ? `GPU ${gpus[at]}` : `slot ${at - gpus.length + 1}`, 0, row(at) + height - 4);
    for (const [at, one] of places) {
      const color = colorOf(found.outcome[one], one % 2);
      if (color !== last) paint.fillStyle = last = color;
      const x = left + found.begun[one] * scale, wide = Math.max(found.ms[one] * scale - 0.5, 0.7);
      paint.fillRect(x, row(at), wide, height);
      if (height < 12 || wide < 12 || !D.failure[D.names.indexOf(found.outcome[one])]) continue;
      paint.fillStyle = last = style.getPropertyValue("--panel");
      paint.fillText(T.glyph(found.outcome[one]), x + 3, row(at) + height - 4);
    }
    return { scale };
  };
  const at = (event) => {
    const rect = canvas.getBoundingClientRect(), x = event.clientX - rect.left, y = event.clientY - rect.top, scale = (rect.width - left) / end;
    return places.find(([place, one]) => y >= row(place) && y < row(place) + height && x >= left + found.begun[one] * scale - 1 && x <= left + (found.begun[one] + found.ms[one]) * scale + 1);
  };
  canvas.addEventListener("mousemove", (event) => {
    const hit = at(event);
    tip.hidden = !hit;
    if (!hit) return;
    const one = hit[1], rect = box.getBoundingClientRect();
    T.clear(tip).append(T.chip(found.outcome[one]), ` ${T.id(found.case[one])} · ${T.seconds(found.ms[one] / 1000)} · worker ${found.worker[one]}`);
    tip.style.left = `${Math.min(event.clientX - rect.left + 12, rect.width - 260)}px`; tip.style.top = `${event.clientY - rect.top + 14}px`;
  });
  canvas.addEventListener("click", (event) => { const hit = at(event); if (hit) T.go({ view: "case", id: T.id(found.case[hit[1]]) }); });
  new ResizeObserver(draw).observe(box);
  section.append(box, T.el("p", { class: "dim" }, "A slot has one case at a time."));
  return section;
};
