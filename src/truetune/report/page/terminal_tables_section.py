"""The page's section of what was measured or memorised: the tables that the terminal shows, as they
are.

Environment, recitation, evaluation, memory, stages: whatever a kind of report draws below its findings was recorded in
the JSON (`record_terminal_drawing_as_tables`). So a new kind of report has a page without a line here but its title.
"""

from __future__ import annotations

from truetune.report.page.page_section import Result, Section, render_template

SECTION_TITLES = {
    "environment": "Environment", "recitation": "Recitation", "evaluation": "Evaluation", "service": "Server",
    "moments": "Memory", "rungs": "Rungs", "tensors": "What moved", "proof": "Proof", "counts": "Encoded",
}  # fmt: skip
"""By the key of the JSON"""


def tables_section(result: Result) -> Section | None:
    """The section of the tables that a terminal shows; None of results without any."""
    parts = result.get("shown")
    if not parts:
        return None
    # Told by a key that only this kind of result has; an unknown kind still has its tables.
    title = next((title for key, title in SECTION_TITLES.items() if result.get(key)), "Measured")
    return Section(
        "measured", title, render_template("measured.html.jinja", parts=parts, title=title)
    )
