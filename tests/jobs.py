"""The table of jobs: what tests/run.sh can run, what each needs, which files decide it, and its command.

A test of a kind that is there already is found by its name (tests/host/*.c, tests/gpu/*.c, tests/model/*.pml,
examples/NN_*.c, tests/host/*.sh, ...): it needs no line here. tests/seconds has the seconds of a processor of each job.
"""
from __future__ import annotations

import fnmatch
import functools
import itertools
import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass, field
from glob import glob
from pathlib import Path

HEADERS = ("fleet.h", "fleet_device.h", "fleet_sched.h")
# What programs can add to them; the engines of several devices need libraries, and are checked by themselves.
PARTS = tuple(p for p in sorted(glob("examples/parts/*.h")) if "_peers_" not in p)
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
# -Og compiles a test in half the time of -O1, which programs with more to compute ask for.
BUILDS = {"asan": ["-Og", "-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
                   "-fno-sanitize-recover=all"],
          "tsan": ["-O1", "-g1", "-fsanitize=thread"], "plain": ["-O2"]}
C11, CPP17 = ["-std=c11"], ["-x", "c++", "-std=c++17"]
# -O1 is for the host's side; the device's is optimised whatever stands here.
CUDA = ["nvcc", "-x", "cu", "-std=c++17", "-O1", "-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Wconversion"]
SM80, SM90 = "-gencode=arch=compute_80,code=sm_80", "-gencode=arch=compute_90,code=sm_90"
QWEN3_LIBRARIES = ["-ljansson", "-lpcre2-8", "-lunistring"]
SERVE_LIBRARIES = QWEN3_LIBRARIES + ["-lmicrohttpd"]
THREADS = ["-pthread", "-lm"]
COMPILERS = {"gcc": "gcc", "g++": "g++", "clang": "clang", "clang++": "clang", "clang-format-14": "clang-format-14"}
ALL_HEADERS = "".join(f'#include "{header}"\n' for header in ("fleet_sched.h", *PARTS))
IMPLEMENTATION = "#define FLEET_IMPLEMENTATION\n" + ALL_HEADERS
SCHEDULES = "static chiplet dynamic auto unfused"

# What a newcomer waits for, at most 500 seconds of a processor in all: some of each class, without hipcc's Debian root.
QUICK = """
format/edges format/house format/runner compile/gcc/impl_fleet_sched compile/g++/impl_fleet
compile/two_units_mixed compile/nvcc/fleet_device plan/* model/finish model/post model/request_ring model/ring
host/arguments host/claims host/events.both host/images host/machine host/memory_model.model host/messages.both
host/ring.* host/serving host/shapes.tsan host/steps.both host/stream.both host/bench_compare.sh host/find_the_bug.sh
host/kernel_handle.sh examples/cpp17/* qwen3/checkpoint qwen3/draw qwen3/fixture qwen3/tokenizer serve/program
serve/request serve/server cuda/01_* cuda/events amalgamated/[du]* amalgamated/c11/* readme/*
""".split()
QUICK_ON_AMD = ["hip/01_*", "hip/events"]  # where the machine has a hipcc of its own


@dataclass
class Job:
    group: str
    name: str  # within the group
    command: list[str]
    program: bool = False  # prints "pass NAME" and "FAIL NAME: why"; otherwise it passes when its status is 0
    needs: tuple[str, ...] = ()  # jobs, by their full names
    after: tuple[str, ...] = ()  # jobs that come first where the run has them
    roots: tuple[str, ...] = ()  # files; what they include or mention decides the job too
    also: tuple[str, ...] = ()  # what decides it, but does not make it run whole
    tools: tuple[str, ...] = ()  # words of set_up (jobs.sh), besides those that its command has
    env: dict[str, str] = field(default_factory=dict)
    together: str = ""  # of jobs that go by turns, each with all of its cases: those with the same word are in the same turn
    by_turns: str = ""  # what goes by turns
    limit: int = 600  # seconds of processors that it may take
    skip: str = ""  # why it cannot run here
    alone: bool = False  # two programs that fill a GPU would wait for one another's workgroups
    size: str = "all"

    @property
    def full(self) -> str:
        return f"{self.group}/{self.name}"

    @property
    def out(self) -> str:
        return f"tests/build/{self.group}"

    @property
    def files(self) -> set[str]:
        return {*closure(self.roots), *self.also}

    @property
    def own(self) -> set[str]:
        """The files that make it run whole when they change: not the headers, nor what all tests share."""
        return {f for f in closure(self.roots) if f not in HEADERS + PARTS and os.path.dirname(f) != "tests"}


# ---- what decides a job ---------------------------------------------------------------------------


@functools.lru_cache(maxsize=None)
def references(path: str) -> tuple[str, ...]:
    """What a source includes with quotes, and what a script mentions by its path; only files that are there."""
    is_text = re.search(r"\.(c|h|sh|py|pml|inc)$", path)
    text = Path(path).read_text(encoding="utf-8", errors="replace") if is_text else ""
    if path.endswith((".sh", ".py")):
        code = "" if os.path.dirname(path) == "tests" else re.sub(r"^\s*#.*", "", text, flags=re.M)
        names = re.findall(r"\b(?:tests|examples)/[\w./-]+\.\w+", code)
        folders = ["."]
    else:
        names = re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.M)
        folders = [os.path.dirname(path) or ".", ".", "tests", "tests/host"]
    found = (next((p for p in (os.path.normpath(f"{f}/{n}") for f in folders) if os.path.isfile(p)), "") for n in names)
    return tuple(f for f in found if f)


@functools.lru_cache(maxsize=None)
def closure(roots: tuple[str, ...]) -> frozenset[str]:
    seen, left = set(), list(roots)
    while left:
        if (path := left.pop()) not in seen:
            seen.add(path)
            left.extend(references(path))
    return frozenset(seen)


