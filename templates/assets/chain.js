// The step, call by call: open and close, and hide the conditions.
"use strict";
(function () {
  const tools = document.getElementById("chain-tools");
  const sections = [...document.querySelectorAll(".chain")];
  const all = [...document.querySelectorAll(".chain details")];
  tools.hidden = false;

  function onlyEntry() {
    all.forEach((details) => { details.open = Boolean(details.querySelector("li.entry")) || Boolean(details.closest("li.entry") && details.parentElement.classList.contains("entry")); });
  }
  function reveal() {
    const target = location.hash.length > 1 && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target) target.scrollIntoView();
  }
  tools.querySelector("[data-open=all]").addEventListener("click", () => all.forEach((details) => { details.open = true; }));
  tools.querySelector("[data-open=entry]").addEventListener("click", onlyEntry);
  tools.querySelector("[name=guards]").addEventListener("change", (event) => {
    sections.forEach((section) => section.classList.toggle("no-guards", !event.target.checked));
  });
  window.addEventListener("hashchange", reveal);
  reveal();
})();
