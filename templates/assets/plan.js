// The plan: one path and design at a time; what is ticked stays in this browser and in the address.
"use strict";
sgl.page("plan", function (signal) {
  const tools = document.getElementById("plan-tools");
  const plans = [...document.querySelectorAll(".edits")];
  if (!plans.length) return;
  const control = (name) => tools.querySelector(`[name=${name}]`);
  const output = tools.querySelector("output"), remains = document.getElementById("plan-remains");
  const release = plans[0].dataset.title.split(",")[0];
  const key = "sgltrace-edits " + release;
  let done = new Set(); // path and item: an edit that is made serves each design that asks for it
  tools.hidden = remains.hidden = false;

  const mark = (task) => task.closest(".edits").dataset.path + "." + task.dataset.item;
  const tasks = (plan) => [...plan.querySelectorAll(".task")].filter((task) => !task.dataset.others);
  const shown = () => plans.find((plan) => plan.dataset.path === control("path").value && plan.dataset.design === control("design").value);
  function stored() {
    try { return JSON.parse(localStorage.getItem(key) || "[]"); } catch { return []; }
  }
  function keep() {
    try { localStorage.setItem(key, JSON.stringify([...done].sort())); } catch { /* a private window keeps nothing */ }
    sgl.state.write({ ...sgl.state.read(), path: control("path").value, design: control("design").value, done: [...done].sort().join(" ") });
  }
  function show() {
    const chosen = shown();
    for (const plan of plans) {
      plan.hidden = plan !== chosen;
      for (const task of plan.querySelectorAll(".task")) {
        const ticked = done.has(mark(task));
        task.querySelector("input").checked = ticked;
        task.hidden = Boolean(task.dataset.others);
        const box = plan.querySelector(`svg a[data-item="${CSS.escape(task.dataset.item)}"]`);
        box.classList.toggle("done", ticked);
        box.classList.toggle("others", Boolean(task.dataset.others));
      }
    }
    const left = (plan) => tasks(plan).filter((task) => !done.has(mark(task))).length;
    output.textContent = `${tasks(chosen).length - left(chosen)} of ${tasks(chosen).length} done`;
    remains.replaceChildren(...plans.map((plan) => sgl.element("li", {}, `${plan.dataset.path} ${plan.dataset.design}: ${left(plan)} left`)));
  }
  function restore() {
    const state = sgl.state.read();
    for (const name of ["path", "design"]) {
      if (state[name] && [...control(name).options].some((o) => o.value === state[name])) control(name).value = state[name];
      else if (name === "design" && !state.design) control("design").value = "B";
    }
    done = new Set("done" in state ? state.done.split(" ").filter(Boolean) : stored());
    const target = document.getElementById(sgl.fragment());
    const plan = target && target.closest(".edits");
    if (plan) { control("path").value = plan.dataset.path; control("design").value = plan.dataset.design; }
    show();
    if (plan) target.scrollIntoView();
  }
  function markdown() {
    const plan = shown();
    const text = (element) => element.textContent.trim().replace(/\s+/g, " ");
    const safe = (value) => value.replace(/[\\`*_{}[\]<>#|!]/g, "\\$&"); // names come from the source
    const lines = [`# ${safe(plan.dataset.title)}`, ""];
    for (const task of tasks(plan)) {
      lines.push(`- [${done.has(mark(task)) ? "x" : " "}] ${text(task.querySelector(".n"))}: **${safe(text(task.querySelector(".name")))}** (${text(task.querySelector(".tag"))}; without it: ${text(task.querySelector(".fails"))})`);
      for (const part of task.querySelectorAll(".todo, .order li, .test")) lines.push(`  - ${safe(text(part))}`);
      for (const row of task.querySelectorAll(".supply tbody tr")) lines.push(`  - supply ${[...row.cells].slice(0, 3).map((cell) => safe(text(cell))).join(" | ")}`);
    }
    return lines.join("\n") + "\n";
  }
  tools.addEventListener("change", () => { keep(); show(); });
  for (const plan of plans) {
    for (const task of plan.querySelectorAll(".task")) {
      const box = task.querySelector("input");
      box.addEventListener("change", () => { if (box.checked) done.add(mark(task)); else done.delete(mark(task)); keep(); show(); });
    }
  }
  tools.querySelector("[data-do=save]").addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([markdown()], { type: "text/markdown" }));
    sgl.element("a", { href: url, download: `plan-${control("path").value}-${control("design").value}.md` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });
  window.addEventListener("hashchange", restore, { signal });
  document.addEventListener("sgl-configuration", show, { signal });
  restore();
});