# ---- the table ------------------------------------------------------------------------------------


def stem(path: str) -> str:
    return Path(path).stem


def files(*patterns: str) -> list[str]:
    return sorted(path for pattern in patterns for path in glob(pattern))


def shell(*words: str) -> list[str]:
    """A function of jobs.sh."""
    return ["bash", "tests/jobs.sh", *words]


def text_of(path: str) -> str:
    return Path(path).read_text(encoding="utf-8")


def marks(path: str) -> list[list[str]]:
    """The lines "// run: WORDS" at a file's top, each one build and run of it (tests/README.md)."""
    top = text_of(path).split("\n")[:12]
    return [line[len("// run:"):].split() for line in top if line.startswith("// run:")] or [["asan"]]


def is_whole(path: str) -> bool:
    """Whether a program has the implementation in itself, since it needs another one than most."""
    return any("whole" in words for words in marks(path))


def hip_runs(path: str) -> str:
    """How often a program runs on the simulated MI300X in three commits: "// hip: N runs" at its top."""
    if path.startswith("examples/"):
        return "3" if stem(path)[:2] in ("07", "10") else "6" if stem(path)[:2] >= "05" else "40"
    return next((m[1] for line in text_of(path).split("\n")[:12] if (m := re.match(r"// hip: (\d+) runs$", line))),
                "40")


def by_turns_of(path: str) -> str:
    """What of a test program goes by turns (tests/test.h, tests/settings.h)."""
    text = text_of(path)
    return "settings" if "settings.h" in text else "seeds" if re.search(r"\btest_(share|turns|in_turn)\(", text) else ""


def example_files() -> list[str]:
    return files("examples/[0-9][0-9]_*.c")


def gpu_files() -> list[str]:
    return example_files() + files("tests/gpu/*.c")


class Table:
    """The jobs of a run; deep: with all that only deep runs have."""

    def __init__(self, deep: bool) -> None:
        self.deep = deep
        self.jobs: dict[str, Job] = {}
        self.texts: dict[str, str] = {}  # files in tests/build, which the run writes first
        self.group, self.tools = "", ()
        self.stb = [f"-I{Path(os.environ['STB_DS']).resolve().parent}"] if os.environ.get("STB_DS") else []
        self.flags = WARNINGS + ["-I."] + self.stb
        self.script_env = {"FLAGS": " ".join(WARNINGS + self.stb)}
        self.nvcc = shutil.which("nvcc") is not None
        self.gpu = succeeds("nvidia-smi", "-L")
        self.hip_native = shutil.which("hipcc") is not None and succeeds("bash", "-c",
                                                                         ". tests/setup.sh; hip_is_native")
        self.hip_gpu = self.hip_native and succeeds("bash", "-c", ". tests/setup.sh; rocm_gpu") and not os.environ.get("FLEET_HIP_RUNTIME")
        for group in GROUPS:
            self.group, self.tools = group.__name__, ()
            group(self)
            assert any(job.group == self.group for job in self.jobs.values()), f"{self.group} holds no test"
        quick, usual = QUICK + (QUICK_ON_AMD if self.hip_native else []), Table(False).jobs if deep else self.jobs
        for name, job in self.jobs.items():
            is_quick = any(fnmatch.fnmatch(name, pattern) for pattern in quick)
            job.size = "quick" if is_quick else "all" if name in usual else "deep"

    def check(self, name: str, command: list[str], **more) -> Job:
        """A job that passes when its command succeeds."""
        usual = () if self.group in ("format", "model") else ("gcc", "stb")
        words = tuple(COMPILERS[word] for word in command if word in COMPILERS)
        more["tools"] = (*usual, *words, *self.tools, *more.get("tools", ()))
        if more.get("together"):
            more["together"] = f"{self.group}/{more['together']}"
        job = Job(self.group, name, command, **{k: tuple(v) if isinstance(v, list) else v for k, v in more.items()})
        assert job.full not in self.jobs, job.full
        self.jobs[job.full] = job
        return job

    def program(self, name: str, command: list[str], **more) -> Job:
        return self.check(name, command, program=True, **more)

    def skip(self, name: str, why: str) -> None:
        self.check(name, [], skip=why)

    def script(self, path: str, name: str, *words: str, **more) -> None:
        """A test program that is a script. It gets OUT, and what its environment is to have besides."""
        env = {**self.script_env, "OUT": f"tests/build/{self.group}/{stem(path)}", **more.pop("env", {})}
        by_turns = {"ranks": "rank counts", "program": "refusals"}.get(stem(path), "mutants")
        self.program(name, ["bash", path, *words], roots=[path], env=env,
                     by_turns=by_turns if "tests/turn.sh" in text_of(path) else "", **more)

    def host_programs(self, paths: list[str], libraries: list[str] = THREADS) -> None:
        for path in paths:
            for n, words in enumerate(marks(path), 1):
                self.host_program(path, n, words, libraries)

    def host_program(self, path: str, n: int, words: list[str], libraries: list[str]) -> None:
        compiler, how, engine, name, options = "gcc", "asan", "threads", stem(path), []
        for word in words:
            if word in ("tsan", "plain", "model"):
                how, name = word, f"{name}.{word}"
            elif word.startswith("engine="):
                engine = word[len("engine="):]
                name = f"{name}.{engine}"
            elif word.startswith("-"):
                options.append(word)
            elif word not in ("asan", "whole"):
                raise SystemExit(f"{path}: unknown word in its run line: {word}")
        needs, flags = [], BUILDS.get(how, [])
        if how == "model":
            compiler, needs = "examples/tools/memory_model.sh", ["objects/memory_model"]
            flags = ["tests/build/objects/memory_model.o"]
        if "whole" not in words:
            needs.append(f"objects/implementation.{how}")
            options += ["-DFLEET_TEST_LINKED", f"tests/build/objects/implementation.{how}.o"]
        if f"{self.group}/{name}" in self.jobs:
            name = f"{name}.{n}"
        env = {"FLEET_TEST_ENGINE": engine}
        together, by_turns = "", by_turns_of(path)
        if how == "tsan" and not self.deep:
            env["FLEET_TEST_PART"] = "0"
            together, by_turns = name, "ThreadSanitizer"
        elif how == "plain" and ["asan" if word == "plain" else word for word in words] in marks(path) and not self.deep:
            together, by_turns = name, "plain builds"
        self.program(name,
                     shell("build_run", f"tests/build/{self.group}/{name}.exe", compiler, *C11, *WARNINGS, *flags,
                           *options,
                                 "-I.", "-Itests", *self.stb, path, *libraries),
                     needs=needs, roots=[path], env=env, together=together, by_turns=by_turns)


