"""Compiling all kernels ahead of time: ``python -m bowstring.kernels.build`` makes what the package loads.

For the host a library (:mod:`bowstring.kernels.library`): numba makes LLVM code of each signature, objects are
made for each level, and the C compiler links them. For GPUs an archive (:mod:`bowstring.kernels.cubin`), if its
compilers are installed. Same sources and compilers, same bytes; only what an edit reaches is compiled again.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import hashlib
import importlib.metadata
import itertools
import multiprocessing
import multiprocessing.connection
import multiprocessing.process
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from bowstring.errors import MissingDependency
from bowstring.kernels import archive, cubin, library, lower
from bowstring.kernels.lower import PROCESSORS, Objects, machine_for
from bowstring.kernels.signature import Signature, fingerprint, reached, signatures

_LINK: Final = (
    "-shared",
    "-nostdlib",
    "-Wl,-z,relro,-z,now,-z,noexecstack",
    "-Wl,--build-id=none",
    "-Wl,--hash-style=gnu",
    "-Wl,--strip-all",
)
# What LLVM calls by itself.
_FROM_C: Final = ("memset", "memcpy", "memmove")
# Kernels that only these of our modules are compiled by; a change of them compiles everything anew.
_COMPILED_BY: Final = ("checker.py", "compiling.py", "lower.py", "prefetch.py", "signature.py", "types.py")
_COMPILED_FOR_GPUS_BY: Final = ("checker.py", "compiling.py", "cubin.py", "signature.py", "types.py")
_CUDA_PACKAGES: Final = ("nvidia-nvvm", "nvidia-nvjitlink", "nvidia-nvjitlink-cu12", "nvidia-cuda-nvcc-cu12")

# Calls loops one after the other, as long as each returns 0. `lists` has address and length of lists of steps; a
# step is the address of a loop, its items, and the address of its block.
_STEPS: Final = """
define i32 @bowstring_run_steps(ptr %lists, i64 %number) {
begin:
  %result = alloca i64
  br label %list
list:
  %which = phi i64 [ 0, %begin ], [ %further, %more ]
  %all = icmp eq i64 %which, %number
  br i1 %all, label %done, label %open
open:
  %entry = getelementptr [2 x i64], ptr %lists, i64 %which
  %steps = load ptr, ptr %entry
  %count_at = getelementptr i64, ptr %entry, i64 1
  %count = load i64, ptr %count_at
  %further = add i64 %which, 1
  br label %next
next:
  %index = phi i64 [ 0, %open ], [ %following, %step ]
  %last = phi i32 [ 0, %open ], [ %status, %step ]
  %failed = icmp ne i32 %last, 0
  br i1 %failed, label %fail, label %more
more:
  %ended = icmp eq i64 %index, %count
  br i1 %ended, label %list, label %step
step:
  %row = getelementptr [3 x i64], ptr %steps, i64 %index
  %loop = load ptr, ptr %row
  %items_at = getelementptr i64, ptr %row, i64 1
  %items = load i64, ptr %items_at
  %block_at = getelementptr i64, ptr %row, i64 2
  %block = load ptr, ptr %block_at
  %status = call i32 %loop(ptr %result, ptr null, i64 0, i64 %items, ptr %block)
  %following = add i64 %index, 1
  br label %next
fail:
  ret i32 %last
done:
  ret i32 0
}
"""
_STAMPS: Final = '@{sources} = constant [64 x i8] c"{0}"\n@{full} = constant [64 x i8] c"{1}"\n'


# What the command exits with where it compiles nothing because a compiler is not installed.
UNAVAILABLE: Final = 3
_SECONDS_BETWEEN_LINES: Final = 5.0


class BuildError(Exception):
    """Why no library could be built."""


class CompilerMissing(BuildError):
    """A compiler is not installed, or does not run here: there is nothing to mend in ours."""


def build(folder: pathlib.Path, kept: pathlib.Path, *, jobs: int) -> bool:
    """Make the library in a folder, unless it is there and up to date; return whether anything was done."""
    # kept: the folder of objects that later builds reuse; jobs: how many processes compile
    wanted = stamp()
    target = folder / library.NAME
    with contextlib.suppress(OSError):
        if wanted.encode() in target.read_bytes():
            return False
    versions = _versions()
    work = lower.prepare, lower.compile_signature
    paths = _compile(
        kept / "host", functools.partial(_key, compiled_by=_COMPILED_BY, versions=versions), *work, jobs
    )
    code = {f"{file.name}": file for path in paths.values() for file in sorted(path.iterdir())}
    folder.mkdir(parents=True, exist_ok=True)
    _link(target, [code[name] for name in sorted(code)], wanted)
    return True


def build_archive(folder: pathlib.Path, kept: pathlib.Path, *, jobs: int) -> bool:
    """Make the archive of code for GPUs in a folder, unless it is there and up to date; as :func:`build`."""
    target = folder / archive.NAME
    there = archive.read_comment(os.fspath(target))
    try:
        versions = _versions("numba-cuda")
        wanted = hashlib.sha256(repr((library.compiled_sources(), versions)).encode()).hexdigest()
        if there.get("stamp") == wanted:
            return False
        key = functools.partial(_key, compiled_by=_COMPILED_FOR_GPUS_BY, versions=versions)
        paths = _compile(kept / "cuda", key, _prepare_for_gpus, _compile_for_gpus, jobs, " for GPUs")
    except BuildError:
        if there.get("sources") != library.compiled_sources():
            target.unlink(missing_ok=True)
        raise
    code = {
        f"{file.stem}/{name}": file.read_bytes() for name, path in paths.items() for file in path.iterdir()
    }
    comment = {
        "sources": library.compiled_sources(),
        "stamp": wanted,
        "toolkit": cubin.assembler_version(),
        "capabilities": _capabilities(),
        "oldest": max(cubin.driver_of((path / f"{archive.TEXT}.o").read_text()) for path in paths.values()),
    }
    folder.mkdir(parents=True, exist_ok=True)
    whole = f"{target}.{os.getpid()}"
    archive.write(whole, code, comment)
    os.replace(whole, target)
    return True


def _prepare_for_gpus() -> None:
    """Import numba-cuda, and let it set itself up, once for all processes to come."""
    if cubin.assembler_version() is None:
        raise CompilerMissing("nvJitLink is not installed")
    _capabilities()
    cubin.compile_text(min(signatures(), key=lambda each: len(list(reached(each.kernel)))))


def _compile_for_gpus(name: str) -> Objects:
    """Compile one signature, by its name, for GPUs."""
    signature = next(each for each in signatures() if each.name == name)
    text = cubin.compile_text(signature)
    code = {archive.folder_of(each): cubin.assemble(text, each).code for each in _capabilities()}
    return Objects(name, {archive.TEXT: text.encode(), **code})


def _capabilities() -> list[archive.Capability]:
    """Return what machine code is made for: no newer GPUs than the installed compiler knows."""
    return [each for each in archive.CAPABILITIES if cubin.can_assemble(each)]


def stamp() -> str:
    """Return a hash of all that the library depends on: sources, compilers, flags."""
    parts = (library.compiled_sources(), _versions(), _run([*_compiler(), "--version"]), _LINK)
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _versions(*more: str) -> tuple[str, ...]:
    """Return what compiles; CUDA's packages where they are installed as such."""
    try:
        versions = [importlib.metadata.version(name) for name in ("numba", "llvmlite", "numpy", *more)]
    except importlib.metadata.PackageNotFoundError as error:
        raise CompilerMissing(f"{error.name} is not installed") from error
    if not more:
        return (*versions, str(sys.implementation.cache_tag), *PROCESSORS.values())
    for name in _CUDA_PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions.append(f"{name} {importlib.metadata.version(name)}")
    return (*versions, str(sys.implementation.cache_tag), repr(archive.CAPABILITIES))


