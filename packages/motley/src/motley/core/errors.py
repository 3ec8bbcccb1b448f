"""All errors that Motley raises on purpose.

MotleyError
|-- UserError               the user can correct it; one sentence; exit code 2 at the command line
|   |-- ConfigError         an experiment, option or argument is wrong (names the key)
|   |-- DataError           data is missing, corrupt or of the wrong form (names the file)
|   |-- ModelError          a user's module cannot be used as it is (names the layer)
|   |-- StoreError          an output folder is in use, full, or belongs to another run
|   `-- NumericsError       a run would be resumed under other numerics
|-- EngineError             a client's work failed inside Motley (carries client and job)
|-- CodecError              truncated, changed or unknown bytes
|-- SecureAggregationError  a message of secure aggregation that is refused
|   `-- RoundAbandonedError too few clients are left; nothing is unmasked
`-- ContractError           a component broke its contract (e.g. a rule selected a client that is
                            not available)
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class MotleyError(Exception):
    """Base of every error raised on purpose."""


class UserError(MotleyError):
    """An error that the user can correct. The message is one sentence with the value, the allowed
    values and the correction."""


class ConfigError(UserError):
    """An experiment file, option or argument is wrong.

    Parameters
    ----------
    message: the sentence shown to the user.
    key: dotted path of the offending key, e.g. ``"selector.candidates"``; prefixed to the message
    when given.
    """

    def __init__(self, message: str, key: str | None = None) -> None:
        super().__init__(f"{key}: {message}" if key else message)
        self.key = key


class DataError(UserError):
    """Data is missing, corrupt or of the wrong form."""


class ModelError(UserError):
    """A user's module cannot be used as it is."""


class StoreError(UserError):
    """An output folder is in use, full, or belongs to another run."""


class NumericsError(UserError):
    """A run would be resumed under other numerics (torch build, processor, threads, engine,
    device)."""


class EngineError(MotleyError):
    """A client's work failed; ``context`` carries the client, the job and what it was doing."""

    def __init__(self, message: str, context: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.context = context or {}


class CodecError(MotleyError):
    """Bytes that cannot be decoded: truncated, changed, of another version or of an unknown
    type."""


class SecureAggregationError(MotleyError):
    """A message of secure aggregation that its receiver refuses."""


class RoundAbandonedError(SecureAggregationError):
    """Fewer clients than the threshold are left in a round of secure aggregation; nothing is
    unmasked."""


class ContractError(MotleyError):
    """A component broke the contract of its kind."""


def install_hint(extra: str = "", folder: str = "motley") -> str:
    """Return the command that installs a distribution, with the libraries of an extra, from a
    checkout.

    Motley is in no package index. A command that asked one for it by name would run the code of
    whoever registers that name.
    """
    target = f"'./packages/{folder}[{extra}]'" if extra else f"./packages/{folder}"
    return f"pip install {target} in a checkout of Motley"


_CALLED_ELSEWHERE = {
    "acc": "accuracy",
    "auc": "auroc",
    "ce": "cross_entropy",
    "f1": "macro_f1",
    "f1_score": "macro_f1",
    "l2": "half_squared_error",
    "mse": "half_squared_error",
    "nll": "cross_entropy",
    "non-iid": "dirichlet",
    "non_iid": "dirichlet",
    "noniid": "dirichlet",
    "random": "uniform",
}
"""What others call something -> its name here, which its spelling would not find."""


def suggest(spelling: object, allowed: Iterable[str]) -> str:
    """Return ``" (did you mean 'uniform'?)"`` for the nearest allowed spelling, whatever its
    capitals, or the empty string."""
    words: dict[str, str] = {}
    for word in allowed:
        words.setdefault(word.lower(), word)
    small = str(spelling).lower()
    small = _CALLED_ELSEWHERE.get(small, small)
    if small in words:
        return f" (did you mean {words[small]!r}?)"
    begun = [word for word in words if len(small) > 2 and word.startswith(small)]
    near = difflib.get_close_matches(small, words, n=1, cutoff=0.6) or begun
    return f" (did you mean {words[near[0]]!r}?)" if near else ""
