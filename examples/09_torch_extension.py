#!/usr/bin/env python3
"""09: a megakernel in PyTorch.

    python3 examples/09_torch_extension.py

y = relu(x w1) w2 for a few rows, in one launch: `up` computes a block of columns of h = relu(x w1) per task, `down` a block
of columns of y = h w2 after all of h. torch.utils.cpp_extension compiles the kernel, which then runs on PyTorch's current
stream, on PyTorch's tensors, and in a CUDA graph. The sources are those of any fleet program; only the functions at their
end know PyTorch. Needs PyTorch for CUDA or ROCm, ninja, nvcc or hipcc, and a GPU of theirs; the first run compiles for a minute
or two. For ROCm, PyTorch translates the source to HIP (hipify); it leaves headers in angle brackets alone.
"""
import os
import sys

CUDA = r"""
#define FLEET_IMPLEMENTATION
#include <fleet_sched.h>

#include <c10/cuda/CUDAStream.h>
#include <memory>
#include <torch/types.h>

#define COLUMNS 64 /* of a task */

typedef struct mlp { /* what every tile sees; row-major */
    const float *x, *w1, *w2;
    float *h, *y;
    int32_t rows, in, hidden, out;
} mlp;

/* Some columns of to = from w, [rows, k] x [k, n], by the threads of a workgroup. */
FLEET_DEVICE void multiply(const fleet_ctx *ctx, const float *from, const float *w, float *to, int32_t rows, int32_t k,
                           int32_t n, int32_t first, bool relu)
{
    const int32_t columns = n - first < COLUMNS ? n - first : COLUMNS;
    for (int32_t i = (int32_t)ctx->thread; i < rows * columns; i += (int32_t)ctx->threads) {
        const int32_t row = i / columns, column = first + i % columns;
        float sum = 0;
        for (int32_t j = 0; j < k; j++) sum += from[row * k + j] * w[j * n + column];
        to[row * n + column] = relu && sum < 0 ? 0 : sum;
    }
}
FLEET_TILE(up, mlp)
{
    multiply(&ctx, args->x, args->w1, args->h, args->rows, args->in, args->hidden, at[0] * COLUMNS, true);
    return FLEET_OK;
}
FLEET_TILE(down, mlp)
{
    multiply(&ctx, args->h, args->w2, args->y, args->rows, args->hidden, args->out, at[0] * COLUMNS, false);
    return FLEET_OK;
}
#define MLP_TILES(TILE, P) TILE(P, up) TILE(P, down)
FLEET_MEGAKERNEL(mlp, MLP_TILES, 256)

/* Owns all that launches need but x, w1, w2 and y, whose memory must stay. */
typedef struct bound_mlp {
    fleet_session session;
    torch::Tensor h;
    ~bound_mlp() { fleet_session_close(&session); }
} bound_mlp;

static void check(fleet_status status)
{
    TORCH_CHECK(status == FLEET_OK, "fleet: ", fleet_status_text(status));
}

int64_t mlp_open(torch::Tensor x, torch::Tensor w1, torch::Tensor w2, torch::Tensor y)
{
    const int64_t hidden = w1.size(1), out = w2.size(1);
    std::unique_ptr<bound_mlp> m(new bound_mlp()); /* closed where a check below throws */
    fleet_graph *g = fleet_graph_create(NULL);
    fleet_grid ups = fleet_call_device(g, "up", mlp_up, fleet_shape1_of((hidden + COLUMNS - 1) / COLUMNS), 0);
    fleet_grid downs = fleet_call_device(g, "down", mlp_down, fleet_shape1_of((out + COLUMNS - 1) / COLUMNS), 0);
    fleet_after(g, downs, ups);
    fleet_session_desc desc = fleet_session_desc_default();
    desc.launch.stream = c10::cuda::getCurrentCUDAStream();
    const fleet_status status = fleet_session_open(&m->session, g, &desc, FLEET_KERNEL_OF(mlp_kernel));
    const std::string error = fleet_graph_error(g);
    fleet_graph_destroy(g);
    TORCH_CHECK(status == FLEET_OK, "fleet: ", fleet_status_text(status), " ", error);

    mlp args;
    m->h = torch::empty({x.size(0), hidden}, x.options());
    args.x = x.data_ptr<float>(), args.w1 = w1.data_ptr<float>(), args.w2 = w2.data_ptr<float>();
    args.h = m->h.data_ptr<float>(), args.y = y.data_ptr<float>();
    args.rows = (int32_t)x.size(0), args.in = (int32_t)x.size(1);
    args.hidden = (int32_t)hidden, args.out = (int32_t)out;
    check(fleet_session_args(&m->session, &args, sizeof args));
    return (int64_t)(uintptr_t)m.release();
}

/* Only enqueues, so that it can be captured. */
void mlp_launch(int64_t handle)
{
    bound_mlp *m = (bound_mlp *)(uintptr_t)handle;
    fleet_launch_desc launch = m->session.launch;
    launch.stream = c10::cuda::getCurrentCUDAStream();
    check(fleet_launch(&m->session.state, &launch, FLEET_KERNEL_OF(mlp_kernel), m->session.args));
}

void mlp_wait(int64_t handle)
{
    check(fleet_session_wait(&((bound_mlp *)(uintptr_t)handle)->session));
}

void mlp_close(int64_t handle)
{
    delete (bound_mlp *)(uintptr_t)handle;
}
"""