def succeeds(*command: str) -> bool:
    return shutil.which(command[0]) is not None and subprocess.run(command, capture_output=True,
                                                                   check=False).returncode == 0


# ---- the groups -----------------------------------------------------------------------------------


def objects(t: Table) -> None:
    """What other jobs share: to compile the implementation takes longer than most programs do."""
    source = "tests/build/objects/implementation.c"
    t.texts[source] = '#include "tests/implementation.h"\n' + ALL_HEADERS
    made = ["-c", source, "-o"]
    for name, flags in (("asan", ["-O1"] + BUILDS["asan"][1:]), ("tsan", BUILDS["tsan"]), ("plain", BUILDS["plain"])):
        t.check(f"implementation.{name}",
                ["gcc", *C11, *flags, *t.flags, *made, f"tests/build/objects/implementation.{name}.o"],
                roots=[*HEADERS, *PARTS, "tests/implementation.h"])
    model = "examples/tools/memory_model"
    t.check("memory_model", ["gcc", "-O3", "-g", "-c", "-I.", f"{model}.c", "-o", "tests/build/objects/memory_model.o"],
            roots=[f"{model}.c"])
    t.check("implementation.model",
            [f"{model}.sh", "-c", *C11, *t.flags, source, "-o", "tests/build/objects/implementation.model.o"],
            roots=[*HEADERS, *PARTS, f"{model}.sh"])
    t.check("hip", shell("hip_begin"), roots=files("tests/amdsim/Makefile", "tests/amdsim/src/*"), limit=3600)
    t.check("hipcc", shell("hip_implementation", *PARTS), needs=["objects/hip"], roots=[*HEADERS, *PARTS])
    if t.nvcc:
        t.texts["tests/build/objects/nvcc.c"] = IMPLEMENTATION
        t.check("nvcc",
                [*CUDA, SM80, SM90, "-I.", *t.stb, "-c", "tests/build/objects/nvcc.c", "-o",
                 "tests/build/objects/nvcc.o"], roots=[*HEADERS, *PARTS])


def format(t: Table) -> None:  # pylint: disable=redefined-builtin
    # Versions differ in what they call well formatted: the one of Debian 12 decides.
    for path in sorted(str(p) for p in Path().rglob("*") if p.suffix in (".h", ".c", ".cu", ".cpp", ".hip")):
        if not {"build", "fixtures"} & set(path.split("/")):
            t.check(path, ["clang-format-14", "--dry-run", "-Werror", path], also=[path, ".clang-format"])
    decoder = files("examples/qwen3/*.h", "examples/qwen3/*/*.h")
    t.check("edges", shell("edges", *HEADERS, *PARTS, *decoder), also=[*HEADERS, *PARTS, *decoder])
    t.check("subjects", shell("subjects"))
    # How the headers are arranged.
    t.check("house", ["bash", "tests/house.sh"], roots=["tests/house.sh"],
            also=[".github/CONTRIBUTING.md", *HEADERS, *files("examples/*.c", "examples/*/*.[ch]", "examples/*/*/*.h")])
    t.program("runner", ["python3", "-B", "tests/run_test.py"],
              also=[*files("tests/*.py"), "tests/turn.sh", "tests/isa/mutants.py"])


def units() -> dict[str, str]:
    """The translation units of the matrix: each header and each part alone and the headers in every order, as declarations
    and with the implementation, and all with their implementation after the declarations."""
    found = {"impl_late": ALL_HEADERS + IMPLEMENTATION,
             "user": '#include "fleet_sched.h"\nint main(void) { return !fleet_status_name(FLEET_OK); }\n'}
    for prefix, define in (("", ""), ("impl_", "#define FLEET_IMPLEMENTATION\n")):
        for some in [(header,) for header in (*HEADERS, *PARTS)] + list(itertools.permutations(HEADERS)):
            found[prefix + "-".join(map(stem, some))] = define + "".join(f'#include "{header}"\n' for header in some)
    return found


def compile(t: Table) -> None:  # pylint: disable=redefined-builtin
    out = "tests/build/compile"
    for unit, text in units().items():
        t.texts[f"{out}/{unit}.c"] = text
        for compiler in ("gcc", "clang", "g++", "clang++"):
            # In which order headers come is the language's affair: for that one compiler of each will do.
            of_part = any(unit.endswith(stem(part)) for part in PARTS)
            if ("-" in unit or of_part) and compiler in ("clang", "g++"):
                continue
            # gcc warns of some things only while it optimises; clang of none, so that one of its files will do.
            optimised = "-" not in unit and not of_part and (unit == "impl_late" or compiler in ("gcc", "g++"))
            t.check(f"{compiler}/{unit}",
                    [compiler, *(CPP17 if "++" in compiler else C11), "-O1" if optimised else "-fsyntax-only",
                     *t.flags, "-c", f"{out}/{unit}.c", "-o", "/dev/null"], roots=[*HEADERS, *PARTS])
    # The user's own copy of stb_ds.h is no system header: its warnings must not become the user's.
    copy = shell("stb_copy", f"{out}/impl_fleet.c")
    t.check("gcc/stb_copy", [*copy, "gcc", *C11, "-O1", *WARNINGS], roots=HEADERS)
    t.check("clang++/stb_copy", [*copy, "clang++", *CPP17, "-O1", *WARNINGS], roots=HEADERS)
    for name, a, b in (("c", "gcc", "gcc"), ("cpp", "g++", "g++"), ("mixed", "gcc", "g++")):
        t.check(f"two_units_{name}", shell("two_units", name, a, b), roots=HEADERS)
    for compiler, language in (("mpicc", C11), ("mpicxx", [*CPP17, "-DOMPI_SKIP_MPICXX"])):
        compile_engine(t, "mpi", compiler, compiler, *language, *WARNINGS, tools=["mpi"])
    compile_hip(t)
    compile_cuda(t)
    compile_otherwise(t)


