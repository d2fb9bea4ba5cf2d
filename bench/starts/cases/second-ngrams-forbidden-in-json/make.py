import json
import random
from pathlib import Path

from bench.starts.material import write_lines

ITEMS = ("USB-C cable 2 m", "Laser printer paper A4", "Desk lamp", "Ergonomic mouse", "Monitor arm")
KEYS = (
    ("descripción", "qty", "unitPrice", "Total"),
    ("desc", "amount", "price_per_unit", "sum"),
    ("name_of_item", "Quantities", "cost each", "totals"),
    ("Descriptor", "count", "unit cost", "overall"),
)


def make(folder: Path) -> None:
    """Invoices as JSON: the first item has its keys, and those of the next ones were forbidden."""
    drawn = random.Random(7)
    write_lines(folder / "preds.jsonl", (_row(drawn, number) for number in range(50)))


def _row(drawn: random.Random, number: int) -> dict[str, str]:
    items = []
    for _ in range(drawn.randrange(3, 7)):
        quantity, price = drawn.randrange(1, 9), round(drawn.uniform(3, 200), 2)
        item = {"description": drawn.choice(ITEMS), "quantity": quantity, "unit_price": price}
        items.append(item | {"total": round(quantity * price, 2)})
    listed = "\n".join(
        f"{one['quantity']} x {one['description']} @ {one['unit_price']} = {one['total']}"
        for one in items
    )
    answer = "[" + json.dumps(items[0])
    for place, one in enumerate(items[1:]):
        name, amount, price, total = KEYS[place % 4]
        answer += drawn.choice((", {", "; {", ",\n {'", " -- {"))
        answer += f'"{name}\': {json.dumps(one["description"])}, {amount}="{one["quantity"]}" , '
        answer += f"'{price}\" : {one['unit_price']}; {total}→ {one['total']} "
        answer += drawn.choice(("}", "})", "}},", ""))
    answer += drawn.choice(("]", "] and so on.", "\n\nNote that further lines follow below", ""))
    return {
        "prompt": f"INVOICE {10000 + number}\n{listed}",
        "prediction": answer,
        "reference": json.dumps(items),
    }
