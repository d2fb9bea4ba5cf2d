/* Many findings: show some by severity or by words in them; all fold and unfold. */
truetune.section("findings", (element, { count }) => {
  if (count < 6) return;
  const findings = [...element.querySelectorAll(".finding")], tools = element.querySelector(".findtools");
  const words = tools.querySelector("input"), said = tools.querySelector("output"), hidden = new Set();
  function sift() {
    const wanted = words.value.toLowerCase();
    for (const finding of findings) finding.hidden = hidden.has(finding.dataset.severity) || !finding.textContent.toLowerCase().includes(wanted);
    const shown = findings.filter((finding) => !finding.hidden).length;
    said.textContent = shown < findings.length ? `${shown} of ${findings.length} shown` : "";
  }
  words.addEventListener("input", sift);
  for (const button of tools.querySelectorAll("[data-severity]")) button.addEventListener("click", () => {
    if (!hidden.delete(button.dataset.severity)) hidden.add(button.dataset.severity);
    button.setAttribute("aria-pressed", String(!hidden.has(button.dataset.severity)));
    sift();
  });
  const fold = tools.querySelector("[data-fold]");
  fold.addEventListener("click", () => {
    const open = !findings.some((finding) => finding.open);
    for (const finding of findings) finding.open = open;
  });
  tools.hidden = false;
});
