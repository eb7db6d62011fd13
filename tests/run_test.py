"""Tests tests/run.py with jobs that are made up: what it says of them, and which it chooses; and that what goes by turns is in
exactly one of them each, of the real table too, and for what scripts ask (turn.sh, isa/mutants.py; turns.c is C's)."""
from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import tempfile

import run
from jobs import Job, Table


def table(*jobs: Job, deep: bool = False) -> Table:
    t = Table.__new__(Table)
    t.jobs, t.texts, t.deep = {job.full: job for job in jobs}, {}, deep
    return t


def job(name: str, script: str, **more) -> Job:
    return Job("host", name, ["bash", "-c", script], **{"program": True, **more})


def output(*jobs: Job, words: tuple[str, ...] = (), strict: bool = False, turn: str = "",
           changed: set[str] = frozenset()) -> str:
    """What a run of these jobs prints."""
    t = table(*jobs)
    options = run.Options(words=list(words), size="" if words else "all")
    one = run.Run(t, run.with_needs(t, run.choose(t, options, turn, changed)), strict, turn, changed)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        one.go()
    return said.getvalue() + f"{one.tally.passed} passed, {one.tally.failed} failed, {one.tally.skipped} skipped\n"


def expect(name: str, said: str, *wanted: str) -> None:
    missing = [w for w in wanted if w not in said]
    print(f"FAIL {name}: without \"{missing[0]}\": {' / '.join(said.split(chr(10)))}" if missing else f"pass {name}",
          flush=True)


def test_verdicts() -> None:
    expect("pass", output(job("a", "echo pass x; echo pass y")), "2 passed, 0 failed",
           "host             2 pass     0 FAIL")
    expect("fail", output(job("a", "echo FAIL x: file.c:3: why; exit 1")), "FAIL host/a/x: file.c:3: why\n    FAIL x",
           "0 passed, 1 failed")
    expect("its_own_name", output(job("a", "echo FAIL a: why; exit 1")), "FAIL host/a: why", "0 passed, 1 failed")
    expect("skip", output(job("a", "echo skip x: no GPU")), "skip host/a/x: no GPU", "0 failed, 1 skipped")
    expect("strict_skip", output(job("a", "echo skip x: no GPU; echo skip y: no time"), strict=True),
           "FAIL host/a/y: skipped: no time",
           "1 failed, 1 skipped")
    expect("crash", output(job("a", "echo pass x; kill -SEGV $$")), "FAIL host/a: ended with status 139",
           "1 passed, 1 failed")
    expect("crash_after_a_failure", output(job("a", "echo FAIL x: why; kill -SEGV $$")),
           "FAIL host/a: ended with status 139", "2 failed")
    expect("status", output(job("a", "echo pass x; exit 3")), "FAIL host/a: ended with status 3", "1 passed, 1 failed")
    expect("sanitizer", output(job("a", "echo pass x; echo 'a.c:1: runtime error: shift'; exit 0")),
           "FAIL host/a: a sanitizer reported")
    expect("nothing", output(job("a", "echo 1 passed")), "FAIL host/a: printed no test", "0 passed, 1 failed")
    expect("check", output(job("a", "exit 0", program=False), job("b", "exit 1", program=False)),
           "FAIL host/b: the command failed",
           "1 passed, 1 failed")
    expect("table", output(job("a", "echo pass x; echo '| 1 | 2 |'")), "    | 1 | 2 |\n")
    expect("needs_that_failed", output(job("a", "exit 1", program=False), job("b", "echo pass x", needs=("host/a",)),
                                       job("c", "echo pass x", needs=("host/b",))),
           "FAIL host/b: needs host/a, which failed", "FAIL host/c: needs host/b", "0 passed, 3 failed")
    expect("needs_come_first",
           output(job("b", "cat made && echo pass x", needs=("host/a",)),
                  job("a", "sleep 0.3; echo >made", program=False)),
           "2 passed, 0 failed")


    expect("after", output(job("b", "cat later && echo pass x", after=("host/a", "host/c")),
                           job("a", "sleep 0.3; echo >later; exit 1", program=False)), "1 passed, 1 failed")


def test_limits() -> None:
    expect("limit", output(job("a", "echo pass x; (while :; do :; done)", limit=1)),
           "FAIL host/a: took more than 1 s of processors", "1 passed, 1 failed")
    usual, run.NO_PROGRESS_S = run.NO_PROGRESS_S, 1
    expect("no_progress", output(job("a", "trap '' TERM; sleep 1000 & wait; sleep 1000")),
           "FAIL host/a: made no progress for 1 s")
    run.NO_PROGRESS_S = usual
    said = output(job("a", "sleep 1000 & echo $! >left; echo pass x"))
    with open("left", encoding="utf-8") as left:
        pid = left.read().strip()
    expect("nothing_is_left", said + str(os.path.exists(f"/proc/{pid}/exe")), "1 passed, 0 failed", "False")


