"""The cffi builder: prints the eager kernels and describes the extension modules.

setup.py names `serial`, `openmp`, `device`, `coloring` and `seals` below; nothing here is needed
at run time.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from cffi import FFI

from adarray import ops  # noqa: F401  (registers the operations)
from adarray.compiler.scalars.eager import EXACT_LEAF, GROUP, LEAF, EagerKernel, all_kernels
from native import CPU, CUDA
from native.flags import FLAGS

HERE = Path(__file__).resolve().parent
# Compiled into both modules when present; what Python calls stands in a .cdef beside it.
EXTRA_SOURCES = ["gemm.c", "pool.c", "jit.c", "executable.c"]

NUMBERS = {"float64": "NPY_DOUBLE", "float32": "NPY_FLOAT"}
# One copy of every kernel for each level, chosen when the module is loaded. The last
# two need all of the features that are named; other machines have only the first.
LEVELS = (
    ("base", "", ()),
    ("avx2", "avx2,fma,bmi,bmi2,f16c", ("avx2", "fma", "bmi2")),
    (
        "avx512",
        "avx2,fma,bmi,bmi2,f16c,avx512f,avx512cd,avx512bw,avx512dq,avx512vl,"
        "prefer-vector-width=512",
        ("avx2", "fma", "bmi2", "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"),
    ),
)

CDEF = """
int adarray_map_count(void);
const char *adarray_map_name(int kernel);
const char *adarray_map_hash(int kernel);
int adarray_map(int kernel, uintptr_t result, int threads, int count,
                uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f);
int adarray_fold_count(void);
const char *adarray_fold_name(int kernel);
const char *adarray_fold_hash(int kernel);
int adarray_fold(int kernel, uintptr_t x, unsigned int axes, uintptr_t result, int threads);
const char *adarray_compiler(void);
int adarray_libmvec(void);
int adarray_level(void);
int adarray_best_level(void);
int adarray_limit_level(int level);
const char *adarray_level_name(int level);
int adarray_pause(void);
int adarray_processors(void);
"""

_API = """
static int level_in_use = -1;

int adarray_best_level(void)
{
#if ADARRAY_X86
    __builtin_cpu_init();
%(tests)s
#endif
    return 0;
}

int adarray_level(void)
{
    if (level_in_use < 0) level_in_use = adarray_best_level();
    return level_in_use;
}

/* Use a lower level, as on an older processor; return the one that is used. */
int adarray_limit_level(int level)
{
    const int best = adarray_best_level();
    level_in_use = level < 0 ? 0 : level > best ? best : level;
    return level_in_use;
}

const char *adarray_level_name(int level) { return level_names[level]; }
int adarray_map_count(void) { return %(maps)d; }
const char *adarray_map_name(int kernel) { return maps[kernel].name; }
const char *adarray_map_hash(int kernel) { return maps[kernel].hash; }
int adarray_fold_count(void) { return %(folds)d; }
const char *adarray_fold_name(int kernel) { return folds[kernel].name; }
const char *adarray_fold_hash(int kernel) { return folds[kernel].hash; }
const char *adarray_compiler(void) { return ADARRAY_COMPILER; }
int adarray_libmvec(void) { return ADARRAY_LIBMVEC; }

int adarray_map(int kernel, uintptr_t result, int threads, int count,
                uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d, uintptr_t e, uintptr_t f)
{
    const uintptr_t addresses[MAX_INPUTS] = {a, b, c, d, e, f};
    return map_arrays(&maps[kernel], map_levels[adarray_level()][kernel], addresses, count,
                      result, threads);
}

int adarray_fold(int kernel, uintptr_t x, unsigned int axes, uintptr_t result, int threads)
{
    return fold_array(&folds[kernel], &fold_levels[adarray_level()][kernel], x, axes, result,
                      threads);
}

/* Stop this thread's pool of threads. A forked child would wait for them for ever. */
int adarray_pause(void)
{
#ifdef _OPENMP
    return omp_pause_resource_all(omp_pause_hard);
#else
    return 0;
#endif
}