def compile_hip(t: Table) -> None:
    # fleet_sched has the others in it: of these it is whether they can do without.
    hip = {"needs": ["objects/hip"]}
    for unit in ("fleet", "fleet_device"):
        for arch in ("gfx90a", "gfx942", "gfx950"):
            t.check(f"hipcc/{arch}/{unit}", shell("hip_header", unit, arch), roots=HEADERS, **hip)
    ipc = "examples/parts/fleet_peers_ipc"
    t.check("hipcc/fleet_peers_ipc", shell("hip_header", ipc, "gfx942"), roots=[f"{ipc}.h"], **hip)
    # The group isa makes the decoder's machine code for the other two, and in deep runs for this one.
    t.check("hipcc/gfx90a/qwen3", shell("hip_syntax", "examples/qwen3/qwen3.c", "gfx90a"),
            roots=["examples/qwen3/qwen3.c"], **hip)
    # Another compiler for the same headers, and for what users copy; the tools of the examples are for the CPU.
    alone = [f"tests/build/compile/impl_{stem(h)}.c" for h in HEADERS] + ["tests/build/compile/impl_late.c"]
    sources = sorted(str(p) for p in Path("examples").rglob("*.c") if not {"tools", "build"} & set(p.parts))
    for path in [p for p in sorted(alone) if "impl_fleet" in p] + sources:
        t.check(f"clang-19/gfx942/{stem(path)}", shell("clang19", path), needs=["objects/hip"], tools=["clang-19"],
                together=f"clang-19/{stem(path)}", by_turns="compilers", roots=[*HEADERS, *PARTS] if path in alone else [path])


def nvshmem_headers() -> str:
    wheels = sysconfig.get_path("purelib")
    home = os.environ.get("NVSHMEM_HOME", "/usr/local/nvshmem")
    folders = (f"{home}/include", f"{wheels}/nvidia/nvshmem/include", "/usr/include/nvshmem", "/usr/include")
    return next((f for f in folders if os.path.exists(f"{f}/nvshmem.h")), "")


def compile_engine(t: Table, name: str, compiler: str, *command: str, **more) -> None:
    """A part that needs a library: alone; in deep runs nvcc compiles example 11 with it, too, a quarter of a minute."""
    part, out = f"examples/parts/fleet_peers_{name}.h", "tests/build/compile"
    several, unit = "examples/11_several_devices.c", f"{out}/impl_{stem(part)}.c"
    t.texts[unit] = f'#define FLEET_IMPLEMENTATION\n#include "{part}"\n'
    for path in [unit] + ([several] if t.deep and compiler == "nvcc" else []):
        words = [*command, f"-DFLEET_{name.upper()}", "-I.", *t.stb, "-c", path, "-o", "/dev/null"]
        t.check(f"{compiler}/{stem(part)}" + ("" if path == unit else "/11"), words,
                roots=[part] + [several] * (path == several), **more)


def compile_cuda(t: Table) -> None:
    if not t.nvcc:
        return t.skip("nvcc", "needs nvcc")
    out = "tests/build/compile"
    for unit in ("fleet", "fleet_device"):  # fleet_sched has them in it: it is whether they can do without
        t.check(f"nvcc/{unit}",
                [*CUDA, SM80, SM90, "-I.", *t.stb, "-c", f"{out}/impl_{unit}.c", "-o", f"{out}/nvcc_{unit}.o"],
                roots=HEADERS)

    compile_engine(t, "ipc", "nvcc", *CUDA, SM90)
    if nvshmem := nvshmem_headers():
        compile_engine(t, "nvshmem", "nvcc", *CUDA, SM90, "-rdc=true", f"-I{nvshmem}")
    else:
        t.skip("nvcc/fleet_peers_nvshmem",
               "needs nvcc and NVSHMEM's headers (NVSHMEM_HOME, or the wheel that torch brings)")
    t.check("nvcc/stb_copy", [*shell("stb_copy", f"{out}/impl_fleet.c"), *CUDA, SM90], roots=HEADERS)


