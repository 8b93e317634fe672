// Convolutions by cuDNN's graph API, of one operation: it is what the library's newer engines are
// reached by, and says of each engine whether it is deterministic and in which precision it works,
// so that those which are not can be passed over. The engines that the library proposes for a shape
// are timed when it comes for the first time, on the operands of that call; plans are kept by each
// thread. Images of a few channels get more of them: the elements that a window reads of a row.
#include <cudnn.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "backends/cuda/convolution/geometry.h"
#include "backends/cuda/kernel/move.h"
#include "backends/cuda/matrix/product.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/timing.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int64_t kMostWorkspace = int64_t{1} << 30;
constexpr size_t kMostPlans = 512;
constexpr size_t kMostTimed = 20;  // plans of a shape

void check(cudnnStatus_t status, const char* what) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw sdk::Error(status == CUDNN_STATUS_ALLOC_FAILED ? MT_ERROR_OUT_OF_MEMORY : MT_ERROR_INTERNAL,
                   std::string(what) + ": " + cudnnGetErrorString(status));
}
#define CUDNN(call) check(call, #call)

// A handle belongs to one thread at a time. Those of threads that end are used again, and none is
// destroyed: at exit the driver may be gone before us.
class Handles {
 public:
  cudnnHandle_t get(const mt_ctx& ctx) {
    cudnnHandle_t& own = by_device_[ctx.device.index];
    if (own == nullptr) own = take(ctx.device.index);
    CUDNN(cudnnSetStream(own, stream_of(ctx)));
    return own;
  }
  ~Handles() {
    const std::lock_guard lock(pool().mutex);
    for (const auto& [device, handle] : by_device_) pool().free[device].push_back(handle);
  }

 private:
  struct Pool {
    std::mutex mutex;
    std::unordered_map<int32_t, std::vector<cudnnHandle_t>> free;
  };
  static Pool& pool() {
    static auto* const instance = new Pool;
    return *instance;
  }
  static cudnnHandle_t take(int32_t device) {
    {
      const std::lock_guard lock(pool().mutex);
      auto& free = pool().free[device];
      if (!free.empty()) {
        const cudnnHandle_t handle = free.back();
        free.pop_back();
        return handle;
      }
    }
    cudnnHandle_t handle;
    CUDNN(cudnnCreate(&handle));
    return handle;
  }
  std::unordered_map<int32_t, cudnnHandle_t> by_device_;
};

// A descriptor of the library's, owned.
class Node {
 public:
  explicit Node(cudnnBackendDescriptorType_t type) {
    CUDNN(cudnnBackendCreateDescriptor(type, &it_));
  }
  Node(Node&& other) noexcept : it_(std::exchange(other.it_, nullptr)) {}
  Node& operator=(Node&& other) noexcept {
    std::swap(it_, other.it_);
    return *this;
  }
  ~Node() {
    if (it_ != nullptr) cudnnBackendDestroyDescriptor(it_);
  }
  cudnnBackendDescriptor_t get() const { return it_; }

  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
           const void* values) {
    CUDNN(cudnnBackendSetAttribute(it_, name, type, count, values));
  }
  void set(cudnnBackendAttributeName_t name, int64_t value) {
    set(name, CUDNN_TYPE_INT64, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const Node& value) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value.it_);
  }
  // False: the library does not take what has been set.
  bool finalize() { return cudnnBackendFinalize(it_) == CUDNN_STATUS_SUCCESS; }

 private:
  cudnnBackendDescriptor_t it_ = nullptr;
};

// ---- layouts

// Of a tensor of two or three spatial dimensions, batch and channels before them.
struct Form {
  int ndim = 0;
  std::array<int64_t, 5> size{}, stride{};
};

