"use strict";
// The page of one run. All its data comes from /stream: first the history, then
// each event and each change of the state. Texts of the run are only ever set as
// text, never as HTML.

const $ = id => document.getElementById(id);
const run = { events: [], checkpoints: [], attempts: [], marks: [], state: null, storage: null, skew: 0, lost: 0, failures: 0, pauses: [], gaps: 0, between: 0, error: "", gone: 0 };
const ns = 1e6; // nanoseconds in a millisecond
const logSize = 300;

// ---- texts

const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
function bytes(n) {
  let i = 0;
  while (n >= 1024 && i < units.length - 1) { n /= 1024; i++; }
  return (n >= 100 || i === 0 ? n.toFixed(0) : n.toFixed(1)) + " " + units[i];
}
function span(ms) {
  if (!isFinite(ms)) return "–";
  if (ms < 1) return ms.toFixed(2) + " ms";
  if (ms < 1000) return ms.toPrecision(3) + " ms";
  const s = ms / 1000;
  if (s < 60) return s.toFixed(s < 10 ? 1 : 0) + " s";
  const m = Math.floor(s / 60), h = Math.floor(m / 60), d = Math.floor(h / 24);
  if (m < 60) return m + " min " + Math.floor(s % 60) + " s";
  if (h < 48) return h + " h " + (m % 60) + " min";
  return d + " d " + (h % 24) + " h";
}
// roughly is span in one unit, which fits into a tile.
function roughly(ms) {
  const m = Math.floor(ms / 60000), h = Math.floor(m / 60);
  return m < 1 ? span(ms) : h < 1 ? m + " min" : h < 48 ? h + " h" : Math.floor(h / 24) + " d";
}
const count = (n, word) => n.toLocaleString("en") + " " + word + (n === 1 ? "" : "s");
const clock = t => new Date(t).toLocaleTimeString("en-GB");
const now = () => run.gone || Date.now() + run.skew; // without a connection, the page shows when it was lost
function set(id, text) {
  const e = $(id);
  if (e.textContent !== text) e.textContent = text;
}

// ---- the history

function forget() {
  Object.assign(run, { events: [], checkpoints: [], attempts: [], marks: [], lost: 0, failures: 0, pauses: [], gaps: 0, between: 0, sortedFor: 0 });
  $("log").textContent = "";
}

// add takes an event into the history.
function add(e) {
  e.t = Date.parse(e.time);
  run.events.push(e);
  const open = run.attempts.at(-1);
  const close = t => { if (open && open.end === null) open.end = t; };
  switch (e.event) {
  case "start":
    close(run.events.length > 1 ? run.events.at(-2).t : e.t); // its supervisor was killed
    run.attempts.push({ number: e.attempt, begin: e.t, end: null, lost: 0, failed: false, from: 0, ranks: e.ranks });
    lost(e);
    break;
  case "restore":
    if (open) open.from = e.index;
    lost(e);
    break;
  case "checkpoint":
    e.checkpoint.t = e.t;
    e.checkpoint.attempt = run.attempts.length;
    if (run.checkpoints.at(-1)?.attempt === run.attempts.length) { run.between++; run.gaps += e.t - run.checkpoints.at(-1).t; }
    run.checkpoints.push(e.checkpoint);
    run.pauses.push(e.checkpoint.pauseNS / ns);
    break;
  case "failure":
    run.failures++;
    close(e.t);
    if (open) open.failed = true;
    run.marks.push({ t: e.t, kind: "fail", text: e.text });
    break;
  case "rollback":
    run.marks.push({ t: e.t, kind: "fail", text: e.text });
    break;
  case "unsaved":
    run.marks.push({ t: e.t, kind: "unsaved", text: e.text });
    break;
  case "move":
    if (e.move && e.move.state === "moved") run.marks.push({ t: e.t, kind: "move", text: e.text });
    break;
  case "end":
    close(e.t);
    break;
  }
}

// lost notes the work of the attempt before this one that is computed again.
function lost(e) {
  const ms = (e.lostNS || 0) / ns;
  const before = run.attempts.at(-2);
  run.lost += ms;
  if (before && ms) before.lost = Math.max(before.lost, ms);
}

// ---- drawing

let palette = null; // read once per drawing: it changes with the colour scheme
const color = name => palette[name] || (palette[name] = palette.style.getPropertyValue("--" + name).trim());

