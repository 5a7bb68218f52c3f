"""Calls that wait, for programs on asyncio: by a worker of the process's loop, not by the event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from bowstring.errors import without_frames
from bowstring.memory.devices import with_current_streams
from bowstring.transport.loop import Job, do_in_loop

if TYPE_CHECKING:
    from collections.abc import Callable

_Result = TypeVar("_Result")


def in_thread(
    function: Callable[[], _Result], *, drop: Callable[[_Result], object] | None = None
) -> asyncio.Future[_Result]:
    """Call a function in a worker of the loop, on the streams that are current here.

    `drop` takes a result that is not waited for any more.
    """
    function = with_current_streams(function)
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_Result] = loop.create_future()
    future.add_done_callback(lambda done: done.cancelled() or done.exception())  # or asyncio logs it as lost

    def deliver(outcome: list[_Result], error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(outcome.pop())
            else:
                future.set_exception(error)
        elif drop is not None and outcome:
            drop(outcome.pop())

    def call() -> None:
        outcome, failed = [], None
        try:
            outcome.append(function())
        except BaseException as error:  # noqa: BLE001  it is raised where the call is awaited
            failed = without_frames(error)
        try:
            loop.call_soon_threadsafe(deliver, outcome, failed)
        except RuntimeError:  # the loop is closed
            if drop is not None and outcome:
                drop(outcome.pop())

    do_in_loop(Job(call, "bowstring-client-work"))
    return future