// A tensor of sizes as the library sees it: one spatial dimension becomes two.
Form form_of(const TensorView& x, bool channels_last) {
  Form form;
  const int more = x.ndim() == 3 ? 1 : 0;
  form.ndim = x.ndim() + more;
  form.size[0] = x.size(0);
  form.size[1] = x.size(1);
  if (more) form.size[2] = 1;
  for (int d = 2; d < x.ndim(); ++d) form.size[static_cast<size_t>(d + more)] = x.size(d);
  int64_t stride = 1;
  const auto put = [&](int d) {
    form.stride[static_cast<size_t>(d)] = stride;
    stride *= form.size[static_cast<size_t>(d)];
  };
  if (channels_last) put(1);
  for (int d = form.ndim - 1; d >= 2; --d) put(d);
  if (!channels_last) put(1);
  put(0);
  return form;
}

// The strides of the tensor itself that a form gives.
void strides_of(const Form& form, int ndim, int64_t* strides) {
  const int more = form.ndim - ndim;
  for (int d = 0; d < ndim; ++d) {
    strides[d] = form.stride[static_cast<size_t>(d < 2 ? d : d + more)];
  }
}

bool lies_so(const TensorView& x, const Form& form) {
  int64_t strides[5];
  strides_of(form, x.ndim(), strides);
  for (int d = 0; d < x.ndim(); ++d) {
    if (x.size(d) != 1 && x.stride(d) != strides[d]) return false;
  }
  return true;
}

// An operand in a form: itself, or a copy in scratch memory.
class Formed {
 public:
  Formed(mt_ctx& ctx, const TensorView& x, bool channels_last, bool written)
      : ctx_(ctx), x_(x), form_(form_of(x, channels_last)), written_(written) {
    data_ = x.raw();
    if (lies_so(x, form_)) return;
    strides_of(form_, x.ndim(), strides_);
    copy_ = *x.get();
    copy_.dl.strides = strides_;
    copy_.dl.byte_offset = 0;
    copy_.dl.data = data_ = scratch_bytes(ctx, static_cast<size_t>(x.numel() * x.itemsize()));
    copy_.flags = 0;
    copied_ = true;
  }
  Formed(const Formed&) = delete;

  void* data() const { return data_; }
  const Form& form() const { return form_; }
  void before() {
    if (copied_ && !written_) move(ctx_, x_, &copy_);
  }
  void after() {
    if (copied_ && written_) move(ctx_, &copy_, x_);
  }

 private:
  mt_ctx& ctx_;
  TensorView x_;
  Form form_;
  bool written_;
  bool copied_ = false;
  void* data_;
  mt_tensor copy_{};
  int64_t strides_[5]{};
};

bool prefers_channels_last(const Convolution& call) {
  const auto last = [](const TensorView& x) {
    return x.size(1) > 1 && x.stride(1) == 1 && lies_so(x, form_of(x, true)) &&
           !lies_so(x, form_of(x, false));
  };
  // The operands that are read decide.
  return (call.target != Target::kSmall && last(call.small)) ||
         (call.target != Target::kBig && last(call.big)) ||
         (call.target != Target::kWeight && last(call.weight));
}

// Whether there is so much to do that a launch or two more, and the first call's measurements, pay.
bool is_large(const Convolution& call) {
  const Geometry& g = call.geometry;
  int64_t terms = call.weight.numel() * g.batch;
  for (const int64_t size : g.small) terms *= size;
  return terms >= int64_t{1} << 24;
}

// ---- plans

struct Plan {
  std::optional<Node> plan;  // absent: the library has nothing
  int64_t workspace = 0;
  bool final = true;  // false: to be chosen again when there can be timing
};

cudnnDataType_t type_of(mt_dtype dtype) {
  switch (sdk::dtype_key(dtype)) {
    case sdk::dtype_key(sdk::dtype_of<double>):
      return CUDNN_DATA_DOUBLE;
    case sdk::dtype_key(sdk::dtype_of<float>):
      return CUDNN_DATA_FLOAT;
    case sdk::dtype_key(sdk::dtype_of<sdk::Half>):
      return CUDNN_DATA_HALF;
    default:
      return CUDNN_DATA_BFLOAT16;
  }
}