def compile_otherwise(t: Table) -> None:
    """The optimisations and options with which a debugger or another build system comes. Without optimisation, operands
    of inline assembly come from memory, in vector registers, and a value is uniform only where the code says so. What
    runs quickly is run. In deep runs: every example in every way."""
    for path in example_files():
        name = stem(path)

        def some(numbers: str, number: str = name[:2]) -> bool:
            return t.deep or number in numbers.split()

        def hip(kind: str, function: str, *options: str, path: str = path, name: str = name) -> None:
            t.check(f"hipcc/{kind}/{name}", shell(function, path, *options), needs=["objects/hip"], roots=[path],
                    together=f"{kind}/{name}", by_turns="compilers")

        if some("01 02"):
            hip("O0", "hip_otherwise", "O0", "-O0", "-g")
        else:
            hip("O0", "hip_device_only", "-O0", "-g")
        if some("02"):
            hip("rdc", "hip_otherwise", "rdc", "-fgpu-rdc")
        if some("04"):
            hip("O1", "hip_device_only", "-O1", "-g")
        if some("06"):
            hip("Og", "hip_device_only", "-Og", "-g")
        if t.deep:  # in other runs the group examples does
            t.check(f"gcc/O0/{name}",
                    shell("build_run", f"tests/build/compile/{name}.O0", "gcc", *C11, "-O0", "-g", *t.flags, path,
                          *THREADS), roots=[path])
        if some("01 02") and t.nvcc:
            t.check(f"nvcc/G/{name}", shell("cuda_debug", path), roots=[path], together=f"G/{name}", by_turns="compilers",
                    alone=t.gpu)
    # Copies to LDS, and in deep runs the weight pipeline, which takes half a minute.
    for path in (["tests/gpu/stream.c"] if t.deep else []) + ["tests/gpu/prefetch.c"]:
        t.check(f"hipcc/O0/{stem(path)}", shell("hip_device_only", path, "-O0", "-g", "-DFLEET_TEST_LINKED"),
                needs=["objects/hip"], roots=[path], together=f"O0/{stem(path)}", by_turns="compilers")


def plan(t: Table) -> None:
    t.host_programs(files("tests/plan/*.c"))


def model(t: Table) -> None:
    for path in files("tests/model/*.pml"):
        t.program(stem(path), ["bash", "tests/model/run.sh", path], env={"OUT": "tests/build/model"}, tools=["spin"],
                  roots=[path, "tests/model/run.sh", *files("tests/model/*.inc")], by_turns="twins")


def host(t: Table) -> None:
    flags = f"{t.script_env['FLAGS']} tests/build/objects/memory_model.o"
    for path in files("tests/host/*.sh"):
        t.script(path, f"{stem(path)}.sh", env={"MODEL_FLAGS": flags}, needs=["objects/memory_model"],
                 tools=["g++"], limit=1200)
    t.host_programs(files("tests/host/*.c", "tests/gpu/*.c"))


def examples(t: Table) -> None:
    names = [stem(path) for path in example_files()]
    run = {"FLEET_PLATFORM": "host", "CC": "gcc"}
    sources = [*example_files(), "examples/run.sh"]
    decoder = ["examples/run.sh", "examples/qwen3/qwen3.c", "examples/serve/serve.c", "examples/serve/engine_qwen3.c"]
    if t.deep:
        t.check("c11", ["examples/run.sh"], env={**run, "CFLAGS": t.script_env["FLAGS"]}, roots=[*sources, *decoder[1:]])
    else:
        # In place of the script's -O2 and the decoder's -O3: to optimise takes longer than to run, but for example 07.
        not_optimised = {**run, "CFLAGS": t.script_env["FLAGS"] + " -O0"}
        t.check("c11", ["examples/run.sh", *(n for n in names if not n.startswith("07_")), "09_"], env=not_optimised,
                roots=sources)
        # The groups qwen3 and serve have them in every run, built otherwise.
        t.check("c11_decoder", ["examples/run.sh", "qwen3", "serve"], env=not_optimised, roots=decoder,
                together="c11_decoder", by_turns="decoder")
        t.check("c11_O1", ["examples/run.sh", "07_"], env={**run, "CFLAGS": t.script_env["FLAGS"] + " -O1"},
                roots=files("examples/07_*.c"))
    # All of them are compiled as C++17 for GPUs, too (clang-19, hip, cuda); here, those that are quick.
    for path in example_files():
        name = stem(path)
        if t.deep or name[:2] not in ("03", "05", "07", "08"):
            t.program(f"cpp17/{name}",
                      shell("example", name, "build_run", f"tests/build/examples/{name}.cpp17", "g++", *CPP17, "-O1",
                                             *t.flags, path, *THREADS), roots=[path])
    several = "examples/11_several_devices.c"
    t.program("processes", shell("example", "processes", "over_processes", several), roots=[several], tools=["mpi"])


def qwen3(t: Table) -> None:
    """The decoder on the CPU; its loader, and what a fuzzer makes of that."""
    t.tools, decoder = ("qwen3",), "examples/qwen3/qwen3.c"
    tests = [p for p in files("tests/qwen3/*.c") if stem(p) != "fuzz"]
    t.host_programs(tests, THREADS + QWEN3_LIBRARIES)
    fixture = "tests/fixtures/qwen3-tiny"
    t.check("fixture",
            shell("build_run", "tests/build/qwen3/fixture.exe", "gcc", *C11, "-O0", *t.flags, decoder, *THREADS,
                  *QWEN3_LIBRARIES),
            env={"ARGUMENTS": f"{fixture} --check {fixture}/expected.json"}, roots=[decoder])
    for compiler in ("clang", "g++", "clang++"):
        # As in the group compile: clang warns of nothing only while it optimises.
        how = ["-O1", "-c", "-o", "/dev/null"] if compiler == "g++" else ["-fsyntax-only"]
        for path in ("tests/qwen3/checkpoint.c", decoder):
            t.check(f"{compiler}/{stem(path)}",
                    [compiler, *(CPP17 if "++" in compiler else C11), *how, *t.flags, "-Itests", path],
                    roots=[path])
    # Each header alone; those of the GPUs' backends are their compilers' affair.
    of_gpus = ("backend_amd", "backend_nvidia", "tasks/attention", "tasks/prefill", "tasks/serve_wide",
               "tasks/wide")
    for path in files("examples/qwen3/*.h", "examples/qwen3/host/*.h", "examples/qwen3/tasks/*.h"):
        if path[len("examples/qwen3/"):-len(".h")] not in of_gpus:
            t.check(f"alone/{stem(path)}", ["gcc", *C11, *t.flags, "-fsyntax-only", "-x", "c", path], roots=[path])
    for path in files("tests/qwen3/*.sh"):
        if stem(path) != "huggingface" or t.deep:
            t.script(path, stem(path), env={"LIBRARIES": " ".join(QWEN3_LIBRARIES)}, tools=["mpi"])
    fuzz(t)


