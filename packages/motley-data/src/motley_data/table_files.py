"""Files that hold a table: text with separators, Parquet, Feather, JSON lines, Excel, ARFF and
libsvm, read as Arrow tables.

The columns of a text are texts: what they hold is decided where all files of a data set lie side
by side (:mod:`motley_data.raw_table`).
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import itertools
import json
import re
import zipfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.errors import ConfigError, DataError, install_hint
from motley.core.files import check_file
from motley.core.untrusted import shortened
from motley.tasks.table_kinds import KINDS, table_kind
from motley_data.excel_file import Sheet, read_sheets
from motley_data.parquet_file import read_parquet
from motley_data.table_lines import (
    footer_of,
    title_row,
    uneven_line,
    without_comments,
    without_heads,
)

_SEPARATORS = (",", ";", "\t", "|")
_HEAD = 2**20
"""Bytes by which the separator is recognized."""
_TAIL = 2**16
"""Bytes in which the last line is looked for."""
_SEP_LINE = re.compile(r"sep=(.)[ \t]*\r?\n")
_SUSPICIOUS = 2**30
_MOST_PACKED = 1000
"""A compressed file of more bytes than the first and more than so many times its own size is
refused."""
_MOST_CELLS = 2**27
_BLOCK = 2**26
"""Bytes of a text that are read at a time: many small pieces of many columns take minutes."""
SEPARATORS = b"motley.sep"
"""Of an Arrow table's metadata: what divided the columns of its texts, each mark once."""
REMARKS = b"motley.remarks"
"""Of an Arrow table's metadata: what readers of results should know, a list in JSON."""
_LETTER_OF_UTF8 = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}")
_PART = 2**24
"""Bytes of a text whose letters are looked at at a time."""


@dataclass(frozen=True)
class TableFormat:
    """How a file writes a table.

    Parameters
    ----------
    sep: what divides columns of a text; empty: recognized.
    encoding: of its letters, where they are not UTF-8.
    header_rows: lines that hold the names of columns, which are joined where there are several; 0:
    columns are called x0, x1, ...
    comment: what a line, or the first cell of a sheet's row, begins with that is none of the table;
    a list where there are several.
    sheet: of an Excel file; empty: its only one that is not empty.

    Raises
    ------
    ConfigError: a separator of several characters, or an encoding that nobody knows.
    """

    sep: str = ""
    encoding: str = "utf-8"
    header_rows: int = 1
    comment: str | tuple[str, ...] = ""
    sheet: str = ""

    @property
    def comments(self) -> tuple[str, ...]:
        """What lines begin with that are none of the table."""
        marks = (self.comment,) if isinstance(self.comment, str) else tuple(self.comment)
        return tuple(mark for mark in marks if mark)

    def __post_init__(self) -> None:
        if len(self.sep) > 1 or self.sep in ("\n", "\r", '"'):
            raise ConfigError(f'sep: got {self.sep!r}; expected one character, e.g. sep = ";"')
        if self.header_rows < 0:
            raise ConfigError(f"header_rows: got {self.header_rows}; expected 0, 1 or more")
        try:
            codecs.lookup(self.encoding)
        except LookupError:
            raise ConfigError(
                f"encoding: got {self.encoding!r}, which nobody knows; expected e.g. "
                '"utf-8", "latin-1", "cp1252" or "utf-16"'
            ) from None


def separators_of(table: Any) -> str:
    """Return the marks that divided the columns of the texts that an Arrow table was read from;
    empty where there was none."""
    return ((table.schema.metadata or {}).get(SEPARATORS) or b"").decode()


def read_arrow(path: Path, form: TableFormat | None = None) -> Any:
    """Return the table in a file as an Arrow table; all columns of a text are texts.

    Raises
    ------
    DataError: another kind of file, absent, truncated, in another encoding, or two columns of the
    same name.
    """
    import pyarrow as pa

    form = form or TableFormat()
    kind = table_kind(path)
    if not kind:
        raise DataError(
            f"{path.name} is of no known kind; expected .npz, or a table: "
            f"{', '.join(KINDS)} or .csv.gz"
        )
    check_file(path)
    readers = {
        "csv": _read_text,
        "parquet": lambda path, form: read_parquet(path),
        "feather": _read_feather,
        "json lines": _read_json_lines,
        "excel": _read_excel,
        "old excel": _refuse_old_excel,
        "arff": _read_arff,
        "libsvm": _read_libsvm,
    }
    try:
        table = readers[kind](path, form)
    except (pa.ArrowException, OverflowError, OSError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path} cannot be read as {path.suffix[1:]} ({reason}); it may be truncated or of "
            "another form"
        ) from None
    names = list(table.column_names)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(f"{path} has several columns {twice[0]!r}; give each a name of its own")
    return table