// measure reads sizes and colours before anything is changed, so that the browser
// computes the layout once.
function measure() {
  palette = { style: getComputedStyle(document.documentElement) };
  for (const id of ["timeline", "sizes"]) { const c = $(id); sizes[id] = [c.clientWidth, c.clientHeight]; }
}
const sizes = {};

// canvas prepares a canvas for its size on the screen.
function canvas(id) {
  const c = $(id), [w, h] = sizes[id], k = window.devicePixelRatio || 1;
  if (c.width !== Math.round(w * k) || c.height !== Math.round(h * k)) { c.width = Math.round(w * k); c.height = Math.round(h * k); }
  const g = c.getContext("2d");
  g.setTransform(k, 0, 0, k, 0, 0);
  g.clearRect(0, 0, w, h);
  return [g, w, h];
}

const steps = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 604800].map(s => s * 1000);
const plot = { from: 0, to: 1, left: 8, width: 1 }; // what the timeline shows now

function live() { return run.state && ["starting", "running", "waiting", "stopping", "finishing"].includes(run.state.state); }

function drawTimeline() {
  const [g, w, h] = canvas("timeline");
  if (!run.events.length) return;
  const last = run.events.at(-1).t, end = live() ? Math.max(now(), last) : last;
  const range = Number($("range").value) * 1000;
  let from = run.events[0].t;
  if (range && end - from > range) from = end - range;
  const to = Math.max(end, from + 1000) + (end - from) * 0.01;
  Object.assign(plot, { from, to, left: 8, width: w - 16 });
  const x = t => plot.left + (t - from) / (to - from) * plot.width;
  const visible = (a, b) => b >= from && a <= to;
  const lane = { top: 30, height: 30 }, base = h - 22, high = base - lane.top - lane.height - 14;
  g.font = "11px system-ui, sans-serif";
  // the axis
  const step = steps.find(s => (to - from) / s <= Math.max(4, w / 110)) || 1209600000;
  g.strokeStyle = color("line"); g.fillStyle = color("soft"); g.lineWidth = 1; g.textAlign = "center";
  const zone = new Date(from).getTimezoneOffset() * 60000;
  for (let t = Math.ceil((from - zone) / step) * step + zone; t <= to; t += step) {
    const px = Math.round(x(t)) + 0.5;
    g.beginPath(); g.moveTo(px, 14); g.lineTo(px, base); g.stroke();
    const d = new Date(t);
    const text = step >= 86400000 || (d.getHours() === 0 && d.getMinutes() === 0 && step >= 60000) ? d.toLocaleDateString("en-GB", { day: "numeric", month: "short" }) : d.toLocaleTimeString("en-GB", step < 60000 ? {} : { hour: "2-digit", minute: "2-digit" });
    if (px > 24 && px < w - 24) g.fillText(text, px, h - 6);
  }
  // attempts
  for (const a of run.attempts) {
    const stop = a.end === null ? end : a.end;
    if (!visible(a.begin, stop)) continue;
    const x0 = Math.max(x(a.begin), plot.left), x1 = Math.max(Math.min(x(stop), w - 8), x0 + 1.5);
    g.fillStyle = color("go");
    g.beginPath(); g.roundRect(x0, lane.top, x1 - x0, lane.height, 4); g.fill();
    if (a.lost) {
      const l = Math.max(x(stop - a.lost), x0);
      g.fillStyle = color("lost");
      g.beginPath(); g.roundRect(l, lane.top, x1 - l, lane.height, 4); g.fill();
    }
    if (x1 - x0 > 64) {
      g.fillStyle = color("card"); g.textAlign = "left";
      g.save(); g.beginPath(); g.rect(x0, lane.top, x1 - x0 - 4, lane.height); g.clip();
      const short = "start " + a.number, text = short + (a.from ? ", from " + a.from : "");
      g.fillText(g.measureText(text).width + 11 < x1 - x0 ? text : short, x0 + 7, lane.top + 19);
      g.restore();
    }
  }
  // checkpoints: the longest pause of each column of pixels, on a logarithmic scale
  const columns = new Map();
  for (let i = first(run.checkpoints, from); i < run.checkpoints.length; i++) {
    const c = run.checkpoints[i], px = Math.round(x(c.t));
    columns.set(px, Math.max(columns.get(px) || 0, c.pauseNS / ns));
  }
  g.fillStyle = color("mark");
  for (const [px, ms] of columns) {
    const v = Math.min(1, Math.max(0.12, (Math.log10(Math.max(ms, 0.01)) + 2) / 7)); // 0.01 ms … 100 s
    g.fillRect(px - 1, base - v * high, 2, v * high);
  }
  g.strokeStyle = color("line");
  g.beginPath(); g.moveTo(plot.left, base + 0.5); g.lineTo(w - 8, base + 0.5); g.stroke();
  // failures, checkpoints that were not saved, and moves
  for (const m of run.marks) {
    if (!visible(m.t, m.t)) continue;
    const px = x(m.t);
    if (m.kind === "unsaved") { g.fillStyle = color("bad"); g.fillRect(Math.round(px) - 1, base - high, 2, high); continue; }
    g.strokeStyle = color(m.kind === "fail" ? "bad" : "move"); g.lineWidth = 2.5;
    g.beginPath();
    if (m.kind === "fail") { g.moveTo(px - 5, 14); g.lineTo(px + 5, 24); g.moveTo(px + 5, 14); g.lineTo(px - 5, 24); }
    else { g.moveTo(px - 6, 19); g.lineTo(px + 6, 19); g.moveTo(px + 2, 15); g.lineTo(px + 6, 19); g.lineTo(px + 2, 23); }
    g.stroke();
    g.lineWidth = 1; g.globalAlpha = 0.35;
    g.beginPath(); g.moveTo(px, 26); g.lineTo(px, base); g.stroke();
    g.globalAlpha = 1;
  }
}