/* Return how many processors a thread pool may use. This thread may be bound to one of them. */
int adarray_processors(void)
{
#ifdef _OPENMP
    return omp_get_num_procs();
#else
    return 1;
#endif
}
"""

_HEAD = """
#if defined(__clang__)
#define ADARRAY_COMPILER "clang " __clang_version__
#elif defined(__GNUC__)
#define ADARRAY_COMPILER "gcc " __VERSION__
#else
#define ADARRAY_COMPILER "unknown"
#endif
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define ADARRAY_X86 1
#else
#define ADARRAY_X86 0
#endif
#ifdef _OPENMP
#include <omp.h>
#endif
#define GROUP %(group)d
#define LARGEST_LEAF %(leaf)d
#include "adarray_math.h"
#include "libmvec.h"
#include "map.h"
#include "reduce.h"
#ifdef _OPENMP
__thread ThreadsAccount adarray_threads_account;
#endif
"""


def _level(name: str, features: str, kernels: list[EagerKernel]) -> Iterator[str]:
    """Yield all kernels for one level, and the tables of their addresses."""
    if features:
        yield f'#pragma GCC push_options\n#pragma GCC target("{features}")'
    yield f"#undef ADARRAY_LEVEL\n#define ADARRAY_LEVEL(name) name##_{name}"
    yield '#include "adarray_vector.h"'
    for k in kernels:
        yield k.text.replace("@", f"_{name}")
    if features:
        yield "#pragma GCC pop_options"
    yield f"static const map_function maps_{name}[] = {{"
    yield from (f"    {k.name}_{name}," for k in kernels if not k.parts)
    yield f"}};\nstatic const FoldParts folds_{name}[] = {{"
    yield from (f"    {{{', '.join(f'{p}_{name}' for p in k.parts)}}}," for k in kernels if k.parts)
    yield "};"


def source(kernels: Iterable[EagerKernel]) -> str:
    """Return the C source of an extension module that holds `kernels`."""
    kernels = list(kernels)
    maps = [k for k in kernels if not k.parts]
    folds = [k for k in kernels if k.parts]
    lines = [
        _HEAD % {"group": GROUP, "leaf": max(LEAF, EXACT_LEAF)},
        "static const MapKernel maps[] = {",
    ]
    for k in maps:
        truths = sum(1 << i for i, x in enumerate(k.inputs) if x in k.truths)
        lines.append(
            f'    {{"{k.name}", "{k.hash}", {NUMBERS[k.dtype]}, {len(k.inputs)}, {truths}u}},'
        )
    lines += ["};", "static const FoldKernel folds[] = {"]
    lines += [
        f'    {{"{k.name}", "{k.hash}", {NUMBERS[k.dtype]}, {EXACT_LEAF if k.exact else LEAF}}},'
        for k in folds
    ]
    lines.append("};")
    first, *others = LEVELS
    lines += _level(first[0], first[1], kernels)
    lines.append("#if ADARRAY_X86")
    for name, features, _ in others:
        lines += _level(name, features, kernels)
    lines.append("#endif")
    names = [name for name, _, _ in others]
    for kind, table in (
        ("const map_function *const", "map"),
        ("const FoldParts *const", "fold"),
        ("const char *const", "level"),
    ):
        prefix = "level_names" if table == "level" else f"{table}_levels"
        item = '"{}"' if table == "level" else f"{table}s_{{}}"
        lines.append(f"static {kind} {prefix}[] = {{{item.format(first[0])},")
        lines.append("#if ADARRAY_X86")
        lines.append("    " + ", ".join(item.format(n) for n in names))
        lines.append("#endif\n};")
    tests = []
    for i in range(len(LEVELS) - 1, 0, -1):
        supported = " && ".join(f'__builtin_cpu_supports("{c}")' for c in LEVELS[i][2])
        tests.append(f"    if ({supported}) return {i};")
    lines.append(_API % {"tests": "\n".join(tests), "maps": len(maps), "folds": len(folds)})
    return "\n".join(lines)


# The mathematical library is named, or libmvec is not recorded as needed.
LIBRARIES = {"linux": ["m", "dl"], "win32": []}


def builder(name: str, flags: list[str], link: list[str]) -> FFI:
    """Return the description of one extension module."""
    ffi = FFI()
    cdef, sources, text = CDEF, [], source(all_kernels())
    for extra in EXTRA_SOURCES:
        path = HERE / "cpu" / extra
        if path.exists():
            sources.append(f"{HERE.name}/cpu/{extra}")
            if (declarations := path.with_suffix(".cdef")).exists():
                cdef += declarations.read_text()
                text += f'\n#include "{path.with_suffix(".h").name}"\n'
    ffi.cdef(cdef)
    ffi.set_source(
        f"adarray_native.{name}",
        text,
        sources=sources,
        include_dirs=[*map(str, CPU), np.get_include()],
        extra_compile_args=[*FLAGS, *flags] if sys.platform != "win32" else [],
        extra_link_args=link,
        libraries=LIBRARIES.get(sys.platform, ["m"]),
        # Without a compiler the package still installs, with the numpy backend alone.
        optional=True,
    )
    return ffi


def launcher() -> FFI:
    """Return the description of the module that launches plans on GPUs.

    It needs neither CUDA's headers nor its libraries.
    """
    ffi = FFI()
    ffi.cdef((HERE / "cuda" / "device_launch.cdef").read_text())
    ffi.set_source(
        "adarray_native._device",
        '#include "device_launch.h"\n',
        sources=[f"{HERE.name}/cuda/{name}.c" for name in ("device_launch", "device_steps")],
        include_dirs=[*map(str, CUDA)],
        extra_compile_args=["-O2", "-g0", "-std=gnu11"] if sys.platform != "win32" else [],
        optional=True,
    )
    return ffi


def colorings() -> FFI:
    """Return the description of the module that colours sparse patterns."""
    ffi = FFI()
    ffi.cdef((HERE / "cpu" / "coloring.cdef").read_text())
    ffi.set_source(
        "adarray_native._coloring",
        '#include "coloring.h"\n',
        sources=[f"{HERE.name}/cpu/coloring.c"],
        include_dirs=[*map(str, CPU)],
        extra_compile_args=["-O2", "-g0", "-std=gnu11"] if sys.platform != "win32" else [],
        optional=True,
    )
    return ffi


def accounts() -> FFI:
    """Return the description of the module that knows which memory was written to."""
    ffi = FFI()
    ffi.cdef((HERE / "cpu" / "seals.cdef").read_text())
    ffi.set_source(
        "adarray_native._seals",
        '#include "seals.h"\n',
        sources=[f"{HERE.name}/cpu/seals.c"],
        include_dirs=[*map(str, CPU), np.get_include()],
        extra_compile_args=["-O2", "-g0", "-std=gnu11"] if sys.platform != "win32" else [],
        optional=True,
    )
    return ffi


serial = builder("_serial", ["-fopenmp-simd"], [])
openmp = builder("_openmp", ["-fopenmp"], ["-fopenmp"])
device = launcher()
coloring = colorings()
seals = accounts()
