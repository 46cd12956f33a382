// The first view: how the run ended, what failed and why, what was not executed.
const MOST_CAUSES = 100, MOST_IDS = 40;

T.summaryView = () => {
  const head = D.head, totals = Uint32Array.from(D.names, (name) => head.totals[name] || 0);
  const failed = D.failure.reduce((sum, fails, at) => sum + (fails ? totals[at] : 0), 0);
  const groups = grouped();
  T.keys = { j: () => step(1), k: () => step(-1), ArrowDown: null };
  const view = T.el("div", { class: "view" }, T.el("div", { class: "wide" },
    verdict(failed, totals), tiles(failed, totals),
    T.el("div", { class: "bar", role: "img", "aria-label": `Outcomes: ${words(totals)}` }, T.stack(totals)),
    T.el("div", { class: "legend" }, D.names.map((name, at) => (totals[at] ? T.to({ view: "cases", outcome: [name] }, {}, T.el("i", { class: `dot f-${T.tone(name)}` }, T.glyph(name)), `${name} ${T.number(totals[at])}`) : null))),
    causes(groups, failed), shared(), waived(groups), unavailable(groups), statements()));
  return { nodes: [view], ready: () => {} };
};

const words = (totals) => D.names.map((name, at) => [name, totals[at]]).filter(([, n]) => n).map(([name, n]) => `${n} ${name}`).join(", ");

const verdict = (failed, totals) => {
  const head = D.head;
  let tone = "good", text = "Nothing failed", more = "";
  if (failed && head.conformance.startsWith("CONFORMANT")) [tone, text] = ["warn", `${T.count(failed, "optional case")} failed`];
  else if (failed) [tone, text] = ["bad", `${T.count(failed, "case")} failed`];
  else if (!head.executed) [tone, text] = ["warn", "Nothing was executed"];
  else if (head.conformance === "NOT CONFORMANT") [tone, text] = ["bad", "The profile is not met"];
  else if (head.conformance === "INCOMPLETE") [tone, text] = ["warn", "Nothing failed, but required cases were not executed"];
  if (head.truncated) more = "This run did not reach its end: cases without a result are not here.";
  else if (head.interrupted) more = "This run was interrupted.";
  if (head.truncated && !failed) tone = "warn";
  const exit = head.exit_code === null ? "" : `exit code ${head.exit_code}`;
  return T.el("div", { class: `verdict ${tone}` }, T.el("h1", { tabindex: "-1" }, text),
    head.conformance && T.el("span", { class: `chip t-${head.conformance.startsWith("CONFORMANT") ? "pass" : "bad"}` }, head.conformance),
    T.el("span", { class: "dim" }, [more, exit].filter(Boolean).join(" · ")),
    head.remark && T.el("p", { class: "remark" }, head.remark));
};

const tiles = (failed, totals) => {
  const head = D.head, at = (name) => totals[D.names.indexOf(name)];
  const tile = (value, text) => T.el("div", { class: "tile" }, T.el("b", {}, value), T.el("span", {}, text));
  return T.el("div", { class: "tiles" },
    tile(T.number(head.executed), "executed"),
    tile(T.number(head.required), head.of_profile ? `required by ${head.of_profile}` : "selected"),
    tile(T.number(at("UNAVAILABLE")), "unavailable here"),
    tile(T.number(failed), "failed"),
    head.seconds !== null && tile(T.seconds(head.seconds), "in all"),
    tile(head.environment.torch || "?", "torch"),
    tile(head.environment.device || "CPU", head.environment.device ? "device" : head.environment.cpu || "device"));
};

// Cases with the same outcome and reason, and failures of one cause, in the order of the page.
const grouped = () => {
  const found = new Map();
  for (const i of D.byOutcome) {
    if (D.names[D.outcome[i]] === "PASS") break; // the last in this order
    const first = D.first_of_cause[i] ?? i, key = D.outcome[first] * 0x1000000 + D.reason[first];
    const group = found.get(key);
    if (!group) found.set(key, { outcome: D.names[D.outcome[i]], fails: D.failure[D.outcome[i]], reason: D.reasons[D.reason[i]][1], first: i, ids: [i], count: 1 });
    else { group.count++; if (group.ids.length < MOST_IDS) group.ids.push(i); }
  }
  return [...found.values()];
};

const causes = (groups, failed) => {
  if (!failed) return null;
  const found = groups.filter((group) => group.fails);
  const row = (group) => {
    const node = T.to({ view: "case", id: T.id(group.first), outcome: [group.outcome] }, { class: "cause" }, T.el("span", {}, T.chip(group.outcome)), T.idNode(group.first),
      T.el("span", { class: "more dim" }, group.count > 1 ? `and ${group.count - 1} more` : T.seconds(D.ms[group.first] / 1000)),
      T.el("span", { class: "why" }, group.reason));
    return node;
  };
  return T.el("section", { "aria-label": "Failures" }, T.el("h2", {}, "What failed"),
    T.el("div", { class: "card" }, found.slice(0, MOST_CAUSES).map(row),
      found.length > MOST_CAUSES && T.to({ view: "cases", outcome: D.names.filter((_, at) => D.failure[at]) }, { class: "cause" }, T.el("span", {}), T.el("span", {}, `${found.length - MOST_CAUSES} more reasons: all failures`))));
};