// first returns the index of the first item at or after a time.
function first(list, t) {
  let lo = 0, hi = list.length;
  while (lo < hi) { const mid = (lo + hi) >> 1; if (list[mid].t < t) lo = mid + 1; else hi = mid; }
  return lo;
}

function drawSizes() {
  const [g, w, h] = canvas("sizes");
  const list = run.checkpoints;
  if (!list.length) return;
  const n = Math.max(1, Math.min(list.length, Math.floor(w / 3))), bar = w / Math.max(n, 24);
  let top = 1;
  const values = [];
  for (let i = 0; i < n; i++) {
    let v = 0;
    for (let k = Math.floor(i * list.length / n); k < Math.floor((i + 1) * list.length / n); k++) v = Math.max(v, list[k].written);
    values.push(v);
    top = Math.max(top, v);
  }
  g.fillStyle = color("mark");
  values.forEach((v, i) => { const y = v / top * (h - 16); g.fillRect(i * bar, h - y, Math.max(bar - 1, 1), y); });
  g.fillStyle = color("soft"); g.font = "11px system-ui, sans-serif"; g.textAlign = "right";
  g.fillText("up to " + bytes(top), w, 10);
}

function tip(ev) {
  const box = $("tip"), px = ev.offsetX, t = plot.from + (px - plot.left) / plot.width * (plot.to - plot.from);
  const near = (plot.to - plot.from) / plot.width * 8;
  const m = run.marks.findLast(m => Math.abs(m.t - t) < near);
  const i = first(run.checkpoints, t);
  const c = [run.checkpoints[i - 1], run.checkpoints[i]].filter(c => c && Math.abs(c.t - t) < near).sort((a, b) => Math.abs(a.t - t) - Math.abs(b.t - t))[0];
  const a = run.attempts.findLast(a => a.begin <= t);
  let text = "";
  if (m && (ev.offsetY < 66) === (m.kind !== "unsaved")) text = clock(m.t) + "  " + m.text;
  else if (c && ev.offsetY >= 60) text = clock(c.t) + "  checkpoint " + c.index + "\n" + bytes(c.state) + ", " + bytes(c.written) + " written, paused " + span(c.pauseNS / ns) + (c.reason ? "\n" + c.reason : "");
  else if (a && (a.end === null || t <= a.end)) text = "start " + a.number + (a.from ? ", from checkpoint " + a.from : "") + "\n" + span((a.end === null ? now() : a.end) - a.begin) + (a.lost ? ", of which " + span(a.lost) + " are computed again" : "");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const w = $("timeline").clientWidth;
  if (px < w / 2) { box.style.left = px + 12 + "px"; box.style.right = "auto"; } else { box.style.right = w - px + 12 + "px"; box.style.left = "auto"; }
}

