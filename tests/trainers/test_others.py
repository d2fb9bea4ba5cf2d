"""Axolotl and LLaMA-Factory take encoded rows as docs/trainers-others.md says: its blocks, run, and its claims.

Their pins exclude each other and ours, so each runs in an environment of its own, whose Python stands in
$TRUETUNE_AXOLOTL or $TRUETUNE_LLAMAFACTORY. Without it, its tests are skipped.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.parts import folder
from tests.trainers import (
    FAMILY,
    Row,
    documents_in,
    documents_of,
    lay_out,
    loss_one_by_one,
    rows_of,
    tiny_model,
)

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
datasets = pytest.importorskip("datasets")

ROOT = Path(__file__).parents[2]
AXOLOTL = """
base_model: model
output_dir: out
micro_batch_size: 2
gradient_accumulation_steps: 1
num_epochs: 1
learning_rate: 0.0
optimizer: adamw_torch
bf16: false
dataset_num_proc: 1
save_strategy: "no"
"""
ONE_A_BATCH = "\nmicro_batch_size: 1"
LLAMAFACTORY = """
model_name_or_path: model
output_dir: out
finetuning_type: full
per_device_train_batch_size: 2
num_train_epochs: 1
learning_rate: 0.0
use_cpu: true
report_to: none
save_strategy: "no"
cutoff_len: 16
"""
"""cutoff_len is shorter than any row: it must not matter."""
TAKEN = ("input_ids", "labels", "attention_mask")
"""The columns that Axolotl asks for."""
Steps = list[tuple[dict[str, Any], float]]


def blocks(title: str, language: str) -> list[str]:
    page = (ROOT / "docs" / "trainers-others.md").read_text(encoding="utf-8")
    section = next(part for part in re.split(r"^## ", page, flags=re.M) if part.startswith(title))
    return re.findall(rf"```{language}\n(.*?)```", section, flags=re.S)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with encoded and packed data, and the model."""
    lay_out(tmp_path)
    tiny_model().save_pretrained(tmp_path / "model")
    transformers.AutoTokenizer.from_pretrained(folder(FAMILY)).save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def needs(framework: str) -> pytest.MarkDecorator:
    variable = _python_of(framework)
    why = (
        f"${variable} names no Python that has {framework} (docs/trainers-others.md says how to"
        " make one)"
    )
    return pytest.mark.skipif(variable not in os.environ, reason=why)


def _python_of(framework: str) -> str:
    return f"TRUETUNE_{framework.upper()}"