def fuzz(t: Table) -> None:
    """The parsers of an example under libFuzzer; by hand and in deep runs a million inputs."""
    group = t.group
    t.check("fuzz", ["bash", "tests/fuzz.sh", group, "1000000" if t.deep else "20000"], tools=["qwen3", "fuzzer"],
            env={"OUT": f"tests/build/{group}/fuzz", "FUZZ_SECONDS": "300" if t.deep else "15"},
            roots=[f"tests/{group}/fuzz.c", *files(f"tests/{group}/fuzz.dict", f"tests/{group}/corpus.tar.gz")])


def serve(t: Table) -> None:
    """The HTTP server, with an engine that has no model; and the decoder's engine. Deep runs: both together."""
    t.tools, engine = ("serve", "curl"), "tests/serve/engine_test.c"
    libraries = THREADS + SERVE_LIBRARIES

    def load(name: str, engine: str, connections: int, seconds: int, **env: str) -> None:
        t.program(name, ["bash", "tests/serve/load.sh", str(connections), str(seconds)], tools=["wrk"],
                  env={**t.script_env, "OUT": f"tests/build/serve/{name}", "ENGINE": engine,
                       "MODEL": "tests/fixtures/qwen3-tiny",
                       "LIBRARIES": " ".join(libraries), **env},
                  roots=["tests/serve/load.sh", "tests/serve/load.lua", "examples/serve/serve.c", engine])

    def decoders_engine(name: str, how: str) -> None:
        path = "tests/serve/engine.c"
        t.program(name,
                  shell("build_run", f"tests/build/serve/engine_qwen3.{how}.exe", "gcc", *C11, *BUILDS[how],
                        "-DENGINE_QWEN3", *t.flags,
                              "-Itests", path, *libraries), roots=[path, "examples/serve/engine_qwen3.c"])

    load("load", engine, *((2000, 20) if t.deep else (200, 1)))
    t.script("tests/serve/program.sh", "program", env={"LIBRARIES": " ".join(libraries)})
    t.script("tests/serve/hostile.sh", "hostile", env={"LIBRARIES": " ".join(libraries)}, tools=["nginx"])
    t.script("tests/serve/clients.sh", "clients", env={"LIBRARIES": " ".join(libraries)}, tools=["npm"])
    t.host_programs([p for p in files("tests/serve/*.c") if stem(p) not in ("engine_test", "fuzz")], libraries)
    for compiler in ("clang", "g++", "clang++"):
        t.check(f"{compiler}/serve",
                [compiler, *(CPP17 if "++" in compiler else C11), "-O1", *WARNINGS, "-c", "examples/serve/serve.c",
                                      "-o", "/dev/null"], roots=["examples/serve/serve.c"])
    path = "examples/serve/engine_qwen3.c"
    t.check("g++/engine_qwen3", ["g++", *CPP17, *t.flags, "-fsyntax-only", path], roots=[path])
    for path in files("examples/serve/*.h"):
        t.check(f"alone/{stem(path)}", ["gcc", *C11, "-D_GNU_SOURCE", *WARNINGS, "-fsyntax-only", "-x", "c", path],
                roots=[path])
    fuzz(t)
    if not t.deep:
        return decoders_engine("engine_qwen3", "plain")
    load("load_qwen3", "examples/serve/engine_qwen3.c", 200, 5)
    load("load.tsan", engine, 500, 20, SANITIZE="thread")
    for how in ("asan", "tsan"):
        decoders_engine(f"engine_qwen3.{how}", how)


def checkpoints() -> list[str]:
    return files("tests/fixtures/*")


def hip(t: Table) -> None:
    """tests/gpu, the examples and the decoder, on an AMD GPU or on the simulated MI300X; there by turns."""
    sim = {"needs": ["objects/hip"], "limit": 1800}

    def in_turn(word: str, what: str = "programs") -> dict:
        return {} if t.hip_gpu else {"together": word, "by_turns": what}

    if not t.hip_gpu and not os.environ.get("FLEET_HIP_RUNTIME"):
        for target in ["check"] + (["check-timed"] if t.deep else []):  # its times, against published ones
            t.program(f"amdsim/{target}", shell("hip_simulator_test", target),
                      roots=files("tests/amdsim/src/*", "tests/amdsim/tests/*"), together="amdsim",
                      by_turns="simulator", **sim)
    decoder = "examples/qwen3/qwen3.c"
    for path in [decoder, "examples/serve/engine_qwen3.c", *gpu_files()]:
        linked = path.startswith("tests/") and not is_whole(path)
        t.check(f"build/{stem(path)}", shell("hip_build", path, f"tests/build/hip/{stem(path)}"), roots=[path],
                needs=["objects/hip"] + (["objects/hipcc"] if linked else []),
                env={"WHOLE": "" if linked else "yes"}, **(in_turn(stem(path)) if path in gpu_files() else {}))
    of_decoder = {**sim, "needs": ["hip/build/qwen3"], "roots": [decoder], "alone": t.hip_gpu}
    for folder in checkpoints():
        moe = "moe" in folder
        # Schedules of which each has its own kernel or scheduler, and chunks, in another setting of the simulator each.
        schedules = SCHEDULES if t.deep else "dynamic static static" if moe else "static chiplet dynamic"
        for n, schedule in enumerate(schedules.split(), 1):
            t.check(f"{folder}/{n}-{schedule}", shell("hip_decoder", folder, str(n), schedule), **of_decoder,
                    **in_turn(f"{folder}/{n}", "schedules"))
        for n, rows in enumerate((7, 64, 256, 1) if moe else (1, 7, 64, 256), 1):
            t.check(f"{folder}-prompts/{rows}", shell("hip_prompts", folder, str(n), str(rows)), **of_decoder,
                    **in_turn(f"{folder}-prompts/{rows}", "chunks"))
    t.program("prompts-of-chiplets", shell("hip_prompts_of_chiplets"), **of_decoder, **in_turn("prompts-of-chiplets"))
    t.check("build/serving", shell("hip_build_served"), roots=["tests/qwen3/serving.c"], needs=["objects/hip"],
            **in_turn("served", "servers"))
    # The usual server, and those of the kernel that takes prompts. To compile them takes most of the time.
    for n, test in enumerate(("dense_checkpoint", "long_chunks", "many_requests"), 1):
        t.program(f"served/{test}", shell("hip_served", str(n), test), roots=["tests/qwen3/serving.c"],
                  **{**sim, "needs": ["hip/build/serving"]}, alone=t.hip_gpu, **in_turn("served", "servers"))
    t.program("many-sequences", shell("hip_many_sequences"), **of_decoder, **in_turn("many-sequences"))
    for path in gpu_files():
        t.program(stem(path), shell("hip_seeds", path, stem(path)), **{**sim, "needs": [f"hip/build/{stem(path)}"]},
                  roots=[path], env={"RUNS": hip_runs(path)}, alone=t.hip_gpu, **in_turn(stem(path)))
    path = "tests/gpu/ranks.sh"
    t.program("ranks", shell("hip_run", "bash", path), roots=[path], **sim, **in_turn("ranks"))
    t.program("ranks-decoder", shell("hip_run", "bash", path, "decoder"), roots=[path], **sim,
              **in_turn("ranks-decoder"))


