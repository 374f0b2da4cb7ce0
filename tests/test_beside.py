"""Work in a second process."""

import os

import pytest

from sgltrace.insight.beside import beside


def pid() -> bytes:
    return str(os.getpid()).encode()


def test_work_is_done_by_another_process_and_by_this_one_where_it_is_the_only_job():
    with beside(pid, jobs=2) as result:
        assert int(result()) != os.getpid()
    with beside(pid, jobs=1) as result:
        assert int(result()) == os.getpid()


def test_an_error_there_is_raised_here():
    def fail() -> bytes:
        raise ValueError("no")

    with beside(fail, jobs=2) as result, pytest.raises(ValueError, match="no"):
        result()


def test_nobody_waits_for_work_that_is_no_longer_wanted():
    receiving, sending = os.pipe()

    def wait_for_more() -> bytes:
        os.close(sending)
        return os.read(receiving, 1)

    with pytest.raises(KeyboardInterrupt), beside(wait_for_more, jobs=2):
        raise KeyboardInterrupt
    os.close(receiving)
    os.close(sending)
