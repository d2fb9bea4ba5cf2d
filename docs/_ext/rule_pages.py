"""A page for each rule into docs/rules (which git ignores), the index of them, and a redirect from
each code and each former name.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from rule_families import AnyRule, Family, families_of_rules, summary_of_rule
from rule_index import rule_index
from sphinx.application import Sphinx

from truetune.checks.rule import UNRELEASED
from truetune.checks.rule_catalogue import all_rules
from truetune.checks.rule_families import former_code, former_names
from truetune.report.rule_pages.rule_page_for_readers import rule_page_for_readers

FINDINGS = Path(__file__).parents[1] / "_findings"
"""What truetune prints for the examples, written by `python -m tests.rule_findings`"""
REDIRECT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{word} {name}</title>
<meta http-equiv="refresh" content="0; url={name}.html"><link rel="canonical"
href="{name}.html"></head> <body><p><a href="{name}.html">{word} is {name}</a></p></body></html>
"""
_NAVIGATION: WeakKeyDictionary[Sphinx, dict[tuple[Any, ...], str]] = WeakKeyDictionary()


def write(app: Sphinx) -> None:
    """Write the pages that are new or differ, and remove those of rules that are gone."""
    folder = Path(app.srcdir) / "rules"
    folder.mkdir(exist_ok=True)
    families = families_of_rules()
    pages = {"index.md": rule_index(families)}
    for family in families:
        pages |= _pages_of_family(family)
    for path in folder.glob("*.md"):
        if path.name not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def redirect(app: Sphinx, exception: Exception | None) -> None:
    """Write rules/TOK001.html for each rule, and pages for its former code and names, which reports
    of before link to.
    """
    if exception is None and app.builder.name == "html":
        for rule in all_rules():
            for word in {rule.code, former_code(rule.code), *former_names(rule.name())}:
                text = REDIRECT.format(word=word, name=rule.name())
                (Path(app.outdir) / "rules" / f"{word}.html").write_text(text, encoding="utf-8")


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


def since(rule: AnyRule) -> str:
    """The release that had it first, in words."""
    return "the next release" if rule.since == UNRELEASED else rule.since


def _pages_of_family(family: Family) -> dict[str, str]:
    """The pages of its rules, by file name."""
    kept = json.loads((FINDINGS / f"{family.station}.json").read_text(encoding="utf-8"))
    neighbours = zip((None, *family.rules), family.rules, (*family.rules[1:], None), strict=False)
    return {
        f"{rule.name()}.md": _page(
            family, rule, "\n".join(kept.get(rule.name(), [])), before, after
        )
        for before, rule, after in neighbours
    }


def _page(
    family: Family, rule: AnyRule, printed: str, before: AnyRule | None, after: AnyRule | None
) -> str:
    body = rule_page_for_readers(rule, printed).split("\n\n", 1)[1]
    near = [
        f"{word}: [{r.name()}]({r.name()}.md)"
        for word, r in (("Previous", before), ("Next", after))
        if r
    ]
    # The index has no headings of Markdown for them; its script reads the fragments.
    fault = f'<a href="index.html#fault={rule.fault_name()}">{rule.fault_title()}</a>'
    link = f'<a href="index.html#family={family.letters}">{family.title}</a>'
    return "\n\n".join(
        [
            "---\norphan: true\n---",
            f"# {rule.name()}",
            f"{{.lead}}\n{summary_of_rule(rule)}",
            f":Code: {rule.code}\n:Fault: {fault}\n:Severity: {rule.severity}\n"
            f":Stability: {rule.stability}, since {since(rule)}\n"
            f":Family: {link}\n:Found by: {family.found_by}",
            body.rstrip(),
            f"{{.near}}\n{' · '.join(near)}\n",
        ]
    )


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.connect("builder-inited", write)
    app.connect("html-page-context", one_navigation, priority=400)
    app.connect("build-finished", redirect)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
