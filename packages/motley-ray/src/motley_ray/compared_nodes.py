"""The nodes of a Ray cluster, compared with the process that started the run: one with other code
or libraries is not used.

Compared are the versions of Python, Motley, torch, NumPy, Ray and of installed packages that the
run needs, all source files of Motley and of this distribution, and the user's own modules with what
these import. A module that a function imports under a computed name is not seen.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from motley.core.errors import ConfigError, DataError, UserError
from motley.core.fingerprint import is_installed
from motley.engines.engine import Setting
from motley.engines.serialization import modules_of
from motley_ray import node_facts
from motley_ray.node_facts import CODE, MISSING, RAY, facts

FIRST_S = 60.0
"""Wall seconds in which the nodes that are there at the start must say what they are."""
_LIBRARIES = ("torch", "numpy", "ray")
_SHOWN = 3
"""Differences of a node that are told."""


def needs(setting: Setting) -> tuple[object, ...]:
    """Return the parts of a setting that hold code: everything but the data."""
    task = setting.task
    return task.model, task.loss, task.transform, setting.algorithm, setting.solver, setting.work


class ComparedNodes:
    """The nodes of the cluster that this process is connected to, each compared once. Several
    threads may use it.

    Parameters
    ----------
    parts: objects that workers are given; the modules and packages that these need are compared,
    too.
    differing: what becomes of a run if a node differs when it begins: it goes on without the node,
    or is refused. A node that joins later and differs is left out in either case.
    """

    def __init__(self, parts: object, differing: Literal["skip", "refuse"] = "skip") -> None:
        self._differing = differing
        packages, self._modules = needed(modules_of(parts))
        self._libraries = tuple(dict.fromkeys((*_LIBRARIES, *packages)))
        self._lock = threading.Lock()
        self._asked: dict[str, Any] = {}
        self._said: dict[str, str] = {}
        """Id of a node that has been compared -> why it is left out; empty if it is not."""
        self._names: dict[str, str] = {}
        self._worked: set[str] = set()

    @cached_property
    def _here(self) -> Mapping[str, str]:
        return facts(self._libraries, self._modules)

    def begin(self) -> None:
        """Compare all nodes, and wait for them.

        Raises
        ------
        ConfigError: no node can be used, or one differs and the run is to be refused then.
        """
        usable = self.usable(FIRST_S)
        for node in self._asked.keys() - self._said.keys():
            warnings.warn(
                f"the node {self.name(node)} has not answered for {FIRST_S:g} s and is not used "
                "until it does",
                stacklevel=3,
            )
        out = self.left_out()
        if out and (not usable or self._differing == "refuse"):
            reasons = "; ".join(f"{name}: {why}" for name, why in sorted(out.items()))
            if not usable:
                raise ConfigError(
                    f"no node of the cluster can be used ({reasons}); install there what is here",
                    "engine",
                )
            mend = (
                'install there what is here, or have them left out: engine.differing_nodes = "skip"'
            )
            raise ConfigError(
                f"nodes of the cluster differ from this process ({reasons}); {mend}", "engine"
            )

    def usable(self, wait_s: float = 0.0) -> list[str]:
        """Return the ids of the live nodes that do not differ; a new node is asked, and counts when
        it has answered.

        ``wait_s``: wall seconds to wait for the answers of nodes that are new.
        """
        with self._lock:
            alive = {
                record["NodeID"]: record
                for record in _ray().nodes()
                if record["Alive"] and record["Resources"].get("CPU")
            }
            self._name(alive)
            new = alive.keys() - self._asked.keys()
            for node in new:
                self._asked[node] = _ask(node, self._libraries, self._modules)
            limit = time.monotonic() + (wait_s if new else 0.0)
            waits = {self._asked[node]: node for node in alive.keys() - self._said.keys()}
            while waits:
                done, _ = _ray().wait(list(waits), timeout=max(0.0, limit - time.monotonic()))
                if not done:
                    break
                self._compare(waits.pop(done[0]), done[0])
            return sorted(node for node in alive if self._said.get(node) == "")

    def left_out(self) -> dict[str, str]:
        """Return why nodes are left out, by name."""
        return {self.name(node): why for node, why in self._said.items() if why}

    def name(self, node: str) -> str:
        """Return a node's address; with the beginning of its id where two nodes have one
        address."""
        return self._names.get(node, node[:8])

    def worked(self, node: str) -> None:
        """Note that a worker on this node has returned something."""
        self._worked.add(node)

    def record(self) -> dict[str, str]:
        """Return what became of each node, by name: ``worked``, ``usable`` (no work came back from
        it yet), or why it was left out."""
        states = {}
        for node, why in self._said.items():
            state = "worked" if node in self._worked else "usable"
            states[self.name(node)] = f"left out: {why}" if why else state
        return states

    def labels(self) -> dict[str, str]:
        """Return the option ``label_selector`` of an actor that must be on a node that does not
        differ."""
        return {"ray.io/node-id": f"in({','.join(self.usable()) or 'none'})"}

    def _name(self, alive: Mapping[str, Mapping[str, Any]]) -> None:
        addresses = [record["NodeManagerAddress"] for record in alive.values()]
        for node, record in alive.items():
            address = str(record["NodeManagerAddress"])
            self._names.setdefault(
                node, address if addresses.count(address) == 1 else f"{address} ({node[:8]})"
            )

    def _compare(self, node: str, answer: Any) -> None:
        try:
            there = _ray().get(answer)
        except Exception as error:  # Ray's, or raised there
            lines = str(error).strip().splitlines() or [type(error).__name__]
            self._said[node] = f"it cannot say what it is ({lines[-1].strip()})"
        else:
            self._said[node] = differences(self._here, there)
        if self._said[node]:
            warnings.warn(
                f"the node {self._names[node]} is not used: {self._said[node]}", stacklevel=4
            )


def _ray() -> Any:
    return importlib.import_module("ray")


def _ask(node: str, libraries: Sequence[str], modules: Sequence[str]) -> Any:
    """Return the reference of a node's facts, which a task on that node finds, in a process of its
    own."""
    pickled = _ray().cloudpickle
    pickled.register_pickle_by_value(node_facts)  # Motley may be absent there
    try:
        task = (
            _ray()
            .remote(facts)
            .options(num_cpus=0, max_retries=0, label_selector={"ray.io/node-id": node})
        )
        return task.remote(tuple(libraries), tuple(modules))
    finally:
        pickled.unregister_pickle_by_value(node_facts)


def differences(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Return in what a node differs, for a message; empty if in nothing.

    >>> differences({"Motley": "0.1.0", "torch": "2.13.0"}, {"Motley": "0.0.9", "torch": "2.13.0"})
    'Motley 0.0.9 in place of 0.1.0'
    """
    for name in ("Motley", RAY):
        if there.get(name, "").startswith(MISSING):
            return there[name]
    findings = []
    files = []
    for name in dict.fromkeys((*here, *there)):
        ours = here.get(name, "none")
        theirs = there.get(name, "none")
        if ours == theirs:
            continue
        if theirs.startswith(MISSING):
            findings.append(theirs)
        elif name.startswith(CODE):
            files.append(name.removeprefix(CODE))
        else:
            findings.append(f"{name} {theirs} in place of {ours}")
    if files:
        more = f" and {len(files) - 1} more" if len(files) > 1 else ""
        findings.append(f"other code in {files[0]}{more}")
    return ", ".join(
        [
            *findings[:_SHOWN],
            *([f"and {len(findings) - _SHOWN} more"] if len(findings) > _SHOWN else []),
        ]
    )


