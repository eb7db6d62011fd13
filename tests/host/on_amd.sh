#!/usr/bin/env bash
# tests/bench/on_amd.sh on a machine that has ROCm in a folder and nothing else: a made-up ROCm whose compiler writes programs
# that print what a chip would, and a PATH without a package manager, other compilers or Python. What it says when
# all is right, when a part lacks something, and when one fails. And examples/run.sh, which finds ROCm in the same way.
#
#   OUT=FOLDER tests/host/on_amd.sh
set -eu
mkdir -p "$OUT"
out=$(cd "$OUT" && pwd)
rm -rf "${out:?}/rocm" "$out/bin" "$out/other" "$out/tree"
mkdir -p "$out/rocm/bin" "$out/rocm/lib/llvm/bin" "$out/bin" "$out/tree/tests"
: >"$out/kfd"

# A tree of its own, so that the results of a real run stay; the sources are not copied.
ln -s "$PWD"/{fleet.h,fleet_device.h,fleet_sched.h} "$out/tree"
mkdir "$out/tree/examples"
cp -r examples/{01_split_row_sum.c,run.sh,tools} "$out/tree/examples"
for part in amdsim fixtures isa setup.sh; do ln -s "$PWD/tests/$part" "$out/tree/tests/$part"; done
cp -r tests/bench "$out/tree/tests/bench" # a script goes to the folder above its own
mkdir "$out/tree/tests/gpu"
ln -s "$PWD"/tests/gpu/{events,ring,meanwhile}.c "$out/tree/tests/gpu"

for command in awk basename bash cat chmod cp cut date dirname env find grep head id ls mkdir mktemp mv nproc paste readlink rm \
    sed seq sh sleep sort tail tee timeout touch tr uname; do
    ln -s "$(command -v $command)" "$out/bin/$command"
done
for command in apt-get apt dnf yum dpkg-query sudo chroot debootstrap unshare make gcc cc python3; do
    printf '#!%s\necho "$(basename "$0") $*" >>"%s/called"\nexit 1\n' "$(command -v sh)" "$out" >"$out/bin/$command"
    chmod +x "$out/bin/$command"
done
: >"$out/called"

# The compiler. FAKE_LACKS: a header that is not there; FAKE_BROKEN: a source that does not compile.
cat >"$out/rocm/bin/hipcc" <<'END'
#!/usr/bin/env bash
to= from=
while [ $# -gt 0 ]; do
    case $1 in
    -o) to=$2 && shift ;;
    --version) echo "HIP version: 6.2.0" && exit ;;
    *.c | *.hip | *.o) from=$1 ;;
    esac
    shift