// ---- figures

function figures() {
  const st = run.state;
  const totals = run.pauses;
  if (run.events.length) {
    const begin = st && st.began ? Date.parse(st.began) : run.events[0].t;
    set("elapsed", span((live() ? now() : run.events.at(-1).t) - begin));
  }
  set("count", run.checkpoints.length.toLocaleString("en"));
  set("failures", String(run.failures));
  const lostMS = run.lost;
  set("lost", lostMS ? span(lostMS) : "none");
  if (totals.length) {
    if (run.sortedFor !== totals.length) { // a median of 10,000 numbers, once per checkpoint
      const s = Float64Array.from(totals).sort();
      run.sortedFor = totals.length;
      run.median = s[s.length >> 1]; run.longest = s.at(-1);
    }
    set("pause", span(run.median));
    set("pauseInfo", "median; longest " + span(run.longest));
    set("countInfo", run.between ? "every " + span(run.gaps / run.between) + " on average" : "");
  }
  if (!st) return;
  set("attempt", loopText(st) || "start " + st.attempt + (st.restored ? ", from checkpoint " + st.restored : ""));
  if (st.last) {
    const age = now() - Date.parse(st.last.time);
    set("last", age < 1000 ? "now" : roughly(age) + " ago");
    set("lastInfo", "number " + st.last.index + (st.last.state ? ", " + bytes(st.last.state) : ""));
  } else {
    set("last", st.state === "finished" ? "none kept" : "none yet");
    set("lastInfo", "");
  }
  set("failureInfo", st.failures ? st.failures + " in a row without progress" : run.failures ? "restarted each time" : "");
  set("lostInfo", lostMS && run.events.length ? "computed again" : "");
}

// loopText says how far the slowest rank is in its loop, and when the loop is
// expected to end.
function loopText(st) {
  const at = r => r.ends ? Date.parse(r.ends) : 0;
  const r = st.ranks.filter(r => r.loop && r.state !== "ended").sort((a, b) => at(b) - at(a) || a.loop.done / a.loop.total - b.loop.done / b.loop.total)[0];
  if (!r) return "";
  const left = at(r) - now();
  return "loop " + r.loop.where + " at " + Math.min(99, Math.floor(100 * r.loop.done / r.loop.total)) + " %" + (at(r) && left >= 1000 ? ", about " + span(left) + " left" : "");
}

// title sets the page's title, also in a tab that is not shown, and returns the
// state in it.
function title() {
  const state = run.gone && live() ? "not connected" : run.state.state;
  document.title = state + " · " + name() + " · Cairn";
  return state;
}
const name = () => run.state.run.split("/").pop().replace(/\.cairn$/, "");

function header() {
  const st = run.state;
  set("name", name());
  set("command", st.command.map(a => /^[\w@%+=:,./-]+$/.test(a) ? a : JSON.stringify(a)).join(" "));
  const state = title();
  set("state", state);
  $("state").className = "pill " + state;
  set("where", st.run + (st.job ? " · " + st.job : ""));
  let alert = "";
  if (run.gone && live()) alert = "No connection since " + clock(run.gone) + ", and the page shows the run as it was then. If 'cairn run' has ended, 'cairn web' shows the run.";
  else if (run.error) alert = "The run cannot be read, and the page shows it as it was before: " + run.error;
  else if (st.unsaved) alert = "Checkpoints fail since " + clock(st.unsaved.since) + " (" + count(st.unsaved.count, "time") + "): " + st.unsaved.why + (st.unsaved.lost ? ". The work since the last checkpoint is lost." : ". If the run fails now, the work since the last checkpoint is lost.");
  else if (st.why && st.state === "stopped") alert = "Stopped: " + st.why + ". The same 'cairn run' command resumes the run.";
  else if (st.why && st.state !== "running") alert = st.why;
  set("alert", alert);
  $("alert").hidden = !alert;
  $("alert").className = st.state === "stopped" && !st.unsaved && !run.error ? "expected" : "";
}

// ---- ranks

