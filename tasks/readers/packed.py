"""Unpacks compressed streams block by block, and counts: a small file that unpacks to more than the limit is refused."""

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import BinaryIO

import zstandard

from tasks.readers.records import TooLargeError

BLOCK_BYTES = 2**20
DAMAGE = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError, zstandard.ZstdError, OSError)


def unpacked_blocks(name: str, stream: BinaryIO, limit: int) -> Iterator[bytes]:
    """Yield the bytes of a stream, unpacked as its name says.

    Raises:
        TooLargeError: more than `limit` bytes come out.
    """
    total = 0
    for block in _blocks(name, stream):
        total += len(block)
        if total > limit:
            raise TooLargeError(
                f"it unpacks to more than {limit / 2**30:g} GiB (normalize.max_unpacked_bytes), as an archive bomb does"
            )
        yield block


def unpacked(name: str, stream: BinaryIO, limit: int) -> BinaryIO:
    """Return the unpacked bytes in memory; see `unpacked_blocks`."""
    return io.BytesIO(b"".join(unpacked_blocks(name, stream, limit)))


def compression_of(name: str) -> str:
    """Return the suffix that says how a file is compressed, "" for not."""
    return next((suffix for suffix in (*UNPACK, ".zst") if name.lower().endswith(suffix)), "")


Unpacking = gzip.GzipFile | bz2.BZ2File | lzma.LZMAFile

UNPACK: dict[str, Callable[[BinaryIO], Unpacking]] = {
    ".gz": lambda stream: gzip.GzipFile(fileobj=stream),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}


def _blocks(name: str, stream: BinaryIO) -> Iterator[bytes]:
    suffix = compression_of(name)
    if suffix == ".zst":
        yield from _zstd_blocks(stream)
        return
    source = UNPACK[suffix](stream) if suffix else stream
    read = getattr(source, "read1", source.read)  # read() would lose what precedes a cut
    while block := read(BLOCK_BYTES):
        yield block


def _zstd_blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Unpack all frames. zstandard's own stream reader takes a cut file for a whole one."""
    frame = None
    while packed := stream.read(BLOCK_BYTES):
        while packed:
            frame = frame or zstandard.ZstdDecompressor().decompressobj()
            yield frame.decompress(packed)
            packed = frame.unused_data if frame.eof else b""
            frame = None if frame.eof else frame
    if frame is not None:
        raise EOFError("the file ends inside a zstd frame")
