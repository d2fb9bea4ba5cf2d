from pathlib import Path

from bench.bugs.inputs.answering import PAIRS, answering


def make(folder: Path, broken: bool, tokenizer: None) -> None:
    """The extractor is that of GSM8K."""
    end = "The answer is {}." if broken else "#### {}"
    answering(
        folder,
        pairs=[(asked, f"{said} {end.format(i + 3)}") for i, (asked, said) in enumerate(PAIRS)],
    )