const cells = []; // by rank: its elements and what they show
function ranks() {
  const st = run.state, box = $("ranks");
  if (!st.ranks.length) return;
  const hosts = new Map();
  for (const r of st.ranks) { const h = r.host || "this run"; if (!hosts.has(h)) hosts.set(h, []); hosts.get(h).push(r); }
  const plan = [...hosts].map(([h, l]) => h + ":" + l.map(r => r.rank).join(",")).join(";");
  if (run.plan !== plan) { // ranks are somewhere else now
    run.plan = plan;
    box.textContent = "";
    box.className = st.ranks.length > 96 ? "many" : "";
    for (const [host, list] of hosts) {
      const div = document.createElement("div"), b = document.createElement("b"), info = document.createElement("span"), grid = document.createElement("div");
      div.className = "host"; grid.className = "cells"; b.textContent = host; info.textContent = count(list.length, "rank");
      for (const r of list) {
        const cell = document.createElement("div"), bar = document.createElement("i");
        cell.append(String(r.rank), bar);
        grid.append(cell);
        cell.dataset.rank = r.rank;
        cells[r.rank] = { cell, bar, state: "", part: -1 };
      }
      div.append(b, info, grid);
      box.append(div);
    }
  }
  const most = Math.max(1, ...st.ranks.map(r => r.points));
  let running = 0, points = 0;
  for (const r of st.ranks) {
    const c = cells[r.rank];
    if (r.state === "running") running++;
    points += r.points;
    const part = Math.round(100 * r.points / most);
    if (c.state !== r.state) { c.state = r.state; c.cell.className = "cell " + r.state; }
    if (c.part !== part) { c.part = part; c.bar.style.transform = "scaleX(" + part / 100 + ")"; }
  }
  const t = now();
  if (!run.rate || run.rate.points > points) run.rate = { t, points, speed: 0 };
  else if (t - run.rate.t > 2000) run.rate = { t, points, speed: (points - run.rate.points) / (t - run.rate.t) * 1000 };
  set("rankInfo", running.toLocaleString("en") + " of " + count(st.ranks.length, "rank") + " running" + (run.rate.speed >= 1 ? " · " + Math.round(run.rate.speed).toLocaleString("en") + (Math.round(run.rate.speed) === 1 ? " point/s" : " points/s") : ""));
  const moves = (st.moves || []).filter(m => !["moved", "not moved", "rolled back", "unknown"].includes(m.state));
  set("moves", moves.map(m => "moving rank " + m.ranks.join(", ") + " from " + m.from + " to " + m.to + ": " + m.state).join("; "));
}

// The title of a cell is made when someone points at it.
$("ranks").addEventListener("pointerover", ev => {
  const r = run.state && run.state.ranks[ev.target.closest(".cell")?.dataset.rank];
  if (r) ev.target.closest(".cell").title = "rank " + r.rank + (r.host ? " on " + r.host : "") + ": " + r.state + (r.pid ? ", process " + r.pid : "") + ", " + count(r.points, "point") + ", " + count(r.messages, "message");
});

// ---- devices

function devices() {
  const all = new Map();
  for (const r of run.state.ranks) for (const d of r.devices || []) {
    const key = r.host + " " + d.id, u = all.get(key) || { id: d.id, name: d.name, host: r.host, launches: 0, in: 0, out: 0, ranks: 0 };
    u.launches += d.launches; u.in += d.in; u.out += d.out; u.ranks++; u.lost = u.lost || d.lost;
    all.set(key, u);
  }
  const several = new Set(run.state.ranks.map(r => r.host)).size > 1;
  const rows = [...all.values()].map(u => [u.id + (several ? " of " + u.host : ""), u.name + ": " + count(u.launches, "kernel") + ", " + bytes(u.in) + " in, " + bytes(u.out) + " out" + (u.ranks > 1 ? ", for " + u.ranks + " ranks" : "") + (u.lost ? "; lost" : ""), u.lost ? "bad" : ""]);
  $("devicesTitle").hidden = !rows.length;
  if (run.devicesShown === (run.devicesShown = JSON.stringify(rows))) return;
  fill($("devices"), rows);
}

// fill shows rows of a name, a text and a class.
function fill(list, rows) {
  list.textContent = "";
  for (const [a, b, c] of rows) {
    const dt = document.createElement("dt"), dd = document.createElement("dd");
    dt.textContent = a; dd.textContent = b; dd.className = c;
    list.append(dt, dd);
  }
}

