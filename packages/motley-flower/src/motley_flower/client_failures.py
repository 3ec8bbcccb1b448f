"""What leaves a client of an exception: its type, and the place in the client's own code.

The text of an exception may quote a row of the client's data (``KeyError: 'Ann Miller'``), and
Flower sends it to the server. So every function of Motley's that answers at a client raises an
exception of the same name whose text is the place alone; type, text and traceback are in the
client's own log. Sentences of Motley's own about the exchange, which hold nothing of the data, are
sent too, but not under ``[privacy]``; so are Flower's own of a function that the app has not.

>>> words_of("Motley: the server runs another experiment")
': the server runs another experiment'
>>> words_of("at client_app.py, line 9, in train")
': at client_app.py, line 9, in train'
>>> words_of("'Ann Miller'")
"; the node's own log says more"
"""

from __future__ import annotations

import logging
import re
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from motley.core.errors import CodecError, ConfigError, SecureAggregationError

_LOG = logging.getLogger("motley.flower.client")

_SENTENCE = "Motley: "
"""What a sentence of Motley's own begins with, in place of a place."""
_PLACE = re.compile(r"at [^,/\\]{1,80}, line \d{1,9}, in [\w<>]{1,80}")
_FLOWER = re.compile(
    r"No \w{1,20} function registered with name '\w{1,60}'"
    r"|Invalid message type: [\w.]{1,60}"
)
"""Sentences of Flower's that hold nothing of the data, from apps that do not answer a question."""
_FLOWERS_APP = ("flwr", "clientapp", "client_app.py")
"""The end of the path of Flower's own file that raises these sentences."""
_SENTENCES = (CodecError, ConfigError, SecureAggregationError)
_EXCHANGE = frozenset(
    {
        "client_app.py",
        "client_runtime.py",
        "node_config.py",
        "protocol.py",
        "reporting.py",
        "secure_client.py",
        "secure_messages.py",
        *(f"secure/{name}.py" for name in ("endpoint", "masking_client", "terms")),
        "secure/verifiable_draws.py",
    }
)
"""Files of this distribution whose sentences speak of the exchange alone."""
_HERE = Path(__file__).parent
_INSTALLED = tuple(
    {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


class _ClientError(Exception):
    """An exception without its text."""


@contextmanager
def text_stays(private: Callable[[], bool] = lambda: False) -> Iterator[None]:
    """Replace what is raised inside by an exception of the same name without its text, which is
    written into this process's log.

    Parameters
    ----------
    private: whether sentences of Motley's stay, too; one that raises says so.
    """
    try:
        yield
    except _ClientError:
        raise
    except Exception as error:
        _LOG.exception("this client cannot answer")
        kind = type(type(error).__name__, (_ClientError,), {"__module__": "builtins"})
        raise kind(_text(error, private)) from None


def words_of(text: str) -> str:
    """Return the end of a sentence that begins with the type of a client's exception.

    ``text``: of the exception, as it came from the client; any but :func:`text_stays` makes is left
    out."""
    if text.startswith(_SENTENCE):
        return f": {text.removeprefix(_SENTENCE)}"
    shown = _PLACE.fullmatch(text) or _FLOWER.fullmatch(text)
    return f": {text}" if shown else "; the node's own log says more"


def _text(error: Exception, private: Callable[[], bool]) -> str:
    """Return what of an exception may leave."""
    frames = traceback.extract_tb(error.__traceback__)
    last = Path(frames[-1].filename)
    names = {last.name, f"{last.parent.name}/{last.name}"} if _HERE in last.parents else set()
    if names & _EXCHANGE and type(error) in _SENTENCES and not _certainly(private):
        return f"{_SENTENCE}{error}"
    if last.parts[-3:] == _FLOWERS_APP and _FLOWER.fullmatch(str(error)):
        return str(error)
    own = [
        frame for frame in frames if not frame.filename.startswith((*_INSTALLED, str(_HERE), "<"))
    ]
    at = (own or frames)[-1]
    return f"at {Path(at.filename).name}, line {at.lineno}, in {at.name}"


def _certainly(private: Callable[[], bool]) -> bool:
    """Return whether sentences stay; they do where that cannot be found out."""
    try:
        return private()
    except Exception:  # an experiment that cannot be read says nothing of its [privacy]
        return True
