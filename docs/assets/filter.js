// The filter box of a page of tables: only rows that hold every word are shown.
for (const box of document.querySelectorAll("input.filter")) {
  const below = (element) => box.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING;
  const tables = [...document.querySelectorAll("article table")].filter(below);
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const table of tables) {
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += row.hidden ? 0 : 1;
      }
      table.hidden = shown === 0;
    }
  });
}