enum { kBigId = 1, kWeightId = 2, kSmallId = 3 };

Node tensor_node(const Form& form, cudnnDataType_t type, int64_t id, int64_t alignment) {
  Node node(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  node.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
  node.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, form.ndim, form.size.data());
  node.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, form.ndim, form.stride.data());
  node.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id);
  node.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  CUDNN(cudnnBackendFinalize(node.get()));
  return node;
}

Node convolution_node(const Geometry& g, cudnnDataType_t compute) {
  const int dims = g.dims == 3 ? 3 : 2;
  const int skip = 3 - dims;
  Node node(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  node.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
  node.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  node.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, int64_t{dims});
  node.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dims, g.dilation + skip);
  node.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, dims, g.stride + skip);
  node.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, dims, g.padding + skip);
  node.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, dims, g.padding + skip);
  CUDNN(cudnnBackendFinalize(node.get()));
  return node;
}

// The names of one operation's attributes.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, big, weight, small, alpha, beta;
};
constexpr Names kForward = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                            CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA};
constexpr Names kBackwardBig = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA};
constexpr Names kBackwardWeight = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA};

// Deterministic, and as precise as the types say. float32 on tensor cores is TF32.
bool acceptable(const Node& config, cudnnDataType_t type) {
  Node engine(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  cudnnBackendDescriptor_t to = engine.get();
  int64_t count = 0;
  if (cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                               &to) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
  if (cudnnBackendGetAttribute(engine.get(), CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                               CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count,
                               notes) != CUDNN_STATUS_SUCCESS) {
    return false;
  }
  for (int64_t i = 0; i < count; ++i) {
    switch (notes[i]) {
      case CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC:
      case CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION:
      case CUDNN_NUMERICAL_NOTE_FFT:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6:
      case CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13:
        return false;
      case CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS:
      case CUDNN_NUMERICAL_NOTE_TENSOR_CORE:
        if (type == CUDNN_DATA_FLOAT && !tf32_allowed()) return false;
        break;
      default:
        break;
    }
  }
  return true;
}

// The proposals of a kind of heuristic, best first.
std::vector<Node> configs_of(const Node& graph, cudnnBackendHeurMode_t mode) {
  std::vector<Node> configs;
  Node heuristic(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  heuristic.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (!heuristic.finalize()) return configs;
  int64_t count = 0;
  if (cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count,
                               nullptr) != CUDNN_STATUS_SUCCESS) {
    return configs;
  }
  std::vector<cudnnBackendDescriptor_t> raw;
  for (int64_t i = 0; i < count; ++i) {
    configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    raw.push_back(configs.back().get());
  }
  int64_t found = 0;
  if (count > 0 && cudnnBackendGetAttribute(heuristic.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                            CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &found,
                                            raw.data()) != CUDNN_STATUS_SUCCESS) {
    found = 0;
  }
  while (static_cast<int64_t>(configs.size()) > found) configs.pop_back();
  return configs;
}

// The operation, as a graph; nothing where the library does not take it.
std::optional<Node> graph_of(cudnnHandle_t handle, const Convolution& call, const Form& big,
                             const Form& weight, const Form& small,
                             const std::array<int64_t, 3>& alignment) {
  const cudnnDataType_t type = type_of(call.out().dtype());
  const bool wide = type == CUDNN_DATA_DOUBLE;
  const Node x = tensor_node(big, type, kBigId, alignment[0]);
  const Node w = tensor_node(weight, type, kWeightId, alignment[1]);
  const Node y = tensor_node(small, type, kSmallId, alignment[2]);
  const Node convolution =
      convolution_node(call.geometry, wide ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT);
  const Names& names = call.target == Target::kSmall ? kForward
                       : call.target == Target::kBig ? kBackwardBig
                                                     : kBackwardWeight;
  Node operation(names.operation);
  operation.set(names.convolution, convolution);
  operation.set(names.big, x);
  operation.set(names.weight, w);
  operation.set(names.small, y);
  const double one = 1, zero = 0;
  const float one32 = 1, zero32 = 0;
  const cudnnBackendAttributeType_t factor = wide ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
  operation.set(names.alpha, factor, 1, wide ? static_cast<const void*>(&one) : &one32);
  operation.set(names.beta, factor, 1, wide ? static_cast<const void*>(&zero) : &zero32);
  if (!operation.finalize()) return std::nullopt;
  Node graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  if (!graph.finalize()) return std::nullopt;
  return graph;
}

// Up to `most` plans that can be used, as the library would try them. Always the same ones.
std::vector<Plan> proposals(cudnnHandle_t handle, const Node& graph, cudnnDataType_t type,
                            size_t most) {
  std::vector<Plan> plans;
  for (const cudnnBackendHeurMode_t mode :
       {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_B, CUDNN_HEUR_MODE_FALLBACK}) {
    for (const Node& config : configs_of(graph, mode)) {
      if (plans.size() >= most) return plans;
      if (!acceptable(config, type)) continue;
      Node plan(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
      plan.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
      if (!plan.finalize()) continue;
      int64_t workspace = 0, count = 0;
      CUDNN(cudnnBackendGetAttribute(plan.get(), CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                     CUDNN_TYPE_INT64, 1, &count, &workspace));
      if (workspace > kMostWorkspace) continue;
      plans.push_back({std::move(plan), workspace});
    }
  }
  return plans;
}

// What a plan is run on.
struct Operands {
  std::array<void*, 3> data;  // big, weight, small
  void* room;

  bool run(cudnnHandle_t handle, const Plan& plan) const {
    const int64_t ids[] = {kBigId, kWeightId, kSmallId};
    Node pack(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, 3, ids);
    pack.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, 3, data.data());
    pack.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &room);
    CUDNN(cudnnBackendFinalize(pack.get()));
    return cudnnBackendExecute(handle, plan.plan->get(), pack.get()) == CUDNN_STATUS_SUCCESS;
  }
};

