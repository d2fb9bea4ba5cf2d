"""Rows that are token ids: healthy caches as their makers write them, and broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import datasets
import pytest
from click.testing import CliRunner
from pyarrow import feather

import truetune
from tests.parts import folder
from tests.tokenized import make
from truetune.checks.inspect_tokenized import TokenizedReport, inspect_tokenized
from truetune.checks.loss_floors_from_frequencies import loss_floor_of_data
from truetune.cli import truetune_group
from truetune.errors import DataError, TruetuneError, UsageError
from truetune.settings.run_spec import RunSpec

FAMILIES = ("qwen2.5-instruct", "llama3-instruct", "smollm2", "gemma3")


def report_on(path: Path, family: str, **settings: Any) -> TokenizedReport:
    tokenizer = make.DEMO if family == "demo" else str(folder(family))
    return inspect_tokenized(str(path), RunSpec(tokenizer=tokenizer, **settings))


def codes(report: truetune.Report) -> list[str]:
    return [finding.code for finding in report.findings]


def saved(rows: list[make.Row], path: Path) -> Path:
    datasets.Dataset(make.table(rows)).save_to_disk(str(path))
    return path


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("system", [False, True])
def test_a_healthy_cache_has_no_finding(family: str, system: bool, tmp_path: Path) -> None:
    made = make.probes_of(family)
    report = report_on(
        make.write(make.healthy(made, turns=2, system=system), tmp_path / "rows.parquet"), family
    )
    assert report.findings == ()
    counts = {source.name: (learned, context) for source, learned, context in report.ledger.rows()}
    assert counts["USER"][0] == 0
    assert counts["USER"][1] > 100
    assert counts["ASSISTANT"][1] == 0
    assert counts["STOP"] == (24, 0)


def axolotl(rows: list[make.Row], path: Path) -> Path:
    """`save_to_disk` below a hash: utils/data/shared.py, save_preprocessed_dataset; sample packing adds columns."""
    of_packing = [
        make.Row(
            row.ids,
            row.labels,
            {"attention_mask": [1] * len(row.ids), "position_ids": list(range(len(row.ids)))},
        )
        for row in rows
    ]
    saved(of_packing, path / "8d3b5a1c0f1e4b7a9c2d")
    return path


def llama_factory(rows: list[make.Row], path: Path) -> Path:
    """A DatasetDict: data/loader.py, get_dataset (tokenized_path)."""
    split = datasets.Dataset(make.table(rows))
    datasets.DatasetDict({"train": split, "validation": split.select(range(2))}).save_to_disk(
        str(path)
    )
    return path


def open_instruct(rows: list[make.Row], path: Path) -> Path:
    """With config.json: open_instruct/dataset_transformation.py, LocalDatasetTransformationCache."""
    saved(rows, path / "1a2b3c4d5e")
    about = {
        "tokenizer_config": {"tokenizer_name_or_path": "org/model"},
        "dataset_configs": [],
        "config_hash": "1a2b",
    }
    (path / "1a2b3c4d5e" / "config.json").write_text(json.dumps(about))
    return path


def json_lines(rows: list[make.Row], path: Path) -> Path:
    file = path.with_suffix(".jsonl")
    file.write_text(
        "".join(json.dumps({"input_ids": r.ids, "labels": r.labels}) + "\n" for r in rows)
    )
    return file


def arrow_file(rows: list[make.Row], path: Path) -> Path:
    feather.write_feather(make.table(rows), str(path.with_suffix(".arrow")))
    return path.with_suffix(".arrow")


@pytest.mark.parametrize(
    "layout", [axolotl, llama_factory, open_instruct, json_lines, arrow_file, saved]
)
def test_every_layout_is_read(layout: Any, tmp_path: Path) -> None:
    rows = make.healthy(make.probes_of("smollm2"))
    path = layout(rows, tmp_path / "cache")
    report = truetune.check(str(path), str(folder("smollm2")))
    assert isinstance(report, TokenizedReport)
    assert (report.rows, report.findings, report.outcome) == (12, (), "no findings")
    assert report.ledger.supervised == sum(label != -100 for row in rows for label in row.labels)


def test_what_encode_writes_is_read_and_its_template_compared(tmp_path: Path) -> None:
    data = tmp_path / "chats.jsonl"
    chats = [make.chat(i, 1, False) for i in range(20)]
    data.write_text("".join(json.dumps({"messages": chat}) + "\n" for chat in chats))
    truetune.encode(str(data), str(folder("smollm2")), tmp_path / "encoded", max_length=512)
    healthy = truetune.check(str(tmp_path / "encoded"), str(folder("smollm2")), max_length=512)
    assert healthy.findings == ()
    other = tmp_path / "other.jinja"
    other.write_text(make.OTHER_TEMPLATE)
    stale = truetune.check(str(tmp_path / "encoded"), str(folder("smollm2")), template=str(other))
    assert "IDS005" in codes(stale)


HEALTHY: dict[str, Any] = {
    "multi-turn": lambda made: make.healthy(made, turns=3),
    "packed with lengths": lambda made: make.packed(make.healthy(made), parted=True),
    "padded with a mask": lambda made: make.padded(
        make.healthy(made), made.tokenizer.special["pad"].id
    ),
    "last turn alone": lambda made: make.with_labels(make.healthy(made, turns=2), _last_turn(made)),
}


def _last_turn(made: Any) -> Any:
    stops = {stop.id for stop in made.stops}

    def labels(row: make.Row) -> list[int]:
        first = next(i for i, label in enumerate(row.labels) if label in stops)
        return [-100] * (first + 1) + row.labels[first + 1 :]

    return labels


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", list(HEALTHY))
def test_other_healthy_caches_have_no_finding(name: str, family: str, tmp_path: Path) -> None:
    made = make.probes_of(family)
    if name == "padded with a mask" and "pad" not in made.tokenizer.special:
        pytest.skip("it has no pad token")
    report = report_on(make.write(HEALTHY[name](made), tmp_path / "rows.parquet"), family)
    assert codes(report) == []


def test_text_for_pretraining_is_no_fault(tmp_path: Path) -> None:
    """Joined and cut in blocks of one length, with or without labels that are a copy."""
    backend = make.probes_of("smollm2").tokenizer.backend
    text = [
        id
        for text in make.ANSWERS * 8
        for id in [*backend.encode(text, add_special_tokens=False).ids, 0]
    ]
    blocks = [text[i : i + 64] for i in range(0, len(text) - 64, 64)]
    rows = [make.Row(block, block) for block in blocks]
    assert codes(report_on(make.write(rows, tmp_path / "copy.parquet"), "smollm2")) == []
    bare = report_on(make.write(rows, tmp_path / "bare.parquet", labels=False), "smollm2")
    assert [(finding.code, finding.severity) for finding in bare.findings] == [("IDS006", "info")]


def test_prompts_that_are_meant_to_be_learned_are_no_fault(tmp_path: Path) -> None:
    rows = make.with_labels(make.healthy(make.probes_of("smollm2")), make.copied)
    path = make.write(rows, tmp_path / "rows.parquet")
    assert codes(report_on(path, "smollm2")) == ["IDS008"]
    assert codes(report_on(path, "smollm2", learn={"what": "all"})) == []


@pytest.mark.parametrize("family", FAMILIES)
def test_the_trainers_rule_is_said_where_nothing_says_what_is_learned(
    family: str, tmp_path: Path
) -> None:
    path = make.write(make.healthy(make.probes_of(family)), tmp_path / "rows.parquet", labels=False)
    (finding,) = report_on(path, family).findings
    assert (finding.code, finding.severity) == ("IDS006", "error")
    assert "a trainer computes the loss on all tokens, prompts included" in finding.message
    (of_trl,) = report_on(path, family, trained_by="trl").findings
    assert "SFTTrainer copies input_ids into labels" in of_trl.message


def broken(made: Any) -> dict[str, tuple[list[make.Row], str]]:
    """Faults, each with the code that names it."""
    rows = make.healthy(made, 14)
    foreign = make.probes_of(
        "qwen2.5-instruct" if "qwen" not in made.tokenizer.folder.name else "smollm2"
    )
    end = made.tokenizer.vocabulary
    return {
        "labels are a copy": (make.with_labels(rows, make.copied), "IDS008"),
        "nothing is learned": (make.with_labels(rows, make.none), "IDS009"),
        "half the rows learn nothing": (
            [*rows[:7], *make.with_labels(rows[7:], make.none)],
            "IDS009",
        ),
        "the mask is turned round": (make.with_labels(rows, _turned_round), "IDS008"),
        "a pad's mask took the stops": (make.with_labels(rows, make.without_stops(made)), "IDS010"),
        "no stop token at all": (make.with_ids(rows, _without_stop(made)), "IDS010"),
        "labels begin early": (make.with_labels(rows, make.early), "IDS011"),
        "labels are shifted": (make.with_labels(rows, make.shifted), "IDS012"),
        "labels of another row": (make.with_labels(rows, _of_other_ids), "IDS012"),
        "cut at a limit": (make.with_ids(rows, lambda ids: ids[:40]), "IDS014"),
        "ids beyond": (make.with_ids(rows, lambda ids: [*ids, end + 9]), "IDS002"),
        "another tokenizer": (make.healthy(foreign), "IDS"),
        "ids by chance": (make.noise(made, rows), "IDS003"),
    }


def _of_other_ids(row: make.Row) -> list[int]:
    return [label + 1 if label > 0 else label for label in row.labels]


def _turned_round(row: make.Row) -> list[int]:
    return [-100 if label != -100 else id for id, label in zip(row.ids, row.labels, strict=True)]


def _without_stop(made: Any) -> Any:
    stops = {stop.id for stop in made.stops}

    def cut(ids: list[int]) -> list[int]:
        """Both lists end before the last stop token, which stands at the same place in each."""
        tail = 1 if ids[-1] in stops else 2
        return ids[:-tail]

    return cut


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", list(broken(make.probes_of("demo"))))
def test_a_broken_cache_is_named(name: str, family: str, tmp_path: Path) -> None:
    rows, code = broken(make.probes_of(family))[name]
    found = codes(report_on(make.write(rows, tmp_path / "rows.parquet"), family))
    assert any(one.startswith(code) for one in found), found
    assert len(found) <= 3, found


@pytest.mark.parametrize("family", FAMILIES)
def test_labels_of_other_tokens_are_not_judged_by_their_place(family: str, tmp_path: Path) -> None:
    rows = make.healthy(make.probes_of(family))
    others = make.with_labels(rows, lambda row: [id + 1 for id in row.ids])
    found = codes(report_on(make.write(others, tmp_path / "rows.parquet"), family))
    assert any(one.startswith("IDS012") for one in found), found
    assert not any(one.startswith(("IDS008", "IDS010", "IDS011")) for one in found), found


def test_a_row_whose_columns_do_not_fit_is_not_judged(tmp_path: Path) -> None:
    rows = make.healthy(make.probes_of("smollm2"))
    rows[3].labels.pop()
    report = report_on(make.write(rows, tmp_path / "rows.parquet"), "smollm2")
    assert (report.rows, report.outcome, report.exit_code()) == (11, "not judged", 3)
    (missing,) = report.requested_not_judged()
    assert "input_ids and" in missing.reason
    assert missing.place.endswith("rows.parquet:4")


def test_ids_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"input_ids": [1, 2]}\n{"input_ids": [1, "2"]}\n')
    with pytest.raises(DataError, match=r"rows.jsonl:2: input_ids is not a list of whole numbers"):
        report_on(file, "smollm2")


def said(arguments: list[str], code: int) -> str:
    """What a command prints; it must end with this code."""
    done = CliRunner().invoke(truetune_group, arguments, standalone_mode=False)
    if isinstance(done.exception, TruetuneError):
        raise done.exception
    assert (done.exception, done.return_value) == (None, code)
    return done.stdout


def written_chats(path: Path, count: int = 12) -> Path:
    path.write_text(
        "".join(json.dumps({"messages": make.chat(i, 1, False)}) + "\n" for i in range(count))
    )
    return path


def test_a_cache_is_verified_against_its_rows(tmp_path: Path) -> None:
    data = written_chats(tmp_path / "chats.jsonl")
    made = make.probes_of("smollm2")
    rows = make.healthy(made)
    good = make.write(make.packed(rows[::-1], parted=True), tmp_path / "good.parquet")
    command = ["encode", str(data), "-t", str(folder("smollm2")), "--verify"]
    assert "the same ids and labels: 12" in said([*command, str(good)], 0)
    changed = [*make.with_labels(rows[:2], make.copied), *rows[2:11]]
    bad = make.write(changed, tmp_path / "bad.parquet")
    found = json.loads(said([*command, str(bad), "--json"], 1))
    assert (found["same"], found["other_labels"], found["missing"], found["extra"]) == (9, 2, 1, 0)
    assert {(place["what"], place["row"]) for place in found["places"]} == {
        ("other labels", 0),
        ("other labels", 1),
        ("missing", 11),
    }


def test_ids_are_not_encoded_again(tmp_path: Path) -> None:
    path = make.write(make.healthy(make.probes_of("smollm2")), tmp_path / "rows.parquet")
    with pytest.raises(UsageError, match="the rows are token ids already"):
        said(["encode", str(path), "-t", str(folder("smollm2")), "-o", str(tmp_path / "out")], 2)


def test_a_row_is_shown_with_its_sources(tmp_path: Path) -> None:
    rows = make.healthy(make.probes_of("smollm2"))
    path = make.write(rows, tmp_path / "rows.parquet")
    printed = said(["show", str(path), "-t", str(folder("smollm2")), "--row", "4", "--json"], 0)
    (shown,) = json.loads(printed)["examples"]
    assert [token["id"] for token in shown["tokens"]] == rows[4].ids
    assert [token["supervised"] for token in shown["tokens"]] == [
        label != -100 for label in rows[4].labels
    ]
    assert {token["source"] for token in shown["tokens"] if token["supervised"]} == {
        "assistant",
        "stop",
    }


def test_a_row_is_viewed(tmp_path: Path) -> None:
    rows = make.healthy(make.probes_of("smollm2"))
    viewed = truetune.view(
        str(saved(rows, tmp_path / "cache")), str(folder("smollm2")), rows=[0, 5]
    )
    assert [row["ids"] for row in viewed.rows] == [rows[0].ids, rows[5].ids]
    assert all("1" in row["supervised"] and "d" in row["source"] for row in viewed.rows)


def test_the_losses_that_ids_allow_are_those_of_their_text(tmp_path: Path) -> None:
    data = written_chats(tmp_path / "chats.jsonl")
    path = make.write(make.healthy(make.probes_of("smollm2")), tmp_path / "rows.parquet")
    tokenizer = str(folder("smollm2"))
    of_ids = loss_floor_of_data(RunSpec(tokenizer=tokenizer, data=(str(path),)))
    assert of_ids == loss_floor_of_data(RunSpec(tokenizer=tokenizer, data=(str(data),)))


SETTINGS = {
    "axolotl": (
        "base_model: {model}\ndatasets: [{{path: gone.jsonl, type: chat_template}}]\nsequence_len:"
        " 2048\ndataset_prepared_path: {cache}\noutput_dir: {out}\n"
    ),
    "llama-factory": (
        "model_name_or_path: {model}\nstage: sft\ndo_train: true\nfinetuning_type: full\ndataset:"
        " unread\ntemplate: empty\ntokenized_path: {cache}\noutput_dir: {out}\n"
    ),
    "truetune": "tokenizer: {model}\ndata: [{cache}]\n",
}


@pytest.mark.parametrize("stack", SETTINGS)
def test_a_cache_that_settings_name_is_read(stack: str, tmp_path: Path) -> None:
    rows = make.with_labels(make.healthy(make.probes_of("smollm2")), make.copied)
    cache = (llama_factory if stack == "llama-factory" else axolotl)(rows, tmp_path / "cache")
    file = tmp_path / ("truetune.yaml" if stack == "truetune" else "run.yaml")
    file.write_text(
        SETTINGS[stack].format(model=folder("smollm2"), cache=cache, out=tmp_path / "out")
    )
    report = truetune.check(str(file))
    assert "IDS008" in codes(report)
