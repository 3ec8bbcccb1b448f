"""Why a deployment stopped is written down, also where the process is ended without an
exception."""

from __future__ import annotations

import logging
import signal

import pytest

from motley.experiments.store import RunFolder
from motley.selectors import build
from motley_flower.real_run import STOPPED, stopping_in_a_sentence
from motley_flower.strategy.wrapper import with_selector
from tests.motley_flower import apps
from tests.motley_flower.client_runtimes import deploy, experiment, federation

TOLD = (
    "the deployment stops: its process was told to end: somebody stopped the run, or the SuperLink "
    "or the machine has ended (see the SuperLink's log); submitted again with out = "
)


@pytest.fixture
def ends():
    """What a handler of Flower's heard, that would end the process at once."""
    heard = []

    def end(number, frame):
        heard.append(number)

    before = signal.signal(signal.SIGTERM, end)
    yield heard
    assert signal.getsignal(signal.SIGTERM) is end
    signal.signal(signal.SIGTERM, before)


def test_a_signal_is_written_down_before_its_handler_is_called(tmp_path, ends):
    with stopping_in_a_sentence(tmp_path):
        assert not ends
        signal.raise_signal(signal.SIGTERM)
        assert ends == [signal.SIGTERM]
        assert TOLD in (tmp_path / STOPPED).read_text()


@pytest.mark.usefixtures("interruptible")
def test_it_is_written_down_once(tmp_path, caplog):
    with pytest.raises(KeyboardInterrupt), stopping_in_a_sentence(tmp_path):
        signal.raise_signal(signal.SIGINT)
    assert caplog.text.count(TOLD) == 1


def test_an_interruption_without_a_signal_is_written_down_too(tmp_path):
    with pytest.raises(SystemExit), stopping_in_a_sentence(tmp_path):
        raise SystemExit
    assert TOLD in (tmp_path / STOPPED).read_text()


def test_what_the_start_before_wrote_down_is_gone(tmp_path):
    (tmp_path / STOPPED).write_text("of the start before")
    with stopping_in_a_sentence(tmp_path):
        assert not (tmp_path / STOPPED).exists()


def own_loop(folder):
    setup = experiment(stop={"rounds": 1})
    deploy(federation(setup, folder / "clients"), setup, folder / "out")


def strategy(folder):
    wrapped = with_selector(apps.fedavg(), build("uniform", seed=0), m=1, out=folder / "out")
    wrapped.start(apps.grid(1), apps.model(), 1, timeout=60.0)


@pytest.mark.parametrize("server", [own_loop, strategy])
def test_a_second_server_on_one_folder_is_told_in_a_sentence(server, tmp_path, caplog):
    """Flower logs whatever an app raises with its traceback; a user's error has none. The first
    server's files stay as they are."""
    out = tmp_path / "out"
    log = logging.getLogger("flwr")
    with RunFolder(out).lock():
        (out / "theirs").touch()
        try:
            server(tmp_path)
        except Exception as error:
            log.error("%s raised an exception", "ServerApp", exc_info=error)
        assert sorted(path.name for path in out.iterdir()) == [".lock", "theirs"]
    assert "Traceback" not in caplog.text
    assert f"ServerApp raised an exception: {out} is in use by another run" in caplog.text
    log.error("raised", exc_info=ValueError("of the app's own"))
    assert "ValueError: of the app's own" in caplog.text
