/* Links into the token view: `#row=17&side=rejected&turn=2&tok=42`, or `#view=3&tok=42` for what is no row of the data. */
truetune.parts.links = (view) => {
  const { number, address, write } = truetune, { element, one, store, at, panes, say } = view;

  /* Is it the row that is shown? A server has all rows there are, and says itself which is the last. */
  function is(row) {
    if (at.row.row !== row && !store.seek) say(`row ${number(row)} is not in this page; the nearest is ${number(at.row.row)}`);
    return at.row.row === row;
  }

  async function jump(row) {
    say("");
    await view.choose(store.index(row));
    if (at.row) is(row);
  }

  async function go(hash) {
    say("");
    const asked = new URLSearchParams(hash.slice(1)), side = asked.get("side");
    const [row, turn, token, line] = ["row", "turn", "tok", "view"].map((name) => (asked.get(name) ? Number(asked.get(name)) : null));
    const k = row === null ? line : store.index(row);
    if (!Number.isInteger(k)) return false;
    element.scrollIntoView();
    await view.choose(k, token ?? 0, { side, turn });
    if (at.k !== k || !panes.length) return true;
    if (row !== null && !is(row)) return true;
    if (side && at.row.title !== side) say(`row ${number(row)} has no such side in this page`);
    view.reach(token ?? Math.max(0, turn === null ? 0 : panes[0].places.findIndex(([, , , message]) => message === turn)));
    return true;
  }

  async function copy() {
    write(view.link());
    try {
      if (self !== top) throw new Error("a frame has no clipboard");
      await navigator.clipboard.writeText(address(view.link()));
      say("the link is copied");
    } catch {
      getSelection().selectAllChildren(one("[data-link]"));
      say(`copy it from the address bar: ${view.link()}`);
    }
  }

  const found = () => [...document.querySelectorAll("#findings a[href^='#row='], #findings a[href^='#view=']")];
  let last = -1;
  function nextFinding() {
    if (store.seek && view.nextMarked() !== null) return view.choose(view.nextMarked());
    if (store.seek) return view.seek({ kind: "error" }, () => {});
    const links = found();
    if (!links.length) return;
    last = (last + 1) % links.length;
    go(links[last].hash);
    say(`${last + 1} of ${links.length}: ${links[last].closest("details").querySelector("summary").textContent}`);
  }
  return { go, jump, copy, nextFinding, found };
};
