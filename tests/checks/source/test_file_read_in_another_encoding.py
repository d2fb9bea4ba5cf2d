"""Files of UTF-8 that a script reads in an encoding of single bytes."""

from __future__ import annotations

from pathlib import Path

import pytest

import truetune

RULE = "file-read-in-another-encoding"
READS = {
    "pandas": "import pandas as pd\nrows = pd.read_csv('rows.csv', encoding='latin-1')\n",
    "open": (
        "import csv\nwith open('rows.csv', newline='', encoding='cp1252') as file:\n"
        "    rows = list(csv.DictReader(file))\n"
    ),
    "a name": "import pandas as pd\nENCODING, FILE = 'ISO-8859-1', 'rows.csv'\npd.read_csv(FILE, encoding=ENCODING)\n",
    "an option": (
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--data', default='rows.csv')\n"
        "args = parser.parse_args()\nfor line in open(args.data, 'r', encoding='latin1'):\n    print(line)\n"
    ),
    "a path": "from pathlib import Path\ntext = Path('rows.csv').read_text(encoding='windows-1252')\n",
    "a folder": (
        "from pathlib import Path\nHERE = Path('.')\nwith (HERE / 'rows.csv').open(encoding='latin-1') as file:\n"
        "    text = file.read()\n"
    ),
    "a function": (
        "import csv\ndef read(path, encoding='latin-1'):\n    with open(path, encoding=encoding) as file:\n"
        "        return list(csv.reader(file))\nread('rows.csv')\n"
    ),
}
FINE = {
    "UTF-8": "rows = open('rows.csv', encoding='utf-8').read()\n",
    "written": "with open('rows.csv', 'w', encoding='latin-1') as file:\n    file.write('x')\n",
    "not here": "rows = open('other.csv', encoding='latin-1').read()\n",
}
TEXT = "id,text\n1,Die Tür ist für alle geöffnet\n"


def _count(folder: Path, script: str, data: bytes) -> int:
    (folder / "rows.csv").write_bytes(data)
    path = folder / "prepare.py"
    path.write_text(script, encoding="utf-8")
    return len(truetune.check([str(path)], select=[RULE]).findings)


@pytest.mark.parametrize("case", READS)
def test_utf8_that_is_read_as_single_bytes(case: str, tmp_path: Path) -> None:
    assert _count(tmp_path, READS[case], TEXT.encode()) == 1
    assert _count(tmp_path, READS[case], TEXT.encode("latin-1")) == 0
    assert _count(tmp_path, READS[case], b"id,text\n1,plain\n") == 0


@pytest.mark.parametrize("case", FINE)
def test_files_that_are_read_as_they_are(case: str, tmp_path: Path) -> None:
    assert _count(tmp_path, FINE[case], TEXT.encode()) == 0
