#!/usr/bin/env bash
# The chat templates that examples/qwen3 has compiled in, beside jinja2 with the templates' text, as
# the models' files have it (chat_templates/): random conversations.
#
#   [OUT=FOLDER] tests/qwen3/chat_templates.sh [CONVERSATIONS]
set -eu
cd "$(dirname "$0")/../.."
# shellcheck source=tests/setup.sh
. tests/setup.sh
setup_packages gcc:gcc python3:python3
setup_qwen3
python=python3
if ! $python -c 'import jinja2' 2>/dev/null; then
    install_packages python3-jinja2
    python=/usr/bin/python3
fi
out=${OUT:-tests/build/qwen3/chat_templates}
mkdir -p "$out"

# shellcheck disable=SC2086
gcc -std=c11 -O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -Wno-unused-function -I. \
    tests/qwen3/chat_templates/render.c -o "$out/render" ${LIBRARIES:--ljansson -lpcre2-8 -lunistring}
$python tests/qwen3/chat_templates.py "${1:-4000}" "$out/render" tests/qwen3/chat_templates/qwen3.jinja \
    tests/qwen3/chat_templates/qwen3-instruct.jinja tests/qwen3/chat_templates/qwen3-thinking.jinja \
    tests/qwen3/chat_templates/qwen2.5.jinja tests/qwen3/chat_templates/llama3.jinja