def _compiler() -> list[str]:
    return shlex.split(os.environ.get("CC", "")) or ["cc"]


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  ours
    except OSError as error:
        raise CompilerMissing(f"{command[0]}: {error.strerror}") from error
    if done.returncode:
        raise BuildError(f"{command[0]} failed: {(done.stderr.strip() or 'without a word').splitlines()[-1]}")
    return done.stdout


def _key(signature: Signature, compiled_by: tuple[str, ...], versions: tuple[str, ...]) -> str:
    """Return a hash of what the code of a signature depends on: modules that it reaches, and compilers."""
    folder = pathlib.Path(__file__).parent
    files = {folder / name for name in compiled_by}
    files |= {pathlib.Path(each.__code__.co_filename) for each in reached(signature.kernel)}
    total = hashlib.sha256(repr((fingerprint(signature.kernel), str(signature), versions)).encode())
    for digest in sorted(hashlib.sha256(file.read_bytes()).hexdigest() for file in files):
        total.update(digest.encode())
    return total.hexdigest()[:24]


def _compile(
    kept: pathlib.Path,
    key: Callable[[Signature], str],
    prepare: Callable[[], None],
    work: Callable[[str], Objects],
    jobs: int,
    what: str = "",
) -> dict[str, pathlib.Path]:
    """Compile what is not kept of all signatures, and return the folder of each by the signature's name."""
    kept.mkdir(parents=True, exist_ok=True)
    everything = signatures()
    paths = {each.name: kept / f"{each.name}-{key(each)}" for each in everything}
    if len(paths) < len(everything):
        raise BuildError("two signatures of kernels have one name")
    missing = [each for each in everything if not paths[each.name].is_dir()]
    if missing:
        _say(f"compiling {len(missing)} signatures of kernels{what}, {jobs} at a time, the longest first")
    last = time.monotonic()
    for count, objects in enumerate(_compiled(missing, prepare, work, jobs), 1):
        _keep(paths[objects.name], objects.code)
        if time.monotonic() > last + _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            _say(f"compiled {count} of {len(missing)} signatures{what}")
    for each in set(kept.iterdir()) - set(paths.values()):
        _remove(each)
    return paths


