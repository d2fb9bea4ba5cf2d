"""Decompresses gzip, bzip2, xz and Zstandard streams, of one member or many, within a limit on how
much they unpack to.

A stream is unpacked in pieces, and what came out is compared with what went in. One that ends inside a member is an
error, not an end: the first part of a download that broke must not pass for all of it.
The trade-off: a stream can't be read from its middle, and seeking back begins again.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable
from typing import IO, Any, Protocol

from truetune.parsing.input_limits import (
    MAX_DECOMPRESSED_RATIO,
    MAX_DECOMPRESSOR_MEMORY,
    MIN_DECOMPRESSED_BYTES,
)

# Chosen, not measured: a piece of 128 KiB unpacks to some MB of text at most, and costs little
# beside the calls.
CHUNK_BYTES = 1 << 17
"""Bytes that a buffered read takes from the stream"""
# From the format's worst case, a block of one repeated byte; half of it doubles the calls for a
# normal file.
ZST_CHUNK_BYTES = 1 << 11
"""Compressed bytes given to Zstandard at once. Four bytes may unpack to 128 KiB and its reader has no bound on what it
returns, so one piece yields 64 MiB at most."""
BROKEN_STREAM = (EOFError, zlib.error, lzma.LZMAError)
"""What nothing but a broken stream raises"""
UNREADABLE = (OSError, *BROKEN_STREAM)
"""What reading a broken stream raises; a bomb is an OSError."""


class _Member(Protocol):
    """The decompressor of one member of a stream."""

    def unpack(self, packed: bytes) -> bytes:
        """Unpack some of the plain bytes of what it was given. Raises what its library raises."""
        ...

    @property
    def wants_input(self) -> bool:
        """Does it want more input, because it has unpacked all that it was given?"""
        ...

    @property
    def eof(self) -> bool:
        """Has the end of the member been read?"""
        ...

    @property
    def unused_data(self) -> bytes:
        """The bytes given to it that follow the member's end."""
        ...


class _GzipMember:
    """One gzip member; zlib returns no more than it is asked for."""

    def __init__(self) -> None:
        # 31 is 15 bits of window, and 16 more: a gzip header is expected, and its checksum
        # compared.
        self._inner = zlib.decompressobj(wbits=31)

    def unpack(self, packed: bytes) -> bytes:
        """Unpack the next plain bytes, CHUNK_BYTES at most."""
        # At most so many bytes at once: what did not fit waits in `unconsumed_tail`, so that a bomb
        # comes in small pieces.
        return self._inner.decompress(self._inner.unconsumed_tail + packed, CHUNK_BYTES)

    @property
    def wants_input(self) -> bool:
        """Does it want more input, because it has unpacked all that it was given? zlib leaves a tail
        otherwise.
        """
        return not self._inner.unconsumed_tail

    @property
    def eof(self) -> bool:
        """Has the end of the member been read, with its checksum?"""
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        """The bytes given to it that follow the member's end."""
        return self._inner.unused_data


class _BoundedMember:
    """bzip2 and xz: their decompressors keep what they were given, and stop at a length."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def unpack(self, packed: bytes) -> bytes:
        """Unpack the next plain bytes, CHUNK_BYTES at most."""
        return bytes(self._inner.decompress(packed, CHUNK_BYTES))

    @property
    def wants_input(self) -> bool:
        """Does it want more input, which it must be given to continue?"""
        return bool(self._inner.needs_input)

    @property
    def eof(self) -> bool:
        """Has the end of the stream been read?"""
        return bool(self._inner.eof)

    @property
    def unused_data(self) -> bytes:
        """The bytes given to it that follow the member's end."""
        return bytes(self._inner.unused_data)


class _ZstMember:
    """One Zstandard frame."""

    def __init__(self) -> None:
        # Only where such a file is read: it is no dependency of the light install.
        import zstandard

        self._error = zstandard.ZstdError
        self._inner = zstandard.ZstdDecompressor().decompressobj()

    def unpack(self, packed: bytes) -> bytes:
        """Unpack the piece, whole: all that it unpacks to."""
        try:
            # No bound on what it returns; the bound is on what it is given.
            return self._inner.decompress(packed)
        except self._error as error:
            # Its own error has a type that nobody outside knows.
            raise OSError(f"not a zstd file: {error}") from None

    @property
    def wants_input(self) -> bool:
        """Always wants more input: it unpacks all that it is given at once."""
        return True

    @property
    def eof(self) -> bool:
        """Has the end of the frame been read?"""
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        """The bytes given to it that follow the frame's end."""
        return self._inner.unused_data