# -------------------------------------------------------------------------------------------- text


def _read_text(path: Path, form: TableFormat) -> Any:
    """Return a text with separators; its separator is in the metadata."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    data, remarks = _utf8(path, form)
    head = _head(path if data is None else data)
    sep = form.sep
    if separator_line := _SEP_LINE.match(head):  # of Excel
        data = (path.read_bytes() if data is None else data).split(b"\n", 1)[1]
        sep = sep or separator_line[1]
        head = head[separator_line.end() :]
    sep = sep or _recognised(head, path, form)
    names, lines = _names(head, sep, form, path)
    source = path if data is None else pa.BufferReader(data)
    reading = arrow_csv.ReadOptions(block_size=_BLOCK, column_names=names, skip_rows=lines)
    parsing = arrow_csv.ParseOptions(delimiter=sep, newlines_in_values=True)
    as_text = arrow_csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()))
    try:
        table = arrow_csv.read_csv(source, reading, parsing, as_text)
    except pa.ArrowInvalid as error:
        if "Expected " in str(error):
            text = path.read_bytes() if data is None else data
            raise uneven_line(path, text, sep, form.comments) or error from None
        if "Empty CSV" not in str(error) and "Could not skip" not in str(error):
            raise
        table = pa.table({name: pa.array([], pa.string()) for name in names})
    table = _without_empty(table)
    if form.header_rows == 1:
        table, repeated = without_heads(table)
        remarks += [f"{path.name}: {repeated} more lines with the heads are left out"] * (
            repeated > 0
        )
    noted = json.dumps(remarks).encode()
    last = _last_line(path if data is None else data)
    metadata = {
        **(table.schema.metadata or {}),
        SEPARATORS: sep.encode(),
        REMARKS: noted,
        **footer_of(table, last, sep),
    }
    return table.replace_schema_metadata(metadata)


def _without_empty(table: Any) -> Any:
    """Return a table without columns that have neither a name nor an entry, as separators at the
    ends of lines make them."""
    import pyarrow.compute as pc

    def is_empty(column: Any) -> bool:
        return not pc.any(pc.not_equal(column, "")).as_py()

    names = table.column_names
    keep = [j for j, name in enumerate(names) if name or not is_empty(table.column(j))]
    return table if len(keep) == len(names) else table.select(keep)


def _last_line(source: Path | bytes) -> str:
    """Return the last line of a text that is not empty, as far as it lies in the last bytes."""
    if isinstance(source, bytes):
        raw = source[-_TAIL:]
    else:
        with source.open("rb") as file:
            file.seek(-min(_TAIL, source.stat().st_size), io.SEEK_END)
            raw = file.read()
    lines = raw.decode("utf-8-sig", errors="replace").splitlines()
    return next((line for line in reversed(lines) if line.strip()), "")


def _utf8(path: Path, form: TableFormat) -> tuple[bytes | None, list[str]]:
    """Return a text in UTF-8 without its lines of comment, None where the file is that already; and
    a remark where it is UTF-8 although it is said to be none.

    Raises
    ------
    DataError: letters of another encoding, which is named.
    """
    packed = path.name.lower().endswith(".gz")
    plain = codecs.lookup(form.encoding).name in ("utf-8", "ascii", "utf-8-sig")
    if plain and not packed and not form.comments:
        with path.open("rb") as file:
            _check_utf8(iter(lambda: file.read(_PART), b""), path)
        return None, []
    data = _unpacked(path) if packed else path.read_bytes()
    remarks = []
    if plain:
        _check_utf8([data], path)
    elif _in_utf8(data, form):
        remarks = [f"{path.name} is read as UTF-8, which it is, and not as {form.encoding}"]
    else:
        try:
            decoded = data.decode(form.encoding).encode()
            lines = _lines_in_utf8(data, form)
            if lines:
                remarks = [
                    f"{len(lines):,} lines of {path.name} are read as UTF-8, which they are, and "
                    f"not as {form.encoding}"
                ]
                decoded = b"".join(
                    line if number in lines else line.decode(form.encoding).encode()
                    for number, line in enumerate(data.splitlines(keepends=True))
                )
            data = decoded
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            raise DataError(
                f"{path} is no text in {form.encoding} (line {line}); {_likely(data, error.start)}"
            ) from None
    if form.comments:
        data = without_comments(data, form.comments)
    return data, remarks


def _in_utf8(data: bytes, form: TableFormat) -> bool:
    """Return whether a text is UTF-8 although its encoding is said to be another one, as some files
    of a folder are. Only letters that are sure to be: an encoding of one byte for each letter has
    hardly a text that is UTF-8 as well; one of more bytes has."""
    one_byte = len(bytes(range(256)).decode(form.encoding, errors="replace")) == 256
    wide = codecs.lookup(form.encoding).name.startswith(("utf-16", "utf-32"))
    if wide:  # a line break or a comma has a byte 0
        return b"\0" not in data and not data.startswith((b"\xff\xfe", b"\xfe\xff"))
    if not one_byte or data.isascii():
        return False
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _lines_in_utf8(data: bytes, form: TableFormat) -> frozenset[int]:
    """Return the numbers of the lines that are UTF-8 in a text of an encoding of one byte for each
    letter, as two texts that were put behind one another have them."""
    one_byte = len(bytes(range(256)).decode(form.encoding, errors="replace")) == 256
    if not one_byte or not _LETTER_OF_UTF8.search(data):
        return frozenset()
    lines = enumerate(data.splitlines(keepends=True))
    return frozenset(number for number, line in lines if _in_utf8(line, form))


def _check_utf8(parts: Iterable[bytes], path: Path) -> None:
    """Refuse a text that is not UTF-8, with the encoding that it is likely in."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    line = 1
    for part in parts:
        try:
            decoder.decode(part)
            if b"\0" in part:
                raise UnicodeDecodeError("utf-8", part, part.index(0), part.index(0) + 1, "byte 0")
        except UnicodeDecodeError as error:
            # the decoder keeps the beginning of a letter that the last part cut
            at = max(error.start, 0)
            line += error.object[:at].count(b"\n")
            raise DataError(
                f"{path} is not in UTF-8 (line {line}); {_likely(error.object, at)}"
            ) from None
        line += part.count(b"\n")


