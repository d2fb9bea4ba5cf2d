/* On a phone a table that is wider than the window becomes a list of cards, one a row, so that no column is cut off. */
truetune.cards = (() => {
  const narrow = matchMedia("(max-width: 40rem)");

  /* Each cell with the name of its column; roles, because a table that is laid out as blocks has none of its own. */
  function label(table) {
    const names = [...table.querySelectorAll("thead :is(th, td)")].map((cell) => cell.textContent.trim());
    table.setAttribute("role", "table");
    for (const group of table.querySelectorAll("thead, tbody")) group.setAttribute("role", "rowgroup");
    for (const row of table.rows) {
      row.setAttribute("role", "row");
      [...row.cells].forEach((cell, i) => {
        cell.dataset.label = names[i] ?? "";
        cell.setAttribute("role", cell.scope === "col" ? "columnheader" : cell.scope === "row" ? "rowheader" : "cell");
      });
    }
  }

  function fit() {
    for (const box of document.querySelectorAll(".scroll")) {
      box.classList.remove("cards");
      if (!narrow.matches || box.scrollWidth <= box.clientWidth) continue;
      for (const table of box.querySelectorAll("table")) label(table);
      box.classList.add("cards");
    }
  }
  narrow.addEventListener("change", fit);
  document.addEventListener("toggle", fit, true);
  return { fit };
})();
