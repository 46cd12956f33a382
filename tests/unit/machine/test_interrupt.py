"""What signals ask for: counted, never acted on where a line could be torn, and given back
afterwards.
"""

import os
import signal

import pytest

from torch_conformance.machine.signals import START_NO_MORE, STOP_NOW, Interrupts

HANDLED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_third_ctrl_c_raises_keyboard_interrupt() -> None:
    with Interrupts() as interrupts:
        for expected in (START_NO_MORE, STOP_NOW):
            signal.raise_signal(signal.SIGINT)
            assert interrupts.asked == expected
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_sigterm_and_sighup_mean_stop_now_and_many_do_not_block_on_the_pipe(number: int) -> None:
    with Interrupts() as interrupts:
        for _ in range(70_000):
            signal.raise_signal(number)
        assert interrupts.asked == STOP_NOW
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_handlers_and_descriptors_are_given_back() -> None:
    before = [signal.getsignal(number) for number in HANDLED]
    with Interrupts() as interrupts:
        assert all(signal.getsignal(number) not in before for number in HANDLED)
    assert [signal.getsignal(number) for number in HANDLED] == before
    assert signal.set_wakeup_fd(-1) == -1
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(interrupts.wake)


@pytest.mark.parametrize("number", HANDLED)
def test_ignored_signals_stay_ignored(number: int) -> None:
    former = signal.signal(number, signal.SIG_IGN)
    try:
        with Interrupts() as interrupts:
            signal.raise_signal(number)
            assert interrupts.asked == 0
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, former)