def needed(modules: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the installed packages and the user's own modules that these modules need, without
    Motley's and Python's.

    >>> needed({"torch.nn", "motley.tasks", "collections"})
    (['torch'], [])
    """
    packages = set()
    own = set[str]()
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        top = name.partition(".")[0]
        if (
            top in sys.stdlib_module_names
            or top in ("motley", "__main__", "__mp_main__")
            or name in own
        ):
            continue
        if is_installed(name):
            packages.add(top)
        elif (path := _source(name)) is not None:
            own.add(name)
            parent = name.rpartition(".")[0]
            waiting += [*([parent] if parent else []), *_imported(name, path)]
    return sorted(packages), sorted(own)


def _source(name: str) -> Path | None:
    """Return the Python file of a module; None if there is none."""
    try:
        module = sys.modules.get(name)
        spec = importlib.util.find_spec(name) if module is None else None
        origin = getattr(module, "__file__", None) or (spec.origin if spec else None)
    except (ImportError, ValueError):
        return None
    return Path(origin) if origin is not None and origin.endswith(".py") else None


def _imported(name: str, path: Path) -> Iterator[str]:
    """Yield the names that may be modules among all that a module imports, also inside
    functions."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            try:
                base = node.module
                if node.level:
                    base = importlib.util.resolve_name("." * node.level + (base or ""), package)
            except ImportError:
                continue
            if base:
                yield base
                yield from (f"{base}.{alias.name}" for alias in node.names)


def explained(error: Exception, node: str) -> Exception:
    """Return the error that a worker on a node raised as one for the user, if it lies in what the
    node has; else the error itself.

    ``node``: its name.
    """
    message = f"on the node {node}: {type(error).__name__}: {error}"
    if isinstance(error, ImportError):
        return ConfigError(
            f"{message}; a module that the run needs must be importable on every node", "engine"
        )
    if isinstance(error, OSError):
        return DataError(
            f"{message}; a file that the run reads must be on every node, under the same path"
        )
    if isinstance(error, UserError):
        return type(error)(f"on the node {node}: {error}")
    return error
