"""Runs jobs of the table (jobs.py): chooses them, starts what is ready, longest first, and counts verdicts (run.sh)."""
from __future__ import annotations

import fcntl
import math
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import jobs as table
from jobs import Job, Table

SECONDS = Path("tests/seconds")
TURNS = 6  # so many commits in a row have all of what goes by turns; that is told to programs as FLEET_TEST_TURN=K/N
GROUPS = [group.__name__ for group in table.GROUPS]
DEEP_LIMIT = 20  # deep runs do more, and may take so many times as long
NO_PROGRESS_S = 300  # of the clock, in which a job takes less than a second of processors
VERDICT = re.compile(r"^(pass|FAIL|skip) ([^:\n]*)(?:: ?(.*))?$", re.M)
SANITIZER = re.compile(r"ERROR: (Address|Leak)Sanitizer|WARNING: ThreadSanitizer|runtime error: ")


# ---- which jobs -----------------------------------------------------------------------------------


@dataclass
class Options:
    size: str = ""
    strict: bool = False
    words: list[str] = field(default_factory=list)  # GROUP[/PROGRAM[/TEST]]
    list: bool = False
    record: bool = False
    changed: str | None = None  # since this commit


def options_of(arguments: list[str]) -> Options:
    options = Options()
    for word in arguments:
        name, _, value = word.partition("=")
        if word in ("all", "deep"):
            options.size = word
        elif word in ("strict", "--list", "--record"):
            setattr(options, word.lstrip("-"), True)
        elif name == "--changed":
            options.changed = value or "HEAD"
        elif word.split("/")[0] in GROUPS:
            options.words.append(word)
        else:
            raise SystemExit(f"{word}: not in the usage of tests/run.sh, and no group ({' '.join(GROUPS)})")
    return options


def git(*words: str) -> list[str]:
    """The lines that git prints; none where there is no git, or no repository."""
    if not shutil.which("git"):
        return []
    done = subprocess.run(["git", *words], capture_output=True, text=True, check=False)
    return done.stdout.split("\n")[:-1] if done.returncode == 0 else []


