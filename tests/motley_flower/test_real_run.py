"""Why a deployment stopped is written down, also where the process is ended without an
exception."""

from __future__ import annotations

import signal

import pytest

from motley_flower.real_run import STOPPED, stopping_in_a_sentence

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
