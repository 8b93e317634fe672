// The report of `mytorch bench`.
const colors = new Map();
function color(label) {
  if (!colors.has(label)) colors.set(label, `var(--c${Math.min(colors.size, 7)})`);
  return colors.get(label);
}
const rows = data.rows.map((row, index) => ({...row, index, key: [row.device, row.case, row.dtype, row.cache, row.threads].join(" ")}));
const measured = [...new Set(rows.map(row => row.backend))];
measured.forEach(color);
const files = data.files.map(file => ({...file, color: color(file.label)}));
const called = backend => backend === "-" ? "no kernel" : backend;
const threads = [...new Set(rows.map(row => row.threads))].join(", ");
const fits = (row, other) => other.case === row.case && (!other.cache || other.cache === row.cache) &&
  (!other.dtype || other.dtype === row.dtype) && (!other.threads || other.threads === row.threads) &&
  (!other.device || other.device === row.device);
const median = values => { const all = [...values].sort((a, b) => a - b); return all.length ? (all[(all.length - 1) >> 1] + all[all.length >> 1]) / 2 : NaN; };
const spread = row => row.seconds > 0 ? row.deviation / row.seconds : 0;

// ---- the head ----

page.append(
  make("h1", {}, "mytorch bench"),
  make("p", {}, `${data.machine.processor}, ${data.machine.processors} processors, ${threads} thread${threads === "1" ? "" : "s"} · ` +
    `${data.machine.host} · ${data.machine.date} · mytorch ${data.machine.version} (${data.machine.build})`),
  make("nav", {}, [["rooflines", "Rooflines"], data.changes && ["changes", "Against the baseline"], ["cases", "Case by case"],
    ["rows", "All rows"]].filter(Boolean).map(([id, text]) => make("a", {href: "#" + id}, text))));

const noise = median(rows.map(spread));
const noisy = rows.filter(row => spread(row) > 0.1).length;
page.append(tiles([
  ...data.devices.flatMap(device => [
    [amount(device.copy, "B/s"), `${device.name}: copy`, "what a copy far beyond the caches moves"],
    device.read > 0 && [amount(device.read, "B/s"), `${device.name}: read`, "what a sum far beyond the caches reads"],
    [amount(device.multiply_add, "FLOP/s"), `${device.name}: ${device.name === "cpu" ? "multiply-add, float32" : "products, bfloat16"}`, ""],
  ]),
  [percent(noise), `noise: the median ± of ${rows.length} rows`, "half of the rounds of a row lie within its ±"],
  [String(noisy), "rows with a ± above 10 %", "what they say about speed is uncertain"],
  [figure(data.machine.load), `load before the run, of ${data.machine.processors} processors`, "programs that wanted a processor, in the last minute"],
]));

// ---- rooflines ----

const section = (id, title, ...text) => {
  page.append(make("h2", {id}, title));
  for (const each of text) page.append(make("p", {}, each));
};

function goTo(row) {
  document.querySelectorAll("tr.marked").forEach(line => line.classList.remove("marked"));
  const line = document.getElementById("row-" + row.index);
  line.hidden = false;
  line.classList.add("marked");
  line.scrollIntoView({block: "center", behavior: "smooth"});
}
const describe = row => `${row.case}  ${row.dtype}  ${row.backend}\n${duration(row.seconds)} ± ${percent(spread(row))}` +
  (row.bytes > 0 ? `\n${amount(row.bytes / row.seconds, "B/s")}` : "") + (row.flops > 0 ? `\n${amount(row.flops / row.seconds, "FLOP/s")}` : "") +
  (row.limit ? `\n${percent(row.share)} of the limit (${row.limit})` : "") + (row.kernels ? `\n${row.kernels}` : "");

const decade = (power, unit) => amount(10 ** power, unit).replace(/\.0+ /, " ");
function ticks(low, high) {
  const all = [];
  for (let power = Math.floor(low); power <= Math.ceil(high); ++power) if (power >= low - 1e-9 && power <= high + 1e-9) all.push(power);
  return all;
}