def changed_since(commit: str) -> set[str]:
    """The files that differ from where this branch left a commit, and those that git does not know yet."""
    base = (git("merge-base", commit, "HEAD") or [commit])[0]
    return {*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")}


@dataclass
class Chosen:
    job: Job
    named: bool = False  # by itself, not by its group
    tests: list[str] = field(default_factory=list)  # of the program; none: all


def named(jobs: dict[str, Job], word: str) -> list[Chosen]:
    """The jobs that a word means: a group, a program in all of its builds, or tests of one."""
    if word in GROUPS:
        return [Chosen(job) for job in jobs.values() if job.group == word]
    parts = word.split("/")
    for n in range(len(parts), 1, -1):
        name = "/".join(parts[:n])
        tests = ["/".join(parts[n:])] if n < len(parts) else []
        meant = (job for full, job in jobs.items() if full == name or full.startswith((name + ".", name + "/")))
        if found := [Chosen(job, True, list(tests)) for job in meant if job.program or not tests]:
            return found
    raise SystemExit(f"{word}: no such program (tests/run.sh --list, or deep --list)")


def turn_of_commit() -> str:
    return f"{int((git('rev-list', '--count', 'HEAD') or ['0'])[0]) % TURNS}/{TURNS}"


def parts_of(turn: str) -> tuple[int, int]:
    """K and N of a turn; of none, which is all, 0 and 1."""
    if not (m := re.fullmatch(r"(\d+)/(\d+)", turn or "0/1")) or int(m[1]) >= int(m[2]):
        raise SystemExit(f"FLEET_TEST_TURN={turn}: no K/N with K below N; empty: all")
    return int(m[1]), int(m[2])


def dealt(jobs: dict[str, Job], turns: int, seconds: dict[str, float]) -> dict[str, int]:
    """The turn of each word (together) of jobs that go by turns: the longest first, each to the turn that has least yet. What
    is measured anew moves few of them, since seconds count by steps of an eighth."""
    def steps(name: str) -> float:
        return 1.125 ** round(math.log(max(seconds.get(name, 20), 0.5), 1.125))
    taken: dict[str, float] = {}
    for name, job in jobs.items():
        if job.together:
            taken[job.together] = taken.get(job.together, 0) + steps(name)
    loads, found = [0.0] * turns, {}
    for word in sorted(taken, key=lambda word: (-taken[word], word)):
        found[word] = loads.index(min(loads))
        loads[found[word]] += taken[word]
    return found


def choose(t: Table, options: Options, turn: str, changed: set[str]) -> dict[str, Chosen]:
    """What a run has, without what that needs."""
    chosen: dict[str, Chosen] = {}
    for word in options.words:
        for one in named(t.jobs, word):
            if (before := chosen.setdefault(one.job.full, one)) is not one:
                before.tests.extend(one.tests)
    if not options.words:
        quick = not options.size and options.changed is None
        chosen = {name: Chosen(job) for name,
                  job in t.jobs.items() if job.group != "objects" and (job.size == "quick" or not quick)}
    if options.changed is not None:
        differ = changed_since(options.changed)
        chosen = {name: one for name, one in chosen.items() if one.job.files & differ}
    now, turns = parts_of("" if t.deep else turn)
    turn_of = dealt(t.jobs, turns, read_seconds())
    return {name: one for name, one in chosen.items()
            if one.named or turn_of.get(one.job.together, now) == now or one.job.own & changed}


def with_needs(t: Table, chosen: dict[str, Chosen]) -> dict[str, Chosen]:
    """In the order of the table."""
    wanted, left = dict(chosen), list(chosen)
    while left:
        for need in t.jobs[left.pop()].needs:
            if need not in wanted:
                wanted[need] = Chosen(t.jobs[need])
                left.append(need)
    return {name: wanted[name] for name in t.jobs if name in wanted}


# ---- verdicts -------------------------------------------------------------------------------------


@dataclass
class Verdict:
    word: str  # pass, FAIL or skip
    name: str
    why: str = ""


def verdicts(job: Job, status: int, log: str, killed: str = "", tests: list[str] | None = None) -> list[Verdict]:
    """Those that a job has printed, and one more for what it could not say itself."""
    if not job.program:
        return [Verdict("pass", job.name) if status == 0 else Verdict("FAIL", job.name, killed or "the command failed")]
    found = [Verdict(m[1], m[2], m[3] or "") for m in VERDICT.finditer(log)]
    fails = any(v.word == "FAIL" for v in found)
    why = killed
    if not why and SANITIZER.search(log):
        why = "a sanitizer reported"
    elif not why and (status > 124 or (status and not fails)):
        why = f"ended with status {status}"
    if tests:
        found = [v for v in found if v.word == "FAIL" or any(test in v.name for test in tests)]
    if not why and not found:
        why = f"has no test {' or '.join(tests)}" if tests else "printed no test"
    found = [Verdict(v.word, v.name if v.word == "FAIL" and v.name == job.name else f"{job.name}/{v.name}",
                     v.why) for v in found]
    return found + ([Verdict("FAIL", job.name, why)] if why else [])


# What a machine may lack without any fault of its own: a strict run skips tests for want of these words' things alone.
MAY_LACK = "GPU", "nvcc", "npm packages"


@dataclass
class Tally:
    strict: bool
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    shown: int = 0

    def count(self, job: Job, found: list[Verdict], log: Path | None) -> None:
        failed = self.failed
        for v in found:
            if v.word == "skip" and self.strict and not any(word in v.why for word in MAY_LACK):
                v = Verdict("FAIL", v.name, f"skipped: {v.why}")
            if v.word == "pass":
                self.passed += 1
                continue
            print(f"{v.word} {job.group}/{v.name}: {v.why}", flush=True)
            self.failed += v.word == "FAIL"
            self.skipped += v.word == "skip"
        if log and self.failed > failed:
            self.show(log)

    def show(self, log: Path) -> None:
        """The end of a log. Where one mistake breaks a hundred compilations, the first few tell."""
        self.shown += 1
        lines = log.read_text(errors="replace").rstrip("\n").split("\n")[-25:] if self.shown <= 5 else [str(log)]
        print("\n".join("    " + line for line in lines), flush=True)


# ---- processes ------------------------------------------------------------------------------------


TICKS = os.sysconf("SC_CLK_TCK")


def processes() -> dict[int, tuple[int, int, float]]:
    """Of each process: its parent, its session, and the seconds of processors that it and its ended children took."""
    found = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                words = Path("/proc", entry, "stat").read_text(errors="replace").rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            found[int(entry)] = int(words[1]), int(words[3]), sum(map(int, words[11:15])) / TICKS
    return found


def members(leader: int, all_of_them: dict[int, tuple[int, int, float]]) -> list[int]:
    """The processes of a session, and those that descend from it."""
    def belongs(pid: int) -> bool:
        while pid in all_of_them:
            parent, session, _ = all_of_them[pid]
            if leader in (pid, session):
                return True
            pid = parent
        return False
    return [pid for pid in all_of_them if belongs(pid)]


def end(leader: int, number: int) -> None:
    for pid in members(leader, processes()):
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):
            pass