def _keep(path: pathlib.Path, code: dict[str, bytes]) -> None:
    """Write a folder of objects, whole or not at all."""
    made = pathlib.Path(tempfile.mkdtemp(dir=path.parent))
    for name, content in code.items():
        (made / f"{name}.o").write_bytes(content)
    try:
        made.rename(path)
    except OSError:  # another build was first
        _remove(made)


def _remove(path: pathlib.Path) -> None:
    with contextlib.suppress(OSError):
        for each in path.iterdir():
            each.unlink()
        path.rmdir()


def _compiled(
    missing: Iterable[Signature], prepare: Callable[[], None], work: Callable[[str], Objects], jobs: int
) -> Iterator[Objects]:
    """Compile signatures side by side."""
    # Those that reach most take longest, and begin first.
    weights = {each.name: len(list(reached(each.kernel))) for each in missing}
    names = sorted(weights, key=lambda name: (-weights[name], name))
    if not names:
        return
    try:
        prepare()
    except MissingDependency as error:
        raise CompilerMissing(f"{error.found}") from error
    except ImportError as error:  # so numba refuses a Python or a NumPy that it does not support
        raise CompilerMissing(f"numba cannot be imported: {error}") from error
    except BuildError:
        raise
    except Exception as error:
        raise BuildError(f"numba cannot be used: {error}") from error
    yield from _side_by_side(work, names, jobs)


def _side_by_side(work: Callable[[str], Objects], names: Iterable[str], jobs: int) -> Iterator[Objects]:
    """Yield what is compiled of each name by a process of its own, which may fail or be killed, so many at a time.

    What numba numbers does not depend on what was compiled before, then.
    """
    context = multiprocessing.get_context("fork")
    waiting = iter(names)
    running: dict[Any, multiprocessing.process.BaseProcess] = {}
    try:
        while True:
            for name in itertools.islice(waiting, jobs - len(running)):
                receiver, sender = context.Pipe(duplex=False)
                process = context.Process(target=_compile_one, args=(sender, work, name), name=name)
                process.start()
                sender.close()
                running[receiver] = process
            if not running:
                return
            done: list[Any] = multiprocessing.connection.wait(list(running))
            for receiver in done:
                try:
                    made = receiver.recv()
                except (EOFError, OSError):
                    running[receiver].join()
                    made = f"its process ended with status {running[receiver].exitcode}"
                if isinstance(made, str):
                    raise BuildError(f"{running[receiver].name}: {made}")
                running.pop(receiver).join()
                yield made
    finally:
        for each in running.values():
            each.kill()
            each.join()


