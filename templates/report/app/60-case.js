// The page of a case.
const AROUND = 40;

T.caseView = (state) => {
  const i = T.find(state.id);
  const view = T.el("div", { class: "view", tabindex: "-1" });
  const { cases } = T.filtered(state);
  const list = state.from === "support" ? "support" : "cases";
  const at = list === "cases" ? cases.indexOf(i) : -1;
  const to = (by) => { const next = at < 0 ? undefined : cases[at + by]; if (next !== undefined) T.go({ ...state, id: T.id(next) }); };
  T.opened = i;
  const back = () => T.go({ ...state, view: list, id: "", from: "" });
  T.keys = { j: () => to(1), k: () => to(-1), Escape: back };
  if (i < 0) { view.append(T.el("div", { class: "empty" }, "This run has no such case: ", T.el("code", {}, state.id))); return { nodes: [view], ready: () => {} }; }
  const crumbs = T.el("div", { class: "crumbs" }, T.el("button", { onclick: back, title: "Escape" }, `← ${list}`),
    at >= 0 && [T.el("button", { onclick: () => to(-1), disabled: at === 0, title: "k", "aria-label": "previous case" }, "↑"), T.el("button", { onclick: () => to(1), disabled: at === cases.length - 1, title: "j", "aria-label": "next case" }, "↓"), T.el("span", { class: "dim" }, `${T.number(at + 1)} of ${T.number(cases.length)}`)]);
  const title = T.el("div", { class: "id" }, T.chip(D.names[D.outcome[i]]), " ", T.id(i));
  const body = T.el("div", { class: "case" }, T.el("header", {}, crumbs, title, T.el("p", { class: "dim" }, "Loading …")));
  view.append(body);
  T.details(i).then(async (detail) => {
    const source = await T.source(D.specs[D.spec[i]][0]).catch((error) => ({ why: error.message }));
    if (!view.isConnected) return;
    T.clear(body);
    body.append(heading(i, detail, source, crumbs, title), main(i, detail, source), facts(i, detail));
    view.focus({ preventScroll: true });
    for (const hit of body.querySelectorAll(".src")) { const line = hit.querySelector(".hit"); if (line) hit.scrollTop = line.offsetTop - hit.offsetTop - 120; }
  }).catch((error) => body.append(T.el("p", { class: "failed" }, `This case cannot be shown: ${error.message}`)));
  return { nodes: [view], ready: () => view.focus({ preventScroll: true }) };
};

