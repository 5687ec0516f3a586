"""Word documents and PDF files with a text layer."""

import io
import re
import zipfile
from collections.abc import Iterator

import docx
import pypdfium2
from docx.document import Document
from docx.oxml.exceptions import InvalidXmlError
from docx.table import Table
from docx.text.paragraph import Paragraph

from tasks.readers.records import BadRecord, Content, Record, read_all

HEADING_STYLE = re.compile(r"(?:Heading|标题)\s*(\d)")
# Fewer characters than this on an average page: the pages are pictures.
MIN_CHARACTERS_A_PAGE = 10


def read_docx(content: Content) -> Record | BadRecord:
    """Return the text of a Word document, its headings and tables as Markdown.

    Raises:
        TooLargeError
    """
    data = read_all(content)
    if data.startswith(b"\xd0\xcf\x11\xe0"):
        return BadRecord(
            "", "protected_document", "it is encrypted, or of Word's old format; save it as .docx without a password"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as members:
            size = sum(member.file_size for member in members.infolist())
        if size > content.limits.unpacked_bytes:
            return BadRecord("", "archive_bomb", f"its parts unpack to {size / 2**30:.1f} GiB")
        document = docx.Document(io.BytesIO(data))
    except (zipfile.BadZipFile, KeyError, ValueError, InvalidXmlError) as error:
        return BadRecord("", "damaged_document", f"it is no Word document: {error}")
    return Record("", "\n\n".join(_blocks(document)), {})


def read_pdf(content: Content) -> Record | BadRecord:
    """Return the text layer of a PDF file, pages one after another.

    Raises:
        TooLargeError
    """
    data = read_all(content)
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            return BadRecord("", "protected_document", "it asks for a password; save it without one")
        return BadRecord("", "damaged_document", f"it is no PDF file: {error}")
    with document:
        pages = [document[index].get_textpage().get_text_bounded() for index in range(len(document))]
    if sum(map(len, pages)) < MIN_CHARACTERS_A_PAGE * len(pages):
        return BadRecord("", "no_text_layer", f"its {len(pages)} pages are pictures; it needs text recognition first")
    return Record("", "\n\n".join(page.replace("\r\n", "\n").strip() for page in pages), {"pages": len(pages)})


def _blocks(document: Document) -> Iterator[str]:
    for block in document.iter_inner_content():
        if isinstance(block, Table):
            yield _markdown_table(block)
        elif block.text.strip():
            yield _markdown_paragraph(block)


def _markdown_paragraph(paragraph: Paragraph) -> str:
    style = paragraph.style.name if paragraph.style is not None else ""
    if style == "Title":
        return f"# {paragraph.text}"
    heading = HEADING_STYLE.match(style or "")
    return f"{'#' * min(6, int(heading[1]))} {paragraph.text}" if heading else paragraph.text


def _markdown_table(table: Table) -> str:
    rows = [f"| {' | '.join(' '.join(cell.text.split()) for cell in row.cells)} |" for row in table.rows]
    rule = f"|{' --- |' * len(table.columns)}"
    return "\n".join([*rows[:1], rule, *rows[1:]])
