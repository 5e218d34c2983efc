"""When a thread pool rests: native/cpu/thread_pool.h on its own, its clocks set by hand."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import adarray_native
import pytest

CODE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "thread_pool.h"

__thread ThreadsAccount adarray_threads_account;

/* Arguments: threads, then pairs of the caller's seconds and those that its pool took. After each
 * call, print whether the next one may use the pool. */
int main(int count, char **words)
{
    const int threads = atoi(words[1]);
    for (int i = 2; i + 1 < count; i += 2) {
        ThreadsClock clock;
        clock.cpu = atof(words[i]);
        clock.begun = omp_get_wtime() - atof(words[i + 1]);
        threads_end(&clock, threads);
        printf("%d ", threads_begin(&clock, threads) == threads);
    }
    return 0;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    folder = tmp_path_factory.mktemp("pool")
    (folder / "pool.c").write_text(CODE)
    done = subprocess.run(
        [compiler, "-O1", "-fopenmp", *adarray_native.INCLUDE_CPU, "pool.c", "-o", "pool"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"OpenMP does not compile: {done.stderr[-200:]}")
    return folder / "pool"


def after(program: Path, threads: int, *calls: tuple[float, float]) -> list[bool]:
    """Return after which calls the pool works on; each is the caller's time and the pool's."""
    words = [str(x) for call in calls for x in call]
    done = subprocess.run(
        [program, str(threads), *words], capture_output=True, text=True, check=True
    )
    return [word == "1" for word in done.stdout.split()]


def test_a_thread_pool_rests_where_it_is_slower_than_its_caller_alone(program: Path) -> None:
    assert after(program, 2, (0.1, 0.11)) == [True]
    assert after(program, 2, (0.1, 0.5)) == [False]
    assert after(program, 16, (0.001, 0.1)) == [False]


def test_many_threads_may_be_late(program: Path) -> None:
    """A product of 0.12 s on each of 16 threads takes 1.9 s alone, and 0.3 s if one is late."""
    assert after(program, 16, *[(0.12, 0.3)] * 20) == [True] * 20
    assert after(program, 16, (0.12, 0.9)) == [True]
    assert after(program, 16, (0.12, 1.9)) == [False]


def test_small_losses_add_up_and_gains_are_set_against_them(program: Path) -> None:
    late, well = (0.0001, 0.01), (0.02, 0.02)
    assert after(program, 2, *[late] * 5) == [True, True, True, False, False]
    assert after(program, 2, *[late, late, well, well] * 5) == [True] * 20