_FIRST_BYTES = {
    b"PK\x03\x04": "a zip archive, as an Excel file (.xlsx) is",
    b"\xd0\xcf\x11\xe0": "an old Excel file (.xls)",
    b"\x1f\x8b": "compressed by gzip (.csv.gz)",
    b"PAR1": "a Parquet file (.parquet)",
    b"ARROW1": "a Feather file (.feather)",
}
"""How files of other kinds begin."""


def _likely(data: bytes, at: int) -> str:
    """Return what reads a text that has bytes of another encoding, from the first of them on."""
    for first, holds in _FIRST_BYTES.items():
        if data.startswith(first):
            return f"it is {holds}, and no text; name it so"
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return 'it is likely UTF-16; write encoding = "utf-16"'
    if 0 < 5 * data.count(0) < len(data):
        return "it has bytes 0, which no text has; it may be damaged"
    if b"\0" in data:
        order = "be" if data.index(0) % 2 == 0 else "le"
        return f'it is likely UTF-16; write encoding = "utf-16-{order}"'
    high = [byte for byte in data[at : at + 2**20] if byte >= 128]
    # of these Latin-1 has none that are letters, and Windows has quotation marks and the euro
    if any(byte < 160 for byte in high):
        name, title = ("cp1252", "Windows-1252")
    else:
        name, title = ("latin-1", "Latin-1 (ISO-8859-1)")
    begin = max(data.rfind(b"\n", 0, at) + 1, at - 12)
    shown = data[begin : at + 12].splitlines()[0].decode(name, errors="replace")
    lines = f'it is likely {title}, in which it says "{shown}"; write encoding = "{name}"'
    mixed = _LETTER_OF_UTF8.search(data[:at])
    return lines + (", beside which lines in UTF-8 are read as such" if mixed else "")