@dataclass
class Running:
    chosen: Chosen
    pid: int
    begun: float
    limit: float
    seconds: float = 0
    progress: tuple[float, float] = (0, 0)  # when it had last taken another second, and how many it had then
    killed: str = ""
    last: float = 0  # when it is killed if it has not ended when asked to

    def look(self, now: float, taken: float) -> None:
        """Asks it to end when it meets a limit, and kills it when it does not."""
        self.seconds = max(self.seconds, taken)
        if self.seconds >= self.progress[1] + 1:
            self.progress = now, self.seconds
        if self.killed:
            if now > self.last:
                end(self.pid, signal.SIGKILL)
            return
        if self.seconds > self.limit:
            self.killed = f"took more than {self.limit:.0f} s of processors"
        elif now - self.progress[0] > NO_PROGRESS_S:
            self.killed = f"made no progress for {NO_PROGRESS_S:.0f} s ({self.seconds:.0f} s of processors before)"
        if self.killed:
            self.last = now + 5
            end(self.pid, signal.SIGTERM)


# ---- the run --------------------------------------------------------------------------------------


def read_seconds() -> dict[str, float]:
    lines = SECONDS.read_text().split("\n") if SECONDS.exists() else []
    return {name: float(seconds) for seconds, _, name in (line.partition(" ") for line in lines if line)}


