#include "backends/cuda/attention/cudnn_plans.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "backends/cuda/common/plan_key.h"
#include "backends/cuda/runtime/launch.h"

namespace mytorch::cuda {
namespace {

constexpr size_t kMostPlans = 256;
// A deterministic gradient stores the gradients of all scores, 2 bytes each. It runs over as many
// batches or heads at a time as this allows.
constexpr int64_t kMostScoreBytes = int64_t{1} << 30;
constexpr int64_t kMostWorkspace = 2 * kMostScoreBytes;

struct AttentionPlan {
  std::optional<ExecutionPlan> plan;  // absent: the library has no engine
  std::vector<CudnnConstant> constants;
};

// Everything on which a plan depends.
using AttentionKey = PlanKey<72>;

AttentionKey key_of(const mt_ctx& ctx, const CudnnAttention& call, bool backward) {
  AttentionKey key;
  size_t i = 0;
  const auto put = [&](int64_t word) { key.words[i++] = word; };
  const auto put_band = [&](const std::optional<int64_t>& bound) {
    put(bound ? 1 : 0);
    put(bound.value_or(0));
  };
  const auto put_strides = [&](const Layout4& x) {
    for (size_t d = 0; d < 3; ++d) put(x.stride[d]);
  };
  const auto put_layout = [&](const std::optional<Layout4>& x) {
    put(x ? 1 : 0);
    if (!x) return;
    for (const int64_t size : x->size) put(size);
    put_strides(*x);
  };
  put(static_cast<int64_t>(call.type) << 32 | int64_t{ctx.device.index} << 8 | (backward ? 2 : 0) |
      (call.deterministic ? 1 : 0));
  for (const int64_t size : call.query.size) put(size);
  put(call.key.size[1]);
  put(call.key.size[2]);
  put(call.value.size[3]);
  for (const Layout4* x : {&call.query, &call.key, &call.value, &call.output}) put_strides(*x);
  put_band(call.lowest);
  put_band(call.highest);
  put_layout(call.mask);
  if (!backward) return key;
  for (const Layout4* x : {&call.grad_output, &call.grad_query, &call.grad_key, &call.grad_value}) {
    put_strides(*x);
  }
  put_layout(call.grad_mask);
  return key;
}

AttentionPlan make_plan(cudnnHandle_t handle, const CudnnAttention& call, bool backward) {
  std::optional<CudnnGraph> graph =
      backward ? backward_graph(handle, call) : forward_graph(handle, call);
  if (!graph) return {};
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Descriptor& config : proposed_engines(graph->graph, mode)) {
      std::optional<ExecutionPlan> plan = execution_plan(handle, config);
      if (plan && plan->workspace <= kMostWorkspace) {
        return {std::move(plan), std::move(graph->constants)};
      }
    }
  }
  return {};
}

const AttentionPlan& plan_of(mt_ctx& ctx, cudnnHandle_t handle, const CudnnAttention& call,
                             bool backward) {
  thread_local std::unordered_map<AttentionKey, AttentionPlan, PlanKeyHash> plans;
  const AttentionKey key = key_of(ctx, call, backward);
  const auto found = plans.find(key);
  if (found != plans.end()) return found->second;
  AttentionPlan plan = make_plan(handle, call, backward);
  if (plans.size() >= kMostPlans) plans.clear();
  return plans.emplace(key, std::move(plan)).first->second;
}

void execute(mt_ctx& ctx, cudnnHandle_t handle, const AttentionPlan& plan, const CudnnData& data,
             float scale, void* workspace) {
  std::vector<int64_t> ids;
  std::vector<void*> pointers;
  const auto bind = [&](int64_t id, const void* pointer) {
    ids.push_back(id);
    pointers.push_back(const_cast<void*>(pointer));
  };
  for (int64_t id = kQuery; id < kScale; ++id) {
    if (data[static_cast<size_t>(id)] != nullptr) bind(id, data[static_cast<size_t>(id)]);
  }
  bind(kScale, &scale);
  for (const CudnnConstant& constant : plan.constants) bind(constant.id, constant.bytes.data());
  const auto count = static_cast<int64_t>(ids.size());
  Descriptor pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers.data());
  pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
  CUDNN(cudnnBackendFinalize(pack.get()));
  CUDNN(cudnnBackendExecute(handle, plan.plan->plan.get(), pack.get()));
  if (synchronous) queued(ctx, "cudnnBackendExecute");
}

void* workspace_of(mt_ctx& ctx, const AttentionPlan& plan) {
  const int64_t bytes = plan.plan->workspace;
  return bytes == 0 ? nullptr : scratch_bytes(ctx, static_cast<size_t>(bytes));
}

// ---- parts of a gradient

// A range of batches or, within one batch, of key heads.
struct Part {
  int64_t batch, heads;  // sizes; `heads` are key heads
};

