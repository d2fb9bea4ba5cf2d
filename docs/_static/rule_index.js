/* Filters the list of rules, and shows some at a time. The filters are in the address after `#`. */
"use strict";
(() => {
  const RULES_PER_PAGE = 25;
  const NOT_APPLYING = "none";
  const NAMES = ["words", "family", "fault", "severity", "stability", "trainer"];

  const form = document.getElementById("rule-filters");
  const count = document.getElementById("rule-count");
  const paging = document.getElementById("rule-paging");
  const pageText = document.getElementById("rule-page");
  const previous = document.getElementById("rule-previous");
  const next = document.getElementById("rule-next");
  const faults = [...document.querySelectorAll(".rule-fault")];
  const rules = [...document.querySelectorAll(".rule-list > li")].map((element) => ({
    element,
    text: element.textContent.toLowerCase().replace(/-/g, " "),
    label: element.querySelector(".rule-severity"),
    data: element.dataset,
  }));

  /* `data-by-llama-factory` is read as `byLlamaFactory` by the browser; getAttribute takes the name as it is. */
  function severityOf(rule, trainer) {
    const severity = trainer && rule.element.getAttribute(`data-by-${trainer}`);
    return severity || rule.data.severity;
  }

  function readAddress() {
    const fields = new URLSearchParams(location.hash.slice(1));
    const filters = Object.fromEntries(NAMES.map((name) => [name, fields.get(name) || ""]));
    return { filters, page: Math.max(1, Number.parseInt(fields.get("page"), 10) || 1) };
  }

  function addressOf(filters, page) {
    const fields = new URLSearchParams(NAMES.filter((name) => filters[name]).map((name) => [name, filters[name]]));
    if (page > 1) fields.set("page", page);
    return `#${fields}`;
  }

  function matches(rule, filters, words) {
    const severity = severityOf(rule, filters.trainer);
    return (
      severity !== NOT_APPLYING &&
      (!filters.severity || severity === filters.severity) &&
      (!filters.family || rule.data.family === filters.family) &&
      (!filters.fault || rule.data.fault === filters.fault) &&
      (!filters.stability || rule.data.stability === filters.stability) &&
      words.every((word) => rule.text.includes(word))
    );
  }

  function show() {
    const { filters, page } = readAddress();
    const words = filters.words.toLowerCase().replace(/-/g, " ").split(/\s+/).filter(Boolean);
    const found = rules.filter((rule) => matches(rule, filters, words));
    const pages = Math.max(1, Math.ceil(found.length / RULES_PER_PAGE));
    const shownPage = Math.min(page, pages);
    const shown = new Set(found.slice((shownPage - 1) * RULES_PER_PAGE, shownPage * RULES_PER_PAGE));
    for (const rule of rules) {
      rule.element.hidden = !shown.has(rule);
      const severity = severityOf(rule, filters.trainer);
      if (severity !== NOT_APPLYING) {
        rule.label.textContent = severity;
        rule.label.className = `rule-severity ${severity}`;
      }
    }
    for (const fault of faults) fault.hidden = !fault.querySelector("li:not([hidden])");
    count.textContent = `${found.length} of ${rules.length} rules`;
    pageText.textContent = `Page ${shownPage} of ${pages}`;
    paging.hidden = pages === 1;
    /* Not `disabled`: a button that is disabled under the keyboard loses the focus. */
    previous.setAttribute("aria-disabled", String(shownPage === 1));
    next.setAttribute("aria-disabled", String(shownPage === pages));
    for (const name of NAMES) {
      if (form.elements[name].value !== filters[name]) form.elements[name].value = filters[name];
    }
  }

  function filtersOfForm() {
    return Object.fromEntries(NAMES.map((name) => [name, form.elements[name].value]));
  }

  /* A step in the history, so that the browser's Back returns to the list as it was. */
  function go(address) {
    location.hash = address;
    /* The event of the new address comes after this script: the list must not lag behind the key. */
    show();
  }

  function turn(button, step) {
    if (button.getAttribute("aria-disabled") === "true") return;
    const { filters, page } = readAddress();
    go(addressOf(filters, page + step));
    count.scrollIntoView();
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", () => {
    /* Typing replaces the address: each letter would be a step back otherwise. */
    history.replaceState(null, "", addressOf(filtersOfForm(), 1));
    show();
  });
  form.addEventListener("reset", (event) => {
    event.preventDefault();
    go(addressOf({}, 1));
  });
  previous.addEventListener("click", () => turn(previous, -1));
  next.addEventListener("click", () => turn(next, 1));
  window.addEventListener("hashchange", show);
  form.hidden = false;
  show();
  document.documentElement.dataset.ready = "";
})();