// MYTORCH_CUDA_CONVOLUTION=first: what the library proposes first, untimed.
bool timing_allowed() {
  static const bool allowed = [] {
    const char* text = std::getenv("MYTORCH_CUDA_CONVOLUTION");
    return text == nullptr || std::strcmp(text, "first") != 0;
  }();
  return allowed;
}

struct Key {
  std::array<int64_t, 32> words{};
  bool operator==(const Key&) const = default;
};
struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = 0x9E3779B97F4A7C15u;
    for (const int64_t word : key.words) {
      hash = (hash ^ static_cast<uint64_t>(word)) * 0xFF51AFD7ED558CCDu;
      hash ^= hash >> 32;
    }
    return static_cast<size_t>(hash);
  }
};

Key key_of(const mt_ctx& ctx, const Convolution& call, bool channels_last,
           const std::array<int64_t, 3>& alignment) {
  const Geometry& g = call.geometry;
  Key key;
  size_t i = 0;
  const auto put = [&](int64_t word) { key.words[i++] = word; };
  put(static_cast<int64_t>(sdk::dtype_key(call.out().dtype())) << 16 | ctx.device.index);
  put(static_cast<int64_t>(call.target) << 8 | g.dims << 1 | (channels_last ? 1 : 0));
  put(call.rank);
  put(g.batch);
  put(g.groups);
  put(g.big_channels);
  put(g.small_channels);
  for (int d = 0; d < 3; ++d) {
    put(g.big[d]);
    put(g.small[d]);
    put(g.kernel[d]);
    put(g.stride[d]);
    put(g.padding[d]);
    put(g.dilation[d]);
  }
  for (const int64_t word : alignment) put(word);
  return key;
}

