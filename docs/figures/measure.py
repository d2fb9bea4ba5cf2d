"""`python docs/figures/measure.py` audits five trainers of bench.recitation into audited.json; needs torch."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from pathlib import Path

HERE = Path(__file__).parent
SHOWN = ("none", "pad = eos", "EOS never", "only the prompt", "whole sequence")
"""How the names of their faults begin"""


def main() -> None:
    """Write the ledger of each, by source: supervised, context."""
    sys.path.insert(0, str(HERE.parents[1]))
    os.environ |= {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    import truetune
    from bench.recitation import FAULTS

    ledgers = {}
    with contextlib.redirect_stdout(io.StringIO()):
        for fault in (fault for fault in FAULTS if fault.name.startswith(SHOWN)):
            trainer, given = fault.trainer()
            rows = truetune.audit(trainer, given=given, laws="none", batches=1).ledger.rows()
            ledgers[fault.name] = {
                source.name.lower(): [learned, context] for source, learned, context in rows
            }
    (HERE / "audited.json").write_text(json.dumps(ledgers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
