// Source as a page shows it: lines fetched from the file's text, highlighted, numbered, and marked with notes.
"use strict";
(function () {
  const KEYWORDS = new Set(("and as assert async await break class continue def del elif else except finally for from global if import in is "
    + "lambda nonlocal not or pass raise return try while with yield").split(" "));
  const CONSTANTS = new Set(["None", "True", "False"]), OWN = new Set(["self", "cls"]);
  const TOKEN = new RegExp([
    String.raw`(?<string>\b[rbfutRBFUT]{1,2}(?=["'])(?:"""|'''|"|')|"""|'''|"|')`,
    String.raw`(?<comment>#[^\n]*)`,
    String.raw`(?<number>\b(?:0[xX][\da-fA-F_]+|0[bBoO][\d_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?[jJ]?))`,
    String.raw`(?<=^|\n)(?<decorator>[ \t]*@[\w.]+)`,
    String.raw`(?<word>[^\W\d]\w*)`,
  ].join("|"), "gu");

  function endOfString(text, from, quote) {
    for (let at = from; at < text.length; at++) {
      if (text[at] === "\\") { at++; continue; }
      if (text.startsWith(quote, at)) return at + quote.length;
      if (quote.length === 1 && text[at] === "\n") return at;
    }
    return text.length;
  }
  // [class or "", text] of all of the text, one after another
  sgl.tokens = function (text) {
    const found = [];
    let done = 0, named = false;
    const add = (kind, until) => { if (until > done) found.push([kind, text.slice(done, until)]); done = until; };
    TOKEN.lastIndex = 0;
    for (let match; (match = TOKEN.exec(text));) {
      const { string, comment, number, decorator, word } = match.groups;
      add("", match.index);
      let end = TOKEN.lastIndex, kind = "";
      if (string !== undefined) { end = endOfString(text, end, string.replace(/^\w+/, "")); kind = "s"; }
      else if (comment !== undefined) kind = "c";
      else if (number !== undefined) kind = "m";
      else if (decorator !== undefined) kind = "nd";
      else if (KEYWORDS.has(word)) kind = "k";
      else if (CONSTANTS.has(word)) kind = "kc";
      else if (OWN.has(word)) kind = "bp";
      else if (named) kind = "nf";
      named = word === "def" || word === "class";
      add(kind, end);
      TOKEN.lastIndex = end;
    }
    add("", text.length);
    return found;
  };
  function lines(text, python) {
    const made = [document.createDocumentFragment()];
    for (const [kind, value] of python ? sgl.tokens(text) : [["", text]]) {
      value.split("\n").forEach((piece, number) => {
        if (number) made.push(document.createDocumentFragment());
        if (piece) made.at(-1).append(kind ? sgl.element("span", { class: kind }, piece) : piece);
      });
    }
    return made;
  }
  function textOf(pieces, first, last) {
    for (const [start, text] of pieces || []) {
      const rows = text.split("\n");
      if (start <= first && first < start + rows.length) return rows.slice(first - start, last - start + 1);
    }
    return null;
  }
  async function fill(element) {
    const { file, first, last, at } = element.dataset;
    const start = Number(first), rows = textOf(await sgl.text(file), start, Number(last));
    if (!rows) { element.append("The source could not be read."); return; }
    const notes = JSON.parse(element.dataset.notes || "{}");
    const indent = Math.min(...rows.filter((row) => row.trim()).map((row) => row.length - row.replace(/^ +/, "").length));
    const text = rows.map((row) => row.slice(Number.isFinite(indent) ? indent : 0)).join("\n");
    element.append(sgl.element("ol", {}, ...lines(text, /\.pyi?$/.test(file)).map((line, row) => {
      const number = start + row, noted = Object.hasOwn(notes, number);
      const item = sgl.element("li", { id: "anchors" in element.dataset ? "L" + number : null, class: noted ? "hit" : null });
      item.append(at ? sgl.element("a", { class: "no", href: `${at}#L${number}`, "aria-label": "Line " + number }, String(number)) : sgl.element("span", { class: "no" }, String(number)), line);
      if (noted && notes[number]) item.append(sgl.element("span", { class: "note" }, notes[number]));
      return item;
    })));
  }
  sgl.fillCode = (root) => Promise.all([...root.querySelectorAll(".code[data-file]:empty")].map(fill));
})();
