/* Text from data made visible, as visible() and spell() of report/text.py do it, and where a token's text is from. */
truetune.spelling = (() => {
  const UNSEEN = /[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\p{Zs}\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufe00-\ufe0f]/gu;
  const UNSAFE = /[\p{Cc}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu;
  const FRAGMENT = /[\udc80-\udcff]/u, FRAGMENTS = /[\udc80-\udcff]+/gu;
  const NAMED = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
  const byte = (unit) => unit.codePointAt(0) - 0xdc00;
  const continues = (unit) => FRAGMENT.test(unit) && (byte(unit) & 0xc0) === 0x80;

  function escape(character) {
    const code = character.codePointAt(0), hex = code.toString(16);
    if (NAMED[character]) return NAMED[character];
    return code < 0x100 ? "\\x" + hex.padStart(2, "0") : code < 0x10000 ? "\\u" + hex.padStart(4, "0") : "\\U" + hex.padStart(8, "0");
  }

  const visible = (text) => text.replace(UNSEEN, (c) => (c === " " ? c : escape(c)));

  /* A token in one line. */
  function spell(piece) {
    const bytes = (found) => `⟨${[...found].map((c) => byte(c).toString(16)).join(" ").toUpperCase()}⟩`;
    return visible(piece.replace(FRAGMENTS, bytes).replaceAll("\n", "↵").replaceAll("\t", "→")) || "⟨⟩";
  }

  /* A token in running text: joiners and spaces as they are, what turns or hides text as an escape. */
  const plain = (text) => text.replace(UNSAFE, (c) => (c === "\n" || c === "\t" ? c : escape(c)));

  /* Each token's part of the text; a split character stands whole at the token of its first byte. */
  function whole(pieces) {
    const made = pieces.slice(), decoder = new TextDecoder();
    let bytes = [], owner = 0;
    const flush = () => { if (bytes.length) made[owner] += decoder.decode(Uint8Array.from(bytes)); bytes = []; };
    pieces.forEach((piece, i) => {
      if (!FRAGMENT.test(piece)) return flush();
      made[i] = "";
      for (const unit of piece) {
        if (!continues(unit)) flush();
        if (FRAGMENT.test(unit)) { if (!bytes.length) owner = i; bytes.push(byte(unit)); } else made[i] += unit;
      }
    });
    flush();
    return made;
  }

  /* Of each token [path, first character, behind the last, message]; -1 where only the field is known. */
  function places(row) {
    let run = -1, path = "", at = -1, end = -1, message = null;
    return row.pieces.map((piece, i) => {
      const units = [...piece], inside = units.length > 0 && continues(units[0]);
      let begins = false;
      while (row.runs[run + 1]?.[0] <= i) { [, path, at, end = Infinity, message = null] = row.runs[++run]; begins = true; }
      if (at < 0) return [path, -1, -1, message];
      if (begins && inside) at += 1;
      const start = at - inside;
      at += units.filter((unit) => !continues(unit)).length;
      return [path, start, Math.min(at, end), message];
    });
  }

  return { visible, spell, plain, whole, places, fragment: (piece) => FRAGMENT.test(piece) };
})();
