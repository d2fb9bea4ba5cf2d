"""The example configs that Axolotl and LLaMA-Factory ship are read whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parts.packages import unpack
from tests.parts.shelf import Missing
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.errors import SpecError
from truetune.settings.config import Config
from truetune.settings.stacks.read_config_of_any_stack import read_config

UNKNOWN = {
    "llama3_fp8_fsdp_sft.yaml": {"fsdp_transformer_layer_cls_to_wrap"},
}
"""Keys in shipped examples that no release near takes: that of LLaMA-Factory stops at this one."""
NOT_HERE = {"llama2_full_asft.yaml": "med", "qwen2_full_asft.yaml": "math"}
"""Examples that name a data set that is not in the dataset_info.json beside them"""


def examples(package: str, pattern: str) -> list[Path]:
    try:
        return sorted(unpack(package).glob(pattern))
    except Missing as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def llama_factory() -> dict[Path, Config]:
    found: dict[Path, Config] = {}
    for path in examples("llamafactory", "examples/**/*.yaml"):
        if not {"accelerate", "v1", "multi_tokens"} & set(path.parts):
            found[path] = read_config(path)
    return found


def test_llama_factory_knows_its_own_keys(llama_factory: dict[Path, Config]) -> None:
    assert len(llama_factory) > 50
    for path, config in llama_factory.items():
        assert (config.stack, config.repeated) == ("llama-factory", ())
        assert {place.key for place in config.unknown} == UNKNOWN.get(path.name, set()), path
        assert len(config.missing) == (path.name in NOT_HERE), path


def test_llama_factory_data_is_found_and_read(llama_factory: dict[Path, Config]) -> None:
    forms = {
        (config.spec.data, config.spec.format, tuple(config.spec.map.items()))
        for config in llama_factory.values()
    }
    looked_at = {form for form in forms if form[0]}
    # Chats are the rows with pictures; they were not read before.
    assert {format for _, format, _ in looked_at} == {
        "alpaca",
        "preference",
        "kto",
        "text",
        "messages",
    }
    for data, format, columns in looked_at:
        rows = list(read_conversations(data, format=format, columns=dict(columns)))
        assert rows
        assert not [
            problem
            for row in rows
            for problem in row.problems
            if problem.kind in ("no-format", "no-content")
        ]


def test_llama_factory_shards(llama_factory: dict[Path, Config]) -> None:
    staged = {
        path.name: config.spec.training.deepspeed_stage for path, config in llama_factory.items()
    }
    assert staged["qwen3_full_sft.yaml"] == 3


def test_axolotl_knows_its_own_keys() -> None:
    found = [read_config(path) for path in examples("axolotl", "**/*.yaml")]
    assert len(found) >= 5
    for config in found:
        assert (config.stack, config.unknown, config.repeated) == ("axolotl", (), ())


@pytest.mark.parametrize(
    "pattern",
    ["examples/accelerate/*.yaml", "examples/deepspeed/*.json", "examples/v1/**/train_*.yaml"],
)
def test_what_is_no_run_is_named(pattern: str) -> None:
    paths = examples("llamafactory", pattern)
    assert paths
    for path in paths:
        with pytest.raises(
            SpecError, match=r"found (an accelerate|a DeepSpeed|settings of LLaMA-Factory's v1)"
        ):
            read_config(path)
