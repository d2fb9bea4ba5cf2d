"""A file that is cut into stretches gives the rows that it gives whole."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from truetune.data.conversation import Origin
from truetune.data.find_data_files import find_data_files_of_paths
from truetune.data.read_rows_as_conversations import read_conversations
from truetune.data.split_lines_into_stretches import read_stretch, scan_and_cut_lines
from truetune.errors import DataError

LINE = st.one_of(
    st.builds(
        lambda text: json.dumps({"text": text}, ensure_ascii=False),
        st.text(st.characters(codec="utf-8")),
    ),
    st.sampled_from(["", "  ", "\t", ' {"text": "a"}', '{"text":\r"b"}', '{"text": "c"}\r']),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(LINE, max_size=12), st.integers(1, 60), st.booleans(), st.booleans())
def test_stretches_give_the_rows_of_the_whole(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], size: int, last: bool, mark: bool
) -> None:
    path = tmp_path_factory.mktemp("s") / "a.jsonl"
    body = ("\ufeff" * mark + '{"text": "first"}\n' + "\n".join(lines) + "\n" * last).encode()
    path.write_bytes(body)
    (source,) = find_data_files_of_paths([str(path)])
    found = scan_and_cut_lines(source, size)
    assert found.digest == hashlib.blake2b(body, digest_size=20).hexdigest()
    assert [s.start for s in found.stretches] == [0, *(s.stop for s in found.stretches[:-1])]
    assert found.stretches[-1].stop == len(body)
    rows: list[Any] = []
    for stretch in found.stretches:
        part = list(read_stretch(source, stretch, len(rows)))
        assert len(part) == stretch.rows
        rows += part
    assert [(row.origin, row.text) for row in rows] == [
        (row.origin, row.text) for row in read_conversations([str(path)])
    ]


def test_files_that_can_only_be_read_from_their_start(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"text": "a"}]')
    (tmp_path / "b.jsonl").write_text('[{"text": "a"}]')
    for path in sorted(tmp_path.iterdir()):
        (source,) = find_data_files_of_paths([str(path)])
        assert scan_and_cut_lines(source, 4).stretches == ()
        assert (
            scan_and_cut_lines(source, 4).digest
            == hashlib.blake2b(path.read_bytes(), digest_size=20).hexdigest()
        )


def test_broken_lines_are_told_or_raised(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"text": "a"}\n{"text": \n[1]\n{"text": "\xff"}\n{"text": "b"}\n')
    (source,) = find_data_files_of_paths([str(path)])
    told: list[tuple[Origin, str]] = []
    rows: list[Any] = []
    number = 0
    for stretch in scan_and_cut_lines(source, 10).stretches:
        rows += read_stretch(source, stretch, number, on_broken=lambda *what: told.append(what))
        number += stretch.rows
    assert [(row.text, row.origin.row) for row in rows] == [("a", 0), ("b", 4)]
    assert [origin[1:] for origin, _ in told] == [(2, 1), (3, 2), (4, 3)]
    assert "not JSON" in told[0][1]
    assert "found list" in told[1][1]
    assert "not UTF-8 (byte 0xff at byte 38" in told[2][1]
    with pytest.raises(DataError, match=r"a\.jsonl:2: not JSON"):
        list(read_conversations([str(path)]))