def _unpacked(path: Path) -> bytes:
    """Return the bytes of a file compressed by gzip.

    Raises
    ------
    DataError: they are far more than the file has. OSError, EOFError: it is damaged.
    """
    most = max(_SUSPICIOUS, _MOST_PACKED * path.stat().st_size)
    with gzip.open(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise DataError(
            f"{path} unpacks to more than {most / 2**30:.0f} GiB and {_MOST_PACKED:,} times its "
            "size; if it is sound, unpack it, and it is read"
        )
    return data


def _head(source: Path | bytes) -> str:
    """Return the first lines of a text, whole ones."""
    if isinstance(source, bytes):
        raw, more = source[:_HEAD], len(source) > _HEAD
    else:
        with source.open("rb") as file:
            raw = file.read(_HEAD)
            more = bool(file.read(1))
            if more and b"\n" not in raw:
                raw += file.readline()
    if more:
        raw = raw[: raw.rfind(b"\n") + 1] or raw
    return raw.decode("utf-8-sig", errors="replace")


def _rows(head: str, sep: str, most: int = 100) -> list[list[str]]:
    """Return the first rows of a text that are not empty."""
    try:
        reader = csv.reader(io.StringIO(head, newline=""), delimiter=sep)
        return list(itertools.islice((row for row in reader if row), most))
    except csv.Error:  # a quotation that does not end
        return []


def _recognised(head: str, path: Path, form: TableFormat) -> str:
    """Return the separator that cuts all first rows into as many columns, at least two.

    Raises
    ------
    DataError: two separators do.
    """
    rows = {sep: _rows(head, sep) for sep in _SEPARATORS}
    widths = {sep: len(rows[sep][0]) if rows[sep] else 1 for sep in _SEPARATORS}
    even = [
        sep
        for sep in _SEPARATORS
        if widths[sep] > 1 and all(len(row) == widths[sep] for row in rows[sep])
    ]
    if len(even) > 1:
        lines = " or ".join(f"sep = {_quoted(sep)} ({widths[sep]} columns)" for sep in even)
        raise DataError(f"{path} may be divided by several marks; write {lines}")
    if even:
        return even[0]
    if "\t" not in head.partition("\n")[0] and path.name.lower().endswith((".tsv", ".tsv.gz")):
        return "\t"
    return max(_SEPARATORS, key=lambda sep: widths[sep])


def _quoted(sep: str) -> str:
    return '"\\t"' if sep == "\t" else f'"{sep}"'


def _names(head: str, sep: str, form: TableFormat, path: Path) -> tuple[list[str], int]:
    """Return the names of the columns, and the number of lines before the first row.

    Raises
    ------
    DataError: a file without any line.
    """
    reader = csv.reader(io.StringIO(head, newline=""), delimiter=sep)
    header: list[list[str]] = []
    lines = 0
    for row in reader:
        if row and len(header) == form.header_rows:
            break
        lines = reader.line_num
        header += [row] if row else []
    if not form.header_rows:
        first = _rows(head, sep, 1)
        return [f"x{j}" for j in range(len(first[0]) if first else 0)], 0
    if not header:
        raise DataError(f"{path} is empty; expected a line with the names of columns, and rows")
    width = max(map(len, header))
    title = header[0][0]
    if len(header) == 1 and width > 2 and title.strip() and not any(map(str.strip, header[0][1:])):
        raise title_row(path, title, width, form.comments)
    padded = [row + [""] * (width - len(row)) for row in header]
    names = [
        " ".join(part for part in (_unquoted(p.strip()) for p in parts) if part)
        for parts in zip(*padded, strict=True)
    ]
    rows = _rows(head, sep)[form.header_rows :]
    if rows and all(len(row) == width + 1 and not row[-1].strip() for row in rows):
        names.append("")  # of separators at the ends of all lines but the heads
    return names, lines


def _unquoted(name: str) -> str:
    """Return a name without the quotation marks that a blank before them keeps."""
    return name[1:-1] if len(name) > 1 and name[0] == name[-1] == '"' else name


# ------------------------------------------------------------------------------------ other formats


def _read_feather(path: Path, form: TableFormat) -> Any:
    from pyarrow import feather

    return feather.read_table(path)


def _read_json_lines(path: Path, form: TableFormat) -> Any:
    """Return a file with a JSON object in each line, all of the same keys.

    Raises
    ------
    DataError: a line that is none, or of other keys than the first.
    """
    import pyarrow as pa

    rows: list[dict[str, Any]] = []
    try:
        text = path.read_text(encoding=form.encoding)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is no text in {form.encoding}; {_likely(error.object, error.start)}"
        ) from None
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line, object_pairs_hook=_once_each)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            keys = f" with {', '.join(rows[0])}" if rows else ', e.g. {"text": "a", "label": 0}'
            raise DataError(f"{path}, line {number}: expected a JSON object{keys}; each key once")
        if rows and row.keys() != rows[0].keys():
            raise _other_keys(f"{path}, line {number}", row, rows[0])
        rows.append(row)
    if not rows:
        return pa.table({})
    return pa.table({name: _cells([row[name] for row in rows]) for name in rows[0]})


