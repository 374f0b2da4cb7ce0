// The refactor's checklist: one plan at a time, ticks kept in this browser, and the plan as Markdown.
"use strict";
sgl.page("refactor", function (signal) {
  const tools = document.getElementById("plan-tools");
  const plans = [...document.querySelectorAll(".plan")];
  if (!plans.length) return;
  const control = (name) => tools.querySelector(`[name=${name}]`);
  const output = tools.querySelector("output");
  const key = "sgltrace-done " + document.title;
  let done = new Set();
  try { done = new Set(JSON.parse(localStorage.getItem(key) || "[]")); } catch { /* nothing kept */ }
  tools.hidden = false;

  const tasks = (plan) => [...plan.querySelectorAll(".task")].filter((task) => !task.hidden);
  function shown() {
    return plans.find((plan) => plan.dataset.path === control("path").value && plan.dataset.design === control("design").value);
  }
  function show() {
    const chosen = shown();
    for (const plan of plans) {
      plan.hidden = plan !== chosen;
      for (const task of plan.querySelectorAll(".task")) task.hidden = !control("soft").checked && task.classList.contains("t-soft");
    }
    count();
  }
  function count() {
    const all = tasks(shown());
    output.textContent = `${all.filter((task) => done.has(task.dataset.point)).length} of ${all.length} done`;
  }
  function restore() {
    const state = sgl.state.read();
    if (state.path && [...control("path").options].some((o) => o.value === state.path)) control("path").value = state.path;
    if (state.design && [...control("design").options].some((o) => o.value === state.design)) control("design").value = state.design;
    control("soft").checked = state.soft !== "0";
    const target = document.getElementById(sgl.fragment());
    const plan = target && target.closest(".plan");
    if (plan) { control("path").value = plan.dataset.path; control("design").value = plan.dataset.design; }
    show();
    if (target) target.scrollIntoView();
  }
  function markdown() {
    const plan = shown();
    const text = (element) => element.textContent.trim().replace(/\s+/g, " ");
    // Names come from the source: what Markdown would read is escaped.
    const safe = (value) => value.replace(/[\\`*_{}[\]<>#|!]/g, "\\$&");
    const lines = [`# ${safe(plan.dataset.title)}`, ""];
    for (const task of tasks(plan)) {
      const tick = done.has(task.dataset.point) ? "x" : " ";
      lines.push(`- [${tick}] ${text(task.querySelector("h3 .n"))}: **${safe(text(task.querySelector("h3 a")))}** (${text(task.querySelector(".sev"))})`);
      for (const part of task.querySelectorAll(".todo, .reason-text")) lines.push(`  - ${safe(text(part))}`);
      for (const place of task.querySelectorAll(".places li")) {
        const at = [...place.querySelectorAll(".at")].map(text).join(", ");
        lines.push(`  - in ${safe(text(place.querySelector(".fn")))}: ${at}`);
      }
      for (const part of task.querySelectorAll(".order")) lines.push(`  - ${safe(text(part))}`);
    }
    return lines.join("\n") + "\n";
  }
  tools.addEventListener("change", () => {
    sgl.state.write({ path: control("path").value, design: control("design").value, soft: control("soft").checked ? "" : "0" });
    show();
  });
  for (const plan of plans) {
    for (const task of plan.querySelectorAll(".task")) {
      const box = task.querySelector("input");
      box.checked = done.has(task.dataset.point);
      box.addEventListener("change", (event) => {
        event.stopPropagation();
        if (box.checked) done.add(task.dataset.point); else done.delete(task.dataset.point);
        document.querySelectorAll(`.task[data-point="${CSS.escape(task.dataset.point)}"] input`).forEach((other) => { other.checked = box.checked; });
        try { localStorage.setItem(key, JSON.stringify([...done])); } catch { /* a private window keeps nothing */ }
        count();
      });
    }
  }
  tools.querySelector("[data-do=save]").addEventListener("click", () => {
    const url = URL.createObjectURL(new Blob([markdown()], { type: "text/markdown" }));
    const name = `refactor-${control("path").value}-${control("design").value}.md`;
    sgl.element("a", { href: url, download: name }).click();
    setTimeout(() => URL.revokeObjectURL(url), 1000);
  });
  tools.querySelector("[data-do=copy]").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(markdown()); output.textContent = "copied"; } catch { output.textContent = "the browser did not allow copying; save it instead"; }
  });
  window.addEventListener("hashchange", restore, { signal });
  restore();
});