int64_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data) | 16;
  return static_cast<int64_t>(address & -address);
}

// Which of the proposals for a shape has been found the fastest, by whichever thread came first.
std::optional<size_t> known_best(const Key& key, std::optional<size_t> found) {
  static std::mutex mutex;
  static auto* const best = new std::unordered_map<Key, size_t, KeyHash>;
  const std::lock_guard lock(mutex);
  if (found) return best->emplace(key, *found).first->second;
  const auto it = best->find(key);
  return it == best->end() ? std::nullopt : std::optional<size_t>(it->second);
}

// `operands` have their values, apart from `room`.
Plan make_plan(mt_ctx& ctx, cudnnHandle_t handle, const Convolution& call, const Key& key,
               const Node& graph, Operands operands) {
  const cudnnDataType_t type = type_of(call.out().dtype());
  const size_t rank = static_cast<size_t>(call.rank);
  const bool timed = rank == 0 && timing_allowed() && is_large(call);
  std::optional<size_t> best = timed ? known_best(key, std::nullopt) : rank;
  const bool can_be_timed = timed && !best && !is_recorded(ctx);
  std::vector<Plan> plans = proposals(handle, graph, type,
                                      best           ? *best + 1
                                      : can_be_timed ? kMostTimed
                                                     : 1);
  if (can_be_timed && plans.size() > 1) {
    int64_t workspace = 0;
    for (const Plan& plan : plans) workspace = std::max(workspace, plan.workspace);
    operands.room = workspace == 0 ? nullptr : scratch_bytes(ctx, static_cast<size_t>(workspace));
    best = known_best(
        key, fastest(ctx, plans.size(), [&](size_t i) { return operands.run(handle, plans[i]); }));
  }
  const size_t chosen = best.value_or(0);
  if (chosen >= plans.size()) return {};
  Plan plan = std::move(plans[chosen]);
  plan.final = !timed || best || can_be_timed;
  return plan;
}

bool run(mt_ctx& ctx, const Convolution& call, bool channels_last) {
  thread_local Handles handles;
  thread_local std::unordered_map<Key, Plan, KeyHash> plans;
  const cudnnHandle_t handle = handles.get(ctx);
  Formed big(ctx, call.big, channels_last, call.target == Target::kBig);
  Formed weight(ctx, call.weight, channels_last, call.target == Target::kWeight);
  Formed small(ctx, call.small, channels_last, call.target == Target::kSmall);
  Operands operands{{big.data(), weight.data(), small.data()}, nullptr};
  std::array<int64_t, 3> alignment;
  for (size_t i = 0; i < 3; ++i) alignment[i] = alignment_of(operands.data[i]);
  const Key key = key_of(ctx, call, channels_last, alignment);
  auto found = plans.find(key);
  const bool known = found != plans.end() && (found->second.final || is_recorded(ctx));
  if (known && !found->second.plan) return false;
  big.before();
  weight.before();
  small.before();
  if (!known) {
    Plan plan;
    try {
      if (const std::optional<Node> graph =
              graph_of(handle, call, big.form(), weight.form(), small.form(), alignment)) {
        plan = make_plan(ctx, handle, call, key, *graph, operands);
      }
    } catch (const sdk::Error& error) {
      // A size or an attribute that the library does not take: the same as having no engine.
      if (error.status() != MT_ERROR_INTERNAL) throw;
    }
    if (plans.size() >= kMostPlans) plans.clear();
    found = plans.insert_or_assign(key, std::move(plan)).first;
    if (!found->second.plan) return false;
  }
  const Plan& plan = found->second;
  if (plan.workspace != 0) {
    operands.room = scratch_bytes(ctx, static_cast<size_t>(plan.workspace));
  }
  if (!operands.run(handle, plan)) {
    throw sdk::Error(MT_ERROR_INTERNAL, std::string("cudnnBackendExecute: ") +
                                            cudnnGetErrorString(CUDNN_STATUS_EXECUTION_FAILED));
  }
  if (synchronous) queued(ctx, "cudnnBackendExecute");
  big.after();
  weight.after();
  small.after();
  return true;
}

