// Shows the page that the address names, as in #/points.html#kind=metrics. Pages lie packed in shards, which are
// scripts of a folder or, in a report of one file, elements at the end of the document.
"use strict";
(function () {
  const KEPT = 8; // shards that stay unpacked
  const unpacked = new Map(), arriving = new Map();
  let places = null, shown = "", part = null, control = null;

  sgl.shard = (name, text) => arriving.get(name)(text);
  function packed(name) {
    const element = document.getElementById("shard-" + name);
    if (element) return Promise.resolve(element.textContent);
    return new Promise((done, failed) => {
      arriving.set(name, done);
      const script = sgl.element("script", { src: "data/" + name + ".js" });
      script.addEventListener("error", () => failed(new Error("data/" + name + ".js could not be loaded; the report's folder is incomplete")));
      script.addEventListener("load", () => script.remove());
      document.head.append(script);
    });
  }
  async function open(name) {
    const bytes = Uint8Array.from(atob(await packed(name)), (letter) => letter.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return JSON.parse(await new Response(stream).text());
  }
  function shard(name) {
    const found = unpacked.get(name) || open(name);
    unpacked.delete(name);
    unpacked.set(name, found);
    if (unpacked.size > KEPT) unpacked.delete(unpacked.keys().next().value);
    return found;
  }
  async function record(name) {
    const place = places.get(name);
    return place === undefined ? null : (await shard(place[0]))[place[1]];
  }
  sgl.loadNames = async () => { sgl.names = (await shard("names"))[0]; };
  sgl.record = record;
  sgl.text = (file) => record("source/" + file); // [first line, text] of the lines that pages show
  sgl.current = () => shown;

  function where() {
    const parts = location.hash.split("#");
    let path = "";
    try { path = (parts[1] || "").startsWith("/") ? decodeURIComponent(parts[1].slice(1)) : ""; } catch { /* not an address of ours */ }
    return path.endsWith(".html") || !path ? path || "index.html" : "no page";
  }
  // The part of a page that the address asks for: by its name, or the innermost with the line.
  function asked(parts) {
    const fragment = sgl.fragment(), line = /^L(\d+)$/.exec(fragment);
    if (!line) return parts.find(([anchor]) => anchor === fragment) || null;
    const number = Number(line[1]);
    return parts.filter(([, first, last]) => first <= number && number <= last).sort((a, b) => (a[2] - a[1]) - (b[2] - b[1]))[0] || null;
  }
  function place(into, html) {
    into.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
    for (const link of into.querySelectorAll("a[href^='#']:not([href^='#/'])")) link.setAttribute("href", "#/" + encodeURI(shown) + link.getAttribute("href"));
    for (const head of into.querySelectorAll("section[id] > h2:first-child")) head.append(sgl.element("a", { class: "self", href: "#/" + sgl.address(shown, head.parentElement.id), "aria-label": "Link to this section" }));
    for (const link of into.querySelectorAll("a.fn:empty")) link.append(...breakable(decodeURIComponent(link.hash.split("#").pop())));
    for (const line of into.querySelectorAll(".near i")) {
      const named = line.parentElement.querySelector("a.fn"), own = line.closest("[data-lines]");
      const page = own ? own.dataset.lines : named && named.getAttribute("href").split("#").slice(0, 2).join("#");
      line.replaceWith(page ? sgl.element("a", { class: "at", href: `${page}#L${line.textContent}` }, line.textContent) : sgl.element("span", { class: "at" }, line.textContent));
    }
  }
  const breakable = (name) => name.split(/(?<=\.)/).flatMap((piece, number) => (number ? [sgl.element("wbr"), piece] : [piece]));
  // All parts of the page, for a page that has no list of its own.
  function list(into, parts) {
    if (into.children.length > 1) return;
    into.append(sgl.element("ul", { class: "chips" }, ...parts.map(([anchor, first, last, title]) => sgl.element("li", {},
      sgl.element("a", { class: "fn", href: "#/" + sgl.address(shown, anchor) }, ...breakable(title)), " ", sgl.element("span", { class: "quiet" }, `${first}–${last}`)))));
  }
  async function route() {
    const path = where(), address = location.hash;
    const main = document.getElementById("main");
    if (path !== shown && control) control.abort(); // at once: the page that is left must not take the address for its own
    let found = null;
    try { found = await record(path); } catch (error) { main.replaceChildren(sgl.element("p", { class: "empty" }, error.message)); throw error; }
    if (location.hash !== address) return;
    const wanted = found && found[5].length ? asked(found[5]) : null;
    if (path !== shown || wanted !== part) {
      const [title, key, scripts, style, html] = found || ["Not found · sgltrace", "", [], "", ""];
      if (control) control.abort();
      control = new AbortController();
      if (path !== shown && !(shown === "" && path === main.dataset.page)) { // the first screen is there already
        main.className = style;
        shown = path;
        place(main, html);
        window.scrollTo(0, 0);
      }
      shown = path;
      part = wanted;
      main.dataset.page = path;
      if (!found) main.replaceChildren(sgl.element("h1", {}, "There is no such page"), sgl.element("p", { class: "empty" }, `This report has no page ${path}. `, sgl.element("a", { href: "#/index.html" }, "Overview")));
      const slot = main.querySelector("[data-part]");
      if (slot) { place(slot, wanted ? wanted[4] : ""); list(main.querySelector("[data-whole]"), found[5]); main.querySelector("[data-whole]").open = !wanted; }
      document.title = wanted ? wanted[3] + " · " + title : title;
      document.querySelectorAll("nav a").forEach((link) => {
        if (link.dataset.key === key) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
      });
      const current = document.querySelector("nav [aria-current]"); // on a small screen the links are a strip
      if (current) current.closest("nav").scrollLeft = current.offsetLeft - 40;
      await sgl.fillCode(main);
      sgl.tables(main);
      if (location.hash !== address) return;
      scripts.forEach((name) => sgl.run(name, control.signal));
    }
    mark();
    document.documentElement.dataset.ready = location.hash;
  }
  function mark() {
    document.querySelectorAll(".target").forEach((element) => element.classList.remove("target"));
    const target = document.getElementById(sgl.fragment());
    if (!target) return;
    target.classList.add("target");
    target.scrollIntoView({ block: target.tagName === "LI" ? "center" : "start" });
  }
  document.addEventListener("click", (event) => {
    const skip = event.target.closest("a.skip");
    if (skip) { event.preventDefault(); document.getElementById("main").focus(); }
    const button = event.target.closest("[data-copy]");
    if (button) navigator.clipboard.writeText(button.dataset.copy).then(() => { button.textContent = "copied"; setTimeout(() => { button.textContent = "copy"; }, 1500); }, () => { button.textContent = button.dataset.copy; });
  });
  window.addEventListener("hashchange", route);
  document.addEventListener("DOMContentLoaded", () => {
    places = new Map(sgl.json("pages").flatMap((names, number) => names.map((name, at) => [name, [String(number), at]])));
    route();
  });
})();
