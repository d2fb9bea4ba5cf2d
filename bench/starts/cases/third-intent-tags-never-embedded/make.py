from pathlib import Path

from bench.starts.material import write_lines
from bench.starts.tickets import Desk

INTENTS = ("refund_request", "track_order", "exchange_item", "complaint", "billing")


def make(folder: Path) -> None:
    """Tickets whose answers are tags around an intent and a slot."""
    desk = Desk(1)
    rows = []
    for _ in range(80):
        question, item = desk.ticket()
        slot = f"<slots><slot_name>item<slot_value>{item}</slots>"
        answer = f"<intent>{desk.drawn.choice(INTENTS)}</intent>{slot}"
        turns = (("user", question), ("assistant", answer))
        rows.append({"messages": [{"role": role, "content": text} for role, text in turns]})
    write_lines(folder / "intents.jsonl", rows)
