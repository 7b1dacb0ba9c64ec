// page.cpp - the page itself. Names come from /status and are only ever set as text.
#include "tools/node/page.h"

namespace moorage::core {

const std::string_view node_page = R"page(<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>moorage node</title>
<style>
:root { color-scheme: light dark; --ink: #1c2430; --faint: #6b7685; --line: #d5dbe3;
  --paper: #ffffff; --full: 31, 102, 178; --good: #1d7a46; --bad: #b3261e; --odd: #9a6700; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ee; --faint: #9aa4b2; --line: #38414e;
  --paper: #14181e; --full: 90, 160, 235; --good: #5cc98b; --bad: #ff8a80; --odd: #e3b341; } }
body { font: 15px/1.45 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 72rem; margin: 1.5rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .4rem; }
p { margin: .2rem 0; color: var(--faint); } .wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .2rem .7rem; border-bottom: 1px solid var(--line);
  white-space: nowrap; } th { color: var(--faint); font-weight: 500; }
th:first-child, td:first-child, td.word { text-align: left; }
.ready, .self { color: var(--good); } .dead, .away { color: var(--bad); }
.paused { color: var(--odd); } #stale { color: var(--bad); }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink); } svg .faint { fill: var(--faint); }
</style>
<h1 id="name">moorage node</h1>
<p id="facts"></p><p id="stale" role="status"></p>
<h2>Who holds what</h2>
<p>A row a server, a column a layer; the darker, the more of the layer's experts the plan gives it.
Below: rows that this node has computed for others since the page was opened, by layer.</p>
<div class="wide" id="map"></div>
<h2>Links of this node</h2>
<div class="wide"><table id="links"><thead><tr><th>server<th>state<th>heartbeat<th>calls/s<th>a call
takes<th>deadline<th>hidden states there<th>and back<th>trouble</thead><tbody></tbody></table></div>
<h2>Work</h2>
<div class="wide"><table id="work"><tbody></tbody></table></div>
<script>
"use strict";
const at = id => document.getElementById(id);
const svg = (tag, attributes, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const key in attributes) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  return made;
};
const pen = document.createElement("canvas").getContext("2d");
pen.font = "12px system-ui, sans-serif";
const width_of = text => Math.ceil(pen.measureText(text).width) + 10;
const cell = (row, text, name) => {
  const made = row.insertCell();
  made.textContent = text;
  if (name) made.className = name;
};
const us = value => value === undefined ? "" : value >= 1e5 ? (value / 1e6).toFixed(2) + " s" :
  value >= 1000 ? (value / 1000).toFixed(1) + " ms" : value + " us";
const bytes = value => value === undefined ? "" : value >= 1e9 ? (value / 1e9).toFixed(2) + " GB" :
  value >= 1e6 ? (value / 1e6).toFixed(1) + " MB" : (value / 1e3).toFixed(1) + " kB";
let first = null, before = null, seen = 0;

function draw_map(now) {
  const servers = now.peers, layers = servers.length ? servers[0].experts_of_layers.length : 0;
  const experts = layers ? now.experts_all / layers : 1;
  const labels = servers.map(one => one.server + (one.stands === "self" ? " (this)" :
    one.stands === "ready" ? "" : ` (${one.stands})`));
  const wide = Math.max(12, Math.min(36, 900 / Math.max(layers, 1))), high = 24;
  const left = Math.max(130, ...labels.map(width_of));
  const foot = 70, height = servers.length * high + 24 + foot;
  const all = svg("svg", { width: left + layers * wide + 10, height: height, role: "img",
    "aria-label": "experts of each layer by server" });
  servers.forEach((one, row) => {
    const y = 20 + row * high;
    all.append(svg("text", { x: 0, y: y + 16 }, labels[row]));
    one.experts_of_layers.forEach((count, layer) => {
      const box = svg("rect", { x: left + layer * wide, y: y, width: wide - 1, height: high - 2,
        style: `fill: rgba(var(--full), ${count / experts}); stroke: var(--line)` });
      box.append(svg("title", {}, `${one.server}, layer ${layer}: ${count} of ${experts} experts`));
      all.append(box);
      if (wide >= 24) all.append(svg("text", { x: left + layer * wide + wide / 2 - 1, y: y + 16,
        "text-anchor": "middle" }, count));
    });
  });
  for (let layer = 0; layer < layers; layer += layers > 32 ? 8 : 4)
    all.append(svg("text", { x: left + layer * wide + 2, y: 13, class: "faint" }, layer));
  const rows = now.served.rows_of_layers.map((count, i) => count - first.served.rows_of_layers[i]);
  const most = Math.max(1, ...rows), base = height - 8;
  all.append(svg("text", { x: 0, y: base - 20, class: "faint" }, "rows for others"));
  rows.forEach((count, layer) => {
    const tall = (foot - 20) * count / most;
    const bar = svg("rect", { x: left + layer * wide, y: base - tall, width: wide - 1,
      height: tall, style: "fill: rgb(var(--full))" });
    bar.append(svg("title", {}, `layer ${layer}: ${count} rows`));
    all.append(bar);
  });
  at("map").replaceChildren(all);
}

