"""Zstandard files of one frame or many, read so that a cut is an error and not an end."""

from __future__ import annotations

import io
from typing import IO

import zstandard

CHUNK = 1 << 17


def unpacked_zst(raw: IO[bytes]) -> IO[bytes]:
    """The decompressed bytes of a file. Reading raises EOFError where it ends inside a frame."""
    return io.BufferedReader(_Frames(raw), CHUNK)


class _Frames(io.RawIOBase):
    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._packed = self._plain = b""
        self._frame: zstandard.ZstdDecompressionObj | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._plain:
            if not self._more():
                return 0
        count = min(len(buffer), len(self._plain))
        buffer[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count

    def _more(self) -> bool:
        self._packed = self._packed or self._raw.read(CHUNK)
        if not self._packed:
            if self._frame is not None:
                raise EOFError("the file ends inside a compressed frame")
            return False
        self._frame = self._frame or zstandard.ZstdDecompressor().decompressobj()
        try:
            self._plain = self._frame.decompress(self._packed)
        except zstandard.ZstdError as error:
            raise OSError(f"not a zstd file: {error}") from None
        self._packed = self._frame.unused_data if self._frame.eof else b""
        if self._frame.eof:
            self._frame = None
        return True
