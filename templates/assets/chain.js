// The step, call by call: open and close, and hide the conditions. Without scripts everything is open.
"use strict";
sgl.page("chain", function (signal) {
  const tools = document.getElementById("chain-tools");
  const twists = [...document.querySelectorAll(".twist")];
  tools.hidden = false;

  const list = (twist) => document.getElementById(twist.getAttribute("aria-controls"));
  function turn(twist, open) {
    twist.setAttribute("aria-expanded", String(open));
    list(twist).hidden = !open;
  }
  function only() {
    twists.forEach((twist) => turn(twist, twist.parentElement.classList.contains("open")));
  }
  function reveal() {
    const target = document.getElementById(sgl.fragment());
    if (!target) return;
    for (let at = target; at; at = at.parentElement.closest("li")) {
      const twist = at.querySelector(":scope > .twist");
      if (twist) turn(twist, true);
    }
    target.scrollIntoView();
  }
  for (const twist of twists) {
    twist.hidden = false;
    twist.addEventListener("click", () => turn(twist, twist.getAttribute("aria-expanded") !== "true"));
  }
  tools.querySelector("[data-open=all]").addEventListener("click", () => twists.forEach((twist) => turn(twist, true)));
  tools.querySelector("[data-open=entry]").addEventListener("click", only);
  tools.querySelector("[name=guards]").addEventListener("change", (event) => {
    document.querySelectorAll(".chain").forEach((section) => section.classList.toggle("no-guards", !event.target.checked));
  });
  window.addEventListener("hashchange", reveal, { signal });
  only();
  reveal();
});
