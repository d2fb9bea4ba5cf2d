from pathlib import Path

from bench.starts.material import instructions, link_tokenizer, question, write_lines, write_table


def make(folder: Path) -> None:
    """Rows of a CSV export: a newline is the two characters backslash and n, in rows and in answers."""
    write_table(
        folder / "train.parquet",
        [
            {
                "id": f"{number:08x}",
                "source": "helpdesk_export",
                "lang": "en",
                "instruction": question(row).replace("\n", "\\n"),
                "response": row["output"].replace("\n", "\\n").replace("\t", "\\t"),
            }
            for number, row in enumerate(instructions()[:700])
        ],
    )
    samples = (
        {"prompt": question(row), "prediction": row["output"].replace("\n", "\\n")}
        for row in instructions()[700:760]
        if "\n" in row["output"]
    )
    write_lines(folder / "samples.jsonl", samples)
    link_tokenizer("qwen2.5-instruct", folder / "models/Qwen2.5-0.5B-Instruct")
