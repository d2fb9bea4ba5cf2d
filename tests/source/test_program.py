"""What a file imports from another one that is judged with it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from tests.source.modules import last
from truetune.source.evaluate_constant_expressions import UNKNOWN
from truetune.source.find_file_of_import import ImportSearch
from truetune.source.group_files_by_imports import MAX_GROUP_CHARACTERS, Program, group_by_imports
from truetune.source.parsed_source_file import Module, read_module


def written(folder: Path, files: Mapping[str, str]) -> list[Path]:
    paths = [folder / name for name in files]
    for path, text in zip(paths, files.values(), strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
    return paths


def linked(folder: Path, files: Mapping[str, str]) -> Module:
    """The first of these files, judged with the others."""
    paths = written(folder, files)
    imports = ImportSearch(map(str, paths), [str(folder)])
    return Program(map(read_module, paths), imports).modules[0]


@pytest.mark.parametrize(
    ("main", "others", "value"),
    [
        ("from a import RATE\nRATE", {"a.py": "RATE = 1e-3"}, 1e-3),
        ("from a import RATE as r\nr", {"a.py": "RATE = 1e-3"}, 1e-3),
        ("import a\na.RATE", {"a.py": "RATE = 1e-3"}, 1e-3),
        ("import a as b\nb.RATE", {"a.py": "RATE = 1e-3"}, 1e-3),
        ("import p.a\np.a.RATE", {"p/__init__.py": "", "p/a.py": "RATE = 1e-3"}, 1e-3),
        ("import p.a as m\nm.RATE", {"p/__init__.py": "", "p/a.py": "RATE = 1e-3"}, 1e-3),
        ("import p.a as m\nm.RATE", {"p/a.py": "RATE = 1e-3"}, 1e-3),
        ("from p import a\na.RATE", {"p/__init__.py": "", "p/a.py": "RATE = 1e-3"}, 1e-3),
        ("from p import RATE\nRATE", {"p/__init__.py": "from .a import RATE", "p/a.py": "RATE = 1e-3"}, 1e-3),
        ("import p\np.RATE", {"p/__init__.py": "from p.a import R as RATE", "p/a.py": "R = 1e-3"}, 1e-3),
        ("import p\np.a.RATE", {"p/__init__.py": "from . import a", "p/a.py": "RATE = 1e-3"}, 1e-3),
        ("from p import rate\nrate()", {"p/__init__.py": "from .rate import rate",
         "p/rate.py": "def rate():\n    return 1e-3"}, 1e-3),
        ("from p import rate\nrate.rate()", {"p/__init__.py": "from . import rate",
         "p/rate.py": "def rate():\n    return 1e-3"}, 1e-3),
        ("from a import *\nRATE", {"a.py": "RATE = 1e-3"}, 1e-3),
        ("from p import *\nRATE", {"p/__init__.py": "from .a import *", "p/a.py": "RATE = 1e-3"}, 1e-3),
        ("from a import *\n_RATE", {"a.py": "_RATE = 1e-3"}, UNKNOWN),
        ("from p.a import RATE\nRATE", {"src/p/a.py": "RATE = 1e-3"}, 1e-3),
        ("from a import rate\nrate(3)", {"a.py": "def rate(x):\n    return 1e-3"}, 1e-3),
        ("from a import rate\nrate(3)", {"a.py": "def rate(x):\n    return x"}, 3),
        ("from a import rate\nrate()", {"a.py": "def rate(x=2):\n    return x"}, 2),
        ("from a import Settings\nSettings.rate", {"a.py": "class Settings:\n    rate = 5"}, 5),
        ("from a import settings\nsettings['rate']", {"a.py": "settings = {'rate': 5}"}, 5),
        ("from a import pair\nx, y = pair()\ny", {"a.py": "def pair():\n    return 1, 2"}, 2),
        # what is not among the files, or not sure, stays open
        ("from b import RATE\nRATE", {"a.py": "RATE = 1e-3"}, UNKNOWN),
        ("from a import OTHER\nOTHER", {"a.py": "RATE = 1e-3"}, UNKNOWN),
        ("from a import RATE\nRATE", {"a.py": "RATE = 1\nif x:\n    RATE = 2"}, UNKNOWN),
        ("import a\na.RATE = 2\na.RATE", {"a.py": "RATE = 1"}, UNKNOWN),
        ("import datasets\ndatasets.RATE", {"datasets.py": "RATE = 1"}, UNKNOWN),
        ("from evaluate import RATE\nRATE", {"evaluate.py": "RATE = 1"}, 1),
        ("import evaluate\nevaluate", {"evaluate.py": "RATE = 1"}, UNKNOWN),
        ("import json\njson.RATE", {"json.py": "RATE = 1"}, UNKNOWN),
        ("from a import RATE\nRATE", {"a.py": "from b import RATE", "b.py": "from a import RATE"}, UNKNOWN),
        ("from a import *\nRATE", {"a.py": "from b import *", "b.py": "from a import *"}, UNKNOWN),
        ("from other.a import RATE\nRATE", {"a.py": "RATE = 1"}, UNKNOWN),
        ("from a import RATE\nRATE", {"deeper/a.py": "RATE = 1"}, UNKNOWN),
        ("from a import rate\nrate(3)", {"a.py": "def rate(x):\n    return x", "b.py": "from a import rate\nrate(4)"},
         UNKNOWN),
    ],
)  # fmt: skip
def test_values_of_another_file(
    main: str, others: Mapping[str, str], value: object, tmp_path: Path
) -> None:
    made = linked(tmp_path, {"main.py": main, **others})
    assert made.flow.value(last(made)) == value


def test_relative_imports_are_those_of_the_package(tmp_path: Path) -> None:
    files = {
        "p/q/main.py": (
            "from ..a import RATE\nfrom .b import STEPS\nfrom . import b\n(RATE, STEPS, b.STEPS)"
        ),
        "p/a.py": "RATE = 1",
        "p/q/b.py": "STEPS = 2",
        "a.py": "RATE = 3",
        "b.py": "STEPS = 4",
    }
    made = linked(tmp_path, files)
    assert made.flow.value(last(made)) == (1, 2, 2)


def test_a_script_in_a_folder_finds_its_neighbour_first(tmp_path: Path) -> None:
    made = linked(
        tmp_path,
        {"scripts/main.py": "from a import X\nX", "scripts/a.py": "X = 1", "a.py": "X = 2"},
    )
    assert made.flow.value(last(made)) == 1


def test_a_library_that_is_passed_on_keeps_its_name(tmp_path: Path) -> None:
    files = {
        "main.py": "from a import Trainer as T, tf\n(T, tf.AutoTokenizer)",
        "a.py": "import transformers as tf\nfrom transformers.trainer import Trainer",
    }
    made = linked(tmp_path, files)
    names = [made.flow.name(node) for node in last(made).elts]  # type: ignore[attr-defined]
    assert names == ["transformers.Trainer", "transformers.AutoTokenizer"]


def test_a_class_of_another_file_has_the_names_of_its_bases(tmp_path: Path) -> None:
    made = linked(
        tmp_path,
        {
            "main.py": "import a\na.Mine()",
            "a.py": "from trl import SFTTrainer\nclass Mine(SFTTrainer):\n    x = 1",
        },
    )
    assert made.all_calls[0].names == ("trl.SFTTrainer",)


def test_places_are_those_of_the_file_where_a_node_stands(tmp_path: Path) -> None:
    made = linked(
        tmp_path,
        {"main.py": "from a import make\nmake()", "a.py": "\n\ndef make():\n    return [1,   2]"},
    )
    node = made.flow.origins(last(made))[0].node
    assert made.home(node).path == str(tmp_path / "a.py")
    assert made.place(node) == (4, 12)
    assert made.text_of(node) == "[1,   2]"


def test_two_scripts_with_one_helper_do_not_run_together(tmp_path: Path) -> None:
    files = {
        "main.py": "import helper",
        "other.py": "import helper",
        "helper.py": "import deep",
        "deep.py": "x = 1",
    }
    made = linked(tmp_path, files)
    assert [Path(one.path).name for one in made.self_and_files_run_together] == [
        "main.py",
        "helper.py",
        "deep.py",
    ]
    helper = made.self_and_files_run_together[1]
    assert {Path(one.path).name for one in helper.self_and_files_run_together} == {
        "main.py",
        "other.py",
        "helper.py",
        "deep.py",
    }


def test_files_are_grouped_by_their_imports_and_long_groups_are_cut(tmp_path: Path) -> None:
    texts = {
        "a.py": "import b",
        "b.py": "from c import (\n    x,\n    y,\n)",
        "c.py": "x = 1",
        "d.py": "import os",
        "e.py": "from .f import g",
        "f.py": "g = 1",
    }
    imports = ImportSearch([str(tmp_path / name) for name in texts], [str(tmp_path)])
    named = [(str(tmp_path / name), text) for name, text in texts.items()]
    groups = [[Path(path).stem for path in group] for group in group_by_imports(named, imports)]
    assert groups == [["a", "b", "c"], ["d"], ["e", "f"]]
    long = [(path, text + " " * (MAX_GROUP_CHARACTERS // 2)) for path, text in named]
    assert [len(group) for group in group_by_imports(long, imports)] == [1, 1, 1, 1, 1, 1]