function roofline(device) {
  const here = rows.filter(row => row.device === device.name);
  const arithmetic = here.filter(row => row.flops > 0 && row.bytes > 0);
  const memory = here.filter(row => !(row.flops > 0) && row.bytes > 0);
  const products = here.filter(row => row.flops > 0 && !(row.bytes > 0));
  const neither = here.length - arithmetic.length - memory.length - products.length;
  const width = 1180, height = 430, top = 16, bottom = 392, laneLeft = 62, laneRight = 190, left = 262, right = 1160;
  const log = Math.log10, bw = device.copy, peak = device.multiply_add;
  const xs = arithmetic.map(row => log(row.flops / row.bytes)), ridge = log(peak / bw);
  const x0 = Math.floor(Math.min(-1.5, ridge - 1, ...xs)), x1 = Math.ceil(Math.max(ridge + 1, ...xs) + 0.1);
  const ys = [...arithmetic, ...products].map(row => log(row.flops / row.seconds));
  const y0 = Math.floor(Math.min(log(bw) + x0, ...ys)), y1 = Math.max(log(peak), ...ys) + 0.35;
  const m = memory.map(row => log(row.bytes / row.seconds));
  const m0 = Math.floor(Math.min(log(bw) - 1, ...m)), m1 = Math.max(log(bw), ...m) + 0.35;
  const scale = (low, high, from, to) => value => from + (value - low) / (high - low) * (to - from);
  const x = scale(x0, x1, left, right), y = scale(y0, y1, bottom, top), lane = scale(m0, m1, bottom, top);
  const svg = make("svg", {viewBox: `0 0 ${width} ${height}`, role: "img", class: "roofline", "data-device": device.name,
    "aria-label": `Roofline of ${device.name}`});
  const text = (tx, ty, what, more = {}) => make("text", {x: tx, y: ty, ...more}, what);
  for (const p of ticks(x0, x1)) svg.append(make("line", {class: "grid-line", x1: x(p), x2: x(p), y1: top, y2: bottom}),
    text(x(p), bottom + 16, String(Number((10 ** p).toPrecision(1))), {"text-anchor": "middle"}));
  for (const p of ticks(y0, y1)) svg.append(make("line", {class: "grid-line", x1: left, x2: right, y1: y(p), y2: y(p)}),
    text(left - 6, y(p) + 4, decade(p, "FLOP/s"), {"text-anchor": "end"}));
  for (const p of ticks(m0, m1)) svg.append(make("line", {class: "grid-line", x1: laneLeft, x2: laneRight, y1: lane(p), y2: lane(p)}),
    text(laneLeft - 6, lane(p) + 4, decade(p, "B/s"), {"text-anchor": "end"}));
  svg.append(text((left + right) / 2, bottom + 33, "operations per byte", {"text-anchor": "middle"}),
    text((laneLeft + laneRight) / 2, bottom + 16, "moves memory only", {"text-anchor": "middle"}));
  const roof = p => Math.min(log(bw) + p, log(peak));
  svg.append(make("polyline", {class: "roof", points: [x0, ridge, x1].map(p => `${x(p)},${y(roof(p))}`).join(" ")}),
    make("line", {class: "roof", x1: laneLeft, x2: laneRight, y1: lane(log(bw)), y2: lane(log(bw))}));
  const slope = -Math.atan2(y(y0) - y(y0 + 1), x(x0 + 1) - x(x0)) * 180 / Math.PI;
  const at = x0 + 0.35;
  svg.append(text(0, -6, `copy ${amount(bw, "B/s")}`, {class: "roof-text", transform: `translate(${x(at)} ${y(roof(at))}) rotate(${slope})`}),
    text(right, y(log(peak)) - 6, `${device.name === "cpu" ? "multiply-add" : "products"} ${amount(peak, "FLOP/s")}`, {class: "roof-text", "text-anchor": "end"}),
    text(laneLeft + 2, lane(log(bw)) - 6, `copy ${amount(bw, "B/s")}`, {class: "roof-text"}));
  const point = (row, cx, cy) => svg.append(make("circle", {class: "point", cx, cy, r: 4.6, fill: color(row.backend), "data-case": row.case,
    "data-backend": row.backend, "data-suite": row.suite, click: () => goTo(row), ...hint(describe(row))}));
  arithmetic.forEach(row => point(row, x(log(row.flops / row.bytes)), y(log(row.flops / row.seconds))));
  products.forEach(row => point(row, right - 8, y(log(row.flops / row.seconds))));
  memory.forEach((row, index) => point(row, laneLeft + 8 + (index * 37 % 113), lane(log(row.bytes / row.seconds))));

  const backends = [...new Set(here.map(row => row.backend))], off = new Set();
  const suites = make("select", {"aria-label": "suite", change: () => paint()}, make("option", {value: ""}, "all suites"),
    [...new Set(here.map(row => row.suite))].filter(Boolean).map(suite => make("option", {value: suite}, suite)));
  const paint = () => svg.querySelectorAll(".point").forEach(dot => dot.classList.toggle("faded",
    off.has(dot.dataset.backend) || (suites.value && dot.dataset.suite !== suites.value)));
  const keys = backends.map(backend => make("button", {class: "key", click: event => {
    if (!off.delete(backend)) off.add(backend);
    event.currentTarget.classList.toggle("off", off.has(backend));
    paint();
  }}, make("i", {style: `background:${color(backend)}`}), called(backend)));
  page.append(make("h3", {}, device.name), make("div", {class: "tools"}, keys, suites,
    neither ? make("span", {class: "soft"}, `${neither} rows do no work that counts: they are only in the tables`) : ""),
    make("div", {class: "card"}, svg));
}
section("rooflines", "Rooflines", "Each dot is a row: its arithmetic against the operations that it does per byte. The line is what the machine " +
  "can do from memory; a case within a cache may lie above it. A click leads to the row.");