def cuda(t: Table) -> None:
    """The same, by nvcc; without a GPU, what is compiled alone is so by turns."""
    if not t.nvcc:
        return t.skip("nvcc", "needs nvcc")
    t.program("order", ["python3", "-B", "tests/isa/nvidia.py"], limit=3600, by_turns="mutants",
              roots=["tests/isa/nvidia.py", "tests/isa/nvidia_kernels.c", "tests/isa/nvidia_decoder.c"],
              also=[*HEADERS, *files("examples/qwen3/nvidia/*.h"), "examples/qwen3/backend_nvidia.h"])

    def in_turn(word: str) -> dict:
        return {} if t.gpu else {"together": word, "by_turns": "programs"}

    def build(path: str, name: str, *options: str, **more) -> None:
        linked = path.startswith("tests/") and not is_whole(path)
        env = {"WHOLE": "" if linked else "yes", **more.pop("env", {})}
        t.check(f"build/{name}", shell("cuda_build", path, f"tests/build/cuda/{name}", *options), roots=[path],
                tools=["serve"],
                needs=["objects/nvcc"] if linked else [], env=env, **more)

    decoder, server = "examples/qwen3/qwen3.c", "examples/serve/serve.c"
    # The server has the decoder's kernels, which take a minute. hipcc checks it in any case.
    for path in [decoder] + ([server] if t.deep or t.gpu else []) + gpu_files():
        build(path, stem(path), **in_turn(stem(path)))
    if t.deep:
        build(decoder, "qwen3_sm_80", env={"DECODER_ARCH": "-arch=sm_80"})
        build(decoder, "qwen3_ranks", "-DFLEET_IPC")
    for path in ["examples/qwen3/backend_nvidia.h", *files("examples/qwen3/nvidia/*.h")]:
        for arch in ("sm_90a", "sm_86"):  # rings of 24 and of 8 stages
            t.check(f"alone/{stem(path)}/{arch}",
                    ["nvcc", "-x", "cu", "-std=c++17", f"-arch={arch}", "-Werror", "all-warnings", "-I.", *t.stb,
                                                   "-ptx", path, "-o", "/dev/null"], roots=[path],
                                                   together=f"alone/{stem(path)}", by_turns="programs")
    t.check("one_ring", shell("one_ring"), roots=["examples/qwen3/nvidia/pipeline.h"])
    sets = ["examples/qwen3/task_sets.h"]
    if not t.gpu or succeeds(*shell("has_sm_90")):  # else it is built for another one
        t.check("registers", shell("cuda_registers"), needs=["cuda/build/qwen3"], roots=[decoder], **in_turn("qwen3"))
    t.check("registers_of_ranks", shell("cuda_registers_of_ranks"), roots=sets, **in_turn("registers_of_ranks"))
    t.check("registers_of_server", shell("cuda_registers_of_server"), roots=sets, **in_turn("registers_of_server"))
    t.check("registers_of_expert_server", shell("cuda_registers_of_expert_server"), roots=sets, **in_turn("registers_of_expert_server"))
    t.check("registers_of_bench", shell("cuda_registers_of_bench"), roots=["tests/bench/devices.c"], alone=t.gpu,
            **in_turn("registers_of_bench"))
    if t.gpu:
        cuda_runs(t, decoder, build)
    else:
        t.skip("run", "needs an NVIDIA GPU")


def cuda_runs(t: Table, decoder: str, build) -> None:
    # However few rows there are, with what multiplies many.
    build(decoder, "qwen3_large_m", "-DSMALL_M_ROWS=0u")
    for folder in checkpoints():
        for program, name, schedules in (("qwen3", "", SCHEDULES), ("qwen3_large_m", "-large-m", "static")):
            run = {"needs": [f"cuda/build/{program}"], "roots": [decoder], "alone": True}
            t.program(f"{folder}{name}", shell("cuda_decoder", program, folder, schedules), **run)
            t.program(f"{folder}-prompts{name}", shell("cuda_prompts", program, folder), **run)
    for path in gpu_files():
        name = stem(path)
        run = {"needs": [f"cuda/build/{name}"], "roots": [path], "alone": True}
        t.program(name, shell("on_gpu", path, name, f"tests/build/cuda/{name}"), **run)
        if not shutil.which("compute-sanitizer"):
            continue
        is_example = re.match(r"examples/0", path) is not None
        for tool in ("memcheck", "synccheck", "racecheck"):  # racecheck knows barriers alone (tests/README.md)
            if is_example or name in (("ring", "events") if tool == "racecheck" else ("stream",)):
                t.check(f"{tool}/{name}",
                        ["compute-sanitizer", "--tool", tool, "--launch-count", "400", "--error-exitcode", "99",
                                           f"tests/build/cuda/{name}",
                                           *(["stages_left_unread"] if name == "stream" else [])], **run)
    if not shutil.which("compute-sanitizer"):
        t.skip("sanitizer", "needs compute-sanitizer, and a GPU that it supports")


