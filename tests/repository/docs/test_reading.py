"""What ``make docs`` takes for the prose of a page, whose reading ease it prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[3]
PAGE = """# A heading

First *sentence*, with `some.code` and a
[link](page.md#part). Second one

- An item **in bold**:
- Under [`[privacy]`](privacy.md#a)
1. Another; 2 * 3 * 4

| a | table |
| --- | --- |

```python
code = 1
```

<!-- made: table -->

Generated words.

<!-- end -->

<!-- filter -->
[motley.selectors.oort](../../packages/motley/src/motley/selectors/oort.py)

![A picture](picture.svg)
"""


@pytest.fixture
def reading(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """docs/reading.py."""
    monkeypatch.syspath_prepend(ROOT / "docs")
    import reading

    yield reading
    sys.modules.pop("reading")


def test_prose_has_neither_code_nor_tables_nor_what_is_made(reading: ModuleType) -> None:
    assert reading.prose(PAGE) == (
        "First sentence, with code and a link. Second one.\n"
        "An item in bold.\nUnder code.\nAnother; 2 * 3 * 4."
    )


def test_short_sentences_are_never_the_hardest(reading: ModuleType) -> None:
    long = "This one has as many as eight words."
    assert reading.sentences(f"Too short. {long}\n{long} e.g. not here.") == [
        long,
        f"{long} e.g. not here.",
    ]