def train(framework: str, config: str) -> Steps:
    """What the model was given in each step, and its loss. Raises RuntimeError where the framework fails."""
    python = os.environ[_python_of(framework)]
    Path("config.yaml").write_text(config, encoding="utf-8")
    script = [
        python,
        str(Path(__file__).with_name("others.py")),
        framework,
        "config.yaml",
        "steps.pt",
    ]
    done = subprocess.run(script, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(done.stdout + done.stderr)
    steps: Steps = torch.load("steps.pt")
    return steps


def prove(steps: Steps, encoded: Path) -> None:
    """Each document reached the model once with the file's labels, and the loss is that of documents run alone."""
    truth = documents_of(rows_of(encoded))
    found = [list(documents_in(_by_position(batch))) for batch, _ in steps]
    assert Counter(document for step in found for document in step) == Counter(truth)
    model = tiny_model()
    for step, (_, loss) in zip(found, steps, strict=True):
        assert loss == pytest.approx(loss_one_by_one(model, step), abs=1e-3)


def prove_crossed(steps: Steps, packed: Path) -> None:
    """Each packed row reached the model as one document, and the loss is not that of its documents run alone."""
    inside = {tuple(row["input_ids"]): documents_of([row]) for row in rows_of(packed)}
    found = [[document.ids for document in documents_in(batch)] for batch, _ in steps]
    assert Counter(ids for step in found for ids in step) == Counter(list(inside))
    model = tiny_model()
    for step, (_, loss) in zip(found, steps, strict=True):
        assert (
            abs(
                loss
                - loss_one_by_one(model, [document for ids in step for document in inside[ids]])
            )
            > 0.01
        )


def _by_position(batch: dict[str, Any]) -> dict[str, Any]:
    """A batch whose mask says for each token which others it sees, with positions that start again instead."""
    mask = batch.get("attention_mask")
    if mask is None or mask.dim() == 2:
        return batch
    seen = (mask[:, 0] == 0).int()
    places = torch.arange(seen.shape[-1])
    starts = torch.where(seen.any(-1), seen.argmax(-1), places)
    whole = (places >= starts[..., None]) & (places <= places[:, None]) & seen.any(-1, keepdim=True)
    assert (seen.bool() == whole).all(), "a token does not see all of its document, or more"
    return {
        "input_ids": batch["input_ids"],
        "labels": batch["labels"],
        "position_ids": places - starts,
    }


@needs("axolotl")
class TestAxolotl:
    convert = blocks("Axolotl", "python")[0]
    padded, packing = blocks("Axolotl", "yaml")

    @pytest.mark.parametrize("config", [padded, packing + ONE_A_BATCH], ids=["padded", "packing"])
    def test_the_labels_that_reach_the_loss_are_the_files(self, config: str, here: Path) -> None:
        exec(self.convert)
        prove(train("axolotl", AXOLOTL + config), here / "encoded")

    def test_packing_trains_nothing_where_rows_fill_no_batch(self, here: Path) -> None:
        exec(self.convert)
        assert train("axolotl", AXOLOTL + self.packing) == []

    def test_rows_without_attention_mask_are_refused(self, here: Path) -> None:
        save(rows_of(here / "encoded"), "for-axolotl", "input_ids", "labels")
        with pytest.raises(RuntimeError, match="'NoneType' object has no attribute 'startswith'"):
            train("axolotl", AXOLOTL + self.padded)

    def test_packed_rows_are_one_document(self, here: Path) -> None:
        save(rows_of(here / "packed"), "for-axolotl", *TAKEN, "position_ids")
        for config in (self.padded, self.packing + ONE_A_BATCH):
            prove_crossed(train("axolotl", AXOLOTL + config), here / "packed")

    def test_prepared_data_outlives_the_data_it_was_made_from(self, here: Path) -> None:
        rows = rows_of(here / "encoded")
        save(rows, "for-axolotl", *TAKEN)
        train("axolotl", AXOLOTL + self.padded)
        shutil.rmtree("for-axolotl")
        save([row | {"labels": row["input_ids"]} for row in rows], "for-axolotl", *TAKEN)
        prove(train("axolotl", AXOLOTL + self.padded), here / "encoded")


@needs("llamafactory")
class TestLlamaFactory:
    convert, convert_packed = blocks("LLaMA-Factory", "python")
    padded, packed = blocks("LLaMA-Factory", "yaml")

    def test_the_labels_that_reach_the_loss_are_the_files(self, here: Path) -> None:
        exec(self.convert)
        prove(train("llamafactory", LLAMAFACTORY + self.padded), here / "encoded")

    def test_packed_rows_too(self, here: Path) -> None:
        exec(self.convert_packed)
        prove(train("llamafactory", LLAMAFACTORY + self.packed), here / "packed")

    def test_packed_rows_without_neat_packing_are_one_document(self, here: Path) -> None:
        exec(self.convert_packed.replace("2048", "80"))
        config = self.packed.replace("neat_packing: true", "")
        prove_crossed(train("llamafactory", LLAMAFACTORY + config), here / "packed")

    def test_other_columns_are_refused(self, here: Path) -> None:
        save(rows_of(here / "encoded"), "for-llamafactory", "input_ids", "labels", "file")
        with pytest.raises(RuntimeError, match=r"Unable to create tensor.*`file`"):
            train("llamafactory", LLAMAFACTORY + self.padded)

    def test_a_wrong_path_is_refused(self, here: Path) -> None:
        with pytest.raises(RuntimeError, match="dataset_info"):
            train("llamafactory", LLAMAFACTORY + self.padded)


def save(rows: Iterable[Row], out: str, *columns: str) -> None:
    """Save columns of encoded rows, and an attention_mask of ones if asked, for `datasets.load_from_disk`."""
    made = [row | {"attention_mask": [1] * len(row["input_ids"])} for row in rows]
    datasets.Dataset.from_list(
        [{name: row[name] for name in columns} for row in made]
    ).save_to_disk(f"{out}/data")
