"""Archives of any files that can be read: .zip, .tar (also compressed), and web archives, .warc.

Members are read in memory and never written, so none can leave its folder. Their names are the places of their records.
"""

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import BinaryIO

from warcio.archiveiterator import ArchiveIterator
from warcio.exceptions import ArchiveLoadFailed

from tasks.readers.packed import DAMAGE, unpacked
from tasks.readers.records import BadRecord, Content, Record, TooLargeError

ReadMember = Callable[[Content], Iterator[Record | BadRecord]]


def read_zip(content: Content, read_member: ReadMember) -> Iterator[Record | BadRecord]:
    try:
        with content.open() as stream, zipfile.ZipFile(stream) as archive:
            members = [member for member in archive.infolist() if not member.is_dir()]
            size = sum(member.file_size for member in members)
            if size > content.limits.unpacked_bytes:
                yield _bomb(size)
                return
            for member in members:
                if member.flag_bits & 1:
                    yield BadRecord(member.filename, "protected_document", "the member asks for a password")
                else:
                    yield from _inside(content, _name(member), archive.read(member), read_member)
    except (zipfile.BadZipFile, NotImplementedError, *DAMAGE) as error:
        yield BadRecord("", "damaged_archive", f"it cannot be unpacked: {error}")


def read_tar(content: Content, read_member: ReadMember) -> Iterator[Record | BadRecord]:
    total = 0
    try:
        with content.open() as stream, tarfile.open(fileobj=_plain(content, stream)) as archive:
            for member in archive:
                file = archive.extractfile(member) if member.isfile() else None
                if file is None:
                    continue
                total += member.size
                if total > content.limits.unpacked_bytes:
                    yield _bomb(total)
                    return
                yield from _inside(content, member.name, file.read(), read_member)
    except TooLargeError as error:
        yield BadRecord("", "archive_bomb", str(error))
    except (tarfile.TarError, *DAMAGE) as error:
        yield BadRecord("", "damaged_archive", f"it cannot be unpacked: {error}")


def read_warc(content: Content, read_member: ReadMember) -> Iterator[Record | BadRecord]:
    """Yield the main text of each HTML response; the address and date go into meta."""
    try:
        with content.open() as stream:
            for record in ArchiveIterator(stream):
                kind = (record.http_headers.get_header("Content-Type") if record.http_headers else None) or ""
                if record.rec_type != "response" or "html" not in kind:
                    continue
                address = record.rec_headers.get_header("WARC-Target-URI")
                page = record.content_stream().read(content.limits.document_bytes + 1)
                for found in read_member(_member(content, "page.html", page)):
                    date = record.rec_headers.get_header("WARC-Date")
                    yield _with_place(found, address, {"url": address, "date": date})
    except (ArchiveLoadFailed, *DAMAGE) as error:
        yield BadRecord("", "damaged_archive", f"it cannot be read: {error}")


def _inside(content: Content, name: str, data: bytes, read_member: ReadMember) -> Iterator[Record | BadRecord]:
    for record in read_member(_member(content, name, data)):
        yield _with_place(record, f"{name}#{record.place}" if record.place else name, {})


def _member(content: Content, name: str, data: bytes) -> Content:
    return replace(content, name=name, open=lambda: io.BytesIO(data), begin=0, end=None, first_line=1)


def _with_place(record: Record | BadRecord, place: str, meta: dict[str, str]) -> Record | BadRecord:
    if isinstance(record, BadRecord):
        return replace(record, place=place)
    return replace(record, place=place, meta=record.meta | meta)


def _plain(content: Content, stream: BinaryIO) -> BinaryIO:
    """Return a tar file's bytes, unpacked where its name says that it is compressed."""
    name = content.name.lower()
    if name.endswith(".tar"):
        return stream
    return unpacked(name.replace(".tgz", ".tar.gz"), stream, content.limits.unpacked_bytes)


def _name(member: zipfile.ZipInfo) -> str:
    """Return a member's name; Windows writes Chinese ones in GBK without saying so."""
    if member.flag_bits & 0x800:
        return member.filename
    try:
        return member.filename.encode("cp437").decode("gb18030")
    except UnicodeError:
        return member.filename


def _bomb(size: int) -> BadRecord:
    return BadRecord(
        "", "archive_bomb", f"its members unpack to {size / 2**30:.1f} GiB, more than normalize.max_unpacked_bytes"
    )
