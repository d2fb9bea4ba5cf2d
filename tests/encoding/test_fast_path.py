"""A recipe that is wrong: nothing that it made is published, whatever it is that it made, and whoever asked for it."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import truetune
from truetune.checks.loss_floors_from_frequencies import loss_floor_of_data
from truetune.checks.reports import DataReport
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.demo import TOKENIZER
from truetune.encoding import encode_data_set as run_module
from truetune.encoding.encode_data_set import Encoded
from truetune.errors import FastPathError
from truetune.render import renderer as renderer_module
from truetune.render.reusable_render_recipe import Recipe, make_recipe
from truetune.render.template_probes import alternating_chat, load_tokenizer_and_template_of_run
from truetune.render.traced_string import Trace
from truetune.render.unfilled_example_plan import Plan
from truetune.settings.run_spec import RunSpec

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% if 'odd' in m.content %}"
    " (odd){% endif %}<|im_end|>\n{% endfor %}{% if add_generation_prompt"
    " %}<|im_start|>assistant\n{% endif %}"
)
NOTICE = "all is made again without shortcuts; please report this"


def without_guards(plans: list[Plan], trace: Trace) -> Recipe | None:
    """A recipe that does not see what the template asks."""
    recipe = make_recipe(plans, trace)
    return recipe and replace(recipe, guards=())


def write_rows(folder: Path, rows: int, first_odd: int, last_odd: int | None = None) -> RunSpec:
    """Rows of one shape; those from one on are rendered otherwise. Row 0 makes the recipe, row n is its nth fill."""
    last = rows if last_odd is None else last_odd
    texts = (f"question {i}{' odd' * (first_odd <= i <= last)}" for i in range(rows))
    lines = (
        json.dumps({"messages": alternating_chat(text, f"answer {i}")}) + "\n"
        for i, text in enumerate(texts)
    )
    (folder / "rows.jsonl").write_text("".join(lines))
    (folder / "template.jinja").write_text(TEMPLATE)
    return RunSpec(
        data=(str(folder / "rows.jsonl"),),
        tokenizer=str(TOKENIZER),
        template=str(folder / "template.jinja"),
    )


def encode(spec: RunSpec, out: Path, **more: Any) -> Encoded:
    return run_module.encode(spec, out, jobs=more.pop("jobs", 1), **more)


def contents(encoded: Encoded) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in sorted((Path(str(encoded.folder)) / "data").iterdir())
    }


def exact(spec: RunSpec, out: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The data as the template itself makes it."""
    with monkeypatch.context() as patch:
        patch.setattr(renderer_module, "make_recipe", lambda *_: None)
        encoded = encode(spec, out)
    assert encoded.notices == ()
    return contents(encoded)


@pytest.mark.parametrize("on_error", ["error", "skip"])
@pytest.mark.parametrize("first_odd", [1, 2, 3, 37, 300])
def test_a_wrong_recipe_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first_odd: int, on_error: str
) -> None:
    spec = write_rows(tmp_path, first_odd + 9, first_odd)
    spec = spec.model_copy(update={"encode": spec.encode.model_copy(update={"on_error": on_error})})
    wanted = exact(spec, tmp_path / "exact", monkeypatch)
    monkeypatch.setattr(renderer_module, "make_recipe", without_guards)
    found = encode(spec, tmp_path / "out")
    assert contents(found) == wanted
    assert found.counts["encoded"] == first_odd + 9
    (notice,) = found.notices
    assert notice.endswith(NOTICE)
    assert "rows.jsonl:" in notice


