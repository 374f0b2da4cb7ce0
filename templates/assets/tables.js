// Tables: heads that sort, and heads that stay where a table is long.
"use strict";
(function () {
  const LONG = 25;
  const collator = new Intl.Collator("en", { numeric: true });
  const key = (row, at) => (row.cells[at] ? row.cells[at].textContent.trim() : "");

  function sort(table, at, head) {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    for (const body of table.tBodies) {
      const rows = [...body.rows].filter((row) => !row.classList.contains("stage")).map((row) => [key(row, at), row]);
      rows.sort((a, b) => (!a[0] - !b[0]) || (down ? -1 : 1) * collator.compare(a[0], b[0])); // what is empty comes last
      body.append(...rows.map((pair) => pair[1]));
    }
    table.dispatchEvent(new Event("sgl-sorted"));
  }
  sgl.tables = function (root) {
    for (const table of root.querySelectorAll("table.rows, table.points")) {
      const heads = table.tHead ? [...table.tHead.rows[0].cells] : [];
      if (table.rows.length < 4 || table.querySelector("tbody [rowspan], tbody tr.again")) continue;
      heads.forEach((head, at) => {
        if (head.tagName !== "TH" || head.querySelector(".sort") || !head.textContent.trim()) return;
        const button = sgl.element("button", { type: "button", class: "sort" }, ...head.childNodes);
        head.append(button);
        button.addEventListener("click", () => sort(table, at, head));
      });
      const around = table.closest(".scroll");
      if (around && table.rows.length > LONG) around.classList.add("tall");
    }
  };
})();
