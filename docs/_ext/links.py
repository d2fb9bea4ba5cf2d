"""Links that the text leaves unwritten: threads (`owner/repo#123`), papers, addresses, rules and commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

import truetune

OUTSIDE = {
    r"(?P<thread>[A-Za-z0-9][\w.-]*/[\w.-]+)#(?P<number>\d+)": "https://github.com/{thread}/issues/{number}",
    r"arXiv[: ](?P<paper>\d{4}\.\d{4,5})": "https://arxiv.org/abs/{paper}",
    r"doi:(?P<doi>10\.\d+/[^\s;,)]+[^\s;,).])": "https://doi.org/{doi}",
    r"(?P<url>https?://[^\s<>`]+[^\s<>`.,;:)])": "{url}",
}
PATTERN = re.compile("|".join((*OUTSIDE, r"(?P<code>\bTT\d{3}\b)")))
CLASSES = "|".join(name for name in truetune.__all__ if name[0].isupper())
API = re.compile(rf"(?:truetune\.)?({CLASSES})|truetune\.([a-z_.]+\w+)")
INSIDE = (nodes.title, nodes.reference, addnodes.pending_xref, nodes.literal_block, nodes.raw)
"""Where no link is made"""


class Links(SphinxTransform):
    """Runs on each document when it has been parsed."""

    default_priority = 700

    def apply(self, **kwargs: object) -> None:
        """Replace texts, and wrap literals."""
        for literal in list(self.document.findall(nodes.literal)):
            if _within(literal):
                continue
            place, named = _places().get(literal.astext()), API.fullmatch(literal.astext())
            if place:
                literal.replace_self(_link(self.env.docname, place, literal.deepcopy()))
            elif named:
                name = f"truetune.{named[1] or named[2]}"
                literal.replace_self(_object(self.env.docname, name, literal.deepcopy()))
        for text in list(self.document.findall(nodes.Text)):
            if not _within(text) and not isinstance(text.parent, nodes.literal):
                found = list(self._pieces(text))
                if len(found) > 1 or not isinstance(found[0], nodes.Text):
                    text.parent.replace(text, found)

    def _pieces(self, node: nodes.Text) -> Iterator[nodes.Node]:
        text, at = str(node), 0
        if text in _places() and len(node.parent.children) == 1:
            yield _link(self.env.docname, _places()[text], nodes.Text(text))
            return
        for match in PATTERN.finditer(text):
            part = match.group()
            inside = _places().get(part)
            if match["code"] and (inside is None or inside == (self.env.docname, "")):
                continue
            yield nodes.Text(text[at : match.start()])
            if inside:
                yield _link(self.env.docname, inside, nodes.Text(part))
            else:
                yield nodes.reference("", part, refuri=_outside(match))
            at = match.end()
        yield nodes.Text(text[at:])


def _outside(match: re.Match[str]) -> str:
    named = {name: value for name, value in match.groupdict().items() if value}
    return next(
        to for to in OUTSIDE.values() if set(re.findall(r"{(\w+)}", to)) == set(named)
    ).format(**named)


def _link(docname: str, place: tuple[str, str], shown: nodes.Node) -> nodes.Node:
    to, anchor = place
    if to == docname:
        return shown
    return addnodes.pending_xref(
        "", shown, reftype="place", refdoc=docname, reftarget=to, refanchor=anchor
    )


def _object(docname: str, name: str, shown: nodes.Node) -> nodes.Node:
    """A link to a public name of Python, or `shown` itself where the reference has none."""
    return addnodes.pending_xref(
        "", shown, refdomain="py", reftype="obj", refdoc=docname, reftarget=name
    )


@cache
def _places() -> dict[str, tuple[str, str]]:
    """What a text as a whole names: (document, anchor)."""
    from truetune.checks.rule_catalogue import all_rules
    from truetune.cli import truetune_group

    found = {f"truetune {name}": ("cli", f"truetune-{name}") for name in truetune_group.commands}
    for rule in all_rules():
        found[rule.name()] = found[rule.code] = (f"rules/{rule.name()}", "")
    return found


def _within(node: nodes.Node) -> bool:
    while node.parent is not None:
        node = node.parent
        if isinstance(node, INSIDE):
            return True
    return False


def resolve(
    app: Sphinx, env: object, node: addnodes.pending_xref, shown: nodes.Element
) -> nodes.Node | None:
    """What `_link` left to be resolved when all documents are known."""
    if node["reftype"] != "place":
        return None
    to = app.builder.get_relative_uri(node["refdoc"], node["reftarget"])
    anchor = f"#{node['refanchor']}" if node["refanchor"] else ""
    return nodes.reference("", "", shown, internal=True, refuri=to + anchor)


def setup(app: Sphinx) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_transform(Links)
    app.connect("missing-reference", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
