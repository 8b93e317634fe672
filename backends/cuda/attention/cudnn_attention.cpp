// attention_forward and attention_backward with cuDNN's fused engines, for 16-bit types.
#include <algorithm>
#include <array>
#include <cstdint>

#include "backends/cuda/attention/cudnn_plans.h"
#include "backends/cuda/attention/cudnn_rows.h"
#include "backends/cuda/common/move.h"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "mytorch/abi_ops/attention_backward.h"
#include "mytorch/abi_ops/attention_forward.h"
#include "mytorch/backend.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;
using Forward = mt_args_attention_forward;
using Backward = mt_args_attention_backward;

constexpr int64_t kPack = 8;  // elements of 16 bytes
constexpr int64_t kLongest = int64_t{1} << 24;
constexpr int64_t kMostBlocks = 65535;  // of a grid, in its second and third dimension

bool is_aligned(const TensorView& x) { return reinterpret_cast<uintptr_t>(x.raw()) % 16 == 0; }

// Whether the library reads or writes the tensor where it is: rows without gaps, in units of 16
// bytes.
bool is_usable(const TensorView& x) {
  if (!is_aligned(x)) return false;
  if (x.size(3) != 1 && x.stride(3) != 1) return false;
  for (int d = 0; d < 3; ++d) {
    if (x.size(d) != 1 && (x.stride(d) <= 0 || x.stride(d) % kPack != 0)) return false;
  }
  return true;
}

// The layout of a tensor. Dimensions of size 1 have the strides of a contiguous tensor.
Layout4 layout_of(const TensorView& x) {
  Layout4 layout;
  int64_t stride = 1;
  for (int d = 3; d >= 0; --d) {
    const auto at = static_cast<size_t>(d);
    layout.size[at] = x.size(d);
    layout.stride[at] = x.size(d) == 1 ? stride : x.stride(d);
    stride = std::max(stride, layout.stride[at] * layout.size[at]);
  }
  return layout;
}

// Query i sees key j if i + lowest <= j <= i + highest. Bounds that hide nothing are absent.
struct Band {
  std::optional<int64_t> lowest, highest;

  template <class Args>
  explicit Band(const Args& args) {
    const int64_t queries = TensorView(args.query).size(2), keys = TensorView(args.key).size(2);
    if (args.left >= 0 && args.diagonal - args.left > 1 - queries) {
      lowest = args.diagonal - args.left;
    }
    if (args.right >= 0 && args.diagonal + args.right < keys - 1) {
      highest = args.diagonal + args.right;
    }
  }
};

// Returns why the library does not compute a call, or NULL. What it computes wrongly, by its
// release notes and by our tests, is excluded here.
template <class Args>
const char* refusal(const Args& args) {
  const TensorView query = args.query, key = args.key, value = args.value;
  const mt_dtype dtype = query.dtype();
  if (!sdk::is_dtype<sdk::BFloat16>(dtype) && !sdk::is_dtype<sdk::Half>(dtype)) {
    return "cuDNN's attention takes bfloat16 and float16 only";
  }
  if (query.numel() == 0 || key.numel() == 0 || value.numel() == 0) return "an operand is empty";
  const int64_t queries = query.size(2), keys = key.size(2), width = query.size(3);
  if (width % kPack != 0 || value.size(3) % kPack != 0) {
    return "cuDNN's attention needs head widths that are multiples of 8";
  }
  if (width > 256 || value.size(3) > 256) return "a head is wider than 256";
  // The window's width is a float32 number.
  if (queries > kLongest || keys > kLongest) return "a sequence is longer than 2^24";
  if (query.size(0) > kMostBlocks || query.size(1) > kMostBlocks) {
    return "the batch or the number of heads is larger than 65535";
  }
  for (const mt_tensor* operand : {args.query, args.key, args.value, args.attn_mask}) {
    if (operand != nullptr && TensorView(operand).numel() > INT32_MAX) {
      return "an operand has 2^31 elements or more";
    }
  }
  if (queries == 1) return "cuDNN's logsumexp of a single query is wrong if it is negative";
  if (args.dropout_p != 0) return "cuDNN cannot draw the dropout that the record defines";
  if (args.softcap != 0) return "no cuDNN graph with softcap";
  if (args.slopes != nullptr) return "no cuDNN graph with slopes";
  if (args.attn_mask != nullptr && queries % 128 == 64) {
    return "cuDNN's masks are wrong if the number of queries % 128 is 64";
  }
  const Band band(args);
  if (band.highest.value_or(0) <= -queries || band.lowest.value_or(0) >= keys) {
    return "the band hides all keys";
  }
  return nullptr;
}

