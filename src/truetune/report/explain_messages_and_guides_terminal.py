"""What `truetune explain` shows other than a rule's page: a known message, a troubleshooting guide,
or the hits of a search.

Pages are written as Markdown and drawn by rich, so that `--json` can give the same text to a program. A search
imports neither the rules nor rich's Markdown (tests/checks/test_explaining.py): it must answer while somebody is
still reading the traceback.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from truetune.checks.explaining.guides import GUIDES, Cause, Guide
from truetune.checks.explaining.search_rules_messages_guides_commands import Hit
from truetune.logs.console.messages import KnownMessage, message_by_name

TOPIC_KINDS = {
    "rule": "rule",
    "message": "message",
    "guide": "guide",
    "command": "command",
    "option": "option",
}


def find_message_or_guide(name: str) -> KnownMessage | Guide | None:
    """The message or guide of that name; None where it is neither."""
    return message_by_name(name) or next((guide for guide in GUIDES if guide.name == name), None)


def render_message_or_guide(topic: KnownMessage | Guide, console: Console) -> None:
    """Show a message's or a guide's page."""
    from rich.markdown import Markdown  # slow to import, and lists of hits need none

    console.print(Markdown(_message_or_guide_markdown(topic), code_theme="ansi_dark"))


def message_or_guide_json(topic: KnownMessage | Guide) -> dict[str, Any]:
    """A message or a guide as plain values."""
    return {"name": topic.name, "title": topic.title, "page": _message_or_guide_markdown(topic)}


def _message_or_guide_markdown(topic: KnownMessage | Guide) -> str:
    """The page of a message or guide as Markdown: what is seen, the causes with the likely ones
    first, what to do.
    """
    # A guide begins with the user's words for the problem, so that a reader sees at once that
    # it is theirs.
    if isinstance(topic, Guide):
        causes = "\n".join(
            f"{number}. {_cause_line(cause)}" for number, cause in enumerate(topic.causes, 1)
        )
        seen = "; ".join(topic.asked)
        return (
            f"# {topic.title}\n\nSeen as: {seen}.\n\nBegin with `{topic.command}`.\n\n## Causes,"
            f" most likely first\n\n{causes}\n\nThe whole guide: docs/{topic.page}"
        )
    return (
        f"# {topic.name}\n\n{_as_sentence(topic.title)} ({topic.severity})\n\n## Causes, most likely"
        f" first\n\n{_as_sentence(topic.cause)}\n\n## What to do"
        f" next\n\n{_as_sentence(topic.advice.replace('{gpu}', 'SIZE'))}\n\n##"
        f" References\n\n{', '.join(topic.sources)}"
    )


def _cause_line(cause: Cause) -> str:
    """A cause of a guide, with the rules that prove it."""
    proof = f" (proved by {', '.join(cause.rules)})" if cause.rules else ""
    return f"{cause.text}. Seen as: {cause.seen}{proof}"


def _as_sentence(text: str) -> str:
    """The text with a capital and a full stop; empty stays empty."""
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def render_search_hits(question: str, hits: Sequence[Hit], console: Console) -> None:
    """Show what a search found: each subject with its causes and the command that shows all of it;
    advice below the first one.
    """
    for hit in hits:
        topic = hit.topic
        line = Text()
        line.append(f"{topic.name}", style="bold")
        # A rule is known by its code in reports; the other kinds have no code, and are called
        # what they are.
        line.append(f" ({topic.code or TOPIC_KINDS[topic.kind]}): {topic.title}")
        console.print(line)
        for cause in hit.causes:
            proof = f" ({', '.join(cause.rules)})" if cause.rules else ""
            console.print(Text(f"    cause: {cause.text}{proof}"))
        advice = _advice_of_message_hit(hit) if hit is hits[0] else ""
        if advice:
            console.print(Text(f"    help: {advice}"))
        console.print(
            Text(
                f"    about: {', '.join(hit.words)} · {_command_that_shows_whole_topic(hit)}",
                style="dim",
            )
        )


def _advice_of_message_hit(hit: Hit) -> str:
    """What to do where the hit is a known message; empty for another kind.

    Only the first hit shows it: a message that was pasted is nearly always the first, and five remedies would be four
    wrong ones.
    """
    message = message_by_name(hit.topic.name) if hit.topic.kind == "message" else None
    return "" if message is None else message.advice.replace("{gpu}", "SIZE")


def search_hits_json(hits: Sequence[Hit]) -> dict[str, Any]:
    """What a search found, as plain values."""
    return {
        "topics": [
            {
                "kind": hit.topic.kind,
                "name": hit.topic.name,
                "code": hit.topic.code,
                "title": hit.topic.title,
                "about": list(hit.words),
                "causes": [
                    {"text": cause.text, "rules": list(cause.rules)} for cause in hit.causes
                ],
                "advice": _advice_of_message_hit(hit),
                "command": _command_that_shows_whole_topic(hit),
            }
            for hit in hits
        ]
    }


def _command_that_shows_whole_topic(hit: Hit) -> str:
    """The command that shows all of what a hit is about."""
    name = hit.topic.name
    if hit.topic.kind == "option":
        return f"truetune {name.split(' ')[0]} -h"
    return f"truetune {name} -h" if hit.topic.kind == "command" else f"truetune explain {name}"