// What the failing cases of a spec have in common, and how many failed by the values of two keys.
const shared = () => (D.shared.length ? T.el("section", { "aria-label": "What the failing cases share" }, T.el("h2", {}, "What the failing cases share"), D.shared.map(([spec, text, keys]) => {
  const found = new Map(), seen = keys.map(() => new Set());
  for (let i = 0; i < D.n; i++) {
    const [, , executed] = D.outcomes[D.outcome[i]];
    if (!executed || D.prefix[D.spec[i]] !== spec) continue;
    const params = new Map([["backend", D.backends[D.backend[i]]], ...D.params[D.point[i]]]);
    const place = keys.map((key) => params.get(key) ?? "");
    place.forEach((value, at) => seen[at].add(value));
    const counts = found.get(JSON.stringify(place)) || [0, 0];
    found.set(JSON.stringify(place), [counts[0] + D.failure[D.outcome[i]], counts[1] + 1]);
  }
  const [rows, columns] = [[...seen[0]], keys.length > 1 ? [...seen[1]] : [null]];
  const cellOf = (row, column) => {
    const [bad, all] = found.get(JSON.stringify(column === null ? [row] : [row, column])) || [0, 0];
    const state = { view: "cases", spec, [T.filterOf(keys[0])]: [row], ...(column === null ? {} : { [T.filterOf(keys[1])]: [column] }) };
    return T.el("td", { class: "num" }, all > 0 && T.to(state, { class: bad ? "failed" : "held" }, `${bad} of ${all}`));
  };
  return T.el("div", { class: "card shared" }, T.el("p", {}, text), rows.length <= 12 && columns.length <= 12 && T.el("table", { class: "grid" },
    T.el("thead", {}, T.el("tr", {}, T.el("th", { scope: "col" }, keys.join(" \\ ")), columns.map((name) => T.el("th", { scope: "col", class: "num" }, name ?? "failed")))),
    T.el("tbody", {}, rows.map((row) => T.el("tr", {}, T.el("th", { scope: "row" }, row), columns.map((column) => cellOf(row, column)))))));
})) : null);

const fold = (group) => (group.count === 1 ? T.el("div", { class: "cause" }, T.el("span", {}, T.chip(group.outcome)), T.to({ view: "case", id: T.id(group.first) }, {}, T.idNode(group.first)), T.el("span", {}), T.el("span", { class: "why" }, T.linked(group.reason))) : folder(group));

const folder = (group) => {
  const inside = T.el("div", { class: "in" });
  const fill = () => {
    if (inside.firstChild) return;
    T.add(inside, [T.el("ul", { class: "ids" }, group.ids.map((i) => T.el("li", {}, T.to({ view: "case", id: T.id(i) }, {}, T.idNode(i))))),
      group.count > group.ids.length && T.to({ view: "cases", outcome: [group.outcome], reason: group.reason }, {}, `all ${T.number(group.count)}`)]);
  };
  return T.el("details", { class: "fold", ontoggle: fill }, T.el("summary", {}, T.el("span", { class: "count" }, T.number(group.count)), T.linked(group.reason)), inside);
};

const folded = (title, groups, note) => (groups.length ? T.el("section", { "aria-label": title }, T.el("h2", {}, title), note && T.el("p", { class: "dim", style: { margin: "0 0 8px" } }, note),
  T.el("div", { class: "card" }, groups.sort((a, b) => b.count - a.count).slice(0, MOST_CAUSES).map(fold),
    groups.length > MOST_CAUSES && T.to({ view: "cases", outcome: [groups[0].outcome] }, { class: "cause" }, T.el("span", {}), T.el("span", {}, `${T.number(groups.length - MOST_CAUSES)} more reasons`)))) : null);

const waived = (groups) => folded("Known failures", groups.filter((group) => group.outcome === "XFAIL"), "A waiver with an issue and an end date covers each of them.");
const unavailable = (groups) => folded("Unavailable here, by reason", groups.filter((group) => group.outcome === "UNAVAILABLE"), "These cases were not executed. They count as neither passed nor failed.");

const statements = () => {
  const offline = D.names.filter((name) => name.startsWith("OFFLINE") && D.head.totals[name]);
  return [D.head.remarks.map((text) => T.el("p", { class: "dim" }, `${text}.`)), offline.length > 0 && T.el("p", { class: "dim" }, "Cases that were compiled for another GPU and not executed never count as passed.")];
};

const step = (by) => {
  const links = [...document.querySelectorAll(".view a.cause, .view summary")];
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, at + by))].focus();
};
