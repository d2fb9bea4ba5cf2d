/* Opens the sections; links within the page, the theme, and printing. */
truetune.follow = async (hash) => {
  if (await truetune.go?.(hash)) return;
  const target = document.getElementById(decodeURIComponent(hash.slice(1)));
  if (!target) return;
  for (let fold = target.closest("details"); fold; fold = fold.parentElement.closest("details")) fold.open = true;
  target.scrollIntoView();
};

truetune.ready = truetune.unpack("data").then((data) => {
  for (const [id, open] of truetune.sections) {
    const element = document.getElementById(id);
    try { if (element && data[id] !== undefined) open(element, data[id]); } catch (error) { console.error(id, error); }
  }
}).catch((error) => console.error(error)).finally(() => {
  if (location.hash) truetune.follow(location.hash);
  truetune.cards.fit();
  document.documentElement.dataset.ready = "true";
});

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[href^='#']:not(.skip)");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  truetune.write(link.getAttribute("href"), "pushState");
  truetune.follow(link.getAttribute("href"));
});
addEventListener("hashchange", () => truetune.follow(location.hash));

{
  const theme = document.querySelector("[data-theme-switch]"), dark = matchMedia("(prefers-color-scheme: dark)");
  theme.hidden = false;
  theme.addEventListener("click", () => {
    const root = document.documentElement, now = root.dataset.theme ?? (dark.matches ? "dark" : "light");
    root.dataset.theme = now === "dark" ? "light" : "dark";
  });
}

addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll(".finding:not([open])")) { fold.open = true; fold.dataset.printed = ""; }
});
addEventListener("afterprint", () => {
  for (const fold of document.querySelectorAll(".finding[data-printed]")) { fold.open = false; delete fold.dataset.printed; }
});
