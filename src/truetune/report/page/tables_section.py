"""What was measured or recited: the tables that the terminal shows, as they are."""

from __future__ import annotations

from truetune.report.page.section import Result, Section, render_template

SECTION_TITLES = {
    "environment": "Environment", "recitation": "Recitation", "evaluation": "Evaluation", "service": "Server",
    "moments": "Memory", "rungs": "Rungs", "tensors": "What moved", "proof": "Proof", "counts": "Encoded",
}  # fmt: skip
"""By the key of the JSON"""


def tables_section(result: Result) -> Section | None:
    """Of reports that have such tables."""
    parts = result.get("shown")
    if not parts:
        return None
    title = next((title for key, title in SECTION_TITLES.items() if result.get(key)), "Measured")
    return Section(
        "measured", title, render_template("measured.html.jinja", parts=parts, title=title)
    )