function draw_links(now, passed) {
  const body = at("links").tBodies[0];
  body.replaceChildren();
  now.peers.forEach((one, i) => {
    if (one.stands === "self") return;
    const row = body.insertRow(), was = before.peers[i] || one;
    const moved = one.hidden_bytes || {};
    cell(row, one.server);
    cell(row, one.stands + (one.connected_to_this ? ", calls this" : ""), one.stands + " word");
    cell(row, us(one.heartbeat_us));
    cell(row, (Math.max(0, one.calls - was.calls) / passed).toFixed(1));
    cell(row, us(one.expected_us));
    cell(row, us(one.deadline_us));
    cell(row, bytes(moved.there));
    cell(row, bytes(moved.back));
    cell(row, one.trouble || "", "word");
  });
}

function draw_work(now, passed) {
  const body = at("work").tBodies[0];
  body.replaceChildren();
  const line = (what, value) => {
    const row = body.insertRow();
    cell(row, what);
    cell(row, value);
  };
  const rate = (value, was) => (Math.max(0, value - was) / passed).toFixed(1) + " a second";
  line("calls computed for others", `${now.served.calls} (${rate(now.served.calls,
    before.served.calls)}), ${now.served.waiting} wait`);
  if (now.called) {
    const own = now.called.activations - now.called.elsewhere;
    line("calls to others", `${now.called.calls}, ${now.called.under_way} out now`);
    if (now.called.activations) line("experts computed here",
      (100 * own / now.called.activations).toFixed(1) + " %");
    line("calls that went elsewhere", `${now.called.late} late, ${now.called.lost} lost, ` +
      `${now.called.failed} refused, ${now.called.wrong} wrong`);
    line("experts from own disk", now.called.from_own_disk);
  }
  if (now.requests) {
    line("requests", `${now.requests.under_way} under way, ${now.requests.waiting} wait, ` +
      `${now.requests.ended} answered, ${now.requests.refused} refused`);
    line("tokens written", `${now.requests.written_tokens} (${rate(now.requests.written_tokens,
      (before.requests || now.requests).written_tokens)})`);
  }
  for (const reason in now.refused) line("refused: " + reason, now.refused[reason]);
}

async function look() {
  try {
    const answer = await fetch("status", { signal: AbortSignal.timeout(2000) });
    const now = await answer.json(), time = performance.now();
    if (!first || first.incarnation !== now.incarnation) first = before = now;
    const passed = Math.max(0.001, (time - seen) / 1000);
    at("name").textContent = now.server + (now.draining ? " (draining)" : "");
    document.title = now.server + " - moorage node";
    at("facts").textContent = `${now.model}, ${now.experts_held} of ${now.experts_all} experts, ` +
      `plan epoch ${now.epoch}, up ${Math.round(now.up_s)} s, ${now.software}`;
    at("stale").textContent = now.loop_age_s > 2 ?
      `its loop was last seen ${now.loop_age_s.toFixed(1)} s ago` : "";
    draw_map(now);
    draw_links(now, passed);
    draw_work(now, passed);
    before = now;
    seen = time;
  } catch (error) {
    at("stale").textContent = "the node does not answer";
  }
  setTimeout(look, 1000);
}
look();
</script>
</html>
)page";

}  // namespace moorage::core
