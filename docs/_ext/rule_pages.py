"""A page for each rule, from its docstring, into docs/rules (which git ignores), and a redirect from its code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from sphinx.application import Sphinx

from truetune.checks.rule import UNRELEASED, Rule
from truetune.checks.rule_catalogue import STATIONS, all_rules, rule_page, station_of_rule
from truetune.checks.rule_families import former_code

WHERE = {
    "tokenizer": ("The tokenizer", "`truetune check` of a tokenizer, or of data with one"),
    "template": ("The chat template", "`truetune check` of a tokenizer, or of data with one"),
    "rows": ("Rows", "`truetune check` of data with a tokenizer"),
    "tokens": ("Tokens and labels", "`truetune check` of data with a tokenizer"),
    "pairs": ("Preference pairs", "`truetune check` of pairs with a tokenizer"),
    "config": (
        "Settings",
        "`truetune check` of a truetune, Axolotl, LLaMA-Factory or TRL configuration",
    ),
    "tokenized": ("Token ids in files", "`truetune check` of rows that are tokenized already"),
    "devices": ("Devices and processes", "`truetune train`, where the run starts"),
    "source": ("Python sources and notebooks", "`truetune lint`, `truetune check` of a script"),
    "commands": (
        "Shell scripts, job files, Dockerfiles",
        "`truetune lint` and `truetune check` of one",
    ),
    "modelfile": ("Ollama's Modelfile", "`truetune check` of one"),
    "log": ("The log of a run", "`truetune diagnose`, `truetune check` of a run's folder"),
    "checkpoint": ("Saved weights", "`truetune check` of an adapter or a model"),
    "batch": ("Batches", "`truetune run`, `truetune.audit`, `truetune rehearse`"),
    "law": ("Laws", "`truetune run`, `truetune.audit`, `truetune rehearse`"),
    "recitation": ("Recitation", "`truetune rehearse`"),
    "answers": ("Answers", "`truetune train` while it trains, `truetune sample`"),
    "cause": ("Causes of bad answers", "`truetune sample`"),
    "evaluation": ("Evaluation", "`truetune evaluate`"),
    "serving": ("Serving", "`truetune serve-check`"),
    "environment": ("The environment", "`truetune doctor`"),
}
"""Title of a station, and who looks there"""
REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{code} {name}</title>
<meta http-equiv="refresh" content="0; url={name}.html"><link rel="canonical" href="{name}.html"></head>
<body><p><a href="{name}.html">{code} is {name}</a></p></body></html>
"""
AnyRule = type[Rule[Any]]
_NAVIGATION: WeakKeyDictionary[Sphinx, dict[tuple[Any, ...], str]] = WeakKeyDictionary()


def write(app: Sphinx) -> None:
    """Write the pages that are new or differ, and remove those of rules that are gone."""
    folder = Path(app.srcdir) / "rules"
    folder.mkdir(exist_ok=True)
    pages = {"index.md": _index()}
    for name in STATIONS:
        found = all_rules(name)
        for before, rule, after in zip((None, *found), found, (*found[1:], None), strict=False):
            pages[f"{rule.name()}.md"] = _page(rule, before, after)
    for path in folder.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def redirect(app: Sphinx, exception: Exception | None) -> None:
    """Write rules/TOK001.html for each rule, and a page for its former code, which reports of before link to."""
    if exception is None and app.builder.name == "html":
        for rule in all_rules():
            for code in {rule.code, former_code(rule.code)}:
                text = REDIRECT.format(code=code, name=rule.name())
                (Path(app.outdir) / "rules" / f"{code}.html").write_text(text, encoding="utf-8")


def one_navigation(
    app: Sphinx, pagename: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """All rules' pages have the same navigation: make it once (a third of the build)."""
    if pagename.startswith("rules/") and pagename != "rules/index":
        made, kept = context["toctree"], _NAVIGATION.setdefault(app, {})

        def toctree(**settings: Any) -> str:
            key = tuple(sorted(settings.items()))
            if key not in kept:
                kept[key] = made(**settings)
            return kept[key]

        context["toctree"] = toctree


def summary(rule: AnyRule) -> str:
    """The first paragraph of its page, on one line."""
    return " ".join(rule_page(rule).split("\n\n", 1)[0].split())


def since(rule: AnyRule) -> str:
    """The release that had it first, in words."""
    return "the next release" if rule.since == UNRELEASED else rule.since


def _page(rule: AnyRule, before: AnyRule | None, after: AnyRule | None) -> str:
    title, who = WHERE[station_of_rule(rule)]
    body = rule_page(rule).split("\n\n", 1)[1]
    near = [
        f"{word}: [{r.name()}]({r.name()}.md)"
        for word, r in (("Previous", before), ("Next", after))
        if r
    ]
    return "\n\n".join(
        [
            "---\norphan: true\n---",
            f"# {rule.name()}",
            f"{{.lead}}\n{summary(rule)}",
            f":Code: {rule.code}\n:Severity: {rule.severity}\n"
            f":Stability: {rule.stability}, since {since(rule)}\n"
            f":Station: [{title}](index.md#{_anchor(title)})\n:Found by: {who}",
            body,
            f"{{.near}}\n{' · '.join(near)}\n",
        ]
    )


def _index() -> str:
    parts = [
        "# Rules",
        f"{len(all_rules())} rules look at the stations of a fine-tune, from the rows in a file to the answers of a "
        "server. Each has a code that never changes. `truetune rules` lists them, and `truetune explain RULE` shows "
        "a page on the terminal. *Severity* is the highest that a rule gives. A *stable* rule has a case in the "
        "[bug bench](../bugs.md), a test on real tokenizers, models or trainers, and a public source; one that lacks "
        "any of them is a *preview*. Both run; `--select stable` leaves the previews out.",
    ]
    for name in STATIONS:
        title, who = WHERE[name]
        rows = [
            f"| {r.code} | [{r.name()}]({r.name()}.md) | {r.severity} | {r.stability} | {_cell(summary(r))} |"
            for r in all_rules(name)
        ]
        parts += [
            f"## {title}",
            f"Found by {who}.",
            "| code | rule | severity | stability | what is wrong |\n|---|---|---|---|---|",
        ]
        parts[-1] += "\n" + "\n".join(rows)
    return "\n\n".join(parts) + "\n"


def _anchor(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", write)
    app.connect("html-page-context", one_navigation, priority=400)
    app.connect("build-finished", redirect)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
