"""Pictures for tests, made without a picture library."""

from __future__ import annotations

import json
import zlib
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def grey_png(width: int, height: int, *, bits: int = 8, shade: int = 200) -> bytes:
    """A PNG in one shade of grey."""
    pixels = (b"\0" + bytes([shade]) * (width * bits // 8)) * height
    size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    chunks = (
        (b"IHDR", size + bytes((bits, 0, 0, 0, 0))),
        (b"IDAT", zlib.compress(pixels)),
        (b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(map(_chunk, *zip(*chunks, strict=True)))


def _chunk(kind: bytes, content: bytes) -> bytes:
    check = zlib.crc32(kind + content).to_bytes(4, "big")
    return len(content).to_bytes(4, "big") + kind + content + check


def data_url(content: bytes) -> str:
    """A picture as it stands in a row of OpenAI's form."""
    return f"data:image/png;base64,{b64encode(content).decode()}"


def write_rows(path: Path, rows: Iterable[Any]) -> Path:
    """Rows as a file of JSON Lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def chat(question: Any, answer: str) -> list[dict[str, Any]]:
    """A chat of two turns."""
    return [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
