"""Registers and key files that let somebody in whom their readers do not see.

python benchmarks/privacy_attacks/register.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from motley.core.errors import ConfigError
from motley_flower.secure.keyfiles import as_register, new_identity, read_identity

A = "a" * 64
B = "b" * 64
REGISTERS = {
    "an id twice": f'{{"1": "{A}", "1": "{B}"}}',
    "an id in two forms": f'{{"1": "{A}", "01": "{B}"}}',
    "one key for two clients": f'{{"1": "{A}", "2": "{A}"}}',
    "a negative id": f'{{"-1": "{A}"}}',
    "an id of 33 bits": f'{{"{2**32}": "{A}"}}',
}


def main() -> None:
    taken = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for what, text in REGISTERS.items():
            (folder / "register.json").write_text(text)
            try:
                as_register(folder / "register.json")
                taken.append(what)
            except ConfigError:
                continue
        (folder / "register.json").write_text("[" * 10**5)
        try:
            as_register(folder / "register.json")
        except ConfigError:
            pass
        except RecursionError:
            taken.append("deep nesting (a traceback)")
        new_identity(folder / "key")
        (folder / "key").chmod(0o666)
        try:
            read_identity(folder / "key")
            taken.append("a private key of mode 0666")
        except ConfigError:
            pass
    figure = f"{len(taken)} of {len(REGISTERS) + 2} were accepted: {', '.join(taken) or 'none'}"
    print(
        json.dumps(
            {"fault": "9: registers and key files", "succeeded": bool(taken), "figure": figure}
        )
    )


if __name__ == "__main__":
    main()
