"""Sending interrupts: to this process while it computes, and to others."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from largen.interrupts import Pace

# Seconds in which an interrupt is answered even where other processes keep the machine busy; alone
# it takes one to three. What does not look for interrupts runs on for minutes.
WITHIN = 30.0
MEMORY = 12 * 2**30  # addresses of a program, of which JAX and torch reserve several GB
# A program that tells when a segment has ended, so that it is known to have been compiled.
TELLING = """
import numpy as np
import largen as lg
from largen import interrupts

def telling(pace, steps, seconds, learn=interrupts.Pace._learn):
    learn(pace, steps, seconds)
    print("segment", flush=True)

interrupts.Pace._learn = telling
"""


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


def interrupted(call: Callable[[], object], segments: int = 1) -> KeyboardInterrupt:
    """Interrupt a call in this process after some segments; return what has ended it."""
    learn, sent, seen = Pace._learn, [], []

    def learn_and_interrupt(pace: Pace, steps: int, seconds: float) -> None:
        learn(pace, steps, seconds)
        seen.append(steps)
        if len(seen) == segments:
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Pace, "_learn", learn_and_interrupt)
        with pytest.raises(KeyboardInterrupt) as caught:
            call()
    answered = time.monotonic()
    assert answered - sent[0] < WITHIN
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return caught.value


def raised(error: str) -> str:
    """Return the name of the exception at the end of the last traceback."""
    lines = error.rpartition("Traceback (most recent call last):\n")[2].splitlines()
    # Lines of source may be printed empty.
    return next((line for line in lines if line and not line.startswith(" ")), "")


def killed(program: str, after: float, segments: int = 2) -> tuple[float, str]:
    """Run a program of its own, and interrupt it after some segments and some time.

    It may take no more addresses than ``MEMORY``: what grows without bound ends with an error
    instead of the machine. Programs that are not made of segments print "segment" themselves.

    Returns
    -------
    tuple
        After how many seconds it has ended, and what it printed to the standard error.
    """
    with subprocess.Popen(
        [sys.executable, "-c", TELLING + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_bounded,
    ) as process:
        assert process.stdout is not None
        for _ in range(segments):
            line = process.stdout.readline()
            assert line, process.communicate()[1]
        time.sleep(after)
        assert process.poll() is None, "has ended before it was interrupted"
        process.send_signal(signal.SIGINT)
        begin = time.monotonic()
        try:
            _, error = process.communicate(timeout=60)
        finally:
            process.kill()
        seconds = time.monotonic() - begin
    # Once PyTorch has loaded its compiler, Python ends with 1 instead of by the signal.
    codes = (-signal.SIGINT, 130, *((1,) if raised(error) == "KeyboardInterrupt" else ()))
    assert process.returncode in codes, (process.returncode, error[-2000:])
    return seconds, error