const heading = (i, { c, s }, source, crumbs, title) => {
  const line = source.text ? source.text.split("\n").find((one) => one.startsWith("summary:")) : null;
  const claim = s(c.claim) || (line ? line.slice(8).trim().replace(/^(["'])(.*)\1$/, "$2") : "");
  return T.el("header", {}, crumbs, title, claim && T.el("p", { class: "claim" }, claim),
    c.reason && T.el("div", { class: "reason dim" }, T.linked(s(c.reason))));
};

const failures = (c) => (c.verdicts || []).map((verdict, number) => ({ verdict, number })).filter(({ verdict }) => verdict[1] === 1 || verdict[1] === 2);

const main = (i, detail, source) => {
  const { c, s } = detail;
  const found = failures(c);
  return T.el("div", {},
    found.length ? T.el("section", {}, T.el("h2", {}, "Expected and observed"), found.slice(0, 50).map(({ verdict }) => failure(verdict, s)), found.length > 50 && T.el("p", { class: "dim" }, `${found.length - 50} more`)) : null,
    spec(i, detail, source, found), code(c, s, found), output(c, s, found.length > 0), numbers(c, s), attempts(c, s), tunings(c), held(c, s), timings(c, s));
};

const failure = (verdict, s) => {
  const [kind, status, file, line, column, expected, observed, text] = verdict;
  return T.el("div", { class: status === 2 ? "fail unjudged" : "fail" },
    T.el("div", { class: "h" }, T.el("b", {}, s(kind)), status === 2 && !["crash", "timeout"].includes(s(kind)) && T.el("span", { class: "chip t-warn" }, "could not be judged"), T.el("span", { class: "mono dim" }, `${s(file)}:${line}:${column}`)),
    T.el("dl", {}, expected ? [T.el("dt", {}, "expected"), T.el("dd", {}, T.el("pre", { class: "want" }, s(expected)))] : null, observed ? [T.el("dt", {}, "observed"), T.el("dd", {}, T.el("pre", { class: "got" }, s(observed)))] : null),
    text ? T.el("pre", { class: "detail" }, s(text)) : null);
};

// Source text with numbered lines; `notes` maps a line to what is said below it.
T.listing = (text, notes, { yaml = false, label }) => {
  const lines = text.replace(/\n$/, "").split("\n");
  const marked = [...notes.keys()];
  const near = (number) => lines.length <= 400 || !marked.length || marked.some((one) => Math.abs(one - number) <= AROUND);
  const box = T.el("div", { class: "src", tabindex: "0", role: "region", "aria-label": label });
  let gap = false;
  lines.forEach((line, at) => {
    const number = at + 1;
    if (lines.length > 400 && !marked.length && number > 400) { if (number === 401) box.append(T.el("div", { class: "note dim" }, `${lines.length - 400} more lines`)); return; }
    if (!near(number)) { if (!gap) box.append(T.el("div", { class: "ln" }, T.el("span", { class: "no" }, "…"))); gap = true; return; }
    gap = false;
    const said = notes.get(number);
    box.append(T.el("div", { class: said ? "ln hit" : "ln" }, T.el("span", { class: "no" }, number), T.el("span", { class: "tx" }, yaml ? tinted(line) : line)));
    for (const words of said || []) box.append(T.el("div", { class: "note" }, words));
  });
  return box;
};

const tinted = (line) => {
  const comment = line.match(/^(\s*)(#.*)$/);
  if (comment) return [comment[1], T.el("span", { class: "c" }, comment[2])];
  const key = line.match(/^(\s*(?:- )?[\s{]*)([A-Za-z_][\w.-]*)(:(?:\s.*)?)$/);
  return key ? [key[1], T.el("span", { class: "k" }, key[2]), key[3]] : line;
};

// The line of the spec that a verdict is about: of a FileCheck the directive, of anything else its expectation.
const lineOf = (source, verdict, s) => {
  const directive = s(verdict[0]) === "filecheck" && source.text ? s(verdict[5]).match(/^line \d+: (.+)$/) : null;
  if (!directive) return verdict[3];
  const lines = source.text.split("\n");
  const at = lines.findIndex((line, number) => number + 1 >= verdict[3] && line.trim() === directive[1].trim());
  return at < 0 ? verdict[3] : at + 1;
};

const spec = (i, { c, s }, source, found) => {
  const file = D.specs[D.spec[i]][0];
  const notes = new Map(), elsewhere = new Map();
  for (const { verdict } of found) {
    const said = [verdict[5] && `expected ${s(verdict[5])}`, verdict[6] && `observed ${s(verdict[6])}`].filter(Boolean).join("\n");
    const into = s(verdict[2]) === file ? notes : elsewhere;
    const key = into === notes ? lineOf(source, verdict, s) : `${s(verdict[2])}:${verdict[3]}`;
    into.set(key, [...(into.get(key) || []), `${s(verdict[0])}: ${said}`.slice(0, 600)]);
  }
  const marks = new Map([...notes].map(([line, all]) => [line, all.slice(0, 6)]));
  return T.el("section", {}, T.el("h2", {}, "Spec"), T.el("div", { class: "filehead" }, T.el("span", { class: "mono dim" }, file), source.why && T.el("span", { class: "dim" }, `not shown: ${source.why}`)),
    source.text ? T.listing(source.text, marks, { yaml: true, label: `Spec ${file}` }) : null);
};

const code = (c, s, found) => {
  if (!c.code) return null;
  const failing = new Map(found.map(({ number, verdict }) => [number, verdict]));
  const piece = (one) => {
    const notes = new Map();
    for (const [line, verdict] of one.marks || []) if (failing.has(verdict)) notes.set(line, [...(notes.get(line) || []), `${s(failing.get(verdict)[5])}: ${s(failing.get(verdict)[6])}`]);
    const match = one.name.match(/^(code|graph)-(\d+)(?:-([a-z_]+))?-(\d+)/);
    const name = match ? (match[1] === "graph" ? `graph captured at ${match[3]}, step ${match[2]}` : `generated code, step ${match[2]}, piece ${match[4]}`) : one.name;
    const link = T.file(s(c.folder), one.name, one.name);
    if (!one.text) return T.el("div", { class: "fold in" }, T.el("span", { class: "dim" }, `${name}: `), link);
    return T.el("details", { class: "fold", open: notes.size > 0 }, T.el("summary", {}, name, notes.size > 0 && T.el("b", { class: "failed" }, "  FileCheck stopped here"), "  ", T.el("span", { class: "dim" }, T.count(one.text.split("\n").length, "line"))),
      T.el("div", { class: "in", style: { paddingLeft: "14px" } }, T.el("div", { class: "filehead" }, link), T.listing(one.text, notes, { label: name })));
  };
  return T.el("section", {}, T.el("h2", {}, "Generated code and graphs"), T.el("div", { class: "card" }, c.code.map(piece)));
};

const output = (c, s, failed) => {
  const found = [["standard error", c.stderr, "stderr.txt"], ["standard output", c.stdout, "stdout.txt"]].filter(([, text]) => text && s(text).trim());
  if (!found.length) return null;
  const crashed = ["CRASH", "TIMEOUT", "ERROR"].includes(c.outcome);
  return T.el("section", {}, T.el("h2", {}, "What the worker printed"), T.el("div", { class: "card" }, found.map(([name, text, file]) => T.el("details", { class: "fold", open: failed && crashed && file === "stderr.txt" },
    T.el("summary", {}, name, "  ", T.el("span", { class: "dim" }, T.count(s(text).trim().split("\n").length, "line"))), T.el("div", { class: "in", style: { paddingLeft: "14px" } }, T.file(s(c.folder), file), T.el("pre", { class: "detail" }, s(text)))))));
};

const held = (c, s) => {
  const rest = (c.verdicts || []).filter((verdict) => verdict[1] === 0 || verdict[1] === 3);
  if (!rest.length) return null;
  const passed = rest.filter((verdict) => verdict[1] === 0).length;
  const proof = rest.find((verdict) => s(verdict[0]) === "proof");
  return T.el("section", {}, T.el("h2", {}, "Expectations that passed"), T.el("div", { class: "card" }, T.el("details", { class: "fold", open: !failures(c).length },
    T.el("summary", {}, T.el("span", { class: "count held" }, passed), `passed${rest.length > passed ? `, ${rest.length - passed} not applicable` : ""}${proof ? `; proof that the backend ran: ${s(proof[6])}` : ""}`),
    T.el("div", { class: "in" }, T.el("table", { class: "grid" }, T.el("thead", {}, T.el("tr", {}, ["expectation", "line", "expected", "observed"].map((name) => T.el("th", { scope: "col" }, name)))),
      T.el("tbody", {}, rest.slice(0, 300).map((verdict) => T.el("tr", {}, T.el("td", {}, s(verdict[0])), T.el("td", { class: "mono dim" }, verdict[3]), T.el("td", {}, verdict[1] === 3 ? T.el("span", { class: "faint" }, "not applicable") : s(verdict[5])), T.el("td", {}, s(verdict[6]))))))))));
};
