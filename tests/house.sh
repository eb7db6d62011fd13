#!/usr/bin/env bash
# Checks how the three headers and those of examples/parts are arranged. Prints a line for each finding; the status is 0 when there is none.
#
#   tests/house.sh [CHECK[:HEADER]...]      default: every check of every header
#
#   sections   The contents list in a header's first comment names the same >>tags, in the same order, as the banners
#              below it. A banner is a line "/* ==== >>tag: what it holds ==== */"; the tag >>manual is the first comment
#              itself. No two sections, nor two parts of them ("/* ---- name ---- */"), have the same name.
#   public     The section >>public is short enough to be read in one sitting; so are >>ranks and >>launches of fleet_sched.h.
#   core       The three headers use no name that a part defines, not even in a comment.
#   platform   All headers together test the platform (FLEET_HIP, FLEET_CUDA, FLEET_HOST, __gfx..__, __CUDA_ARCH__) at
#              most 10 times outside of backend sections, each with its reason in a comment on the same line or on the
#              line before.
#   contract   Every name of the section >>contract of fleet_device.h is defined in >>amd, >>nvidia and >>host, up to its part
#              on what a backend may define: a group of that is defined in >>defaults, and all of it or nothing by a backend,
#              but nothing as >>defaults have it. The section has one name a line, at the beginning of the line: in a comment,
#              or as a prototype; a comment that begins with a macro begins a group.
#   loops      Each loop of device code counts ("for" with a condition and a step, and no poll in the condition), or says in
#              a comment "bounded by" what, or has a number of a table LOOPS ("loop 3"; of fleet_device.h or of a part), which names
#              its function, what ends it, and the test that ends the run inside of it.
#   places     The places in the code that .github/CONTRIBUTING.md names, in lists and in the first columns of tables, are there: the
#              file, and in it the sections (>>tag), and a definition of each name, in the section before it.
#   private    No example uses a private name (fleeti_, FLEETI_), nor a field that is private: one after the words "is private" in
#              its struct, or of a struct in a section that is not public. A part may, since no other way leads to fences and to
#              records of a plan: PRIVATE_NAMES says how many of the three headers' names each has.
#   unused     Every public name (fleet_, FLEET_, but for enum types) of headers and parts occurs in an example, a test or
#              a benchmark, whole or pasted from two words.
#   words      No comment and no message speaks of threads and kernels as of people (nobody, whoever), or has a word for
#              which there is a common term (behind for after).
set -eu
cd "$(dirname "$0")/.."
exec python3 - "$@" <<'PYTHON'
import functools
import glob
import os
import re
import sys

LINES = {"fleet.h": {"public": 660}, "fleet_device.h": {"public": 450}, "fleet_sched.h": {"public": 600, "ranks": 250, "launches": 100},
         "examples/parts/fleet_server.h": {"public": 500}, "examples/parts/fleet_linear.h": {"public": 250}}  # of the public sections
CORE = ("fleet.h", "fleet_device.h", "fleet_sched.h")
PLATFORM_TESTS = 10
BACKENDS = ("amd", "nvidia", "host")
PARTS = sorted(glob.glob("examples/parts/*.h"))
PRIVATE_NAMES = {"fleet_calibrate": 2, "fleet_linear": 5, "fleet_server": 38, "fleet_tiles": 2, "fleet_trace": 23}  # at most

text = {name: open(name).read().split("\n") for name in [*LINES, *PARTS]}
findings = []


def found(header, line, what):
    findings.append(f"{header}:{line}: {what}")


def banners(header):
    """(tag, line) of each banner; lines count from 1."""
    return [(m.group(1) if (m := re.search(r">>(\w+)", line)) else "", i)
            for i, line in enumerate(text[header], 1) if line.startswith("/* ====")]


def section(header, tag):
    """(first line, lines) of a section, without its banner; None if the header has none of that name."""
    all_ = banners(header) + [("", len(text[header]) + 1)]
    for (name, begin), (_, end) in zip(all_, all_[1:]):
        if name == tag:
            return begin + 1, text[header][begin:end - 1]
    return None