def test_a_proof_that_fails_late_voids_what_an_earlier_run_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first shard holds a wrong row that no proof has seen; the run is interrupted, and goes on."""
    spec = write_rows(tmp_path, 200, 23, 23)
    monkeypatch.setattr(run_module, "MIN_SHARD_BYTES", 6000)
    text = (tmp_path / "rows.jsonl").read_text().splitlines(keepends=True)
    odd = [line.replace("question", "odd question") for line in text[150:]]
    (tmp_path / "rows.jsonl").write_text("".join([*text[:150], *odd]))
    wanted = exact(spec, tmp_path / "exact", monkeypatch)
    monkeypatch.setattr(renderer_module, "make_recipe", without_guards)

    def stop(what: str, done: int, total: int, rows: int, tokens: int) -> None:
        if what == "encoding" and rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        encode(spec, tmp_path / "out", progress=stop)
    assert list((tmp_path / "out" / ".work" / "data").glob("00000.*")), "a shard was left"
    assert contents(encode(spec, tmp_path / "out")) == wanted


def test_a_run_without_shortcuts_goes_on_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = write_rows(tmp_path, 200, 1)
    monkeypatch.setattr(run_module, "MIN_SHARD_BYTES", 6000)
    wanted = exact(spec, tmp_path / "exact", monkeypatch)

    def stop(what: str, done: int, total: int, rows: int, tokens: int) -> None:
        if what == "encoding" and rows:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(renderer_module, "make_recipe", without_guards)
        with pytest.raises(KeyboardInterrupt):
            encode(spec, tmp_path / "out", progress=stop)
    made = []
    monkeypatch.setattr(renderer_module, "make_recipe", lambda *args: made.append(args))
    assert contents(encode(spec, tmp_path / "out")) == wanted
    assert not made, "no recipe was made by the run that goes on"


def test_a_wrong_recipe_in_a_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = write_rows(tmp_path, 400, 37)
    wanted = exact(spec, tmp_path / "exact", monkeypatch)
    (tmp_path / "patched").mkdir()
    (tmp_path / "patched" / "sitecustomize.py").write_text(
        "import dataclasses\n"
        "from truetune.render import reusable_render_recipe\n"
        "whole = reusable_render_recipe.make_recipe\n"
        "def record(plans, trace):\n"
        "    made = whole(plans, trace)\n"
        "    return made and dataclasses.replace(made, guards=())\n"
        "reusable_render_recipe.make_recipe = record\n"
    )
    code = (
        "import sys\n"
        "from truetune.encoding import encode_data_set\n"
        "from truetune.settings.run_spec import RunSpec\n"
        "encode_data_set.MIN_SHARD_BYTES = 12000\n"
        "if __name__ == '__main__':\n"
        "    found = encode_data_set.encode(RunSpec.model_validate_json(sys.argv[1]), sys.argv[2], jobs=2)\n"
        "    print(len(found.manifest['shards']), *found.notices)\n"
    )
    path = os.pathsep.join([str(tmp_path / "patched"), *filter(None, sys.path)])
    ran = subprocess.run(
        [sys.executable, "-c", code, spec.model_dump_json(), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    shards, notice = ran.stdout.split(" ", 1)
    assert int(shards) > 2
    assert notice.strip().endswith(NOTICE)
    monkeypatch.setattr(run_module, "MIN_SHARD_BYTES", 12000)
    wanted = exact(spec, tmp_path / "exact in parts", monkeypatch)
    assert {
        path.name: path.read_bytes() for path in sorted((tmp_path / "out" / "data").iterdir())
    } == wanted


class KeptRecords(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def test_check_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = write_rows(tmp_path, 60, 37)
    wanted = truetune.check(spec.data, spec.tokenizer, template=spec.template)
    monkeypatch.setattr(renderer_module, "make_recipe", without_guards)
    kept = KeptRecords()
    logging.getLogger().addHandler(kept)
    try:
        found = truetune.check(spec.data, spec.tokenizer, template=spec.template)
    finally:
        logging.getLogger().removeHandler(kept)
    assert isinstance(found, DataReport)
    assert isinstance(wanted, DataReport)
    assert found.findings == wanted.findings
    assert found.lengths.counts.tolist() == wanted.lengths.counts.tolist()
    assert found.ledger.counts.tolist() == wanted.ledger.counts.tolist()
    assert [record.getMessage().endswith(NOTICE) for record in kept.records] == [True]


def test_the_floor_of_a_loss_begins_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = write_rows(tmp_path, 60, 37)
    wanted = loss_floor_of_data(spec)
    monkeypatch.setattr(renderer_module, "make_recipe", without_guards)
    assert loss_floor_of_data(spec) == wanted


def test_each_recipe_is_proved_from_its_first_row_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that is made when hundreds of rows were filled into others."""
    spec = write_rows(tmp_path, 400, 1_000)
    rows = [*read_conversations(spec.data)]
    renderer = load_tokenizer_and_template_of_run(spec).renderer()
    for row in rows:
        renderer.render(row)
    monkeypatch.setattr(renderer_module, "make_recipe", without_guards)
    longer = [replace(row, messages=[*row.messages, *row.messages]) for row in rows[:2]]
    renderer.render(longer[0])
    longer[1].messages[0] = {"role": "user", "content": "odd"}
    with pytest.raises(
        FastPathError, match=r"renders .*rows\.jsonl:2 differently than its template"
    ):
        renderer.render(longer[1])


def test_what_is_compared(tmp_path: Path) -> None:
    """All of a rendering: its text, what is supervised, the turns, and which field each character came from."""
    spec = write_rows(tmp_path, 3, 9)
    for wrong in ("text", "weight", "stop", "source"):
        renderer = load_tokenizer_and_template_of_run(spec).renderer()
        first, second, _ = read_conversations(spec.data)
        renderer.render(first)
        (known,) = next(iter(renderer._recipes.values()))
        (plan,) = known.recipe.plans
        texts = known.recipe.texts
        if wrong == "text":
            texts = tuple(
                tuple(f"x{piece}" if isinstance(piece, str) else piece for piece in text)
                for text in texts
            )
            texts = tuple(tuple(text) for text in texts)
        elif wrong == "weight":
            plan = replace(plan, turns=tuple(turn._replace(weight=0.5) for turn in plan.turns))
        elif wrong == "stop":
            plan = replace(plan, turns=tuple(turn._replace(stop=None) for turn in plan.turns))
        else:
            source = plan.pieces[1].source
            plan = replace(
                plan, pieces=tuple(p._replace(source=source) if p.node else p for p in plan.pieces)
            )
        known.recipe = replace(known.recipe, plans=(plan,), texts=texts)
        with pytest.raises(FastPathError):
            renderer.render(second)