data.devices.forEach(roofline);

// ---- the baseline ----

if (data.changes) {
  const slower = data.changes.filter(change => change.verdict === "slower").length;
  const faster = data.changes.filter(change => change.verdict === "faster").length;
  section("changes", "Against the baseline", `${data.baseline}: ${slower} slower, ${faster} faster, ` +
    `${data.changes.length - slower - faster} within their spread. A row changed if the medians differ by more than three times both ± together, and by more than 2 %.`);
  page.append(table("baseline", [
    {title: "case", value: change => change.case},
    {title: "type", value: change => change.dtype},
    {title: "backend", value: change => called(change.backend)},
    {title: "cache", value: change => change.cache},
    {title: "before", number: true, value: change => change.before, cell: change => `${duration(change.before)} ± ${percent(change.before_deviation / change.before)}`},
    {title: "now", number: true, value: change => change.now, cell: change => `${duration(change.now)} ± ${percent(change.now_deviation / change.now)}`},
    {title: "now / before", number: true, value: change => change.now / change.before, cell: change => (change.now / change.before).toFixed(3)},
    {title: "", value: change => change.verdict, cell: change => make("span", {class: change.verdict === "slower" ? "bad" : change.verdict === "faster" ? "good" : "soft"}, change.verdict)},
    {title: "repeat", value: change => change.command, cell: change => copies(change.command)},
  ], [...data.changes].sort((a, b) => b.now / b.before - a.now / a.before), change => ({"data-verdict": change.verdict})));
}

// ---- case by case ----

const groups = new Map();
for (const row of rows) {
  if (!groups.has(row.key)) groups.set(row.key, []);
  groups.get(row.key).push(row);
}
for (const group of groups.values()) group.sort((a, b) => a.seconds - b.seconds);
const beside = row => files.flatMap(file => file.rows.filter(other => fits(row, other)).map(other => ({...other, file})));

// The speedup of the fastest row of each case over each file.
const means = files.map(file => {
  const logs = [];
  for (const [best] of groups.values()) {
    const theirs = beside(best).filter(other => other.file === file).map(other => other.seconds).filter(seconds => seconds > 0);
    if (theirs.length) logs.push(Math.log(Math.min(...theirs) / best.seconds));
  }
  return {file, cases: logs.length, mean: Math.exp(logs.reduce((a, b) => a + b, 0) / logs.length)};
}).filter(each => each.cases > 0);

section("cases", "Case by case", "Shorter is faster. The thin line is ±, the dotted one the machine's limit for the case.");
if (means.length) page.append(tiles(means.map(each =>
  [figure(each.mean) + " ×", `as fast as ${each.file.label}, geometric mean of ${each.cases} cases`, "the fastest backend of each case"])));
const cards = make("div", {class: "grid"});
const search = make("input", {type: "search", placeholder: "case, suite, type, backend …", "aria-label": "filter", id: "filter", input: () => filter()});
page.append(make("div", {class: "tools"}, search, [...measured.map(label => [called(label), color(label)]), ...files.map(file => [file.label, file.color])]
  .map(([label, shade]) => make("span", {class: "key"}, make("i", {style: `background:${shade}`}), label))), cards);