def check_sections(header):
    contents = []
    for line in text[header]:
        if m := re.match(r"\s+>>(\w+)", line):
            contents.append(m.group(1))
        if "*/" in line:
            break
    if contents[:1] != ["manual"]:
        found(header, 1, "the first comment has no contents list that begins with >>manual")
    tags = ["manual"]
    for tag, line in banners(header):
        if not tag:
            found(header, line, "a banner without a >>tag")
        elif tag in tags:
            found(header, line, f"a second section >>{tag}")
        else:
            tags.append(tag)
    if contents and contents != tags:
        found(header, 1, f"contents list: {' '.join(contents)}; banners: {' '.join(tags)}")
    seen = {}
    for i, line in enumerate(text[header], 1):
        if m := re.match(r"/\* ---- (.*?) -+ \*/", line):
            if m.group(1) in seen:
                found(header, i, f"a second part \"{m.group(1)}\", the first is at line {seen[m.group(1)]}")
            seen[m.group(1)] = i


def check_public(header):
    for tag, most in LINES.get(header, {}).items():
        public = section(header, tag)
        if not public:
            found(header, 1, f"no section >>{tag}")
        elif len(public[1]) > most:
            found(header, public[0], f"the section >>{tag} has {len(public[1])} lines, at most {most} are allowed")


def check_platform(_):
    tests = []
    for header in text:
        tag = "manual"
        tag_at = dict((line, name) for name, line in banners(header))
        for i, line in enumerate(text[header], 1):
            tag = tag_at.get(i, tag)
            if tag in BACKENDS:
                continue
            if re.match(r"\s*#\s*(if|ifdef|ifndef|elif)\b.*\b(FLEET_HIP|FLEET_CUDA|FLEET_HOST|__gfx\w+|__CUDA_ARCH__)\b", line):
                tests.append((header, i))
                if "/*" not in line and not text[header][i - 2].rstrip().endswith("*/"):
                    found(header, i, "a test of the platform without its reason in a comment")
    if len(tests) > PLATFORM_TESTS:
        for header, i in tests:
            found(header, i, f"a test of the platform outside of backend sections: {len(tests)} in all, at most {PLATFORM_TESTS} are allowed")


def check_contract(_):
    header = "fleet_device.h"
    contract = section(header, "contract")
    if not contract:
        found(header, 1, "no section >>contract")
        return
    must, groups, group = {}, {}, None
    for i, line in enumerate(contract[1], contract[0]):
        if line.startswith("/* ---- what a backend may define"):
            group = ""
        if group is not None and (m := re.match(r"/\* (FLEETI_[A-Z_0-9]+)\b", line)):
            group = m.group(1)
            groups[group] = {}
        elif m := re.match(r"(?:[\s*/]*|[A-Z]\w.*?[\s*])\b((?:fleeti?|FLEETI?)_\w+)(?=\s*[(;]|\s|$)", line):
            # A prototype: the name before the first parenthesis. Else: the first word.
            call = re.search(r"\b((?:fleeti?|FLEETI?)_\w+)\s*\(", line)
            (groups[group] if group else must).setdefault(call.group(1) if call else m.group(1), i)
    if not must or not groups:
        found(header, contract[0], "the section >>contract holds no names, or no groups")
    parts = {}
    for backend in (*BACKENDS, "defaults"):
        part = section(header, backend)
        if not part:
            found(header, 1, f"no section >>{backend}")
            return
        parts[backend] = re.sub(r"/\*.*?\*/", " ", "\n".join(part[1]), flags=re.S)
    defaults = {name: code for name, code in re.findall(r"^#if !defined\((\w+)\)\n(.*?)^#endif", parts["defaults"], re.M | re.S)}
    for name in set(defaults) ^ set(groups):
        found(header, contract[0], f"{name} is a group of one of >>contract and >>defaults alone")
    for name, line in must.items():
        for backend in BACKENDS:
            if not definition(name, parts[backend]):
                found(header, line, f"{name} is in the contract, but the section >>{backend} does not define it")
        if definition(name, parts["defaults"]):
            found(header, line, f"{name} is what a backend has to define, but >>defaults has it")
    for group, names in groups.items():
        for name, line in names.items():
            default = definition(name, defaults.get(group, ""))
            if not default:
                found(header, line, f"{name} of the group {group} is not in >>defaults")
            for backend in BACKENDS:
                own, brings = definition(name, parts[backend]), re.search(rf"^#define {group}\b", parts[backend], re.M)
                if own and own == default:
                    found(header, line, f"{name} of the section >>{backend} is what >>defaults has")
                elif bool(own) != bool(brings):
                    found(header, line, f"{name} of the section >>{backend}: a backend defines {group}, and all that is in it, or nothing")
    for backend in BACKENDS:
        for name in re.findall(r"^#define (FLEETI_OWN_\w+)", parts[backend], re.M):
            if name not in groups:
                found(header, contract[0], f"the section >>{backend} defines {name}, which is no group of the contract")