_MEMBERS: dict[str, Callable[[], _Member]] = {
    ".gz": _GzipMember,
    ".bz2": lambda: _BoundedMember(bz2.BZ2Decompressor()),
    # xz names in its header how much memory it wants; without a limit that is a few bytes asking
    # for 4 GB.
    ".xz": lambda: _BoundedMember(lzma.LZMADecompressor(memlimit=MAX_DECOMPRESSOR_MEMORY)),
    ".zst": _ZstMember,
}
COMPRESSED_SUFFIXES = tuple(_MEMBERS)
"""How the names of compressed files end"""


def open_decompressed(raw: IO[bytes], suffix: str) -> IO[bytes]:
    """The unpacked bytes of an open file, from where it stands.

    Reading raises EOFError where the file ends inside a member, and OSError, zlib.error or LZMAError (`UNREADABLE`)
    where it is broken, or unpacks to more than MAX_DECOMPRESSED_RATIO times its size.
    """
    chunk = ZST_CHUNK_BYTES if suffix == ".zst" else CHUNK_BYTES
    return io.BufferedReader(_Decompressed(raw, _MEMBERS[suffix], chunk), CHUNK_BYTES)


class _Decompressed(io.RawIOBase):
    """The unpacked bytes as a raw stream, which BufferedReader reads lines from."""

    def __init__(self, raw: IO[bytes], new_member: Callable[[], _Member], chunk: int) -> None:
        self._raw, self._new_member, self._chunk = raw, new_member, chunk
        self._member: _Member | None = None
        self._packed = b""
        self._plain = memoryview(b"")
        self._bytes_in = self._bytes_out = 0

    def readable(self) -> bool:
        """True: the stream can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Fill a buffer; 0 at the end. Raises as `open_decompressed` says."""
        # A piece may unpack to nothing, at a header or at padding; only the end of the stream is
        # the end.
        while not self._plain:
            if not self._unpack_more():
                return 0
        count = min(len(buffer), len(self._plain))
        buffer[:count] = self._plain[:count]
        self._plain = self._plain[count:]
        return count

    def _unpack_more(self) -> bool:
        """Unpack the next piece, which may be empty; False at the end of the stream."""
        if not self._packed and (self._member is None or self._member.wants_input):
            self._packed = self._raw.read(self._chunk)
            self._bytes_in += len(self._packed)
            if not self._packed:
                if self._member is not None:
                    raise EOFError("the file ends inside a compressed stream")
                return False
        if self._member is None:
            # Zeros behind a member are padding, as tapes and block devices leave it.
            self._packed = self._packed.lstrip(b"\0")
            if not self._packed:
                return True
            self._member = self._new_member()
        packed, self._packed = self._packed, b""
        plain = self._member.unpack(packed)
        self._bytes_out += len(plain)
        self._plain = memoryview(plain)
        self._refuse_decompression_bomb()
        if self._member.eof:
            # Members may follow each other: `cat a.gz b.gz` is one file, and bgzip writes
            # thousands.
            self._packed = self._member.unused_data
            self._member = None
        return True

    def _refuse_decompression_bomb(self) -> None:
        """Raise OSError if so much was unpacked from so few bytes that the file can be no data."""
        # All members together: a bomb of many small ones is one too.
        if self._bytes_out <= max(MIN_DECOMPRESSED_BYTES, MAX_DECOMPRESSED_RATIO * self._bytes_in):
            return
        raise OSError(
            f"{self._bytes_in:,} bytes unpack to more than {self._bytes_out:,}, over"
            f" {MAX_DECOMPRESSED_RATIO} times as many; no real data do, so this may be a"
            " decompression bomb; unpack the file yourself if you trust it"
        )
