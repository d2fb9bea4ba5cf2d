"""What the page asks of truetune: the tokens of a pasted chat, as `truetune show --json` has them, and findings on it.

The findings are those of `truetune check --select TOK --select TPL --select ROW`: rules on the tokenizer, on the
template and on rows. Others look at many rows, or take more of NumPy than the page brings. The trade-off: a rule that
takes such a function after all is reported as not judged, with the name of what is missing.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tokenizers

from truetune.cached_for_one_call import clear_one_call_caches
from truetune.checks.check_data import load_tokenizer_and_template, view_row_tokens
from truetune.checks.findings import Finding
from truetune.checks.judgement import Judgement
from truetune.checks.rule_catalogue import all_rules
from truetune.checks.run_data_rules import DataRules
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.encoding.encoder import Encoder
from truetune.encoding.render_and_encode_in_two_threads import make_batch
from truetune.errors import TruetuneError
from truetune.package import __version__
from truetune.report.token_view_terminal import token_view_json
from truetune.settings.read_truetune_settings import validate_settings
from truetune.settings.run_spec import RunSpec

FOLDER = Path("/pasted")
CHAT = FOLDER / "chat.jsonl"
TEMPLATE = FOLDER / "template.jinja"
STATIONS = ("tokenizer", "template", "rows")
COMPARE_ROWS = (
    "train-eval-leak",
    "duplicate-rows",
    "rows-grouped-by-source",
    "shared-text-is-learned",
)
"""Rules on rows that have nothing to compare in one chat"""


def show_pasted_chat(chat: str, template: str, settings: str) -> str:
    """Show the tokens of one chat.

    Args:
        chat: a row of training data as JSON, or the messages alone.
        template: Jinja, instead of the tokenizer's own; empty for that one.
        settings: JSON of fields of RunSpec, such as `learn`.

    Returns:
        JSON with `examples`, as of `truetune show --json`, `findings` and `not_judged`; or with `error`.
    """
    clear_one_call_caches()
    try:
        given: dict[str, Any] = json.loads(settings)
        CHAT.write_text(json.dumps(_read_chat(chat), ensure_ascii=False) + "\n", encoding="utf-8")
        if template.strip():
            TEMPLATE.write_text(template, encoding="utf-8")
            given["template"] = str(TEMPLATE)
        own = {"data": (str(CHAT),), "tokenizer": str(FOLDER)}
        spec = validate_settings({**given, **own}, "the page")
        examples = [token_view_json(view) for view in view_row_tokens(spec)]
        judgement = _judge_row(spec)
    except (TruetuneError, tokenizers.NoOffsets) as error:
        return json.dumps({"truetune": __version__, "error": str(error)})
    return json.dumps(
        {
            "truetune": __version__,
            "examples": examples,
            "findings": [_finding_json(finding) for finding in judgement.findings],
            "not_judged": [str(part) for part in judgement.not_judged if "Error: " in part.reason],
        }
    )


def _judge_row(spec: RunSpec) -> Judgement:
    """What the rules say of the one row and its tokenizer."""
    setup = load_tokenizer_and_template(spec, only_reference=True)
    kinds = [rule for rule in all_rules(*STATIONS) if rule.name() not in COMPARE_ROWS]
    rules = DataRules(kinds, setup)
    rows = list(read_conversations(spec.data))
    encoder = Encoder(setup.tokenizer.backend, only_reference=True)
    rules.judge_batch(make_batch(rows, setup.probes.renderer(), encoder))
    return rules.judgement()


def _finding_json(finding: Finding) -> dict[str, Any]:
    """A finding as plain values."""
    return {
        "rule": finding.rule,
        "severity": finding.severity,
        "message": finding.message,
        "remedy": finding.remedy,
        "cases": [case.text for case in finding.cases],
    }


def _read_chat(text: str) -> Any:
    """The row of a pasted text. Raises TruetuneError where it is no JSON."""
    try:
        row = json.loads(text)
    except ValueError as error:
        raise TruetuneError(f"the chat is not JSON: {error}") from None
    return {"messages": row} if isinstance(row, list) else row