done
if [ -n "${FAKE_LACKS:-}" ] && grep -qE "$FAKE_LACKS" "$from"; then echo "$from:2:10: fatal error: file not found" && exit 1; fi
if [ -n "${FAKE_BROKEN:-}" ] && [[ $from = *$FAKE_BROKEN* ]]; then echo "$from:1:1: error: it is broken" && exit 1; fi
[ -n "$to" ] || exit 0
{ echo '#!/usr/bin/env bash' && echo "name=$(basename "$from")" && cat "$FAKE_PROGRAM"; } >"$to"
chmod +x "$to"
END
# What its programs print, by their name. FAKE_FAILS: a program or an argument of it that fails; FAKE_HANGS: that never ends.
cat >"$out/program" <<'END'
words=" $name $* "
[ -z "${FAKE_HANGS:-}" ] || [[ $words != *" $FAKE_HANGS "* ]] || sleep 60
[ -z "${FAKE_FAILS:-}" ] || [[ $words != *" $FAKE_FAILS "* ]] || { echo "FAIL one: it is wrong" && exit 1; }
case $words in
*" timed.hip map "*) echo "figure machine.cus 304  gfx942" && echo "fact   map of 304 workgroups: 6 7 0 1" ;;
*" timed.hip flags "*) echo "figure handover.across  450 ns" ;;
*" timed.hip "*) echo "figure ${2:-host.round_trip} 1.5 us" ;;
*" hazards.hip "*) echo "figure hazard.SGPR_VALU wrong waves of 4864 with 0, 1, ... wait states: 12 0 0" ;;
*" qwen3.o "*" --check "*) echo "ok: the tokens are those of the reference" ;;
*" qwen3.o "*" --bench "*) echo "TPOT 5.10 ms (196 tokens/s), 15.14 GB per step: 2969 GB/s, 72% of the 4100 GB/s of a plain read" ;;
*" qwen3.o "*) echo "first token after 40 ms" ;;
*" serving.o "*) printf 'decode\t1\t5.2\n' ;;
*" meanwhile.c "*) echo "pass which_calls_wait" ;;
*) echo "ok: made up" && echo "pass made_up" ;;
esac
END
chmod +x "$out/rocm/bin/hipcc"
ln -s ../../../bin/hipcc "$out/rocm/lib/llvm/bin/clang"
printf '#!/usr/bin/env bash\necho "  Name:  gfx942"\necho "  Marketing Name:          AMD Instinct MI300X"\n' >"$out/rocm/bin/rocminfo"
printf '#!/usr/bin/env bash\nwhile [ $# -gt 0 ] && [ "$1" != -- ]; do [ "$1" != -d ] || to=$2; shift; done\nshift\nmkdir -p "$to"\necho "decode,TCC_MISS_sum,1000" >"$to/1.csv"\nexec "$@"\n' >"$out/rocm/bin/rocprofv3"
chmod +x "$out"/rocm/bin/*

# expect NAME STATUS PATTERN [SETTING=VALUE...] -- COMMAND...: the command's status, and lines of what it says or reports.
report=$out/tree/tests/build/bench/on_amd.txt
expect() {
    local name=$1 status=$2 pattern=$3 rc=0 settings=()
    shift 3
    while [ "$1" != -- ]; do settings+=("$1") && shift; done
    shift
    rm -f "$report"
    env -i PATH="$out/bin" HOME="$out" ROCM_PATH="$out/rocm" ROCM_KFD="$out/kfd" FAKE_PROGRAM="$out/program" JOBS=4 \
        "${settings[@]}" "$@" >"$out/log" 2>&1 </dev/null || rc=$?
    [ ! -e "$report" ] || cat "$report" >>"$out/log"
    if [ $rc = "$status" ] && tr '\n' '~' <"$out/log" | grep -qE "$pattern"; then
        echo "pass $name"
    else
        echo "FAIL $name: status $rc, expected $status and $pattern: $(tr '\n' '~' <"$out/log" | tail -c 1500)"
    fi
}
on_amd=$out/tree/tests/bench/on_amd.sh
parts='machine hazards litmus suite chip beside decoder prompts server counters'
# shellcheck disable=SC2086
expect all_parts_in_order_and_one_file 0 "^AMD Instinct MI300X, .*figure machine.cus 304.*== summary~$(printf 'part %s: ok, [0-9]+ s~' $parts)\$" -- "$on_amd"
expect times_of_the_decoder_are_in_the_table 0 '\| 1 \| static \| 5.10 ms \| 2969 GB/s \| 72% of 4100 GB/s \|' -- "$on_amd" decoder
expect no_gpu_is_an_error 1 'there is no AMD GPU here.*--simulated' ROCM_KFD="$out/none" -- "$on_amd"
expect a_wrong_folder_is_an_error 1 "ROCM_PATH is $out, where bin/hipcc is missing" ROCM_PATH="$out" -- "$on_amd"
expect no_rocm_is_an_error 1 'hipcc is neither on PATH nor in /opt/rocm/bin: install ROCm' ROCM_PATH= -- "$on_amd"
expect an_unknown_part_is_an_error 1 'all is no part; there are: machine' -- "$on_amd" all
expect without_stb_the_chip_is_measured 1 'part litmus: not run: stb_ds.h is missing.*figure handover.across  450 ns.*part chip: ok.*part decoder: not run: stb_ds.h is missing' \
    FAKE_LACKS='include <(stb/)?stb_ds.h' -- "$on_amd" litmus chip decoder
expect without_jansson_the_suite_runs 1 'part suite: ok.*part decoder: not run: jansson, PCRE2 and libunistring' FAKE_LACKS=jansson.h -- "$on_amd" suite decoder
expect what_does_not_build_is_named 1 'part suite: FAILED: events does not build: .*error: it is broken' FAKE_BROKEN=gpu/events.c -- "$on_amd" suite
expect a_test_that_fails_is_named 1 'part suite: FAILED: ring: FAIL one: it is wrong.*part chip: ok' FAKE_FAILS=ring.o -- "$on_amd" suite chip
expect a_litmus_test_that_fails_is_named 1 'part litmus: FAILED: order_system~' FAKE_FAILS=order_system -- "$on_amd" litmus
expect a_hazard_is_named 1 'part hazards: FAILED' FAKE_FAILS=count -- "$on_amd" hazards
expect no_time_of_a_decoder_that_is_wrong 1 'part decoder: FAILED: the check of tests/fixtures/qwen3-tiny' FAKE_FAILS=tests/fixtures/qwen3-tiny -- "$on_amd" decoder
! grep -q TPOT "$report" || echo "FAIL no_time_of_a_decoder_that_is_wrong: there is one"
expect what_hangs_is_ended 1 '\(ended after [0-9]+ s\).*part chip: FAILED: flags' FAKE_HANGS=flags FLEET_LIMIT=4 -- "$on_amd" chip
expect nothing_begins_after_the_limit 1 'part chip: not run: the 0 seconds are over' FLEET_LIMIT=0 -- "$on_amd" chip
expect without_a_profiler_it_says_so 1 'part counters: not run: neither rocprofv3 nor rocprof' PATH="$out/bin" ROCM_PATH="$out/other" -- \
    bash -c 'cp -r "$0/rocm" "$0/other" && rm "$0/other/bin/rocprofv3" && exec "$1" counters' "$out" "$on_amd"
expect examples_find_the_same_rocm 0 '== 01_split_row_sum \(hip\)~.*1 examples ok' -- bash -c 'rm "$0"/bin/cc "$0"/bin/gcc; exec "$0/tree/examples/run.sh" 01' "$out"
expect examples_say_why_they_use_the_cpu 1 "on the CPU: there is an AMD GPU, but ROCM_PATH is $out" ROCM_PATH="$out" -- \
    bash -c 'printf "#!/bin/sh\nexit 1\n" >"$0/bin/cc"; chmod +x "$0/bin/cc"; : >"$0/tree/stb_ds.h"; exec "$0/tree/examples/run.sh" 01' "$out"
if [ -s "$out/called" ]; then echo "FAIL nothing_is_installed: $(sort -u "$out/called" | tr '\n' ';')"; else echo "pass nothing_is_installed"; fi