class Run:
    def __init__(self, t: Table, chosen: dict[str, Chosen], strict: bool, turn: str, changed: set[str]) -> None:
        self.t, self.chosen, self.turn, self.changed = t, chosen, turn, changed
        self.tally = Tally(strict)
        self.seconds = read_seconds()
        self.taken: dict[str, float] = {}
        self.succeeded: dict[str, bool] = {}  # of those that have ended
        self.running: dict[int, Running] = {}
        self.before: dict[str, tuple[int, int]] = {}  # what a group has passed and failed
        self.places = int(os.environ.get("JOBS") or (os.cpu_count() or 1) + 1)
        self.waiting = sorted(chosen, key=lambda name: -self.rank(name))

    def rank(self, name: str) -> float:
        """The seconds until the last job that needs this one can have ended; what waits for a network comes first."""
        own = 1e6 if name == "objects/hip" else self.seconds.get(name, 20)
        return own + max((self.rank(n) for n, one in self.chosen.items() if name in one.job.needs), default=0)

    def whole(self, one: Chosen) -> bool:
        """Whether it runs with all that goes by turns: what is named, and what has changed."""
        named_only = one.named and "FLEET_TEST_TURN" not in os.environ
        return self.turn == "" or self.t.deep or named_only or bool(one.job.own & self.changed)

    def environment(self, one: Chosen) -> dict[str, str]:
        job = one.job
        mine = {"out": job.out, "WARNINGS": " ".join(table.WARNINGS), "FLEET_HIP_OWNER": str(os.getpid()),
                "TESTS": " ".join(one.tests),
                "FLEET_TEST_TURN": "" if self.whole(one) or job.together else self.turn,
                **({"FLEET_DEEP": "1"} if self.t.deep else {})}
        return {**os.environ, **mine, **job.env}

    def start(self, name: str) -> None:
        one = self.chosen[name]
        log = self.log(one.job)
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "wb") as output:
            child = subprocess.Popen(one.job.command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                     env=self.environment(one), start_new_session=True)
        child.returncode = 0  # the run itself waits for it
        now = time.monotonic()
        limit = max(one.job.limit, 5 * self.seconds.get(name, 0)) * (DEEP_LIMIT if self.t.deep else 1)
        self.running[child.pid] = Running(one, child.pid, now, limit, progress=(now, 0))

    def log(self, job: Job) -> Path:
        return Path(job.out, job.name + ".log")

    def start_what_is_ready(self) -> None:
        alone = any(r.chosen.job.alone for r in self.running.values())
        for name in list(self.waiting):
            job = self.chosen[name].job
            lost = [need for need in job.needs if self.succeeded.get(need) is False]
            if job.skip:
                self.close(job, [Verdict("skip", job.name, job.skip)], True, None)
            elif lost:
                self.close(job, [Verdict("FAIL", job.name, f"needs {lost[0]}, which failed")], False, None)
            elif len(self.running) < self.places and self.has_what_it_waits_for(job) and not (alone and job.alone):
                self.start(name)
                alone = alone or job.alone
            else:
                continue
            self.waiting.remove(name)

    def has_what_it_waits_for(self, job: Job) -> bool:
        return self.succeeded.keys() >= {*job.needs, *(name for name in job.after if name in self.chosen)}

    def ended(self, pid: int, code: int, taken: float) -> None:
        r = self.running.pop(pid)
        end(pid, signal.SIGKILL)  # what it has left behind
        job, status = r.chosen.job, code if code >= 0 else 128 - code
        log = self.log(job)
        text = log.read_text(errors="replace")
        self.taken[job.full] = max(taken, r.seconds)
        with open(f"{job.out}/times", "a", encoding="utf-8") as times:
            times.write(f"{time.monotonic() - r.begun:.0f} {self.taken[job.full]:.1f} {job.name}\n")
        found = verdicts(job, status or (1 if r.killed else 0), text, r.killed, r.chosen.tests)
        self.close(job, found, status == 0 and not r.killed, log)
        for line in re.findall(r"^\| .*", text, re.M):  # tables
            print("    " + line)

    def close(self, job: Job, found: list[Verdict], succeeded: bool, log: Path | None) -> None:
        passed, failed = self.tally.passed, self.tally.failed
        self.tally.count(job, found, log)
        self.succeeded[job.full] = succeeded
        p, f = self.before.get(job.group, (0, 0))
        self.before[job.group] = p + self.tally.passed - passed, f + self.tally.failed - failed
        of_group = [name for name, one in self.chosen.items() if one.job.group == job.group]
        if all(name in self.succeeded for name in of_group):
            self.summary(job.group, of_group)

    def summary(self, group: str, names: list[str]) -> None:
        passed, failed = self.before[group]
        kinds = {one.job.by_turns for one in map(self.chosen.get, names) if one.job.by_turns and not self.whole(one)}
        turn, turns = parts_of(self.turn)
        said = f" (turn {turn + 1} of {turns} of: {', '.join(sorted(kinds))})" if kinds else ""
        print(f"{group:<12} {passed:5} pass {failed:5} FAIL {sum(self.taken.get(n, 0) for n in names):5.0f} s{said}",
              flush=True)

    def go(self) -> None:
        looked = 0.0
        while self.waiting or self.running:
            self.start_what_is_ready()
            while self.running:
                pid, code, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid in self.running:
                    self.ended(pid, os.waitstatus_to_exitcode(code), usage.ru_utime + usage.ru_stime)
            if time.monotonic() > looked + 2:
                looked = time.monotonic()
                self.look(looked)
            time.sleep(0.02)

    def look(self, now: float) -> None:
        there = processes()
        for r in self.running.values():
            r.look(now, sum(there[pid][2] for pid in members(r.pid, there)))