def definition(name, code):
    """What defines a name in code without comments, without white space; empty if nothing does."""
    to_end = r"(?:\}|(?s:.*?)^\})"  # of a body whose brace is open
    for form in (rf"^[ \t]*#[ \t]*define[ \t]+{name}\b(?:.*\\\n)*.*", rf"^(?:\w[^;{{}}\n]*\b)?{name}[ \t]*\([^;{{}}]*\)[^;{{}}()]*\{{{to_end}",
                 rf"^\}}[ \t]*{name}[ \t]*;", rf"\b(?:struct|enum|union)[ \t]+{name}\s*\{{{to_end}",
                 rf"^[ \t]*typedef\b[^;{{}}]*\b{name}[ \t]*(?:\[[^\]]*\])?;", rf"^FLEETI_\w+\({name}\b.*"):
        if m := re.search(form, code, re.M):
            return re.sub(r"\s+", "", m.group())
    return ""


def public_names(header):
    """Macros, types, values of enums, functions that the public sections of a header declare; no names of enums."""
    names = []
    for tag in LINES.get(header, {"public": 0}):
        code = re.sub(r"/\*.*?\*/", " ", "\n".join(section(header, tag)[1]), flags=re.S)
        names += re.findall(r"^[ \t]*#[ \t]*define[ \t]+(\w+)", code, re.M)
        code = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", "", code, flags=re.M)
        for enum in re.findall(r"^typedef enum \w* ?\{([^{}]*)\} \w+;", code, re.M):
            names += re.findall(r"(?:^|,)\s*(\w+)", enum)
        code = re.sub(r"^typedef enum [^;]*;", "", code, flags=re.M)
        names += re.findall(r"\bstruct (\w+)\s*\{", code) + re.findall(r"^typedef\b[^;{}]*\b(\w+);", code, re.M)
        names += re.findall(r"^[A-Za-z](?:\([^()]*\)|[^;{}()=#])*?\b(\w+)\s*\([^;{}]*\)\s*[;{]", code, re.M)
    return [name for name in names if re.match(r"fleet_|FLEET_", name)]


def check_unused(header):
    words = words_of_users()
    pasted = [word[:-2] for word in words if word.endswith("##")]
    for name in public_names(header):
        if name not in words and not any(name.startswith(p) and name[len(p):] in words for p in pasted):
            found(header, next(i for i, line in enumerate(text[header], 1) if re.search(rf"\b{name}\b", line)), f"{name} is used by no example, test or benchmark")


@functools.lru_cache(maxsize=None)
def words_of_users():
    """All words of the code of examples, tests and benchmarks; "word##" of pasted ones."""
    names = [p for p in glob.glob("examples/**", recursive=True) + glob.glob("tests/**", recursive=True)
             if re.search(r"\.(c|h|py|sh)$", p) and not re.search(r"/(parts|build|amdsim|fixtures)/|house\.sh", p)]
    return {word for name in names for word in re.findall(r"\w+(?:##)?", re.sub(r"/\*.*?\*/", " ", open(name).read(), flags=re.S))}


WORDS = r"\b(nobody|somebody|anybody|whoever|whose turn|behind|on (?:its|their) way)\b"


def check_words(header):
    for i, line in enumerate(text[header], 1):
        if m := re.search(WORDS, line, re.I):
            found(header, i, f"the word \"{m.group(1)}\"")


# Where device code begins: a function, or a macro that makes some.
DEVICE = re.compile(r"(?:FLEET_DEVICE|FLEETI_OUTLINED|FLEET_HOST_DEVICE|FLEET_GLOBAL\(.*?\))\b|#define (?:FLEETI_POLICY|FLEETI_LOOP)\(")
POLLS = re.compile(r"poll|_load_|_acquire\(|is_full|is_free")  # in the condition of a loop that counts: it may not end