def _compile_one(sender: Any, work: Callable[[str], Objects], name: str) -> None:
    """Send the objects of a signature, or the reason why compiling failed."""
    try:
        sender.send(work(name))
    except Exception as error:  # noqa: BLE001  whatever the compiler raises, the parent raises an error of ours
        sender.send(f"{type(error).__name__}: {error}")


def _link(target: pathlib.Path, objects: list[pathlib.Path], wanted: str) -> None:
    from llvmlite import binding  # type: ignore[import-untyped]  # it has no types

    machine = machine_for("base")
    binding.initialize_native_asmparser()
    own = _STAMPS.format(library.compiled_sources(), wanted, sources=library.SOURCES, full=library.FULL_STAMP)
    stubs = "".join(f"define void @{name}() {{ ret void }}\n" for name in _FROM_C)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, text in (("own.o", own + _STEPS), ("stubs.o", stubs)):
            (folder / file).write_bytes(machine.emit_object(binding.parse_assembly(text)))
        (folder / "symbols").write_text("{ global: bowstring_*; local: *; };\n")
        (folder / "objects").write_text("\n".join(f'"{each}"' for each in (*objects, folder / "own.o")))
        made = pathlib.Path(f"{target}.{os.getpid()}")
        link = [*_compiler(), *_LINK, f"-Wl,--version-script={folder / 'symbols'}", f"@{folder / 'objects'}"]
        # Whatever else the library needed would be missing here.
        _run([*link, "-Wl,--no-undefined", f"{folder / 'stubs.o'}", "-o", f"{folder / 'check.so'}"])
        _run([*link, "-o", f"{made}"])
    made.replace(target)


def main(arguments: list[str] | None = None) -> int:
    """Run the command: 0 if the library is up to date, and the archive is or its compilers are not installed.
    Else `UNAVAILABLE` where the compilers of the library are not installed, or 1, with the reason on stderr.
    """
    parser = argparse.ArgumentParser(prog="python -m bowstring.kernels.build", description=build.__doc__)
    parser.add_argument(
        "--into", type=pathlib.Path, default=pathlib.Path(library.FOLDER), help="where the library goes"
    )
    parser.add_argument(
        "--objects", type=pathlib.Path, help="where compiled objects are kept for the next build"
    )
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes that compile"
    )
    chosen = parser.parse_args(arguments)
    with contextlib.ExitStack() as stack:
        kept = chosen.objects or pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for_host = _report(build, chosen.into, kept, chosen.jobs, "")
        for_gpus = _report(build_archive, chosen.into, kept, chosen.jobs, " for GPUs")
    return for_host or (0 if for_gpus == UNAVAILABLE else for_gpus)


def _report(make: Callable[..., bool], folder: pathlib.Path, kept: pathlib.Path, jobs: int, what: str) -> int:
    """Make something; one line says what was done, or why not. Return as :func:`main`."""
    began = time.monotonic()
    try:
        done = make(folder, kept, jobs=jobs)
    except (BuildError, OSError) as error:
        print(f"bowstring: kernels{what} are not compiled ahead of time: {error}", file=sys.stderr)  # noqa: T201
        return UNAVAILABLE if isinstance(error, CompilerMissing) else 1
    if done:
        seconds = time.monotonic() - began
        _say(f"compiled {len(signatures())} signatures of kernels{what} into {folder} in {seconds:.0f} s")
    return 0


def _say(text: str) -> None:
    print(f"bowstring: {text}", flush=True)  # noqa: T201  it is a command


if __name__ == "__main__":
    sys.exit(main())
