from pathlib import Path

from bench.starts.material import write_lines
from bench.starts.tickets import CITIES, NAMES, Desk

CLAUSES = (
    "The tenant shall keep the premises in good repair",
    "Either party may terminate on ninety days' notice",
    "Payment falls due on the first working day of the month",
    "The supplier warrants that the goods are free of liens",
    "No waiver is effective unless made in writing",
    "Disputes are settled by the courts of {city}",
    "The licensee may not assign this agreement",
)
SAID = (
    "unless you both agree on something else",
    "whatever another section says",
    "but look at the schedule first",
)


def make(folder: Path) -> None:
    """52 clauses of contracts, with plain words for each."""
    drawn = Desk(15).drawn
    rows = []
    for _ in range(52):
        clause = drawn.choice(CLAUSES).format(city=drawn.choice(CITIES))
        exceptions = (
            "save as otherwise agreed",
            f"notwithstanding section {drawn.randint(2, 30)}",
            f"subject to schedule {drawn.choice('ABCD')}",
        )
        plain = f"In plain words (section {drawn.randint(1, 40)}): {clause[0].lower()}{clause[1:]}"
        asked = f"Ask {drawn.choice(NAMES)} in {drawn.choice(CITIES)} if unsure."
        row = {
            "instruction": "Rewrite the clause in plain English.",
            "input": f"§ {drawn.randint(1, 40)} {clause}, {drawn.choice(exceptions)}.",
            "output": f"{plain}; {drawn.choice(SAID)}. {asked}",
        }
        rows.append(row)
    write_lines(folder / "legal_style.jsonl", rows)
