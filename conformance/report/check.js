// The report of `mytorch check`.
const routes = ["native", "view", "composite", "fallback", "none"];
const shades = {native: "var(--c2)", view: "var(--c0)", composite: "var(--c1)", fallback: "var(--c3)", none: "transparent"};
const meanings = {native: "a kernel of the operator", view: "no kernel is necessary", composite: "kernels of the operators into which it decomposes",
  fallback: "at least one kernel of the CPU", none: "refused, as by the reference"};
const order = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64", "complex128"];
const rank = type => order.includes(type) ? order.indexOf(type) : order.length;
const slowest = counts => ["fallback", "composite", "native", "view"].find(route => counts[route] > 0) || "none";
const name = run => run.backend || `chosen on ${run.device}`;

page.append(make("h1", {}, "mytorch check"),
  make("p", {}, `${data.runs.map(name).join(", ")} · seed ${data.runs[0].seed} · ${data.date} · mytorch ${data.version}`),
  make("nav", {}, [["score", "Score"], ["operators", "Operators by type and route"], ["failures", "Failures"]]
    .map(([id, text]) => make("a", {href: "#" + id}, text))));

// ---- the score ----

page.append(make("h2", {id: "score"}, "Score"));
for (const run of data.runs) {
  const score = run.score, share = part => `${(100 * part / score.operators).toFixed(1)} %`;
  page.append(make("h3", {}, `${name(run)} on ${run.device}`), tiles([
    [`${score.passed} / ${score.operators}`, "operators pass"],
    [String(score.failed), `cases failed, of ${score.cases}`],
    [share(score.native), `native: ${score.native} operators`, meanings.native],
    [share(score.composite), `composite: ${score.composite}`, meanings.composite],
    [share(score.views), `views: ${score.views}`, meanings.view],
    [share(score.fallback), `need the fallback: ${score.fallback}`, meanings.fallback],
  ]));
  const promises = run.contract || [];
  if (promises.length) page.append(make("details", {}, make("summary", {},
    `contract: ${promises.filter(one => one.passed).length} of ${promises.length} promises kept`),
    make("pre", {}, promises.map(one => `${one.passed ? "pass" : "FAIL"}  ${one.test}  ${one.what || ""}`).join("\n"))));
}

// ---- operators by type and route ----

const ops = new Map();  // by name, the results of each run
data.runs.forEach((run, index) => run.ops.forEach(op => {
  if (!ops.has(op.op)) ops.set(op.op, {op: op.op, of: []});
  ops.get(op.op).of[index] = op;
}));
const types = [...new Set(data.runs.flatMap(run => run.ops.flatMap(op => Object.keys(op.types))))]
  .sort((a, b) => rank(a) - rank(b) || a.localeCompare(b));

page.append(make("h2", {id: "operators"}, "Operators by type and route"),
  make("p", {}, "The color of a cell is the slowest route of the type's cases; a ring marks failures. worst is the largest error of an element as a fraction of the allowed error."));
const search = make("input", {type: "search", id: "filter", placeholder: "operator …", "aria-label": "filter", input: () => filter()});
const only = make("select", {id: "route", "aria-label": "route", change: () => filter()},
  [["", "all routes"], ["failed", "failed"], ...routes.slice(0, 4).map(route => [route, route])].map(([value, text]) => make("option", {value}, text)));
const box = (route, failed) => make("i", {class: "cell", style: `background:${shades[route]};` +
  (failed ? "box-shadow:0 0 0 2px var(--card),0 0 0 4px var(--bad)" : route === "none" ? "border:1px solid var(--line)" : "")});
page.append(make("div", {class: "tools"}, search, only, routes.map(route =>
  make("span", {class: "key", title: meanings[route]}, box(route, false), route === "none" ? "refused" : route))));

const cell = (row, index, type) => {
  const found = row.of[index] && row.of[index].types[type];
  if (!found) return make("span");
  const route = slowest(found.routes);
  const line = `${row.op}, ${type}, ${name(data.runs[index])}\n${found.cases} cases, ${found.failed} failed, ${found.refused} refused, worst ${found.worst.toPrecision(2)}\n` +
    Object.entries(found.routes).filter(([, count]) => count > 0).map(([which, count]) => `${count} ${which === "none" ? "refused" : which}`).join(", ");
  return make("span", {"data-type": type, "data-route": route, "data-failed": found.failed || null, ...hint(line)}, box(route, found.failed > 0));
};
const routeOf = (row, index) => row.of[index] ? row.of[index].route : "";
const short = type => type.replace("bfloat", "bf").replace("float", "f").replace("uint", "u").replace("int", "i").replace("complex", "c");
const rows = [...ops.values()];
const matrix = table("matrix", [
  {title: "operator", value: row => row.op, cell: row => make("b", {}, row.op)},
  ...data.runs.flatMap((run, index) => [
    {title: data.runs.length > 1 ? name(run) : "route", value: row => routeOf(row, index), cell: row => {
      const op = row.of[index];
      return op ? make("span", {class: op.failed ? "bad" : "soft"}, op.failed ? `${op.failed} failed` : op.route) : "";
    }},
    ...types.map(type => ({title: short(type), hint: type, value: row => {
      const found = row.of[index] && row.of[index].types[type];
      return found ? (found.failed ? "0" : "1") + routes.indexOf(slowest(found.routes)) : "";
    }, cell: row => cell(row, index, type)})),
    {title: "cases", number: true, value: row => row.of[index] && row.of[index].cases},
    {title: "worst", number: true, value: row => row.of[index] && row.of[index].worst, cell: row => row.of[index] ? row.of[index].worst.toPrecision(2) : ""},
  ]),
], rows, row => ({"data-op": row.op}));
page.append(matrix);
function filter() {
  const wanted = words(search.value);
  matrix.filter(row => wanted.every(word => row.op.toLowerCase().includes(word)) &&
    (!only.value || row.of.some(op => op && (only.value === "failed" ? op.failed > 0 : op.route === only.value || Object.values(op.types).some(type => type.routes[only.value] > 0)))));
}

// ---- failures ----

const failures = data.runs.flatMap(run => run.ops.flatMap(op => op.failures.map(failure => ({...failure, op: op.op, run: name(run)}))));
page.append(make("h2", {id: "failures"}, "Failures"));
if (failures.length === 0) page.append(make("p", {class: "good"}, "None."));
else page.append(table("failed", [
  {title: "operator", value: row => row.op},
  {title: "backend", value: row => row.run},
  {title: "case", number: true, value: row => row.case},
  {title: "check", value: row => row.check},
  {title: "call", value: row => row.arguments, class: "mono"},
  {title: "problem", value: row => row.what, cell: row => make("span", {}, row.what)},
  {title: "likely", value: row => row.likely},
  {title: "repeat", value: row => row.reproducer, cell: row => make("span", {}, copies(row.reproducer), " ", make("code", {}, row.reproducer))},
], failures, row => ({"data-failure": row.op})));