def test_choice() -> None:
    jobs = (job("ring.tsan", "echo pass x"), job("ring.both", "echo pass x; echo pass y"), job("ringer", "echo pass x"),
            Job("plan", "maps", ["true"]))
    expect("group", output(*jobs, words=("host",)), "4 passed, 0 failed")
    expect("program", output(*jobs, words=("host/ring",)), "3 passed, 0 failed")
    expect("build", output(*jobs, words=("host/ring.tsan",)), "1 passed, 0 failed")
    expect("test", output(*jobs, words=("host/ring.both/y",)), "1 passed, 0 failed")
    expect("tests", output(*jobs, words=("host/ring.both/y", "host/ring.both/x")), "2 passed, 0 failed")
    expect("no_such_test", output(*jobs, words=("host/ringer/z",)), "FAIL host/ringer: has no test z")
    expect("no_such_test_and_no_line", output(job("a", "true"), words=("host/a/z",)), "FAIL host/a: has no test z")
    expect("test_is_told", output(job("a", 'for t in $TESTS; do echo "pass $t"; done'), words=("host/a/x",)),
           "1 passed, 0 failed")
    for word in ("host/rin", "plan/maps/x"):
        try:
            said = output(*jobs, words=(word,))
        except SystemExit as stop:
            said = str(stop)
        expect(f"no_such_program/{word}", said, f"{word}: no such program")
    expect("alone", output(job("a", "mkdir one && sleep 0.2; rmdir one && echo pass x", alone=True),
                           job("b", "mkdir one && sleep 0.2; rmdir one && echo pass x", alone=True)),
                           "2 passed, 0 failed")


def test_turns() -> None:
    turns = [job(str(n), "echo pass x", together=f"host/{n}", by_turns="programs") for n in range(4)]
    expect("turn", output(*turns, turn="1/4"), "1 passed, 0 failed", "(turn 2 of 4 of: programs)")
    expect("all_turns", output(*turns), "4 passed, 0 failed")
    expect("named_out_of_turn", output(*turns, words=("host/0",), turn="1/4"), "1 passed, 0 failed")
    try:
        said = output(*turns, turn="4/4")
    except SystemExit as stop:
        said = str(stop)
    expect("no_such_turn", said, "FLEET_TEST_TURN=4/4: no K/N")
    with open("own.c", "w", encoding="utf-8") as own:
        own.write('#include "own.h"\n#include "fleet.h"\n')
    for name in ("own.h", "fleet.h"):
        with open(name, "w", encoding="utf-8"):
            pass
    seeds = job("a", 'echo "pass turn"; echo "| $FLEET_TEST_TURN |"', roots=("own.c",), by_turns="seeds")
    expect("seeds", output(seeds, turn="2/3", changed={"fleet.h"}), "| 2/3 |", "(turn 3 of 3 of: seeds)")
    expect("whole_when_it_changed", output(seeds, turn="2/3", changed={"own.h"}), "|  |", "s\n")
    expect("chosen_when_it_changed",
           output(job("a", "echo pass x", together="host/a", roots=("own.c",)), turn="2/3", changed={"own.c"}), "1 passed")


def same(name: str, got, wanted) -> None:
    print(f"pass {name}" if got == wanted else f"FAIL {name}: {got}, not {wanted}", flush=True)


def test_dealing(real: Table) -> None:
    """Where the sources are."""
    some = [job(name, "", together=f"host/{word}") for name, word in (("a", "a"), ("a.run", "a"), ("b", "b"), ("c", "c"))]
    jobs = {one.full: one for one in [*some, job("d", "")]}
    same("the_longest_first", run.dealt(jobs, 2, {"host/a": 20, "host/a.run": 50, "host/b": 40, "host/c": 40}),
         {"host/a": 0, "host/b": 1, "host/c": 1})
    in_turns = [run.choose(real, run.Options(size="all"), f"{k}/{run.TURNS}", set()) for k in range(run.TURNS)]
    wrong = [name for name, one in real.jobs.items()
             if one.group != "objects" and sum(name in chosen for chosen in in_turns) != (1 if one.together else run.TURNS)]
    same("each_job_is_in_one_turn_or_in_all", wrong, [])
    twice = [name for name, one in real.jobs.items() for need in one.needs
             if real.jobs[need].together not in ("", one.together)]
    same("what_is_needed_is_in_the_same_turn", twice, [])
    sys.path.insert(0, "tests/isa")
    import mutants  # pylint: disable=import-outside-toplevel
    cases = range(20)
    of_shell, of_python = [], []
    for turns in range(1, 8):
        for k in range(turns):
            os.environ["FLEET_TEST_TURN"] = f"{k}/{turns}"
            of_python += [(turns, n) for n in mutants.of_this_run(list(cases))]
            script = '. tests/turn.sh; for n in $(seq 0 19); do ! in_turn "$n" || echo "$n"; done'
            said = subprocess.run(["bash", "-euc", script], capture_output=True, text=True, check=True).stdout
            of_shell += [(turns, int(n)) for n in said.split()]
    del os.environ["FLEET_TEST_TURN"]
    wanted = [(turns, n) for turns in range(1, 8) for n in cases]
    same("in_turn/shell", sorted(of_shell), wanted)
    same("in_turn/python", sorted(of_python), wanted)


def main() -> None:
    for name in ("FLEET_TEST_TURN", "FLEET_DEEP"):
        os.environ.pop(name, None)
    test_dealing(Table(False))
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for test in (test_verdicts, test_limits, test_choice, test_turns):
            test()
        os.chdir("/")


main()
