"""Run every attack of this folder, on this tree and on an older one, and write what came of it.

    python benchmarks/privacy_attacks [--before CHECKOUT] [--only NAME]

Each script prints one JSON object: ``fault``, whether the attack ``succeeded``, and the ``figure``
that it got. With ``--before``, the folder of a checkout of the commit before the faults were
mended, each runs against that code, too. The outcome goes into
``benchmarks/results/privacy_attacks.json``, where those of scripts that were not run stay.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def outcome(script: Path, tree: Path) -> dict[str, Any]:
    """Return what a script printed when it attacked the code of a tree."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, [tree, *sorted(tree.glob("packages/*/src"))])),
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{script.name} on {tree} ended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    """Attack, print a line for each script, and write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--before", type=Path, help="checkout of the commit before the faults were mended"
    )
    parser.add_argument("--only", help="name of one script")
    given = parser.parse_args()
    file = ROOT / "benchmarks" / "results" / "privacy_attacks.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    found = json.loads(file.read_text()) if file.exists() else {}
    for script in sorted(HERE.glob("[a-z]*.py")):
        attacks = "def main" in script.read_text()  # the others are what several attacks share
        if attacks and given.only in (None, script.stem):
            now = outcome(script, ROOT)
            record = {"fault": now["fault"], "now": now}
            if given.before is not None:
                record["before"] = outcome(script, given.before.resolve())
            found[script.stem] = record
            sides = [
                f"{side}: {record[side]['succeeded']} ({record[side]['figure']})"
                for side in ("before", "now")
                if side in record
            ]
            print(f"{script.stem}: {'; '.join(sides)}", flush=True)
            file.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n")


if __name__ == "__main__":
    main()
