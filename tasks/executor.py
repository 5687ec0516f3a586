"""Runs the units of a stage: here, or spread over processes of this machine or the workers of a Dask cluster.

Which unit runs where has no influence on any output; a unit reads its input from files and writes its own files.
Processes come from a fork server, started before this process has threads of Prefect's, and are kept for the whole run.
"""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from configs.errors import PipelineError
from configs.schema import ExecutorConfig

if TYPE_CHECKING:
    import distributed  # takes half a second, which only those who use it should wait

CONNECT_SECONDS = 10

Argument = TypeVar("Argument")
Result = TypeVar("Result")


class Executor(Protocol):
    """Maps a module-level function over the arguments of units."""

    def map(
        self, function: Callable[[Argument], Result], arguments: Sequence[Argument], on_done: Callable[[int], None]
    ) -> list[Result]:
        """Return results in the order of `arguments`; call `on_done` with how many are done. The first error ends it."""
        ...


class LocalExecutor:
    """Units one after another in this process."""

    def map(
        self, function: Callable[[Argument], Result], arguments: Sequence[Argument], on_done: Callable[[int], None]
    ) -> list[Result]:
        results = []
        for argument in arguments:
            results.append(function(argument))
            on_done(len(results))
        return results


class ProcessExecutor:
    """Units spread over `workers` processes."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    def map(
        self, function: Callable[[Argument], Result], arguments: Sequence[Argument], on_done: Callable[[int], None]
    ) -> list[Result]:
        if len(arguments) < 2:
            return LocalExecutor().map(function, arguments, on_done)
        if self._pool is None:
            context = multiprocessing.get_context("forkserver")
            self._pool = ProcessPoolExecutor(self._workers, mp_context=context)
        futures = [self._pool.submit(function, argument) for argument in arguments]
        try:
            return _gather(futures, on_done)
        except BrokenProcessPool:
            self._pool = None
            raise PipelineError(
                "a worker process was ended from outside (most often by the system for want of memory); finished shards "
                "are kept: run the same command again, with a smaller executor.workers if memory was short"
            ) from None
        finally:
            for future in futures:
                future.cancel()

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


class DaskExecutor:
    """Units spread over the workers of a Dask cluster. A unit whose worker is lost is done by another."""

    def __init__(self, client: "distributed.Client") -> None:
        self._client = client

    def map(
        self, function: Callable[[Argument], Result], arguments: Sequence[Argument], on_done: Callable[[int], None]
    ) -> list[Result]:
        from distributed import CancelledError, KilledWorker, as_completed

        futures = self._client.map(partial(_run_in, Path.cwd(), function), arguments, pure=False)
        try:
            finished = as_completed(futures, loop=self._client.loop)  # type: ignore[no-untyped-call]
            for done, future in enumerate(finished, 1):
                future.result()
                on_done(done)
            return [future.result() for future in futures]
        except KilledWorker as error:
            raise PipelineError(
                f"executor: Dask gave a unit up after several workers died of it, the last {error.last_worker}; look at "
                "the workers' logs (most often memory is short); finished shards are kept: run the same command again"
            ) from None
        except CancelledError:
            raise PipelineError(
                "executor: the Dask scheduler is gone; start it again and run the same command: finished shards are kept"
            ) from None
        finally:
            self._client.cancel(futures)  # type: ignore[no-untyped-call]


@contextmanager
def open_executor(config: ExecutorConfig) -> Iterator[Executor]:
    """Give the executor that the configuration asks for, and end its processes afterwards.

    Raises:
        PipelineError: the Dask scheduler does not answer.
    """
    if config.kind == "dask":
        with _dask_client(str(config.address)) as client:
            yield DaskExecutor(client)
        return
    workers = config.workers or len(os.sched_getaffinity(0))
    if workers == 1:
        yield LocalExecutor()
        return
    executor = ProcessExecutor(workers)
    try:
        yield executor
    finally:
        executor.close()


def _run_in(folder: Path, function: Callable[[Argument], Result], argument: Argument) -> Result:
    """Do a unit in the folder where the command was given, from which relative paths start."""
    os.chdir(folder)
    return function(argument)


@contextmanager
def _dask_client(address: str) -> Iterator["distributed.Client"]:
    from distributed import Client

    try:
        client = Client(address, timeout=CONNECT_SECONDS, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise PipelineError(
            f"executor.address: {address}: no Dask scheduler answers there ({error}); start one with `dask scheduler`"
        ) from None
    with client:
        yield client


def _gather(futures: list["Future[Result]"], on_done: Callable[[int], None]) -> list[Result]:
    waiting = set(futures)
    while waiting:
        done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
        for future in done:
            future.result()
        on_done(len(futures) - len(waiting))
    return [future.result() for future in futures]