def prepare(t: Table, chosen: dict[str, Chosen]) -> None:
    groups = {one.job.group for one in chosen.values()}
    for group in groups:
        shutil.rmtree(f"tests/build/{group}", ignore_errors=True)
        os.makedirs(f"tests/build/{group}")
    for path, text in t.texts.items():
        if path.split("/")[2] in groups:
            Path(path).write_text(text, encoding="utf-8")
    tools = sorted({tool for one in chosen.values() for tool in one.job.tools})
    if subprocess.run(table.shell("set_up", *tools), check=False).returncode:
        raise SystemExit(1)


def listing(chosen: dict[str, Chosen], seconds: dict[str, float], turn_of: dict[str, int]) -> None:
    print("\t".join(("# name", "size", "needs", "seconds", "turn", "what decides it", "command")))
    for name, one in chosen.items():
        job = one.job
        included = len(job.files) - len({*job.roots, *job.also})
        decides = " ".join([*job.roots, *job.also]) + (f" and {included} that they include" if included else "")
        env = [f"{k}={shlex.quote(v)}" for k, v in job.env.items()]
        turn = f"{turn_of[job.together]} of {job.by_turns}" if job.together else job.by_turns
        print("\t".join((name, job.size, " ".join(job.needs) or "-", str(seconds.get(name, "-")), turn or "-",
                         decides or "-",
                         job.skip or " ".join(env + [shlex.join(job.command)]))))


def main(arguments: list[str]) -> int:
    options = options_of(arguments)
    turn = os.environ.get("FLEET_TEST_TURN", turn_of_commit())
    changed = changed_since(os.environ.get("FLEET_TEST_BASE", "HEAD~1"))
    t = Table(options.size == "deep")
    if options.list:
        some = options.words or options.changed is not None
        listing(with_needs(t, choose(t, options, "", changed)) if some else {n: Chosen(job) for n, job in t.jobs.items()},
                read_seconds(), dealt(t.jobs, parts_of(turn)[1], read_seconds()))
        return 0
    chosen = with_needs(t, choose(t, options, turn, changed))
    os.makedirs("tests/build", exist_ok=True)
    with open("tests/build/lock", "a", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs in one folder take turns
        Path("tests/build/found").unlink(missing_ok=True)
        prepare(t, chosen)
        run = Run(t, chosen, options.strict, turn, changed)
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            run.go()
        except KeyboardInterrupt:
            return 130
        finally:
            for pid in list(run.running):
                end(pid, signal.SIGTERM)
            subprocess.run(table.shell("hip_leave"), env={**os.environ, "FLEET_HIP_OWNER": str(os.getpid())},
                           check=False)
    if options.record:
        seconds = {**run.seconds, **{n: round(s, 1) for n, s in run.taken.items() if run.succeeded[n]}}
        SECONDS.write_text("".join(f"{s} {n}\n" for n, s in sorted(seconds.items(), key=lambda i: i[0]) if n in t.jobs))
    tally = run.tally
    print(f"{tally.passed} passed, {tally.failed} failed" + (f", {tally.skipped} skipped" if tally.skipped else ""))
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