bool is_new_enough() {
  static const bool enough = cudnnGetVersion() >= 91002;
  return enough;
}

template <class Args>
const char* common_refusal(const Args& args) {
  if (const char* reason = refusal(args)) return reason;
  if (!is_new_enough()) return "cuDNN's attention is used from version 9.10.2 on";
  const Properties& device = properties(args.query->dl.device.index);
  if (device.major < 8) return "cuDNN's attention needs compute capability 8.0";
  return nullptr;
}

const char* forward_supports(const Forward& args) {
  if (const char* reason = common_refusal(args)) return reason;
  if (!is_usable(args.output)) return "the output's rows are not aligned to 16 bytes";
  if (!TensorView(args.logsumexp).is_contiguous()) return "logsumexp is not contiguous";
  return nullptr;
}

bool wants_mask(const Backward& args) {
  return args.attn_mask != nullptr && !sdk::is_bool(TensorView(args.attn_mask).dtype()) &&
         sdk::wanted(args.output_mask, 3, args.grad_mask) != nullptr;
}

const char* backward_supports(const Backward& args) {
  if (const char* reason = common_refusal(args)) return reason;
  if (args.grad_logsumexp != nullptr) return "no cuDNN graph with a gradient of logsumexp";
  const TensorView query = args.query, value = args.value;
  if (!TensorView(args.logsumexp).is<float>()) return "logsumexp is not float32";
  const Properties& device = properties(args.query->dl.device.index);
  if (device.major != 9 && (query.size(3) > 128 || value.size(3) > 128)) {
    return "cuDNN's gradient for heads wider than 128 needs compute capability 9.0";
  }
  const std::array<const mt_tensor*, 3> gradients = {args.grad_query, args.grad_key,
                                                     args.grad_value};
  for (size_t i = 0; i < 3; ++i) {
    const auto* gradient = sdk::wanted(args.output_mask, static_cast<int64_t>(i), gradients[i]);
    if (gradient != nullptr && !is_usable(gradient)) {
      return "a gradient's rows are not aligned to 16 bytes";
    }
  }
  if (wants_mask(args)) {
    const TensorView mask = args.attn_mask, grad = args.grad_mask;
    if (mask.size(2) != query.size(2) || mask.size(3) != args.key->dl.shape[2]) {
      return "no cuDNN graph for the gradient of a mask that is broadcast along queries or keys";
    }
    if (!is_aligned(grad) || !grad.is_contiguous()) {
      return "the mask's gradient is not contiguous and aligned to 16 bytes";
    }
  }
  return nullptr;
}

// The operands of a call, copied where the library cannot use them as they are.
class Operands {
 public:
  Operands(mt_ctx& ctx, mt_dtype dtype) : ctx_(ctx) { call.type = cudnn_type_of(dtype); }

  CudnnAttention call;
  CudnnData data{};

  void read(CudnnOperand id, const TensorView& x, Layout4& layout) {
    if (is_usable(x)) {
      data[id] = x.raw();
      layout = layout_of(x);
      return;
    }
    const ContiguousScratch copy(ctx_, x, x.dtype());
    move(ctx_, x, copy.view());
    data[id] = copy.view().raw();
    layout = layout_of(copy.view());
  }
  // An unwanted result is computed into scratch memory.
  void write(CudnnOperand id, const mt_tensor* x, const TensorView& like, Layout4& layout) {
    if (x != nullptr) {
      data[id] = TensorView(x).raw();
      layout = layout_of(x);
      return;
    }
    const ContiguousScratch unused(ctx_, like, like.dtype());
    data[id] = unused.view().raw();
    layout = layout_of(unused.view());
  }

