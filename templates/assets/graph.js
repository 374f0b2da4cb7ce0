// The call graph on a canvas. Places come from the page; this draws what is in view, at the level the zoom allows.
"use strict";
sgl.page("graph", function (signal) {
  const data = sgl.json("graph-data");
  const canvas = document.getElementById("g-canvas");
  const side = document.getElementById("g-side");
  const ink = canvas.getContext("2d");
  const root = document.documentElement.dataset.root;
  const control = (name) => document.getElementById("g-" + name);
  const CARD = 18, HEAD = 1.6;
  const FUNCTION = 2, MODULE = 1, COMPONENT = 0;

  const functions = data.functions.map(([name, module, row, phases, paths, file], id) => {
    const [, component, x, y] = data.modules[module];
    return { id, name, module, component, x, y: y + HEAD + row, phases, paths, out: [], into: [], url: file < 0 ? "" : sgl.address(data.files[file], name) };
  });
  const edges = [];
  for (let at = 0; at < data.edges.length; at += 4) {
    const edge = { from: data.edges[at], to: data.edges[at + 1], kind: data.edges[at + 2], flags: data.edges[at + 3] };
    edges.push(edge);
    functions[edge.from].out.push(edge);
    functions[edge.to].into.push(edge);
  }

  // A call of a method with many overrides stands for all of them until they are asked for
  const FOLD = 3;
  const folded = new Map(); // an edge that stands for others, and how many they are
  const hidden = new Set();
  for (const f of functions) {
    const groups = new Map();
    for (const e of f.out) {
      if (!(e.flags & 1)) continue;
      const method = functions[e.to].name.split(".").pop();
      groups.set(method, [...(groups.get(method) || []), e]);
    }
    for (const group of groups.values()) {
      if (group.length <= FOLD) continue;
      const first = group.find((e) => e.flags & 2) || group[0]; // one that ran, if any
      folded.set(first, group.length - 1);
      for (const e of group) if (e !== first) hidden.add(e);
    }
  }

  const view = { x: 0, y: 0, scale: 1 };
  let focus = null, hover = null, over = null, overLevel = 0, counts = [], near = new Map(), colours = {}, shownEdges = edges, bundles = [];
  const shut = new Set();          // components that are switched off in the legend

  // What passes the filters
  function passes(f) {
    const path = control("path").value, phase = control("phase").value;
    return !shut.has(f.component) && (path === "" || f.paths >> Number(path) & 1) && (phase === "" || f.phases >> Number(phase) & 1);
  }
  function filter() {
    const kind = control("kind").value, ran = control("ran").checked;
    for (const f of functions) f.on = Boolean(passes(f));
    for (const e of edges) e.on = Boolean(functions[e.from].on && functions[e.to].on && (kind === "" || e.kind === Number(kind)) && (!ran || e.flags & 2));
    shownEdges = edges.filter((e) => e.on);
    counts = data.components.map(() => 0);
    for (const f of functions) if (f.on) counts[f.component]++;
    bundles = [bundle((f) => f.component, data.components.length), bundle((f) => f.module, data.modules.length)];
    walk();
    arrange();
    sideList();
    draw();
  }
  function bundle(key, size) {
    const counts = new Map();
    for (const e of shownEdges) {
      const from = key(functions[e.from]), to = key(functions[e.to]);
      if (from !== to) counts.set(from * size + to, (counts.get(from * size + to) || 0) + 1);
    }
    return [...counts].map(([pair, count]) => ({ from: Math.floor(pair / size), to: pair % size, count }));
  }

  // Functions within the chosen distance of the focus, as id -> signed distance (callers below zero)
  function walk() {
    near = new Map();
    if (!focus) return;
    near.set(focus.id, 0);
    const far = Number(control("distance").value);
    for (const sign of [1, -1]) {
      let ring = [focus.id];
      for (let step = 1; step <= far; step++) {
        const next = [];
        for (const id of ring) {
          for (const e of sign > 0 ? functions[id].out : functions[id].into) {
            if (!e.on || (hidden.has(e) && sign > 0 && !control("overrides").checked)) continue;
            const other = sign > 0 ? e.to : e.from;
            if (!near.has(other) && functions[other].on) { near.set(other, sign * step); next.push(other); }
          }
        }
        ring = next;
      }
    }
  }

  // What stands behind a name for the overrides that are folded into it
  function alike(f) {
    if (!focus || control("overrides").checked) return "";
    const edge = focus.out.find((e) => e.to === f.id && folded.has(e));
    return edge ? ` and ${folded.get(edge)} overrides` : "";
  }

  // Around the focus: a column for each distance, callers to the left, callees to the right
  const COLUMN = 26, LINE = 1.35, MOST = 70;
  let around = null;
  function arrange() {
    around = null;
    if (!focus || control("draw").value !== "near") return;
    const columns = new Map();
    for (const [id, distance] of near) {
      if (!columns.has(distance)) columns.set(distance, []);
      columns.get(distance).push(functions[id]);
    }
    const places = new Map([[focus.id, { x: 0, y: 0 }]]);
    const left = new Map();
    const far = Math.max(0, ...[...columns.keys()].map(Math.abs));
    for (let step = 1; step <= far; step++) {
      for (const distance of [step, -step]) {
        const column = columns.get(distance) || [];
        const inner = (f) => (distance > 0 ? f.into : f.out).filter((e) => e.on).map((e) => places.get(distance > 0 ? e.from : e.to)).filter(Boolean);
        const middle = (f) => { const ys = inner(f).map((p) => p.y); return ys.length ? ys.reduce((a, b) => a + b) / ys.length : 0; };
        const sorted = column.map((f) => [middle(f), f.component, f]).sort((a, b) => a[0] - b[0] || a[1] - b[1] || (a[2].name < b[2].name ? -1 : 1)).map((item) => item[2]);
        const kept = sorted.slice(0, MOST);
        if (sorted.length > MOST) left.set(distance, sorted.length - MOST);
        kept.forEach((f, row) => places.set(f.id, { x: distance * COLUMN, y: (row - (kept.length - 1) / 2) * LINE }));
      }
    }
    around = { places, left, far };
  }
  function fitAround() {
    const points = [...around.places.values()];
    const low = Math.min(...points.map((p) => p.y)) - 3, high = Math.max(...points.map((p) => p.y)) + 3;
    const first = Math.min(...points.map((p) => p.x)), last = Math.max(...points.map((p) => p.x)) + CARD + 6;
    const w = canvas.clientWidth, h = canvas.clientHeight;
    const wanted = Math.min(w / (last - first + 2), h / (high - low));
    view.scale = Math.min(16, Math.max(wanted, 9));
    view.x = (wanted < view.scale ? CARD : first + last - 4) / 2 - w / 2 / view.scale;
    view.y = -h / 2 / view.scale;
  }
  function paintAround() {
    const place = (id) => around.places.get(id);
    for (const e of shownEdges) {
      const a = place(e.from), b = place(e.to);
      if (!a || !b || e.from === e.to) continue;
      const direct = e.from === focus.id || e.to === focus.id;
      const touched = hover && (e.from === hover.id || e.to === hover.id);
      ink.strokeStyle = touched ? colours.hard : e.flags & 2 ? colours.good : direct ? colours.accent : colours["ink-2"];
      ink.globalAlpha = touched ? 1 : hover ? 0.15 : direct ? 0.8 : 0.3;
      ink.lineWidth = touched || direct ? 1.6 : 1;
      ink.setLineDash(e.flags & 1 ? [5, 4] : []);
      if (a.x === b.x) curve(sx(a.x + CARD + 4), sy(a.y), sx(b.x + CARD + 4), sy(b.y));
      else if (a.x < b.x) curve(sx(a.x + CARD + 4), sy(a.y), sx(b.x - 0.6), sy(b.y));
      else curve(sx(a.x - 0.6), sy(a.y), sx(b.x + CARD + 4), sy(b.y));
    }
    ink.setLineDash([]);
    ink.globalAlpha = 1;
    const size = Math.min(14, view.scale * 0.95);
    ink.textBaseline = "middle";
    for (const [id, p] of around.places) {
      const f = functions[id];
      ink.fillStyle = colours.surface;
      ink.globalAlpha = 0.9;
      ink.fillRect(sx(p.x - 0.4), sy(p.y - 0.6), (CARD + 4.2) * view.scale, 1.2 * view.scale);
      ink.globalAlpha = 1;
      ink.fillStyle = colours.hues[f.component];
      ink.fillRect(sx(p.x - 0.2), sy(p.y - 0.35), 0.6 * view.scale, 0.7 * view.scale);
      ink.font = `${id === focus.id ? "700 " : ""}${size}px ${colours.mono}`;
      ink.fillStyle = f === hover ? colours.accent : colours.ink;
      ink.fillText(fit(f.name + alike(f), (CARD + 3.2) * view.scale, size), sx(p.x + 0.7), sy(p.y));
      if (id === focus.id) { ink.strokeStyle = colours.hard; ink.lineWidth = 2; ink.strokeRect(sx(p.x - 0.5), sy(p.y - 0.75), (CARD + 4.4) * view.scale, 1.5 * view.scale); }
    }
    ink.font = `12px ${colours.sans}`;
    ink.fillStyle = colours["ink-2"];
    for (const [distance, count] of around.left) {
      const lowest = Math.max(...[...around.places.values()].filter((p) => p.x === distance * COLUMN).map((p) => p.y));
      ink.fillText(`and ${count} more`, sx(distance * COLUMN + 0.7), sy(lowest + LINE * 1.3));
    }
  }

  // Drawing
  function readColours() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["bg", "surface", "sunk", "line", "line-2", "ink", "ink-2", "accent", "hard", "good", "hit"]) colours[name] = style.getPropertyValue("--" + name).trim();
    colours.hues = data.components.map(([, hue]) => style.getPropertyValue("--c" + hue).trim());
    colours.mono = style.getPropertyValue("--mono");
    colours.sans = style.getPropertyValue("--sans");
  }
  // By zoom: components when the whole is in view, functions when a row can be read, modules between.
  function level() {
    const wanted = control("level").value;
    if (wanted !== "auto") return Number(wanted);
    return view.scale > 6.5 ? FUNCTION : view.scale > fitted() * 1.5 ? MODULE : COMPONENT;
  }
  function fitted() {
    return Math.min(canvas.clientWidth / (data.size[0] + 4), canvas.clientHeight / (data.size[1] + 4)) || 1;
  }
  let asked = false;
  function draw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => { asked = false; if (canvas.isConnected) paint(); });
  }
  const sx = (x) => (x - view.x) * view.scale, sy = (y) => (y - view.y) * view.scale;
  function inView(x, y, w, h) {
    return sx(x + w) > 0 && sy(y + h) > 0 && sx(x) < canvas.clientWidth && sy(y) < canvas.clientHeight;
  }
  function fit(text, width, size) {
    const most = Math.floor(width / (size * 0.602));
    return text.length <= most ? text : most > 2 ? text.slice(0, most - 1) + "…" : "";
  }
  function paint() {
    const w = canvas.clientWidth, h = canvas.clientHeight, ratio = window.devicePixelRatio || 1;
    if (canvas.width !== Math.round(w * ratio) || canvas.height !== Math.round(h * ratio)) {
      canvas.width = Math.round(w * ratio); canvas.height = Math.round(h * ratio);
    }
    ink.setTransform(ratio, 0, 0, ratio, 0, 0);
    ink.fillStyle = colours.surface;
    ink.fillRect(0, 0, w, h);
    if (around) { paintAround(); return; }
    const shown = level();
    data.components.forEach(([, , x, y, bw, bh], number) => {
      if (!inView(x, y, bw, bh) || shut.has(number)) return;
      box(x, y, bw, bh, colours.sunk, colours.line);
      ink.fillStyle = colours.hues[number];
      ink.fillRect(sx(x), sy(y), bw * view.scale, 3);
    });
    if (shown >= MODULE) paintCards(shown);
    if (shown === COMPONENT) paintBundles(0, data.components.map(([, , x, y, bw, bh]) => ({ x, y, w: bw, h: bh })));
    if (shown === MODULE && !focus) paintBundles(1, data.modules.map(([, , x, y, ch]) => ({ x, y, w: CARD, h: ch })));
    data.components.forEach(([name, , x, y, bw], number) => {
      if (!inView(x, y, bw, 3) || shut.has(number)) return;
      const size = shown === COMPONENT ? 13 : Math.max(9, Math.min(16, view.scale * 1.6));
      const count = counts[number];
      ink.font = `600 ${size}px ${colours.sans}`;
      ink.textBaseline = "top";
      ink.fillStyle = colours.ink;
      if (shown === COMPONENT) { wrap(name, sx(x) + 6, sy(y) + 7, bw * view.scale - 8, size, count); return; }
      ink.fillText(`${name}  ${count}`, sx(x) + 6, sy(y) + 6);
    });
    paintFocus(shown);
  }
  function box(x, y, w, h, fill, stroke) {
    ink.fillStyle = fill;
    ink.strokeStyle = stroke;
    ink.lineWidth = 1;
    ink.fillRect(sx(x), sy(y), w * view.scale, h * view.scale);
    ink.strokeRect(sx(x), sy(y), w * view.scale, h * view.scale);
  }
  function wrap(text, x, y, width, size, count) {
    let line = "", row = 0;
    const put = (words) => { plate(words, x, y + row * (size + 2), size); row++; };
    for (const part of text.split(" ")) {
      const word = fit(part, Math.max(width, 24), size);
      const longer = line ? line + " " + word : word;
      if (line && ink.measureText(longer).width > width) { put(line); line = word; } else line = longer;
    }
    put(line);
    ink.font = `${size - 1}px ${colours.sans}`;
    plate(count.toLocaleString("en"), x, y + row * (size + 2), size);
  }
  function plate(text, x, y, size) {
    const colour = ink.fillStyle;
    ink.fillStyle = colours.sunk;
    ink.globalAlpha = 0.85;
    ink.fillRect(x - 2, y - 1, ink.measureText(text).width + 4, size + 2);
    ink.globalAlpha = 1;
    ink.fillStyle = colour;
    ink.fillText(text, x, y);
  }
  function paintCards(shown) {
    data.modules.forEach(([name, component, x, y, ch], number) => {
      if (!inView(x, y, CARD, ch) || shut.has(component)) return;
      box(x, y, CARD, ch, colours.surface, number === over ? colours.accent : colours.line);
      const size = Math.min(12, Math.max(8, view.scale * 1.05));
      if (view.scale * HEAD >= 7) {
        ink.font = `600 ${size}px ${colours.mono}`;
        ink.textBaseline = "middle";
        ink.fillStyle = colours["ink-2"];
        ink.fillText(fit(name.split(".").slice(-1)[0], CARD * view.scale - 8, size), sx(x) + 4, sy(y + HEAD / 2));
      }
    });
    if (shown < FUNCTION) return;
    const size = Math.min(13, view.scale * 0.78);
    ink.font = `${size}px ${colours.mono}`;
    ink.textBaseline = "middle";
    for (const f of functions) {
      if (!inView(f.x, f.y, CARD, 1) || shut.has(f.component)) continue;
      const dim = !f.on || (focus && !near.has(f.id));
      ink.globalAlpha = dim ? 0.3 : 1;
      ink.fillStyle = colours.hues[f.component];
      ink.fillRect(sx(f.x + 0.3), sy(f.y + 0.3), 0.4 * view.scale, 0.4 * view.scale);
      ink.fillStyle = f === hover ? colours.accent : colours.ink;
      ink.fillText(fit(f.name, (CARD - 1.3) * view.scale, size), sx(f.x + 1.1), sy(f.y + 0.5));
    }
    ink.globalAlpha = 1;
  }
  function curve(x1, y1, x2, y2) {
    const bend = Math.max(24, Math.abs(x2 - x1) / 2);
    ink.beginPath();
    ink.moveTo(x1, y1);
    ink.bezierCurveTo(x1 + bend, y1, x2 - bend, y2, x2, y2);
    ink.stroke();
  }
  // Calls between two components or modules as one arrow, as wide as they are many. The one under the pointer stands out.
  function paintBundles(which, places) {
    const most = Math.max(1, ...bundles[which].map((b) => b.count));
    const chosen = over !== null && overLevel === which;
    for (const b of bundles[which]) {
      const touches = chosen && (b.from === over || b.to === over);
      const weight = Math.sqrt(b.count / most);
      ink.strokeStyle = colours.hues[which ? data.modules[b.from][1] : b.from];
      ink.globalAlpha = touches ? 0.95 : chosen ? 0.06 : which ? 0.05 + 0.35 * weight : 0.15 + 0.55 * weight;
      ink.lineWidth = (touches ? 1.2 : 0.6) + (which ? 3 : 7) * weight;
      arrow(places[b.from], places[b.to]);
      if (touches && which === 0) label(places[b.from], places[b.to], b.count);
    }
    ink.globalAlpha = 1;
  }
  function ends(a, b) {
    const ax = a.x + a.w / 2, ay = a.y + a.h / 2, bx = b.x + b.w / 2, by = b.y + b.h / 2;
    const edge = (p, dx, dy) => { const t = Math.min(dx ? p.w / 2 / Math.abs(dx) : Infinity, dy ? p.h / 2 / Math.abs(dy) : Infinity); return [p.x + p.w / 2 + dx * t, p.y + p.h / 2 + dy * t]; };
    // to and fro are drawn beside each other
    const length = Math.hypot(bx - ax, by - ay) || 1, shift = 1.2, ox = -(by - ay) / length * shift, oy = (bx - ax) / length * shift;
    const [x1, y1] = edge(a, bx - ax, by - ay), [x2, y2] = edge(b, ax - bx, ay - by);
    return [sx(x1 + ox), sy(y1 + oy), sx(x2 + ox), sy(y2 + oy)];
  }
  function arrow(a, b) {
    const [x1, y1, x2, y2] = ends(a, b);
    const angle = Math.atan2(y2 - y1, x2 - x1), head = 5 + ink.lineWidth;
    const mx = (x1 + x2) / 2 + Math.sin(angle) * 18, my = (y1 + y2) / 2 - Math.cos(angle) * 18;
    ink.beginPath();
    ink.moveTo(x1, y1);
    ink.quadraticCurveTo(mx, my, x2, y2);
    const back = Math.atan2(y2 - my, x2 - mx);
    ink.moveTo(x2 - head * Math.cos(back - 0.45), y2 - head * Math.sin(back - 0.45));
    ink.lineTo(x2, y2);
    ink.lineTo(x2 - head * Math.cos(back + 0.45), y2 - head * Math.sin(back + 0.45));
    ink.stroke();
  }
  function label(a, b, count) {
    const [x1, y1, x2, y2] = ends(a, b);
    ink.font = `600 12px ${colours.sans}`;
    ink.fillStyle = colours.ink;
    plate(String(count), (x1 + x2) / 2, (y1 + y2) / 2 - 8, 12);
  }
  function paintFocus(shown) {
    const centre = hover && !focus ? hover : focus;
    if (!centre) return;
    const inside = focus ? (e) => near.has(e.from) && near.has(e.to) : (e) => e.from === centre.id || e.to === centre.id;
    for (const e of shownEdges) {
      if (!inside(e)) continue;
      const a = functions[e.from], b = functions[e.to];
      const direct = e.from === centre.id || e.to === centre.id;
      ink.strokeStyle = e.flags & 2 ? colours.good : direct ? colours.accent : colours["ink-2"];
      ink.globalAlpha = direct ? 0.95 : 0.45;
      ink.lineWidth = direct ? 1.8 : 1;
      ink.setLineDash(e.flags & 1 ? [5, 4] : []);
      const left = a.x > b.x;
      curve(sx(a.x + (left ? 0 : CARD)), sy(a.y + 0.5), sx(b.x + (left ? CARD : 0)), sy(b.y + 0.5));
    }
    ink.setLineDash([]);
    ink.globalAlpha = 1;
    for (const [id, distance] of focus ? near : [[centre.id, 0]]) {
      const f = functions[id];
      ink.strokeStyle = distance === 0 ? colours.hard : colours.accent;
      ink.lineWidth = distance === 0 ? 2.5 : 1;
      ink.strokeRect(sx(f.x), sy(f.y), CARD * view.scale, Math.max(2, view.scale));
      if (shown < FUNCTION && distance === 0) {
        ink.font = `600 13px ${colours.mono}`;
        ink.fillStyle = colours.ink;
        ink.textBaseline = "bottom";
        ink.fillText(f.name, sx(f.x), sy(f.y) - 3);
      }
    }
  }

  // The list beside the drawing says the same in words and links
  function link(id) {
    const f = functions[id], url = f.url;
    const go = sgl.element("button", { type: "button", title: "Focus on " + f.name }, "focus");
    go.addEventListener("click", () => setFocus(f));
    return sgl.element("li", {}, sgl.element("span", { class: "dot c" + data.components[f.component][1] }),
      url ? sgl.element("a", { class: "fn", href: root + url }, f.name) : sgl.element("span", { class: "fn" }, f.name), " ", go);
  }
  function section(title, ids) {
    const unique = [...new Set(ids)].filter((id) => functions[id].on).sort((a, b) => functions[a].name < functions[b].name ? -1 : 1);
    const list = sgl.element("ul", { class: "near" }, ...unique.slice(0, 200).map(link));
    if (unique.length > 200) list.append(sgl.element("li", { class: "quiet" }, `and ${unique.length - 200} more`));
    return [sgl.element("h2", {}, `${title} `, sgl.element("span", { class: "n" }, String(unique.length))), list];
  }
  function sideList() {
    if (!focus) {
      const on = functions.filter((f) => f.on).length;
      side.replaceChildren(sgl.element("p", {}, `${on.toLocaleString("en")} functions, ${shownEdges.length.toLocaleString("en")} calls.`),
        sgl.element("p", { class: "quiet" }, "Choose a function to see who calls it and whom it calls. Wheel or + and − zoom, drag or arrow keys move. Dashed: a virtual call; an override may run instead." + (data.ran ? " Green: the call ran on the GPU." : "")));
      return;
    }
    const clear = sgl.element("button", { type: "button" }, "Clear focus");
    clear.addEventListener("click", () => setFocus(null));
    side.replaceChildren(sgl.element("p", {}, sgl.element("strong", { class: "fn" }, focus.name), sgl.element("br"), sgl.element("span", { class: "mod" }, data.modules[focus.module][0])),
      sgl.element("p", {}, ...(focus.url ? [sgl.element("a", { href: root + focus.url }, "Open its page"), " "] : []), clear),
      ...section("Calls", focus.out.map((e) => e.to)), ...section("Called by", focus.into.map((e) => e.from)));
  }

  // Moving
  function setFocus(f, keep) {
    const before = around;
    focus = f;
    walk();
    arrange();
    sideList();
    save();
    if (around) fitAround();
    else if (before) whole();
    else if (f && !keep) {
      view.scale = Math.max(view.scale, 9);
      view.x = f.x + CARD / 2 - canvas.clientWidth / 2 / view.scale;
      view.y = f.y - canvas.clientHeight / 2 / view.scale;
    }
    draw();
  }
  function save() {
    sgl.state.write({
      focus: focus ? data.modules[focus.module][0] + ":" + focus.name : "", distance: control("distance").value === "1" ? "" : control("distance").value,
      draw: control("draw").value === "near" ? "" : control("draw").value, level: control("level").value === "auto" ? "" : control("level").value, path: name("path"), phase: name("phase"), kind: name("kind"), ran: control("ran").checked ? "1" : "",
    });
  }
  function name(which) {
    const select = control(which);
    return select.value === "" ? "" : select.selectedOptions[0].textContent;
  }
  function whole() {
    const w = canvas.clientWidth, h = canvas.clientHeight, [gw, gh] = data.size;
    view.scale = fitted();
    view.x = gw / 2 - w / 2 / view.scale;
    view.y = Math.min(-2, gh / 2 - h / 2 / view.scale);
    draw();
  }
  function zoom(factor, px, py) {
    const x = view.x + px / view.scale, y = view.y + py / view.scale;
    view.scale = Math.min(40, Math.max(0.2, view.scale * factor));
    view.x = x - px / view.scale;
    view.y = y - py / view.scale;
    draw();
  }
  function at(px, py) {
    const x = view.x + px / view.scale, y = view.y + py / view.scale;
    if (around) {
      for (const [id, p] of around.places) if (x >= p.x - 0.5 && x <= p.x + CARD + 4 && Math.abs(y - p.y) < LINE / 2) return functions[id];
      return null;
    }
    return functions.find((f) => f.on && x >= f.x && x <= f.x + CARD && y >= f.y && y < f.y + 1) || null;
  }
  function area(which, px, py) {
    const x = view.x + px / view.scale, y = view.y + py / view.scale;
    const found = which === MODULE
      ? data.modules.findIndex(([, , mx, my, mh]) => x >= mx && x <= mx + CARD && y >= my && y <= my + mh)
      : data.components.findIndex(([, , cx, cy, cw, ch]) => x >= cx && x <= cx + cw && y >= cy && y <= cy + ch);
    return found < 0 ? null : found;
  }
  const pointers = new Map();
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => { canvas.setPointerCapture(event.pointerId); pointers.set(event.pointerId, event); moved = 0; });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId);
    if (!before) {
      const found = around || level() === FUNCTION ? at(event.offsetX, event.offsetY) : null;
      const under = around || level() === FUNCTION ? null : area(level(), event.offsetX, event.offsetY);
      if (under !== over || overLevel !== level()) {
        over = under; overLevel = level();
        canvas.title = over === null ? "" : overLevel === MODULE ? data.modules[over][0] : data.components[over][0];
        draw();
      }
      if (found !== hover) { hover = found; canvas.title = found ? data.modules[found.module][0] + ":" + found.name : ""; draw(); }
      return;
    }
    if (pointers.size === 1) { view.x -= (event.clientX - before.clientX) / view.scale; view.y -= (event.clientY - before.clientY) / view.scale; }
    else {
      const other = [...pointers.values()].find((p) => p.pointerId !== event.pointerId);
      const gap = (p) => Math.hypot(p.clientX - other.clientX, p.clientY - other.clientY);
      const box = canvas.getBoundingClientRect();
      zoom(gap(event) / Math.max(1, gap(before)), (event.clientX + other.clientX) / 2 - box.x, (event.clientY + other.clientY) / 2 - box.y);
    }
    moved += Math.abs(event.clientX - before.clientX) + Math.abs(event.clientY - before.clientY);
    pointers.set(event.pointerId, event);
    draw();
  });
  const release = (event) => {
    if (pointers.delete(event.pointerId) && moved < 4 && event.type === "pointerup") {
      const found = at(event.offsetX, event.offsetY);
      if (around) { if (found) setFocus(found); } else if (level() === FUNCTION) setFocus(found, true); else zoom(2.2, event.offsetX, event.offsetY);
    }
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("wheel", (event) => { event.preventDefault(); zoom(Math.exp(-event.deltaY * (event.ctrlKey ? 0.01 : 0.0016)), event.offsetX, event.offsetY); }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = 60 / view.scale;
    const keys = {
      ArrowLeft: () => { view.x -= step; }, ArrowRight: () => { view.x += step; }, ArrowUp: () => { view.y -= step; }, ArrowDown: () => { view.y += step; },
      "+": () => zoom(1.3, canvas.clientWidth / 2, canvas.clientHeight / 2), "=": () => zoom(1.3, canvas.clientWidth / 2, canvas.clientHeight / 2),
      "-": () => zoom(1 / 1.3, canvas.clientWidth / 2, canvas.clientHeight / 2), 0: () => { if (around) fitAround(); else whole(); }, Escape: () => setFocus(null),
    };
    if (keys[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); keys[event.key](); draw(); }
  });

  // Controls
  const option = (select, values) => values.forEach((value, number) => control(select).append(sgl.element("option", { value: String(number) }, value)));
  option("path", data.paths); option("phase", data.phases); option("kind", data.kinds);
  control("ran-label").hidden = !data.ran;
  const byName = new Map(functions.map((f) => [data.modules[f.module][0] + ":" + f.name, f]));
  control("search").addEventListener("input", (event) => {
    const text = event.target.value.trim().toLowerCase();
    const exact = byName.get(event.target.value.trim());
    const found = exact ? [exact] : text.length < 2 ? [] : functions.filter((f) => f.name.toLowerCase().includes(text)).slice(0, 40);
    control("names").replaceChildren(...found.map((f) => sgl.element("option", { value: data.modules[f.module][0] + ":" + f.name })));
    if (exact) setFocus(exact);
  });
  control("search").addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    const text = event.target.value.trim().toLowerCase();
    const rank = (f) => (f.name.toLowerCase() === text ? 0 : f.name.toLowerCase().endsWith("." + text) ? 1 : 2) * 1000 + f.name.length;
    const found = byName.get(event.target.value.trim()) || functions.filter((f) => f.on && f.name.toLowerCase().includes(text)).sort((a, b) => rank(a) - rank(b))[0];
    if (found) setFocus(found);
  });
  for (const which of ["path", "phase", "kind", "ran", "overrides"]) control(which).addEventListener("change", () => { filter(); save(); });
  control("distance").addEventListener("change", () => { if (focus) setFocus(focus); else save(); });
  control("draw").addEventListener("change", () => { if (focus) setFocus(focus); else save(); });
  control("level").addEventListener("change", () => { save(); draw(); });
  control("fit").addEventListener("click", () => { if (focus) setFocus(null); whole(); draw(); });
  data.components.forEach(([text, hue], number) => {
    const button = sgl.element("button", { type: "button", "aria-pressed": "true", class: "comp c" + hue }, text);
    button.addEventListener("click", () => {
      if (shut.delete(number)) button.setAttribute("aria-pressed", "true"); else { shut.add(number); button.setAttribute("aria-pressed", "false"); }
      filter();
    });
    control("legend").append(sgl.element("li", {}, button));
  });
  function restore() {
    const state = sgl.state.read();
    for (const which of ["path", "phase", "kind"]) {
      const found = [...control(which).options].find((o) => o.textContent === state[which]);
      control(which).value = found ? found.value : "";
    }
    if (state.distance) control("distance").value = state.distance;
    if (state.draw) control("draw").value = state.draw;
    if (state.level) control("level").value = state.level;
    control("ran").checked = state.ran === "1";
    filter();
    const wanted = state.focus && byName.get(state.focus);
    if (wanted) setFocus(wanted);
    else if (!focus && !Object.keys(state).length && data.entries.length) setFocus(functions[data.entries[0]]); // the worker
  }
  document.addEventListener("sgl-theme", () => { readColours(); draw(); }, { signal });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { readColours(); draw(); }, { signal });
  const resized = new ResizeObserver(() => { if (around) fitAround(); draw(); });
  resized.observe(canvas);
  signal.addEventListener("abort", () => resized.disconnect());
  window.addEventListener("hashchange", restore, { signal });
  readColours();
  whole();
  restore();
  window.sglGraph = { functions, view, get focus() { return focus; }, get near() { return near; }, get edges() { return shownEdges; } };
});