// Returns the largest parts whose scores fit the bound; they divide the call evenly.
Part part_of(const CudnnAttention& call) {
  Part part{call.batch(), call.key.size[1]};
  if (!call.deterministic && !call.grad_mask) return part;
  const auto padded = [](int64_t n) { return (n + 127) / 128 * 128; };
  const int64_t group = call.heads() / call.key.size[1];
  const int64_t head = 2 * group * padded(call.queries()) * padded(call.keys());
  const auto divisor = [&](int64_t n, int64_t bytes) {
    int64_t most = std::clamp<int64_t>(kMostScoreBytes / bytes, 1, n);
    while (n % most != 0) --most;
    return most;
  };
  part.batch = divisor(call.batch(), head * part.heads);
  if (part.batch == 1) part.heads = divisor(part.heads, head);
  return part;
}

constexpr int64_t kHalf = 2;  // bytes

// Moves an operand to the part that begins at `batch` and head `head` of its own.
void* moved(void* data, const Layout4& x, int64_t batch, int64_t head, int64_t bytes = kHalf) {
  if (data == nullptr) return nullptr;
  const int64_t offset =
      (x.size[0] == 1 ? 0 : batch * x.stride[0]) + (x.size[1] == 1 ? 0 : head * x.stride[1]);
  return static_cast<char*>(data) + offset * bytes;
}

void shrink(Layout4& x, int64_t batch, int64_t heads) {
  if (x.size[0] != 1) x.size[0] = batch;
  if (x.size[1] != 1) x.size[1] = heads;
}

}  // namespace

bool run_forward(mt_ctx& ctx, const CudnnAttention& call, const CudnnData& data, float scale) {
  use_device(ctx);
  const cudnnHandle_t handle = cudnn_handle_of(ctx);
  const AttentionPlan& plan = plan_of(ctx, handle, call, false);
  if (!plan.plan) return false;
  execute(ctx, handle, plan, data, scale, workspace_of(ctx, plan));
  return true;
}

bool run_backward(mt_ctx& ctx, const CudnnAttention& call, const CudnnData& data, float scale) {
  use_device(ctx);
  const cudnnHandle_t handle = cudnn_handle_of(ctx);
  const Part part = part_of(call);
  const int64_t group = call.heads() / call.key.size[1];
  CudnnAttention piece = call;
  for (Layout4* x : {&piece.query, &piece.output, &piece.grad_output, &piece.grad_query}) {
    shrink(*x, part.batch, part.heads * group);
  }
  for (Layout4* x : {&piece.key, &piece.value, &piece.grad_key, &piece.grad_value}) {
    shrink(*x, part.batch, part.heads);
  }
  for (std::optional<Layout4>* x : {&piece.mask, &piece.grad_mask}) {
    if (*x) shrink(**x, part.batch, part.heads * group);
  }
  if (call.grad_mask) {
    const Layout4& mask = *call.grad_mask;
    const bool batches = part.batch != call.batch(), heads = part.heads != call.key.size[1];
    // The gradient of a broadcast mask would be a sum over the parts.
    if ((batches && mask.size[0] == 1) || (heads && mask.size[1] == 1)) return false;
    if ((batches && mask.stride[0] % 8 != 0) || (heads && mask.stride[1] % 8 != 0)) return false;
  }
  const AttentionPlan& plan = plan_of(ctx, handle, piece, true);
  if (!plan.plan) return false;

  const int64_t rows = part.batch * part.heads * group * call.queries();
  CudnnData now = data;
  now[kRowSums] = scratch<float>(ctx, rows);
  if (!call.deterministic && !call.grad_mask) {
    now[kQuerySums] = scratch<float>(ctx, rows * call.query.size[3]);
  }
  void* const workspace = workspace_of(ctx, plan);
  const Sizes4 row_strides = {call.heads() * call.queries(), call.queries(), 1, 1};
  const Layout4 row_layout = {{call.batch(), call.heads(), call.queries(), 1}, row_strides};
  for (int64_t b = 0; b < call.batch(); b += part.batch) {
    for (int64_t h = 0; h < call.key.size[1]; h += part.heads) {
      const auto put = [&](CudnnOperand id, const Layout4& x, int64_t head, int64_t bytes = kHalf) {
        now[id] = moved(data[id], x, b, head, bytes);
      };
      put(kQuery, call.query, h * group);
      put(kOutput, call.output, h * group);
      put(kGradOutput, call.grad_output, h * group);
      put(kGradQuery, call.grad_query, h * group);
      put(kLogsumexp, row_layout, h * group, sizeof(float));
      put(kKey, call.key, h);
      put(kValue, call.value, h);
      put(kGradKey, call.grad_key, h);
      put(kGradValue, call.grad_value, h);
      if (call.mask) put(kMask, *call.mask, h * group);
      if (call.grad_mask) put(kGradMask, *call.grad_mask, h * group);
      execute(ctx, handle, plan, now, scale, workspace);
    }
  }
  return true;
}

}  // namespace mytorch::cuda