// ---- few channels

// Tensor cores work on many channels at once, and the library fills up what is missing for each tap
// of a window; a window's taps of a row as channels fill them better. How many channels that makes,
// or 0 where it does not pay. (Not for the gradient of the image, whose elements would meet again.)
int64_t unfolded_channels(const Convolution& call, bool channels_last) {
  const Geometry& g = call.geometry;
  const int64_t channels = g.big_channels * g.kernel[2];
  const bool pays = channels_last && call.target != Target::kBig && call.rank == 0 &&
                    call.out().dtype().bits == 16 && g.dims == 2 && g.groups == 1 &&
                    g.big_channels < 8 && g.kernel[2] > 1 && channels <= 64 && is_large(call);
  return pays ? (channels + 7) / 8 * 8 : 0;
}

// A channels-last tensor of 16-bit elements in scratch memory.
struct Image {
  int64_t shape[4], strides[4];
  mt_tensor tensor{};

  Image(mt_ctx& ctx, mt_dtype dtype, int64_t n, int64_t channels, int64_t rows, int64_t columns)
      : shape{n, channels, rows, columns},
        strides{rows * columns * channels, 1, columns * channels, channels} {
    void* data = scratch_bytes(ctx, static_cast<size_t>(n * channels * rows * columns * 2));
    tensor.dl = {data, ctx.device, 4, dtype, shape, strides, 0};
  }
  Image(const Image&) = delete;
};

bool run_unfolded(mt_ctx& ctx, const Convolution& call, int64_t channels) {
  const Geometry& g = call.geometry;
  const mt_dtype dtype = call.out().dtype();
  Image big(ctx, dtype, g.batch, channels, g.big[1], g.small[2]);
  Image weight(ctx, dtype, g.small_channels, channels, g.kernel[1], 1);
  unfold_columns(ctx, g, call.big, channels, big.tensor.dl.data);
  Convolution unfolded{g,          call.target,  &big.tensor, &weight.tensor,
                       call.small, TensorView(), call.rank};
  unfolded.geometry.big_channels = channels;
  unfolded.geometry.big[2] = g.small[2];
  unfolded.geometry.kernel[2] = unfolded.geometry.stride[2] = unfolded.geometry.dilation[2] = 1;
  unfolded.geometry.padding[2] = 0;
  if (call.target != Target::kWeight) {
    unfold_weight(ctx, g, call.weight, channels, weight.tensor.dl.data);
  }
  if (!run(ctx, unfolded, true)) return false;
  if (call.target == Target::kWeight) {
    mt_tensor taps = weight.tensor;
    int64_t shape[] = {g.small_channels, g.big_channels, g.kernel[1], g.kernel[2]};
    int64_t strides[] = {g.kernel[1] * channels, 1, channels, g.big_channels};
    taps.dl.shape = shape;
    taps.dl.strides = strides;
    move(ctx, &taps, call.weight);
  }
  return true;
}

}  // namespace

bool convolve_cudnn(mt_ctx& ctx, const Convolution& call) {
  if (!sdk::is_floating(call.out().dtype()) || call.geometry.empty()) return false;
  use_device(ctx);
  const bool channels_last = prefers_channels_last(call);
  // What there is no engine for in one layout there may be one for in the other.
  const int64_t channels = unfolded_channels(call, channels_last);
  const bool done = (channels != 0 && run_unfolded(ctx, call, channels)) ||
                    run(ctx, call, channels_last) ||
                    (call.rank == 0 && run(ctx, call, !channels_last));
  if (done && call.bias) add_bias(ctx, call.out(), call.bias);
  return done;
}

}  // namespace mytorch::cuda