def _other_keys(where: str, row: Mapping[str, Any], first: Mapping[str, Any]) -> DataError:
    """Return the error that an object has not the keys of the first one."""
    lacks = [key for key in first if key not in row]
    more = [key for key in row if key not in first]
    differs = [
        f"{verb} {', '.join(map(repr, keys[:3]))}{f' and {len(keys) - 3} more' * (len(keys) > 3)}"
        for verb, keys in (("lacks", lacks), ("has also", more))
        if keys
    ]
    return DataError(
        f"{where}: the object {' and '.join(differs)}, which is not so in the first line; expected "
        f"the same keys in each line; write a gap as null, {json.dumps({(lacks or more)[0]: None})}"
    )


def _once_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the keys and values of a JSON object.

    Raises
    ------
    ValueError: a key that is there twice, of whose values a reader would choose one.
    """
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError
    return row


def _refuse_old_excel(path: Path, form: TableFormat) -> Any:
    raise DataError(f"{path} is an Excel file of before 2007; save it as .xlsx or .csv")


def _read_excel(path: Path, form: TableFormat) -> Any:
    """Return a sheet of an Excel file.

    Raises
    ------
    DataError: no reader is installed, it unpacks to far too much, or its formulas have no values.
    """
    try:
        import openpyxl  # noqa: F401 - before the file is looked at
    except ImportError:
        raise DataError(
            f"{path}: an Excel file is read by openpyxl, which is not installed; save the sheet as "
            f".csv, or {install_hint('excel')}"
        ) from None
    with zipfile.ZipFile(path) as parts:
        unpacked = sum(part.file_size for part in parts.infolist())
    if unpacked > max(_SUSPICIOUS, _MOST_PACKED * path.stat().st_size):
        raise DataError(f"{path} unpacks to {unpacked:,} bytes; save the sheet as .csv")
    try:
        sheets = read_sheets(path, form.header_rows)
    except Exception as error:  # whatever openpyxl raises at parts that it does not know
        raise DataError(
            f"{path} is not read by openpyxl ({type(error).__name__}: {error}), e.g. for an empty "
            "sheet of a chart; save its sheet as .csv"
        ) from error
    sheet = _one_sheet(sheets, path, form)
    if sheet.formula:
        raise DataError(
            f"{path}: cell {sheet.formula} has a formula without its value, as programs write "
            "them; open the file in a spreadsheet and save it there, or save the sheet as .csv"
        )
    table = from_cells(sheet.rows, form, path)
    noted = {REMARKS: json.dumps([f"{path.name}: {remark}" for remark in sheet.remarks]).encode()}
    return table.replace_schema_metadata({**(table.schema.metadata or {}), **noted})


def _one_sheet(sheets: dict[str, Sheet], path: Path, form: TableFormat) -> Sheet:
    """Return the sheet that is asked for, or the only one that is not empty."""
    filled = [name for name, sheet in sheets.items() if any(any_cell(row) for row in sheet.rows)]
    if form.sheet or len(filled) != 1:
        if form.sheet not in sheets:
            problem = f"no sheet {form.sheet!r}" if form.sheet else "no single sheet with cells"
            first = filled[0] if filled else "Sheet1"
            raise DataError(
                f"{path} has {problem}; write e.g. sheet = {first!r}; its sheets: "
                f"{shortened(', '.join(sheets), 300)}"
            )
        return sheets[form.sheet]
    return sheets[filled[0]]


def any_cell(row: Sequence[Any]) -> bool:
    """Return whether a row has a cell that is not empty."""
    return any(map(_is_filled, row))


def _is_filled(cell: Any) -> bool:
    return cell is not None and cell != ""


def from_cells(rows: Iterable[Sequence[Any]], form: TableFormat, path: Path) -> Any:
    """Return rows of cells, as a sheet has them, as an Arrow table; a column of cells of several
    types is text.

    Raises
    ------
    DataError: no rows.
    """
    import pyarrow as pa

    filled = [row for row in rows if any_cell(row) and not _first(row).startswith(form.comments)]
    if not filled:
        raise DataError(f"{path} is empty; expected a line with the names of columns, and rows")
    width = max(map(len, filled))
    filled = [(*row, *[None] * (width - len(row))) for row in filled]
    heads = filled[: form.header_rows]
    if len(heads) == 1 < width and sum(map(_is_filled, heads[0])) == 1:
        raise title_row(path, _first(heads[0]), width, form.comments)
    names = [
        " ".join(str(cell).strip() for cell in parts if cell is not None)
        for parts in zip(*heads, strict=True)
    ] or [f"x{j}" for j in range(width)]
    columns = list(zip(*filled[form.header_rows :], strict=True)) or [() for _ in names]
    keep = [j for j, cells in enumerate(columns) if names[j] or any_cell(cells)]
    table = pa.Table.from_arrays([_cells(columns[j]) for j in keep], names=[names[j] for j in keep])
    footer = footer_of(table, "", "")
    return table.replace_schema_metadata(footer) if footer else table


def _first(row: Sequence[Any]) -> str:
    """Return the first cell of a row that is not empty, as text."""
    return next(str(cell) for cell in row if _is_filled(cell))


def _cells(cells: Sequence[Any]) -> Any:
    """Return the cells of a column as an Arrow array."""
    import pyarrow as pa

    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {int, float} or len(kinds) == 1:
        return pa.array(cells, from_pandas=True)
    return pa.array([None if cell is None else _cell_text(cell) for cell in cells], pa.string())


def _cell_text(cell: Any) -> str:
    """Return a cell as text; 2.0 is "2", as a sheet shows it."""
    return str(int(cell)) if isinstance(cell, float) and cell.is_integer() else str(cell)


def _read_arff(path: Path, form: TableFormat) -> Any:
    """Return an ARFF file with numbers and nominal values."""
    import pyarrow as pa
    from scipy.io import arff

    try:
        with path.open(encoding=form.encoding) as file:
            data, about = arff.loadarff(file)
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is no text in {form.encoding}; {_likely(error.object, error.start)}"
        ) from None
    except (arff.ArffError, NotImplementedError, ValueError, StopIteration) as error:
        raise DataError(
            f"{path} cannot be read as arff ({shortened(str(error), 200)}); numbers, nominal "
            "values and dates can be: save it as .csv"
        ) from None
    columns = {}
    for name in about.names():
        values = data[name]
        if values.dtype.kind == "S":
            columns[name] = pa.array([value.decode(form.encoding) for value in values.tolist()])
        else:
            columns[name] = pa.array(values, from_pandas=True)
    return pa.table(columns)


def _read_libsvm(path: Path, form: TableFormat) -> Any:
    """Return a file of ``label index:value ...`` lines as columns x1, x2, ..., or x0, x1, ... where
    an index is 0, and ``label``."""
    import pyarrow as pa
    from sklearn.datasets import load_svmlight_file

    try:
        x, y, groups = load_svmlight_file(str(path), zero_based=True, query_id=True)
    except (ValueError, IndexError) as error:
        raise DataError(
            f"{path} cannot be read as libsvm ({shortened(str(error), 200)}); expected lines like "
            "1 3:0.5 7:1"
        ) from None
    if x.shape[0] * x.shape[1] > _MOST_CELLS:
        raise DataError(
            f"{path} has {x.shape[0]:,} rows of {x.shape[1]:,} columns; expected at most "
            f"{_MOST_CELLS:,} cells"
        )
    dense = np.asarray(x.toarray())
    first = 0 if (x.indices == 0).any() else 1
    columns = {f"x{j}": pa.array(dense[:, j]) for j in range(first, dense.shape[1])}
    labels = y.astype(np.int64) if (y == np.floor(y)).all() else y
    table = pa.table({**columns, "label": pa.array(labels)})
    noted = [f"{path.name}: the numbers behind qid are left out"] * bool(groups.any())
    return table.replace_schema_metadata({REMARKS: json.dumps(noted).encode()})
