#!/usr/bin/env bash
# The tokens and texts of examples/qwen3/tokenizer.h beside those of Hugging Face's tokenizers: 10,000 strings and 10,000
# lists of ids, with the tokenizer of the tests and with one of 8,000 tokens that is trained on the strings.
#
#   [OUT=FOLDER] tests/qwen3/huggingface.sh
#
# Where python3 has no module tokenizers, it is Debian testing's, in the root that the HIP tests make (tests/setup.sh).
set -eu
cd "$(dirname "$0")/../.."
# shellcheck source=tests/setup.sh
. tests/setup.sh
setup_packages gcc:gcc python3:python3
setup_qwen3
if python3 -c 'import tokenizers' 2>/dev/null; then
    there=()
else
    trap hip_leave EXIT
    mkdir -p tests/build
    hip_setup
    hip_install python3 python3-tokenizers
    there=(hip_run)
fi
out=${OUT:-tests/build/huggingface}
mkdir -p "$out"
gcc -std=c11 -O2 -Itests tests/qwen3/tokenizer.c -o "$out/tokenizer" "${qwen3_libraries[@]}"

huggingface() { ${there[@]+"${there[@]}"} python3 -B tests/qwen3/huggingface.py "$@"; }

compared() { # NAME TOKENIZER
    "$out/tokenizer" dump "$2" >"$out/$1.dump"
    cat "$2" "$out/$1.dump" | huggingface compare | sed "s,^\(pass\|FAIL\) ,&$1/,"
}
compared fixture tests/fixtures/qwen3-tiny/tokenizer.json
huggingface train 8000 strings <"$out/fixture.dump" >"$out/trained.json"
compared trained "$out/trained.json"