// ---- storage

function storage() {
  const st = run.state, s = run.storage, list = $("storage");
  const rows = [["directory", st.dir, ""]];
  if (s && s.checkpoints) rows.push(["checkpoints", s.checkpoints + ", together " + bytes(s.bytes), ""]);
  for (const t of st.tiers || []) {
    let text = t.index ? "checkpoint " + t.index + ", " + span(now() - Date.parse(t.time)) + " ago" : "no checkpoint yet";
    if (t.uploading) text += "; checkpoint " + t.uploading + " is on its way";
    if (t.failing) text += "; fails since " + clock(t.failing.since) + ": " + t.failing.why;
    rows.push([t.tier, text, t.failing ? "bad" : ""]);
  }
  if (st.quarantined && st.quarantined.length) rows.push(["put aside", st.quarantined.join(", "), "bad"]);
  const shown = JSON.stringify(rows);
  if (run.storageShown !== shown) {
    run.storageShown = shown;
    fill(list, rows);
    if (s && s.total) {
      const dt = document.createElement("dt"), dd = document.createElement("dd"), bar = document.createElement("div"), i = document.createElement("i");
      dt.textContent = "disk"; dd.id = "disk"; bar.append(i); dd.append(document.createElement("span"), bar);
      list.append(dt, dd);
    }
  }
  const disk = $("disk");
  if (disk && s && s.total) {
    const used = 1 - s.free / s.total;
    disk.firstChild.textContent = bytes(s.free) + " free of " + bytes(s.total);
    disk.lastChild.className = "bar" + (used > 0.92 ? " full" : "");
    disk.lastChild.firstChild.style.width = (100 * used).toFixed(1) + "%";
  }
}

// ---- log and output

function textOf(e) {
  if (e.text || !e.checkpoint) return e.text;
  const c = e.checkpoint;
  return "checkpoint " + c.index + " committed: " + bytes(c.state) + " of state, " + bytes(c.written) + " written, paused " + span(c.pauseNS / ns) + ", durable after " + span(c.tookNS / ns) + (c.reason ? ", " + c.reason : "");
}

// log appends events to the log, and keeps it short.
function log(list) {
  const box = $("log"), bottom = box.scrollHeight - box.scrollTop - box.clientHeight < 30, all = $("all").checked;
  const rows = list.filter(e => all || e.event !== "checkpoint").slice(-logSize).map(e => {
    const li = document.createElement("li"), t = document.createElement("time");
    li.className = e.event;
    t.textContent = clock(e.t); t.dateTime = e.time;
    li.append(t, textOf(e));
    return li;
  });
  box.append(...rows);
  while (box.childElementCount > logSize) box.firstChild.remove();
  if (bottom) box.scrollTop = box.scrollHeight;
}
function logAgain() { $("log").textContent = ""; log(run.events); }

let outputTimer = 0;
async function output() {
  clearTimeout(outputTimer);
  const box = $("output");
  try {
    const r = await fetch("output?rank=" + encodeURIComponent($("rank").value || 0) + "&stream=" + $("stream").value);
    const text = await r.text();
    const bottom = box.scrollHeight - box.scrollTop - box.clientHeight < 30;
    if (box.textContent !== text) {
      box.textContent = text;
      if (bottom) box.scrollTop = box.scrollHeight;
    }
  } catch { /* the stream says that the server is gone */ }
  outputTimer = setTimeout(output, live() && !document.hidden ? 1000 : 5000);
}

// ---- requests

let token = new URLSearchParams(location.hash.slice(1)).get("token") || sessionStorage.getItem("cairn-token") || "";
if (location.hash.includes("token=")) history.replaceState(null, "", location.pathname); // so that it is not passed on with the address
try { if (token) sessionStorage.setItem("cairn-token", token); } catch { /* it is lost at a reload */ }

async function ask(path, body) {
  const r = await fetch(path, { method: "POST", headers: { "Authorization": "Bearer " + token, "Content-Type": "application/json" }, body: JSON.stringify(body) });
  const v = await r.json();
  if (!r.ok) throw new Error(v.error || r.statusText);
  return v;
}