  // Rows of a converted mask are padded to units of 16 bytes. The gradient needs a row for each
  // query.
  void read_mask(const TensorView& mask, mt_dtype dtype, bool all_rows) {
    const int64_t rows = all_rows ? call.queries() : mask.size(2), keys = call.keys();
    if (!sdk::is_bool(mask.dtype()) && mask.size(2) == rows && mask.size(3) == keys &&
        is_usable(mask)) {
      call.mask = layout_of(mask);
      data[kMask] = mask.raw();
      return;
    }
    const int64_t row = (keys + kPack - 1) / kPack * kPack;
    const int64_t head = row * rows, batch = head * mask.size(1);
    call.mask = {{mask.size(0), mask.size(1), rows, keys}, {batch, head, row, 1}};
    data[kMask] = scratch_bytes(ctx_, static_cast<size_t>(mask.size(0) * batch * 2));
    write_additive_mask(ctx_, mask, dtype, *call.mask, data[kMask]);
  }

 private:
  mt_ctx& ctx_;
};

template <class Args>
void read_inputs(Operands& operands, const Args& args, bool backward) {
  CudnnAttention& call = operands.call;
  operands.read(kQuery, args.query, call.query);
  operands.read(kKey, args.key, call.key);
  operands.read(kValue, args.value, call.value);
  const Band band(args);
  call.lowest = band.lowest;
  call.highest = band.highest;
  if (args.attn_mask != nullptr) {
    operands.read_mask(args.attn_mask, TensorView(args.query).dtype(), backward);
  }
}

void forward(mt_ctx& ctx, const Forward& args) {
  Operands operands(ctx, TensorView(args.query).dtype());
  read_inputs(operands, args, false);
  operands.write(kOutput, args.output, args.output, operands.call.output);
  auto* const logsumexp = TensorView(args.logsumexp).data<float>();
  operands.data[kLogsumexp] = logsumexp;
  if (!run_forward(ctx, operands.call, operands.data, static_cast<float>(args.scale))) {
    throw sdk::Declined{};
  }
  if (operands.call.mask) {
    clear_empty_rows(ctx, logsumexp, operands.call.output, operands.data[kOutput]);
  }
}

void backward(mt_ctx& ctx, const Backward& args) {
  Operands operands(ctx, TensorView(args.query).dtype());
  CudnnAttention& call = operands.call;
  read_inputs(operands, args, true);
  operands.read(kOutput, args.output, call.output);
  operands.read(kGradOutput, args.grad_output, call.grad_output);
  const auto write = [&](CudnnOperand id, int64_t i, const mt_tensor* gradient,
                         const mt_tensor* like, Layout4& layout) {
    operands.write(id, sdk::wanted(args.output_mask, i, gradient), like, layout);
  };
  write(kGradQuery, 0, args.grad_query, args.query, call.grad_query);
  write(kGradKey, 1, args.grad_key, args.key, call.grad_key);
  write(kGradValue, 2, args.grad_value, args.value, call.grad_value);

  auto* logsumexp = static_cast<float*>(contiguous_data(ctx, args.logsumexp));
  if (args.attn_mask != nullptr) {
    const int64_t rows = TensorView(args.logsumexp).numel();
    auto* const finite = scratch<float>(ctx, rows);
    write_finite_logsumexp(ctx, logsumexp, rows, finite);
    logsumexp = finite;
  }
  operands.data[kLogsumexp] = logsumexp;
  if (wants_mask(args)) {
    call.grad_mask = layout_of(args.grad_mask);
    operands.data[kGradMask] = TensorView(args.grad_mask).raw();
  }
  if (!run_backward(ctx, call, operands.data, static_cast<float>(args.scale))) {
    throw sdk::Declined{};
  }
}

}  // namespace

void register_cudnn_attention(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&forward, &forward_supports>("cudnn", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&backward, &backward_supports>("cudnn", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
