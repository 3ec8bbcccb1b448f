"""Names of experiments and methods as names of folders."""

from __future__ import annotations

import re

from motley.experiments.lineage import digest_of

MOST_NAME_BYTES = 200
"""Length of the longest name of an experiment; most disks take 255."""


def slug(text: str) -> str:
    """Return a name as the name of a folder: letters, digits, ``._=-``; everything else becomes
    ``-``. What is too long is cut off, and a digest of the whole name put in its place."""
    plain = re.sub(r"-{2,}", "-", re.sub(r"[^\w.=-]+", "-", text)).strip("-.")
    if len(plain.encode()) > MOST_NAME_BYTES:
        digest = digest_of(text)
        begin = plain.encode()[: MOST_NAME_BYTES - len(digest) - 1].decode(errors="ignore")
        plain = f"{begin}-{digest}"
    return plain or "experiment"
