from pathlib import Path

from bench.starts.material import write_lines
from bench.starts.tickets import ITEMS, Desk


def make(folder: Path) -> None:
    """Six documents of fifty tickets each."""
    desk = Desk(16)
    rows = []
    for _ in range(6):
        tickets = (
            f"{number}. {asked} {told}" for number, (asked, told) in enumerate(desk.pairs(50))
        )
        asked = "Summarise the tickets of the week:\n" + " ".join(tickets)
        turns = (("human", asked), ("gpt", desk.reply(desk.drawn.choice(ITEMS))))
        rows.append({"conversations": [{"from": role, "value": text} for role, text in turns]})
    write_lines(folder / "long_docs.jsonl", rows)