def isa(t: Table) -> None:
    """The machine code for AMD, path by path, its wait states, and mutants on the simulated MI300X."""
    sources, listings = [*HEADERS, *example_files(), *closure(("examples/qwen3/qwen3.c",))], "tests/build/isa/listings"
    common = ["tests/isa/mutants.py", *files("tests/isa/*.c")]
    for name in ("check", "mutate"):  # same.sh compares two versions, by hand
        path = f"tests/isa/{name}.sh"
        t.program(name, shell("isa", "bash", path, listings), needs=["objects/hip"], limit=3600, also=sources,
                  roots=[path, f"tests/isa/{name}.py", *common], by_turns="mutants, machine code")
    t.program("wait_states", shell("wait_states", listings), needs=["objects/hip"], after=["isa/check"], limit=3600,
              also=sources, roots=["tests/isa/wait_states.py", *common], by_turns="mutants, machine code")


def amalgamated(t: Table) -> None:
    """The single file with two parts, in an example that uses none of them and in one that does."""
    out, includes = "tests/build/amalgamated", r'#include "(?:parts/)?fleet(?:_\w+)?\.h"'
    deciding = [*HEADERS, *PARTS, "amalgamate.sh"]
    t.check("deterministic", shell("amalgamate_twice"), roots=deciding)
    t.check("unknown_part", shell("amalgamate_nothing"), roots=["amalgamate.sh"])
    for path in [p for p in example_files() if stem(p)[:2] in ("01", "10")]:
        name = stem(path)
        t.texts[f"{out}/{name}.c"] = re.sub(includes, '#include "fleet_all.h"', text_of(path))
        for language, compiler in (("c11", ["gcc", *C11]), ("cpp17", ["g++", *CPP17])):
            t.program(f"{language}/{name}",
                      shell("example", name, "build_run", f"{out}/{name}.{language}", *compiler, "-O1", *WARNINGS,
                            f"-I{out}", f"{out}/{name}.c", *THREADS), needs=["amalgamated/deterministic"],
                      roots=[*deciding, path])


def readme(t: Table) -> None:
    """Links, pictures and the CMake project of the pages. Each block "```c" of README.md: a program where it has a main,
    which must run and exit with 0; otherwise declarations that must compile after the headers. A block that begins with
    the line "/* fragment */" is neither. Of examples/recipes.md each block but the first one, which comes before it, is a
    program that must run, and the one about the memory model in that, too."""
    pages = [str(p) for p in Path().rglob("*.md") if "build" not in p.parts]
    t.check("pages", ["python3", "-B", "tests/pages.py"], roots=["tests/pages.py"], also=[*pages, *files(".pages/*")])
    out, sources = "tests/build/readme", ["README.md", *HEADERS]
    # To find out what nvcc is takes CMake longer than all else.
    for name, languages, turn in (("cmake", ["C", "HIP"], {}), ("cmake_cuda", ["CUDA"], {"together": "cmake_cuda", "by_turns": "CMake"})):
        t.program(name, ["bash", "tests/cmake.sh", *languages], env={"OUT": f"{out}/{name}"}, tools=["g++", "cmake", "make"],
                  roots=["tests/cmake.sh", "examples/cmake/fleet.cmake", "amalgamate.sh"], also=sources, **turn)
    for n, block in enumerate(re.findall(r"^```c\n(.*?)^```", text_of("README.md"), re.M | re.S), 1):
        if block.startswith("/* fragment */\n"):
            continue
        source, name = f"{out}/{n:02}.c", f"block_{n:02}"
        t.texts[source] = block
        compiled = ["gcc", *C11, *t.flags]
        if "int main(" in block:
            t.check(name, shell("build_run", f"{out}/{name}", *compiled, "-O2", source, *THREADS), also=sources)
        else:
            t.check(name, [*compiled, "-Wno-unused", "-include", "fleet_sched.h", "-c", source, "-o", "/dev/null"],
                    also=sources)
    recipes = text_of("examples/recipes.md")
    titles = re.findall(r"^## (.*)$", recipes, re.M)
    common, *blocks = re.findall(r"^```c\n(.*?)^```", recipes, re.M | re.S)
    also = ["examples/recipes.md", *HEADERS, *PARTS]
    for title, block in zip(titles[1:], blocks, strict=True):
        name = "recipe_" + re.sub(r"\W+", "_", title).lower()
        source, program = f"{out}/{name}.c", f"{out}/{name}"
        t.texts[source] = common + block
        flags = [*C11, *t.flags, "-Wno-unused-function", "-DFLEET_TRACE", "-Iexamples"]
        t.check(name, shell("build_run", program, "gcc", *flags, "-O0", source, *THREADS), also=also)
        if "FLEET_MEMORY_MODEL" in block:
            t.check(f"{name}_model", shell("build_run", f"{program}_model", "examples/tools/memory_model.sh", *flags,
                                           "tests/build/objects/memory_model.o", source, "-I."),
                    needs=["objects/memory_model"], also=[*also, "examples/tools/memory_model.sh"])


GROUPS = (objects, format, plan, model, host, examples, qwen3, serve, compile, hip, cuda, isa, amalgamated, readme)