def loops(header):
    """(line, function, tags) of each loop of device code that does not just count; tags: those of its comment."""
    lines = text[header]
    code = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), "\n".join(lines), flags=re.S).split("\n")
    name = macro = body = None
    for at, line in enumerate(code):
        if name is None and DEVICE.match(line):
            head = re.sub(r"^FLEET_GLOBAL\(.*?\)", "", " ".join(code[at:at + 4]))
            name = re.search(r"\b(fleeti?_\w+|FLEETI_POLICY|FLEETI_LOOP)\s*\(", head)
            name, macro, body = name.group(1) if name else "?", line.startswith("#"), line.startswith("#")
        if name is None:
            continue
        body = body or "{" in line
        if body and turns(code, at):
            comment = re.search(r"(?:/\*(?:(?!\*/).)*\*/\s*)?\Z", "\n".join(lines[max(at - 4, 0):at]).replace("FLEETI_ROLLED", "").replace("\\", "").rstrip() + " ", re.S).group() + lines[at]
            yield at + 1, name, re.findall(r"\bloop (\d+)\b", comment) + re.findall(r"\bbounded by\b", comment)
        if line.startswith("}") or (macro and not line.rstrip().endswith("\\")) or (not body and line.endswith(";")) or (not macro and re.search(r"^\S.*\{.*\}$", line)):
            name = None


def turns(code, at):
    """Whether a loop begins on the line that does not just count."""
    line, rest = code[at], " ".join(part.strip(" \\") for part in code[at:at + 3])
    if m := re.search(r"\bfor \(", line):
        parts = re.match(r"for \([^;]*;([^;]*);([^;]*?)\)", rest[rest.index("for ("):])
        return not parts or not parts.group(1).strip() or not parts.group(2).strip() or bool(POLLS.search(parts.group(1)))
    if re.search(r"(?:^|[);] ?)\s*do\b", line):
        return "} while (0)" not in " ".join(code[at:at + 80]).split("\\  do")[0] or "do {  " not in line
    return bool(re.search(r"\bwhile \(", line)) and not re.match(r"\s*\} while \(", line) and not re.match(r"\s*do\b", code[at - 1])


def check_loops(_):
    table = {}
    for header in text:
        manual = "\n".join(text[header]).split("\n   LOOPS\n")
        if len(manual) != 2:
            continue
        rows = re.findall(r"^ {7,8}(\d+) (\w+)(.*?)(?=^ {7,8}\d+ |\Z)", manual[1].split("\n   ERRORS\n")[0], re.M | re.S)
        for number, name, row in rows:
            if number in table:
                found(header, 1, f"a second loop {number}")
            table[number] = name
            if " ends " not in row:
                found(header, 1, f"loop {number}: no word on what ends it")
            tests = re.findall(r"(tests/[\w/]+\.\w+)(?:, (\w+))?", row)
            if not tests:
                found(header, 1, f"loop {number}: no test that ends the run inside of it")
            for file, test in tests:
                if test not in open(file).read():
                    found(header, 1, f"loop {number}: {file} has no test {test}")
    if not table:
        found("fleet_device.h", 1, "no table LOOPS")
    seen = set()
    for header in text:
        for line, name, tags in loops(header):
            if not tags:
                found(header, line, f"a loop in {name} that neither counts, nor is in a table LOOPS, nor says what it is bounded by")
            for tag in tags:
                if tag.isdigit() and table.get(tag) != name:
                    found(header, line, f"loop {tag} is in {name}, in the table LOOPS in {table.get(tag)}")
                seen.add(tag)
        seen |= set(re.findall(r"/\* loop (\d+) of waves of the CPU", "\n".join(text[header])))
    for number in table.keys() - seen:
        found("fleet_device.h", 1, f"loop {number} of the table LOOPS is not in the code")


NAME = r"\b(?:fleeti?_\w+|FLEETI?_\w+)"


def check_core(_):
    core = {name for header in CORE for name in re.findall(NAME, "\n".join(text[header]))}
    for part in PARTS:
        for i, line in enumerate(text[part], 1):
            for name in re.findall(rf"^#define ({NAME})|^\}} ({NAME});|^(?!.*=)\w.*?({NAME})\(", line):
                if (name := "".join(name)) in core:
                    found(part, i, f"the three headers have the name {name}")


PRIVATE = r"\b(?:fleeti|FLEETI)_\w+"


def bare(code):
    """Without comments, but for those that say what is private; lines stay."""
    return re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", "", m.group()) + "/*private*/" * ("is private" in m.group()),
                  code, flags=re.S)


