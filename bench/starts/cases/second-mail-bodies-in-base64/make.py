import base64
import csv
import random
from pathlib import Path

from bench.starts.material import instructions, link_tokenizer, question


def make(folder: Path) -> None:
    """A mail export: two thirds of the replies are base64, as they were sent."""
    drawn = random.Random(11)
    with (folder / "mails.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["message_id", "date", "subject", "question", "reply"])
        for number, row in enumerate(instructions()[:450]):
            body = f"Hi,\n\n{row['output']}\n\nBest regards,\nSupport team"
            if drawn.random() < 0.65:
                encoded = base64.b64encode(body.encode()).decode()
                parts = (encoded[at : at + 76] for at in range(0, len(encoded), 76))
                body = "\r\n".join(parts)
            sent = f"2026-0{drawn.randrange(1, 9)}-{drawn.randrange(10, 28)}"
            subject = "Re: " + row["instruction"][:40]
            asked = f"Hello,\n{question(row)}\nThanks"
            table.writerow([f"<{number:08x}@mail.acme.example>", sent, subject, asked, body])
    link_tokenizer("llama3.1-instruct", folder / "models/Llama-3.1-8B-Instruct")
