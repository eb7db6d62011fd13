# What the scripts that run a decoder share, for `.`: where compilers are, the platform, and what a model of random weights is.
# shellcheck shell=bash
PATH=$PATH:/usr/local/cuda/bin
# shellcheck source=examples/tools/rocm.sh
. "$(dirname "${BASH_SOURCE[0]}")/../../examples/tools/rocm.sh"
platform=${FLEET_PLATFORM:-}
if [ -z "$platform" ]; then
    platform=host
    if command -v nvcc >/dev/null && nvidia-smi -L >/dev/null 2>&1; then platform=cuda; fi
    if rocm_find && rocm_gpu; then platform=hip; fi
fi

# config LAYERS HIDDEN FFN HEADS KV_HEADS [EXPERTS EXPERTS_PER_TOKEN]: a config.json, with a vocabulary of $VOCABULARY tokens.
config() {
    local kind=Qwen3 type=qwen3 experts=
    if [ $# -gt 5 ]; then
        kind=Qwen3Moe type=qwen3_moe
        experts="\"num_experts\": $6, \"num_experts_per_tok\": $7, \"moe_intermediate_size\": $3, \"norm_topk_prob\": true,"
    fi
    cat <<END
{
  "architectures": ["${kind}ForCausalLM"], "model_type": "$type", $experts
  "num_hidden_layers": $1, "hidden_size": $2, "intermediate_size": $3,
  "num_attention_heads": $4, "num_key_value_heads": $5, "head_dim": 128,
  "vocab_size": ${VOCABULARY:-151936}, "max_position_embeddings": 40960,
  "rope_theta": 1000000.0, "rms_norm_eps": 1e-06,
  "hidden_act": "silu", "attention_bias": false, "tie_word_embeddings": false
}
END
}
