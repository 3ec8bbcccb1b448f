"""Where the checkout's folders are, for tests that read its files or start processes."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SOURCES = sorted(ROOT.glob("packages/*/src"))
PYTHONPATH = os.pathsep.join(map(str, [ROOT, *SOURCES]))