CPP = """
int64_t mlp_open(torch::Tensor x, torch::Tensor w1, torch::Tensor w2, torch::Tensor y);
void mlp_launch(int64_t handle);
void mlp_wait(int64_t handle);
void mlp_close(int64_t handle);
"""


def skip(why):
    print(f"skip: {why}")
    sys.exit(0)


def main():
    try:
        import torch
        from torch.utils import cpp_extension
    except ImportError:
        skip("no torch")
    if not torch.cuda.is_available():
        skip("no GPU that torch can use")
    if not (cpp_extension.ROCM_HOME if torch.version.hip else cpp_extension.CUDA_HOME):
        skip("no ROCm" if torch.version.hip else "no CUDA toolkit")
    if not cpp_extension.is_ninja_available():
        skip("no ninja")
    headers = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    stb = [os.path.dirname(os.environ["STB_DS"])] if os.environ.get("STB_DS") else []
    options = ["-O2", "-lineinfo"]
    if torch.version.hip:  # for this GPU alone, not for all that PyTorch knows
        options = ["-O2"]
        os.environ.setdefault("PYTORCH_ROCM_ARCH", torch.cuda.get_device_properties(0).gcnArchName.split(":")[0])
    fleet = cpp_extension.load_inline("fleet_mlp", CPP, CUDA, functions=["mlp_open", "mlp_launch", "mlp_wait", "mlp_close"],
                                      extra_include_paths=[headers] + stb, extra_cuda_cflags=options)

    rows, width, hidden, out = 8, 256, 1000, 300
    torch.manual_seed(1)
    x, y = torch.randn(rows, width, device="cuda"), torch.empty(rows, out, device="cuda")
    w1, w2 = torch.randn(width, hidden, device="cuda") / 16, torch.randn(hidden, out, device="cuda") / 32
    launches = 0

    def wrong():
        """Whether y is not what PyTorch makes of x, in double precision."""
        nonlocal launches
        launches += 1
        fleet.mlp_wait(module)
        want = torch.relu(x.double() @ w1.double()) @ w2.double()
        return not torch.allclose(y.double(), want, rtol=1e-4, atol=1e-4)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    errors = 0
    with torch.cuda.stream(stream):
        module = fleet.mlp_open(x, w1, w2, y)
        fleet.mlp_launch(module)
        errors += wrong()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            fleet.mlp_launch(module)
        for _ in range(3):
            x.normal_()
            y.zero_()
            graph.replay()
            errors += wrong()
        fleet.mlp_close(module)
    if errors:
        print(f"wrong: {errors} of {launches} launches")
        sys.exit(1)
    print(f"ok: {launches} launches on PyTorch's stream and tensors, {launches - 1} of them replays of a graph")


main()
