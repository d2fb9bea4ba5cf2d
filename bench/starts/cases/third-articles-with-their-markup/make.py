from pathlib import Path

from bench.starts.material import write_table
from bench.starts.tickets import Desk

SIGNED = '<div style="margin-top:8px">Kind regards,<br />The&nbsp;team</div>'


def make(folder: Path) -> None:
    """Pairs of a help desk's export: eight of ten answers hold the markup of its editor."""
    desk = Desk(4)
    rows = []
    for number, (question, answer) in enumerate(desk.pairs(240)):
        text = _marked_up(answer, desk) if number % 10 < 8 else answer
        row = {"id": number, "question": question, "answer": text}
        rows.append(row | {"source": "zendesk_export_2025-11.html"})
    write_table(folder / "kb_pairs.parquet", rows)


def _marked_up(answer: str, desk: Desk) -> str:
    escaped = answer.replace("'", "&#39;").replace(" and ", " &amp; ")
    words = escaped.replace(". ", ".<br />", 1).split(" ")
    words[desk.drawn.randrange(2, len(words) - 1)] += "&nbsp;"
    end = desk.drawn.choice(("", "<p>&nbsp;</p>", SIGNED))
    return f'<p class="MsoNormal">{" ".join(words)}</p>{end}'
