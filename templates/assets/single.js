// A report in one file: its pages lie packed at the end of the document, and the address says which is shown.
"use strict";
(function () {
  const page = document.documentElement;
  if (!page.dataset.single) return;
  const shards = new Map();
  let pages = null, shown = "", control = null;

  async function unpack(id) {
    if (!shards.has(id)) {
      const text = document.getElementById(id).textContent;
      const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      shards.set(id, JSON.parse(await new Response(stream).text()));
    }
    return shards.get(id);
  }
  sgl.loadNames = async () => { sgl.names = await unpack("names"); };

  function where() {
    const parts = location.hash.split("#");
    const path = (parts[1] || "").startsWith("/") ? decodeURIComponent(parts[1].slice(1)) : "";
    return [pages[path] ? path : "index.html", parts.slice(2).join("#")];
  }
  async function route() {
    const [path] = where();
    if (path === shown) { mark(); return; }
    const [shard, place, title, key, scripts, style] = pages[path];
    const html = (await unpack("shard-" + shard))[place];
    if (where()[0] !== path) return;
    if (control) control.abort();
    control = new AbortController();
    shown = path;
    const main = document.getElementById("main");
    main.className = style;
    main.dataset.page = path;
    main.replaceChildren(...new DOMParser().parseFromString(html, "text/html").body.childNodes);
    document.title = title;
    document.querySelectorAll("nav a").forEach((link) => {
      if (link.dataset.key === key) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    });
    window.scrollTo(0, 0);
    mark();
    scripts.forEach((name) => sgl.run(name, control.signal));
  }
  function mark() {
    document.querySelectorAll(".target").forEach((element) => element.classList.remove("target"));
    const target = document.getElementById(sgl.fragment());
    if (!target) return;
    target.classList.add("target");
    target.scrollIntoView({ block: target.tagName === "LI" ? "center" : "start" });
  }
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#']");
    if (!link || link.getAttribute("href").startsWith("#/")) return;
    event.preventDefault();
    if (link.classList.contains("skip")) { document.getElementById("main").focus(); return; }
    location.hash = "#/" + shown + link.getAttribute("href");
  });
  window.addEventListener("hashchange", route);
  document.addEventListener("DOMContentLoaded", () => { pages = sgl.json("pages"); route(); });
})();