for (const group of groups.values()) {
  const [best] = group;
  const bars = [...group.map(row => ({label: called(row.backend), seconds: row.seconds, deviation: row.deviation, shade: color(row.backend), row})),
    ...beside(best).map(other => ({label: other.file.label + (other.backend && other.backend !== other.file.label ? ` ${other.backend}` : ""),
      seconds: other.seconds, deviation: other.deviation || 0, shade: other.file.color}))];
  const longest = Math.max(...bars.map(bar => bar.seconds + bar.deviation));
  const at = seconds => `${(100 * Math.min(seconds / longest, 1)).toFixed(2)}%`;
  cards.append(make("div", {class: "card", "data-case": best.case, "data-words": `${best.suite} ${best.case} ${best.dtype} ${best.cache} ${best.device} ${bars.map(bar => bar.label).join(" ")}`.toLowerCase()},
    make("div", {class: "case"}, make("span", {}, best.case, " ", make("small", {}, `${best.dtype}${best.cache === "cold" ? ", cold" : ""}${data.devices.length > 1 ? ", " + best.device : ""}`)),
      make("small", {}, best.limit ? `${percent(best.share)} of ${best.limit}` : best.suite)),
    bars.map(bar => make("div", {class: "bar", "data-label": bar.label, ...hint(bar.row ? describe(bar.row) : `${bar.label}: ${duration(bar.seconds)}`), click: () => bar.row && goTo(bar.row)},
      make("span", {}, bar.label),
      make("div", {class: "track"}, make("div", {class: "fill", style: `width:${at(bar.seconds)};background:${bar.shade}`}),
        bar.deviation > 0 ? make("div", {class: "spread", style: `left:${at(bar.seconds - bar.deviation)};width:${at(2 * bar.deviation)}`}) : "",
        bar.row && bar.row.limit_seconds > 0 ? make("div", {class: "limit", style: `left:${at(bar.row.limit_seconds)}`}) : ""),
      make("span", {}, duration(bar.seconds))))));
}

// ---- all rows ----

section("rows", "All rows", "A click on a head sorts; the filter above applies. The line that repeats a row is at its end.");
const ratio = value => value === undefined ? "" : make("span", {class: value >= 1 ? "good" : "bad"}, value.toFixed(2) + " ×");
const over = (row, file) => {
  const theirs = file.rows.filter(other => fits(row, other)).map(other => other.seconds).filter(seconds => seconds > 0);
  return theirs.length ? Math.min(...theirs) / row.seconds : undefined;
};
const all = table("all", [
  {title: "suite", value: row => row.suite},
  {title: "case", value: row => row.case},
  {title: "type", value: row => row.dtype},
  data.devices.length > 1 && {title: "device", value: row => row.device},
  {title: "backend", value: row => row.backend, cell: row => make("span", {}, make("i", {class: "cell", style: `background:${color(row.backend)}`}), " " + called(row.backend))},
  {title: "cache", value: row => row.cache},
  {title: "time", number: true, value: row => row.seconds, cell: row => duration(row.seconds)},
  {title: "±", number: true, value: spread, cell: row => make("span", {class: spread(row) > 0.1 ? "warn" : "soft"}, percent(spread(row)))},
  {title: "GB/s", number: true, value: row => row.bytes > 0 ? row.bytes / row.seconds : undefined, cell: row => row.bytes > 0 ? figure(row.bytes / row.seconds * 1e-9) : ""},
  {title: "GFLOP/s", number: true, value: row => row.flops > 0 ? row.flops / row.seconds : undefined, cell: row => row.flops > 0 ? figure(row.flops / row.seconds * 1e-9) : ""},
  {title: "of limit", number: true, value: row => row.limit ? row.share : undefined, cell: row => row.limit ? `${percent(row.share)} ${row.limit}` : ""},
  ...files.map(file => ({title: "vs " + file.label, number: true, hint: "how many times as fast as in " + file.path, value: row => over(row, file), cell: row => ratio(over(row, file))})),
  {title: "kernels", value: row => row.kernels, class: "mono"},
  {title: "repeat", value: row => row.command, cell: row => make("span", {}, copies(row.command), " ", make("code", {}, row.command))},
].filter(Boolean), rows, row => ({id: "row-" + row.index, "data-case": row.case, "data-backend": row.backend}));
page.append(all);
function filter() {
  const wanted = words(search.value);
  for (const card of cards.children) card.hidden = !wanted.every(word => card.dataset.words.includes(word));
  all.filter(row => wanted.every(word => `${row.suite} ${row.case} ${row.dtype} ${row.device} ${row.backend} ${row.cache} ${row.kernels}`.toLowerCase().includes(word)));
}