// confirm asks the visitor, and returns whether to continue.
function sure(title, text, yes, fields) {
  set("dialogTitle", title); set("dialogText", text); set("dialogYes", yes);
  $("fields").hidden = !fields;
  const d = $("dialog");
  d.returnValue = "no";
  d.showModal();
  return new Promise(done => d.addEventListener("close", () => done(d.returnValue === "yes"), { once: true }));
}

function button(id, before, path) {
  $(id).addEventListener("click", async () => {
    const body = await before();
    if (!body) return;
    const b = $(id);
    b.disabled = true;
    try { await ask(path, body); } catch (err) { await sure("That did not work", err.message, "OK", false); } finally { b.disabled = false; }
  });
}
button("checkpoint", async () => ({}), "checkpoint");
button("stop", async () => await sure("Save and stop the run?", "The ranks save and stop. The same 'cairn run' command resumes the run.", "Save and stop", false) && {}, "stop");
button("migrate", async () => {
  const from = $("moveFrom");
  from.textContent = "";
  from.append(new Option("–", ""), ...[...new Set(run.state.ranks.map(r => r.host))].map(h => new Option(h, h)));
  if (!await sure("Move ranks", "They continue on another host, with little interruption.", "Move", true)) return null;
  const ranks = $("moveRanks").value.split(/[ ,]+/).filter(Boolean).map(Number);
  return { ranks, host: ranks.length ? "" : from.value, to: $("moveTo").value.trim() };
}, "migrate");

// ---- updates

let drawn = 0;
function draw() {
  drawn = 0;
  const begin = performance.now();
  measure();
  figures();
  $("buttons").hidden = !(run.steer && live() && !run.gone);
  if (run.state) { header(); ranks(); devices(); storage(); }
  drawTimeline();
  drawSizes();
  run.drawMs = performance.now() - begin;
}
function soon() { if (!drawn) drawn = requestAnimationFrame(draw); }

function take(m) {
  const begin = performance.now();
  run.skew = Date.parse(m.now) - Date.now();
  if (m.anew) forget();
  if (m.events) { m.events.forEach(add); log(m.events); }
  if (m.state) run.state = m.state;
  if (m.storage) run.storage = m.storage;
  run.error = m.error || "";
  if (run.error && !run.state) { set("alert", run.error); $("alert").hidden = false; }
  run.steer = m.steer && token;
  if (run.state) title();
  run.takeMs = performance.now() - begin;
  soon();
}

// follow reads the stream until it ends. Server-sent events by EventSource could
// not send the token, for which the server keeps places.
async function follow(signal) {
  const r = await fetch("stream", { signal, headers: token ? { "Authorization": "Bearer " + token } : {} });
  if (!r.ok) throw new Error(await r.text());
  set("link", "live");
  run.gone = 0;
  const reader = r.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const p of parts) if (p.startsWith("data: ")) take(JSON.parse(p.slice(6)));
  }
}

const pause = ms => new Promise(done => setTimeout(done, ms));
const shown = () => new Promise(done => document.addEventListener("visibilitychange", done, { once: true }));

async function connect() {
  for (;;) {
    const stop = new AbortController();
    // A page that nobody sees for a minute leaves its place to others.
    let hidden = 0;
    const leave = () => { clearTimeout(hidden); if (document.hidden) hidden = setTimeout(() => stop.abort(), 60000); };
    document.addEventListener("visibilitychange", leave);
    leave();
    let why = "not connected";
    try { await follow(stop.signal); } catch (err) { if (!(err instanceof TypeError)) why = err.message.trim(); }
    document.removeEventListener("visibilitychange", leave);
    clearTimeout(hidden);
    if (stop.signal.aborted) { set("link", "paused"); while (document.hidden) await shown(); }
    else { set("link", why + "; trying again"); run.gone ||= now(); if (run.state) title(); soon(); await pause(3000); }
  }
}

$("range").addEventListener("change", soon);
$("all").addEventListener("change", logAgain);
$("rank").addEventListener("change", output);
$("stream").addEventListener("change", output);
$("timeline").addEventListener("pointermove", tip);
$("timeline").addEventListener("pointerdown", tip);
$("timeline").addEventListener("pointerleave", () => { $("tip").hidden = true; });
addEventListener("resize", soon);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", soon);
setInterval(() => { if (!document.hidden) soon(); }, 1000);
connect();
output();
