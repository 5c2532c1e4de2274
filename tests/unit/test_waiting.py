"""Threads that wait for each other, and are not stranded by an interrupt at any step of either side."""

from __future__ import annotations

import threading

import pytest

from semel.kernel.waiting import Flag, WaitingThreads, on_main_thread
from tests.faults.interrupting import interrupted_at, moments_of
from tests.patience import PATIENCE_S


def waiting_for(flag: Flag) -> threading.Thread:
    thread = threading.Thread(target=flag.wait, daemon=True)
    thread.start()
    return thread


def test_whoever_waits_goes_on_once_it_has_come_true():
    flag = Flag()
    crowd = [waiting_for(flag) for _ in range(5)]
    assert not flag.wait(0.01)
    flag.set()
    for thread in crowd:
        thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in crowd)
    assert flag.wait(0)
    flag.clear()
    assert not flag.is_set()
    assert not flag.wait(0)


def test_a_wait_ends_with_its_time_though_it_is_woken_for_nothing():
    threads, stop = WaitingThreads(), threading.Event()

    def wake_without_end() -> None:
        while not stop.is_set():
            threads.wake()

    waker = threading.Thread(target=wake_without_end, daemon=True)
    waker.start()
    try:
        assert not threads.wait(lambda: False, 0.05)
    finally:
        stop.set()
        waker.join()


@pytest.mark.parametrize("interrupted", ["set", "wait"])
def test_an_interrupt_at_any_moment_strands_nobody(interrupted):
    flag = Flag()

    def run() -> None:
        try:
            flag.set() if interrupted == "set" else flag.wait(0.001)
        except KeyboardInterrupt:
            pass

    flag.clear()
    for moment in moments_of(run):
        flag.clear()
        waiter = waiting_for(flag)
        interrupted_at(moment, run)
        flag.set()
        waiter.join(PATIENCE_S)
        assert not waiter.is_alive(), moment


def test_only_the_main_thread_is_the_main_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(on_main_thread()))
    thread.start()
    thread.join()
    assert found == [False]
    assert on_main_thread() == (threading.current_thread() is threading.main_thread())