def check_private(_):
    """A field is looked up in the types with which the file itself declares the variable, or any file the member."""
    core = set(re.findall(PRIVATE, bare("\n".join(line for header in CORE for line in text[header]))))
    for part in PARTS:
        used = core & set(re.findall(PRIVATE, bare("\n".join(text[part]))))
        if len(used) > (most := PRIVATE_NAMES.get(part[len("examples/parts/"):-2], 0)):
            found(part, 1, f"{len(used)} private names of the three headers, at most {most}: {' '.join(sorted(used))}")
    examples = {p: bare(open(p).read()) for p in glob.glob("examples/**/*.[ch]", recursive=True)
                if p not in PARTS and "/build/" not in p}
    sections = [("public", code) for code in examples.values()]
    for header in text:
        for (tag, begin), (_, end) in zip(banners(header), banners(header)[1:] + [("", len(text[header]) + 1)]):
            sections.append(("public" if tag in LINES.get(header, {"public": 0}) else tag, bare("\n".join(text[header][begin:end - 1]))))
    declared = r"\b([a-z]\w*)(?: const)? \**(\w+)(?=[;,)=\[]| =)"
    private, public, members = {}, {}, {}
    for tag, code in sections:
        for name, body in re.findall(r"^(?:typedef )?struct (\w+) \{\n(.*?)^\}", code, re.M | re.S):
            before, mark, after = body.partition("/*private*/")
            if not mark and tag != "public":
                before, after = "", body
            for fields, part in ((public, before), (private, after)):
                fields[name] = set(re.findall(r"(\w+)(?:\[[^;,]*\])?(?: : \d+)?[;,]", part))
            for kind, member in re.findall(declared, before):
                members.setdefault(member, set()).add(kind)
    for path, code in examples.items():
        variables = {}
        for kind, name in re.findall(declared, code):
            variables.setdefault(name, set()).add(kind)
        for i, line in enumerate(code.split("\n"), 1):
            for name in re.findall(PRIVATE, line):
                found(path, i, f"the private name {name}")
            for m in re.finditer(r"\b(\w+)(?:\[[^\]]*\])?(?:->|\.)(?=(\w+))", line):
                name, field = m.groups()
                kinds = (members if line[:m.start()].endswith(("->", ".")) else variables).get(name, set()) & private.keys()
                if any(field in private[kind] for kind in kinds) and not any(field in public[kind] for kind in kinds):
                    found(path, i, f"{name}.{field} is private")


def check_places(_):
    places, page = 0, ".github/CONTRIBUTING.md"
    guide = open(page).read()
    for found_at in re.finditer(r"^(?:\d+\. (`[^:]*):|\| (`[^|]*) \|)", guide, re.M):
        line = guide.count("\n", 0, found_at.start()) + 1
        for place in (found_at.group(1) or found_at.group(2)).split(";"):
            if not (m := re.match(r"\s*`([\w./]+\.\w+)`(.*)", place, re.S)) or "NAME." in m.group(1):
                continue  # a command, or the reader's own file
            places += 1
            files = [m.group(1)] if os.path.exists(m.group(1)) else glob.glob(f"examples/**/{m.group(1)}", recursive=True)
            if len(files) != 1:
                found(page, line, f"{m.group(1)}: {len(files)} such files")
                continue
            where, code = files[0], open(files[0]).read()
            sections = dict(re.findall(r"^/\* ==== >>(\w+)(.*?)(?=^/\* ==== >>|\Z)", code, re.M | re.S), manual="", NAME="")
            for name, tag in re.findall(r"`(\w+)`|>>(\w+)", m.group(2)):
                if tag:
                    where, code = f"{files[0]} >>{tag}", sections.get(tag)
                if code is None or name and not re.search(rf"^(?:\w|#define ).*\b{name}\b", code, re.M):
                    found(page, line, f"{where}: no {name or 'such section'}")
    if places < 50:
        found(page, 1, f"only {places} places were found")


checks = {"core": check_core, "places": check_places, "private": check_private, "loops": check_loops, "words": check_words, "sections": check_sections, "public": check_public, "platform": check_platform, "contract": check_contract, "unused": check_unused}
of_all = ("core", "places", "private", "platform", "contract", "loops")  # checks of all headers at once
for word in sys.argv[1:] or checks:
    name, _, header = word.partition(":")
    if name not in checks or (header and header not in text):
        sys.exit(f"tests/house.sh: {word} is none of {', '.join(checks)}, or names a header that is none of {', '.join(text)}")
    for h in [header] if header else list(text)[:1] if name in of_all else text:
        checks[name](h)
print("\n".join(findings))
sys.exit(1 if findings else 0)
PYTHON
