"use strict";
const $ = (id) => document.getElementById(id);
const TABS = ["overview", "stages", "fusion", "kernels", "timeline", "search", "compare"];
const state = { run: 0, tab: "overview", graph: "", step: -1, box: "" };
let data = null;

async function unpack() {
  const bytes = Uint8Array.from(atob($("data").textContent.trim()), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).json();
}

function make(tag, attributes = {}, ...children) {
  const svg = ["svg", "rect", "text", "title", "g", "circle", "line", "path"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") node.addEventListener("click", value);
    else if (value !== null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

const run = () => data.runs[state.run];
const text = (number) => (number < 0 ? "" : data.texts[number]);
const seconds = (s) => (s >= 1 ? s.toFixed(2) + " s" : (s * 1000).toFixed(1) + " ms");
const counted = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
function bytes(n) {
  if (!n) return "?";
  for (const unit of ["B", "KB", "MB", "GB"]) {
    if (n < 1000) return (unit === "B" ? n : n.toFixed(1)) + " " + unit;
    n /= 1000;
  }
  return n.toFixed(1) + " TB";
}

/* -- the current position: it is in the address, so that a link can be sent -------------------- */

function writePlace() {
  if (location.protocol === "about:") return; // a cell of a notebook has no address
  const parts = new URLSearchParams({ r: state.run, v: state.tab });
  if (state.graph) { parts.set("g", state.graph); parts.set("s", state.step); }
  if (state.box && state.tab === "fusion") parts.set("b", state.box);
  history.replaceState(null, "", "#" + parts);
}

function readPlace() {
  const parts = new URLSearchParams(location.hash.slice(1));
  state.run = Math.min(Number(parts.get("r")) || 0, data.runs.length - 1);
  state.tab = TABS.includes(parts.get("v")) ? parts.get("v") : "overview";
  state.graph = parts.get("g") || "";
  state.box = parts.get("b") || "";
  state.step = parts.has("s") ? Number(parts.get("s")) : -1;
}

/* A tab that would be empty is hidden. */
const FILLED = {
  stages: (r) => r.graphs.length, fusion: (r) => r.graphs.some((g) => g.flow), kernels: (r) => r.kernels.length,
  timeline: (r) => r.spans.length, search: (r) => r.history.length,
};
const filled = (tab) => !FILLED[tab] || Boolean(FILLED[tab](run()));

function show() {
  if (!filled(state.tab)) state.tab = "overview";
  for (const section of document.querySelectorAll(".overview")) {
    section.hidden = state.tab !== "overview" || Number(section.dataset.run) !== state.run;
  }
  if (!$(state.tab) && state.tab !== "overview") state.tab = "overview";
  for (const tab of TABS.slice(1)) if ($(tab)) $(tab).hidden = state.tab !== tab;
  for (const button of $("tabs").children) {
    button.setAttribute("aria-current", button.dataset.tab === state.tab);
    button.hidden = !filled(button.dataset.tab);
  }
  if ($("run")) $("run").value = state.run;
  ({ stages: drawStages, fusion: drawFusion, kernels: drawKernels, timeline: drawTimeline, search: drawSearch })[state.tab]?.();
  writePlace();
}

/* -- stages ------------------------------------------------------------------------------------ */

function rows() {
  const wanted = $("find").value.trim().toLowerCase();
  const hide = $("unchanged").checked;
  const found = [];
  for (const graph of run().graphs) {
    graph.steps.forEach((step, k) => {
      const fits = !wanted || step.name.toLowerCase().includes(wanted)
        || text(step.after).toLowerCase().includes(wanted);
      if (fits && (wanted || !hide || step.changed)) found.push([graph, step, k]);
    });
  }
  return found;
}

function drawStages() {
  const list = rows();
  if (state.step < 0 && list.length) [state.graph, state.step] = [list[0][0].name, list[0][2]];
  const tree = $("tree");
  tree.replaceChildren();
  let last = null;
  for (const [graph, step, k] of list) {
    if (graph !== last) tree.append(make("div", { class: "graph" }, graph.name));
    last = graph;
    const chosen = graph.name === state.graph && k === state.step;
    const note = step.off ? "off" : [step.nodes, step.seconds ? seconds(step.seconds) : ""].filter(Boolean).join("  ");
    tree.append(make("button", {
      type: "button", role: "treeitem", "aria-selected": chosen,
      class: "row" + (step.depth ? " pass" : "") + (step.changed ? "" : " same"),
      on: () => choose(graph.name, k),
    }, make("span", {}, step.name), make("span", { class: "t" + (step.off ? " off" : "") }, note)));
  }
  if (!list.length) tree.append(make("p", { class: "hint" }, "no match"));
  tree.querySelector("[aria-selected=true]")?.scrollIntoView({ block: "nearest" });
  drawDiff();
}

function choose(graph, step) {
  state.graph = graph;
  state.step = step;
  show();
}

function go(by) {
  const list = rows();
  const here = list.findIndex(([graph, , k]) => graph.name === state.graph && k === state.step);
  const next = list[Math.max(0, Math.min(list.length - 1, here < 0 ? 0 : here + by))];
  if (next) choose(next[0].name, next[2]);
}

function drawDiff() {
  const graph = run().graphs.find((g) => g.name === state.graph);
  const step = graph?.steps[state.step];
  if (!step) return;
  const box = $("diff");
  box.replaceChildren(make("h2", {}, `${step.name} · ${graph.name}`));
  if (step.after < 0) return void box.append(make("p", { class: "hint" }, "no text: " + seconds(step.seconds)));
  const alone = step.before < 0 || step.before === step.after;
  if (alone) {
    const what = step.before < 0 ? "output" : "unchanged";
    box.append(make("p", { class: "hint" }, what));
    const lines = text(step.after).split("\n").map((line) => make("div", { class: "code" }, line));
    return void box.append(make("div", { class: "pair one" }, ...lines));
  }
  box.append(pairOf(diff(text(step.before).split("\n"), text(step.after).split("\n"))));
}

/* Lines as [kind, left, right] with "=", "-", "+": the longest common lines, between equal ends. */
function diff(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const x = a.slice(start, a.length - end), y = b.slice(start, b.length - end);
  const out = a.slice(0, start).map((line) => ["=", line]);
  if (x.length * y.length > 6e6) {
    out.push(...x.map((line) => ["-", line]), ...y.map((line) => ["+", line]));
  } else {
    const width = y.length + 1;
    const best = new Uint32Array((x.length + 1) * width);
    for (let i = x.length - 1; i >= 0; i--) {
      for (let j = y.length - 1; j >= 0; j--) {
        best[i * width + j] = x[i] === y[j] ? best[(i + 1) * width + j + 1] + 1
          : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
      }
    }
    let i = 0, j = 0;
    while (i < x.length || j < y.length) {
      if (i < x.length && j < y.length && x[i] === y[j]) { out.push(["=", x[i]]); i++; j++; }
      else if (j >= y.length || (i < x.length && best[(i + 1) * width + j] >= best[i * width + j + 1])) out.push(["-", x[i++]]);
      else out.push(["+", y[j++]]);
    }
  }
  return out.concat(a.slice(a.length - end).map((line) => ["=", line]));
}

function pairOf(lines) {
  const pair = make("div", { class: "pair" });
  const cell = (kind, line) => make("div", { class: "code " + kind }, line ?? "");
  const equal = (line) => [cell("left equal", line), cell("right equal", line)];
  for (let k = 0; k < lines.length;) {
    if (lines[k][0] === "=") {
      let end = k;
      while (end < lines.length && lines[end][0] === "=") end++;
      const head = k === 0 ? 0 : 3, tail = end === lines.length ? 0 : 3;
      if (end - k > head + tail + 3) {
        const hidden = lines.slice(k + head, end - tail);
        lines.slice(k, k + head).forEach(([, line]) => pair.append(...equal(line)));
        const fold = make("button", { type: "button", class: "fold", on: () => fold.replaceWith(...hidden.flatMap(([, l]) => equal(l))) },
          `… ${hidden.length} equal lines`);
        pair.append(fold);
        lines.slice(end - tail, end).forEach(([, line]) => pair.append(...equal(line)));
      } else lines.slice(k, end).forEach(([, line]) => pair.append(...equal(line)));
      k = end;
      continue;
    }
    const gone = [], added = [];
    while (k < lines.length && lines[k][0] !== "=") (lines[k][0] === "-" ? gone : added).push(lines[k++][1]);
    for (let n = 0; n < Math.max(gone.length, added.length); n++) {
      pair.append(n < gone.length ? cell("gone", gone[n]) : cell("empty"),
        n < added.length ? cell("added", added[n]) : cell("empty"));
    }
  }
  return pair;
}

/* A click on a name highlights it everywhere: uses, definitions, lines, kernels. */
function markName(event) {
  if (!globalThis.Highlight || !event.target.closest(".code")) return;
  const at = document.caretPositionFromPoint?.(event.clientX, event.clientY);
  const node = at?.offsetNode;
  if (node?.nodeType !== Node.TEXT_NODE) return;
  const from = node.data.slice(0, at.offset).search(/\w*$/);
  const name = node.data.slice(from).match(/^\w+/)?.[0];
  if (name) mark(name);
}

function mark(name) {
  const ranges = [];
  const word = new RegExp("\\b" + name + "\\b", "g");
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    if (!walker.currentNode.parentElement.closest(".code")) continue;
    for (const match of walker.currentNode.data.matchAll(word)) {
      const range = new Range();
      range.setStart(walker.currentNode, match.index);
      range.setEnd(walker.currentNode, match.index + name.length);
      ranges.push(range);
    }
  }
  CSS.highlights.set("name", new Highlight(...ranges));
}

/* -- fusion: reads before and after loops became kernels ------------------------------------------ */

const WIDE = 132, HIGH = 36, GAP = 16, FALL = 34;
const sum = (numbers) => numbers.reduce((a, b) => a + b, 0);

/* Boxes in rows. Each box is below everything that it reads. */
function layers(boxes) {
  const byName = new Map(boxes.map((b) => [b.name, b])), row = new Map(), readers = new Map();
  for (const b of boxes) {
    const reads = b.reads.filter((r) => byName.has(r));
    row.set(b.name, reads.length ? 1 + Math.max(...reads.map((r) => row.get(r) ?? 0)) : 0);
    for (const r of reads) readers.set(r, [...(readers.get(r) ?? []), b.name]);
  }
  for (const b of boxes) {
    const mine = readers.get(b.name);
    if (b.kind === "input" && mine) row.set(b.name, Math.max(0, Math.min(...mine.map((n) => row.get(n))) - 1));
  }
  const rows = [];
  for (const b of boxes) (rows[row.get(b.name)] ??= []).push(b);
  const filled = rows.filter(Boolean), x = new Map();
  const place = (line) => line.forEach((b, k) => x.set(b.name, (k - (line.length - 1) / 2) * (WIDE + GAP)));
  filled.forEach(place);
  for (let sweep = 0; sweep < 6; sweep++) {
    for (const line of sweep % 2 ? [...filled].reverse() : filled) {
      const near = (b) => (sweep % 2 ? readers.get(b.name) ?? [] : b.reads).filter((n) => x.has(n));
      const want = new Map(line.map((b) => [b, near(b).length ? sum(near(b).map((n) => x.get(n))) / near(b).length : x.get(b.name)]));
      line.sort((a, b) => want.get(a) - want.get(b));
      place(line);
    }
  }
  return { rows: filled, x, readers };
}

const hue = (name) => [...name].reduce((h, c) => (h * 31 + c.charCodeAt(0)) % 360, 7);
const short = (name) => (name.length > 19 ? name.slice(0, 8) + "…" + name.slice(-10) : name);

/* Edges to the output would cross everything, so outputs have a double frame instead. */
function picture(every, title) {
  const boxes = every.filter((b) => b.kind !== "output");
  const returned = new Set(every.find((b) => b.kind === "output")?.reads);
  const { rows: lines, x } = layers(boxes);
  const width = Math.max(...lines.map((l) => l.length)) * (WIDE + GAP) + GAP, height = lines.length * (HIGH + FALL);
  const svg = make("svg", { class: "flow", width, height, viewBox: `${-width / 2} 0 ${width} ${height}`, "aria-label": title, role: "img" });
  const y = new Map();
  lines.forEach((line, k) => line.forEach((b) => y.set(b.name, k * (HIGH + FALL) + 4)));
  const most = Math.max(1, ...boxes.map((b) => b.written));
  const edges = make("g", {}), nodes = make("g", {});
  const byName = new Map(boxes.map((b) => [b.name, b]));
  for (const b of boxes) {
    for (const r of b.reads.filter((n) => y.has(n))) {
      const from = [x.get(r), y.get(r) + HIGH], to = [x.get(b.name), y.get(b.name)], bend = Math.max(20, (to[1] - from[1]) / 2);
      const moved = byName.get(r).written;
      edges.append(make("path", {
        class: "edge", "data-from": r, "data-to": b.name, "stroke-width": (1 + 4 * Math.sqrt(moved / most)).toFixed(1),
        d: `M${from} C${from[0]},${from[1] + bend} ${to[0]},${to[1] - bend} ${to}`,
      }, make("title", {}, `${b.name} reads ${r}: ${bytes(moved)}`)));
    }
    const under = b.kind === "input" ? b.kind : `${b.op.replace(/^aten\./, "").replace(/\.\w+$/, "")} ${b.written ? bytes(b.written) : ""}`;
    const place = { x: x.get(b.name) - WIDE / 2, y: y.get(b.name), width: WIDE, height: HIGH, rx: b.kind === "input" ? 16 : 6 };
    nodes.append(make("g", {
      class: "box " + b.kind + (returned.has(b.name) ? " returned" : ""), tabindex: 0, role: "button", "data-name": b.name, "data-group": b.group,
      "aria-label": `${b.kind} ${b.name}`, on: () => choosebox(b.name, b.group),
    }, make("rect", { class: "ground", ...place }), make("rect", {
      ...place, fill: b.group && b.kind !== "extern" && b.kind !== "input" ? `hsl(${hue(b.group)} 60% 55% / .28)` : "transparent",
    }), make("text", { x: x.get(b.name), y: y.get(b.name) + 15, "text-anchor": "middle" }, short(b.name)),
    make("text", { x: x.get(b.name), y: y.get(b.name) + 29, "text-anchor": "middle", class: "under" }, short(under)),
    make("title", {}, `${b.name}  ${b.op}  ${b.where}`)));
  }
  svg.append(edges, nodes);
  return svg;
}

function drawFusion() {
  const box = $("fusion");
  const graphs = run().graphs.filter((g) => g.flow);
  box.replaceChildren();
  if (!graphs.length) return void box.append(make("p", { class: "hint" }, "no picture: this run kept no graph together with its kernels"));
  const graph = graphs.find((g) => g.name === state.graph) ?? graphs[0];
  state.graph = graph.name;
  const pick = make("select", { "aria-label": "graph" }, ...graphs.map((g) => make("option", { value: g.name, selected: g === graph ? "" : null }, g.name)));
  pick.addEventListener("change", () => { state.graph = pick.value; state.box = ""; state.step = -1; show(); });
  const { before, after, of, grouped } = graph.flow;
  const loops = before.filter((b) => b.moved), kernels = after.filter((b) => b.kind === "kernel");
  const externs = after.filter((b) => b.kind === "extern").length;
  const total = (boxes) => bytes(sum(boxes.map((b) => b.moved)));
  box.append(make("p", {}, pick, ` ${counted(loops.length, of)}, moving ${total(loops)}, became ${counted(kernels.length, "kernel")}, moving ${total(kernels)}; ${counted(externs, "call")} of ATen. `,
    make("span", { class: "dim" }, (grouped ? "Each kernel has a colour. " : "Which kernel computes an operator is recorded by tcdebug run --profile. ") + "Choose a box; the arrow keys follow reads.")),
    make("div", { id: "about", class: "card", "aria-live": "polite" }, make("p", { class: "dim" }, "no box chosen")));
  const pair = make("div", { class: "flows" });
  for (const [boxes, title] of [[before, "before fusion"], [after, "after fusion"]]) {
    pair.append(make("div", { class: "card" }, make("h2", {}, title), make("div", { class: "scroll", tabindex: 0 }, picture(boxes, title))));
  }
  box.append(pair);
  if (state.box) choosebox(state.box, before.concat(after).find((b) => b.name === state.box)?.group ?? "");
}

function choosebox(name, group) {
  state.box = name;
  const { before, after } = run().graphs.find((g) => g.name === state.graph).flow;
  const all = before.concat(after), it = all.find((b) => b.name === name);
  if (!it) return;
  for (const node of document.querySelectorAll("#fusion .box")) {
    const same = node.dataset.name === name;
    node.classList.toggle("chosen", same || (group !== "" && node.dataset.group === group));
  }
  for (const edge of document.querySelectorAll("#fusion .edge")) {
    edge.classList.toggle("chosen", edge.dataset.from === name || edge.dataset.to === name);
  }
  for (const scroll of document.querySelectorAll("#fusion .scroll")) scroll.querySelector(".chosen")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  const readers = (after.some((b) => b.name === name) ? after : before).filter((b) => b.reads.includes(name)).map((b) => b.name);
  const facts = [["reads", it.reads.join(", ")], ["read by", readers.join(", ")], ["writes", it.written ? bytes(it.written) : ""],
    ["moves", it.moved ? bytes(it.moved) : ""], ["line", it.where], ["kernel", it.kind !== "kernel" ? it.group : ""]].filter((f) => f[1]);
  const about = $("about");
  about.replaceChildren(make("h2", {}, `${it.kind} ${it.name} `, make("small", {}, it.op)),
    make("dl", {}, ...facts.flatMap(([k, v]) => [make("dt", {}, k), make("dd", { class: "code" }, v)])));
  const code = run().kernels.find((k) => k.graph === state.graph && k.name === group);
  if (code) about.append(make("button", { type: "button", on: () => openKernel(code) }, "code"));
  writePlace();
}

function openKernel(kernel) {
  state.tab = "kernels";
  show();
  const card = document.querySelector(`#kernels details[data-name="${kernel.name}"][data-graph="${kernel.graph}"]`);
  card.open = true;
  card.scrollIntoView({ block: "start" });
}

function goBox(key) {
  const flow = run().graphs.find((g) => g.name === state.graph)?.flow;
  if (!flow) return;
  const boxes = flow.after.some((b) => b.name === state.box) ? flow.after : flow.before;
  const { rows: lines, readers } = layers(boxes.filter((b) => b.kind !== "output"));
  const line = lines.find((l) => l.some((b) => b.name === state.box)) ?? lines[0];
  const k = line.findIndex((b) => b.name === state.box);
  const next = {
    ArrowUp: boxes.find((b) => b.name === state.box)?.reads[0], ArrowDown: readers.get(state.box)?.[0],
    ArrowLeft: line[k - 1]?.name, ArrowRight: line[k + 1]?.name,
  }[key] ?? (k < 0 ? line[0].name : state.box);
  choosebox(next, boxes.find((b) => b.name === next)?.group ?? "");
}

/* -- kernels ----------------------------------------------------------------------------------- */

function drawKernels() {
  const box = $("kernels");
  const kernels = [...run().kernels].sort((a, b) => b.moved - a.moved);
  const most = Math.max(1, ...kernels.map((k) => k.moved));
  box.replaceChildren();
  if (!kernels.length) box.append(make("p", { class: "hint" }, "no kernel was generated"));
  for (const kernel of kernels) {
    const origins = kernel.origins.map(([node, aten, op, where]) => make("tr", {},
      ...[node, aten, op].map((t) => make("td", { class: "code" }, t)),
      make("td", { class: "code" }, where ? make("button", { type: "button", class: "link", on: () => findLine(where) }, where) : "")));
    const code = make("pre", { class: "code" }, text(kernel.text));
    const facts = kernel.origins.length
      ? make("table", {}, make("thead", {}, make("tr", {}, ...["node", "ATen node", "operator", "line"].map((t) => make("th", {}, t)))), make("tbody", {}, ...origins))
      : make("p", { class: "dim code" }, kernel.computes.join(", "));
    box.append(make("details", { class: "card", "data-name": kernel.name, "data-graph": kernel.graph },
      make("summary", {}, make("code", {}, kernel.name), ` ${kernel.graph} · ${bytes(kernel.moved)} `,
        make("meter", { min: 0, max: most, value: kernel.moved })), facts, code));
  }
  drawLines(box, kernels);
  const missed = run().remarks.filter((r) => r.verdict === "missed").sort((a, b) => b.moved - a.moved);
  if (missed.length) {
    box.append(make("div", { class: "card" }, make("h2", {}, "Not fused"), make("table", {}, make("tbody", {},
      ...missed.map((r) => make("tr", {}, make("td", { class: "n" }, bytes(r.moved)), make("td", {}, make("code", {}, r.where)),
        make("td", { class: "code" }, r.message), make("td", { class: "dim" }, r.graph)))))));
  }
}

/* Every line of the program with its kernels. */
function drawLines(box, kernels) {
  const lines = new Map();
  for (const kernel of kernels) {
    for (const [, , , where] of kernel.origins) if (where) lines.set(where, (lines.get(where) ?? new Set()).add(kernel));
  }
  if (!lines.size) return;
  const rows = [...lines].sort().map(([where, of]) => make("tr", {}, make("td", { class: "code" },
    make("button", { type: "button", class: "link", on: () => findLine(where) }, where)),
  make("td", { class: "code" }, run().lines[where] ?? ""), make("td", { class: "code" },
    ...[...of].map((k) => make("button", { type: "button", class: "link", on: () => openKernel(k) }, k.name)))));
  box.append(make("details", { class: "card" }, make("summary", {}, "Lines of the program and their kernels"),
    make("table", {}, make("tbody", {}, ...rows))));
}

function findLine(where) {
  state.tab = "stages";
  $("find").value = where;
  show();
}

/* -- timeline ---------------------------------------------------------------------------------- */

const HUES = { "stage.end": 210, pass: 150, "compile.end": 265, candidate: 35, "worker.exit": 0, "run.end": 240, "repro.verify": 320 };

function drawTimeline() {
  const box = $("timeline");
  box.replaceChildren();
  const spans = run().spans;
  if (!spans.length) return void box.append(make("p", { class: "hint" }, "no times were recorded"));
  const begin = Math.min(...spans.map((s) => s[2])), end = Math.max(...spans.map((s) => s[2] + s[3]));
  const detail = make("p", { class: "hint" }, "A bar is a stage, a pass or a candidate. Choose one for details.");
  box.append(detail);
  for (const pid of new Set(spans.map((s) => s[4]))) {
    const mine = spans.filter((s) => s[4] === pid);
    const deepest = Math.max(...mine.map((s) => s[5]));
    const svg = make("svg", { viewBox: `0 0 1000 ${(deepest + 1) * 18}`, preserveAspectRatio: "none", role: "img", height: (deepest + 1) * 18, "aria-label": "timeline of process " + pid });
    for (const [name, kind, start, took, , depth] of mine) {
      const x = (start - begin) / (end - begin) * 1000, width = Math.max(.6, took / (end - begin) * 1000);
      svg.append(make("rect", {
        x, y: depth * 18, width, height: 17, fill: `hsl(${HUES[kind] ?? 90} 55% ${46 + 9 * (depth % 3)}%)`,
        on: () => { detail.textContent = `${name}: ${seconds(took)}, starting at ${start.toFixed(3)} s, ${kind} in process ${pid}`; },
      }, make("title", {}, `${name} ${seconds(took)}`)));
    }
    box.append(make("div", { class: "card" }, make("p", { class: "dim" }, `process ${pid}`), svg));
  }
  box.append(make("p", { class: "dim" }, `${begin.toFixed(2)} s to ${end.toFixed(2)} s`));
}

/* -- the search of bisect and minify ----------------------------------------------------------- */

function drawSearch() {
  const box = $("search");
  box.replaceChildren();
  const steps = run().history, asked = steps.filter((s) => s.kind === "candidate");
  if (!asked.length) return void box.append(make("p", { class: "hint" }, "this run has no search; tcdebug bisect makes one"));
  const most = Math.max(1, ...asked.map((s) => s.nodes));
  const svg = make("svg", { viewBox: "0 0 1000 220", role: "img", "aria-label": "nodes of each candidate" });
  svg.append(make("line", { class: "axis", x1: 0, y1: 200, x2: 1000, y2: 200 }));
  asked.forEach((s, k) => {
    const passes = s.outcome === "ok";
    svg.append(make("rect", {
      x: 6 + k / asked.length * 985, y: 196 - 180 * s.nodes / most, width: Math.max(3, 700 / asked.length), height: 4 + 180 * s.nodes / most,
      fill: `hsl(${passes ? 140 : 5} 50% ${s.cached ? 75 : 48}%)`,
    }, make("title", {}, `${s.number}: ${s.purpose}: ${s.outcome}, ${s.nodes} nodes, ${seconds(s.seconds)}`)));
  });
  box.append(make("div", { class: "card" }, make("h2", {}, "Nodes of each candidate: red fails, green passes, pale was known"), svg));
  const lines = steps.map((s) => {
    if (s.kind === "candidate") return [s.at + " s", s.purpose, s.outcome, `${s.nodes} nodes`, s.toggles.join(", ")];
    if (s.kind === "bisect.step") return [s.at + " s", `narrowed to ${s.over} ${s.low}..${s.high}`, "", "", ""];
    return [s.at + " s", s.reduction, "smaller", `${s.nodes_before} → ${s.nodes_after} nodes`, ""];
  });
  box.append(make("div", { class: "card" }, make("table", {}, make("tbody", {},
    ...lines.map((line) => make("tr", {}, ...line.map((t, k) => make("td", { class: k === 0 || k === 3 ? "n" : null }, t))))))));
}

/* -- several runs or ranks ---------------------------------------------------------------------- */

function showPair(button) {
  const { title, before, after } = data.others[button.dataset.other].pairs[button.dataset.pair];
  $("pair").replaceChildren(make("h2", {}, title), pairOf(diff(text(before).split("\n"), text(after).split("\n"))));
  $("pair").scrollIntoView({ block: "nearest" });
}

/* -- user input -------------------------------------------------------------------------------- */

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input[type=search], select")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  const tab = TABS[Number(event.key) - 1];
  if (tab && $(tab) || tab === "overview") { state.tab = tab; show(); }
  else if (state.tab === "fusion" && event.key.startsWith("Arrow")) { event.preventDefault(); goBox(event.key); }
  else if (event.key === "Enter" && event.target.closest?.(".box")) event.target.dispatchEvent(new MouseEvent("click"));
  else if (event.key === "/") { event.preventDefault(); state.tab = "stages"; show(); $("find").focus(); }
  else if (event.key === "u") { $("unchanged").click(); }
  else if (event.key === "j" || event.key === "k") { state.tab = "stages"; go(event.key === "j" ? 1 : -1); }
}

async function begin() {
  data = await unpack();
  readPlace();
  for (const button of $("tabs").children) button.addEventListener("click", () => { state.tab = button.dataset.tab; show(); });
  $("run")?.addEventListener("change", () => { state.run = Number($("run").value); state.graph = ""; state.step = -1; state.box = ""; $("diff").replaceChildren(); show(); });
  $("find").addEventListener("input", drawStages);
  $("unchanged").addEventListener("change", drawStages);
  document.addEventListener("keydown", onKey);
  document.querySelector("main").addEventListener("click", markName);
  for (const button of document.querySelectorAll("[data-pair]")) button.addEventListener("click", () => showPair(button));
  addEventListener("hashchange", () => { readPlace(); show(); });
  show();
  document.body.dataset.ready = "1";
}

begin();
