// The backend of examples/backend-npu with the fault that MYTORCH_FAULT names. faults_test.py lists
// how `mytorch check` reports each fault. Without a fault, MYTORCH_ENTRIES ("copy_,compile")
// restricts the backend to the listed entries, to measure the worth of the others (entries.py).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "mytorch/abi_ops/add.h"
#include "mytorch/abi_ops/argmax.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/cat.h"
#include "mytorch/abi_ops/convolution.h"
#include "mytorch/abi_ops/copy_.h"
#include "mytorch/abi_ops/cumsum.h"
#include "mytorch/abi_ops/fill_.h"
#include "mytorch/abi_ops/gather.h"
#include "mytorch/abi_ops/maximum.h"
#include "mytorch/abi_ops/mean.h"
#include "mytorch/abi_ops/mul.h"
#include "mytorch/abi_ops/sort.h"
#include "mytorch/abi_ops/sub.h"
#include "mytorch/abi_ops/sum.h"
#include "mytorch/abi_ops/uniform_.h"
#include "mytorch/backend.h"
#include "operand.h"

extern "C" int npu_init(const mt_host* host, mt_backend* backend);

namespace {

const std::string& fault() {
  static const std::string name = [] {
    const char* text = std::getenv("MYTORCH_FAULT");
    return std::string(text != nullptr ? text : "");
  }();
  return name;
}
bool is(const char* name) { return fault() == name; }

mt_backend whole;  // the backend without the fault

// ---- kernels -----------------------------------------------------------------------------------

// A copy of a tensor's header that a fault may change. It lives until run() returns.
struct Changed {
  explicit Changed(const mt_tensor* from) : tensor(*from) {
    std::copy_n(from->dl.shape, from->dl.ndim, shape);
    std::copy_n(from->dl.strides, from->dl.ndim, strides);
    tensor.dl.shape = shape;
    tensor.dl.strides = strides;
    tensor.flags &= ~static_cast<uint32_t>(MT_TENSOR_CONTIGUOUS);
  }
  int last() const { return tensor.dl.ndim - 1; }
  mt_tensor tensor;
  int64_t shape[64];
  int64_t strides[64];
};

using Inner = const mt_kernel_entry&;
using Faulty = int (*)(Inner inner, mt_ctx* ctx, const void* args);

struct Wrapped {
  mt_kernel_entry inner;
  Faulty run;
};

mt_kernel_entry wrap(const mt_kernel_entry& inner, Faulty run) {
  mt_kernel_entry outer = inner;
  outer.self = new Wrapped{inner, run};
  outer.run = [](void* self, mt_ctx* ctx, const void* args) {
    const auto& wrapped = *static_cast<Wrapped*>(self);
    return wrapped.run(wrapped.inner, ctx, args);
  };
  return outer;
}

template <class Args>
Args copy_of(const void* args) {
  return *static_cast<const Args*>(args);
}
template <class Args>
int run(Inner inner, mt_ctx* ctx, const Args& args) {
  return inner.run(inner.self, ctx, &args);
}

int stride(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_gather>(given);
  Changed self(args.self);
  if (self.last() >= 0) ++self.strides[self.last()];
  args.self = &self.tensor;
  return run(inner, ctx, args);
}
int unwritten_output(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_fill_>(given);
  Changed self(args.self);
  if (self.last() >= 0 && self.shape[0] > 0) --self.shape[0];
  args.self = &self.tensor;
  return run(inner, ctx, args);
}
int random_counter(Inner inner, mt_ctx* ctx, const void* given) {
  static uint64_t calls = 0;
  auto args = copy_of<mt_args_uniform_>(given);
  args.generator.call += calls++;
  return run(inner, ctx, args);
}
int bias(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_convolution>(given);
  args.bias = nullptr;
  return run(inner, ctx, args);
}
int padding(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_avg_pool2d>(given);
  args.count_include_pad = args.count_include_pad == 0 ? 1 : 0;
  return run(inner, ctx, args);
}
int descending(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_sort_stable>(given);
  args.descending = 0;
  return run(inner, ctx, args);
}
int bool_copy(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_copy_>(given);
  Changed self(args.self);
  if (self.tensor.dl.dtype.code == MT_BOOL) self.tensor.dl.dtype = {MT_UINT, 8, 1};
  args.self = &self.tensor;
  return run(inner, ctx, args);
}
int negative_dim(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_cat>(given);
  if (args.dim < 0) args.dim = -1 - args.dim;
  return run(inner, ctx, args);
}
int crash(Inner, mt_ctx*, const void* given) {
  // The host reads device memory.
  return static_cast<const mt_args_gather*>(given)->self->dl.data == nullptr
             ? MT_OK
             : *static_cast<volatile int*>(
                   static_cast<const mt_args_gather*>(given)->self->dl.data);
}
int hang(Inner inner, mt_ctx* ctx, const void* given) {
  static volatile bool forever = true;
  while (forever) {
  }
  return inner.run(inner.self, ctx, given);
}
int silent_failure(Inner, mt_ctx*, const void*) { return 42; }

// The backend's own operator: examples/backend-npu/operators.cpp.
struct RmsNorm {
  mt_args_header header;
  const mt_tensor* x;
  double eps;
  const mt_tensor* out;
};
struct RmsNormBackward {
  mt_args_header header;
  const mt_tensor* grad;
  const mt_tensor* x;
  double eps;
  const mt_tensor* out;
};
int own_unwritten(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<RmsNorm>(given);
  Changed x(args.x);
  Changed out(args.out);
  if (out.shape[0] > 0) x.shape[0] = --out.shape[0];
  args.x = &x.tensor;
  args.out = &out.tensor;
  return run(inner, ctx, args);
}
int own_overrun(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<RmsNorm>(given);
  if (const int status = run(inner, ctx, args); status != MT_OK) return status;
  Changed out(args.out);  // writes the result a second time, one element further
  out.tensor.dl.data = static_cast<char*>(out.tensor.dl.data) + out.tensor.dl.dtype.bits / 8;
  args.out = &out.tensor;
  if (const int status = run(inner, ctx, args); status != MT_OK) return status;
  return inner.run(inner.self, ctx, given);
}
int own_written_input(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<RmsNorm>(given);
  if (const int status = run(inner, ctx, args); status != MT_OK) return status;
  args.out = args.x;
  return run(inner, ctx, args);
}
int own_stride(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<RmsNorm>(given);
  Changed x(args.x);
  int64_t step = 1;
  for (int d = x.last(); d >= 0; --d) {
    x.strides[d] = step;
    step *= x.shape[d];
  }
  args.x = &x.tensor;
  return run(inner, ctx, args);
}
int own_state(Inner inner, mt_ctx* ctx, const void* given) {
  static int calls = 0;
  auto args = copy_of<RmsNorm>(given);
  args.eps += 0.1 * calls++;
  return run(inner, ctx, args);
}
int own_gradient(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<RmsNormBackward>(given);
  args.eps += 0.5;
  return run(inner, ctx, args);
}

// ---- kernels that are wrong only for large operands, special values or several threads
// ------------

using npu::Operand;

// Changes the elements of a result; change(values) gets them in row-major order.
template <class F>
void change_after(mt_ctx* ctx, const mt_tensor* result, F change) {
  npu::launch(*ctx, [out = Operand(result), change]() mutable {
    npu::visit_domain(out.dtype, [&](auto zero) {
      auto values = npu::read<decltype(zero)>(out);
      change(values);
      npu::write(values, out);
    });
  });
}

// The grid of a GPU has at most 65535 blocks in two of its dimensions.
int rows_65536(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_cumsum>(given);
  Changed self(args.self);
  Changed out(args.out);
  if (self.last() >= 1 && self.shape[0] > 65536) self.shape[0] = out.shape[0] = 65536;
  args.self = &self.tensor;
  args.out = &out.tensor;
  return run(inner, ctx, args);
}
int shared_buffer(Inner inner, mt_ctx* ctx, const void* given) {
  static double buffer[1 << 16];
  const auto& args = *static_cast<const mt_args_cumsum*>(given);
  const Operand from = args.self;
  const bool fits = from.numel() <= std::ssize(buffer) && from.shape.size() == 2;
  if (!fits || (args.dim != 1 && args.dim != -1) || !npu::sdk::is_floating(from.dtype)) {
    return inner.run(inner.self, ctx, given);
  }
  npu::launch(*ctx, [from, out = Operand(args.out)]() mutable {
    std::vector<double> values = npu::read<double>(from);
    std::copy(values.begin(), values.end(), buffer);
    for (size_t i = 0; i < values.size(); ++i) {
      if (static_cast<int64_t>(i) % from.size(1) != 0) buffer[i] += buffer[i - 1];
    }
    // Long enough for another thread to write to the buffer on a busy machine, too.
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    std::copy_n(buffer, values.size(), values.begin());
    npu::write(values, out);
  });
  return MT_OK;
}
int own_shared_buffer(Inner inner, mt_ctx* ctx, const void* given) {
  static double buffer[1 << 16];
  const auto& args = *static_cast<const RmsNorm*>(given);
  if (Operand(args.x).numel() > std::ssize(buffer)) return inner.run(inner.self, ctx, given);
  if (const int status = inner.run(inner.self, ctx, given); status != MT_OK) return status;
  change_after(ctx, args.out, [](auto& values) {
    std::copy(values.begin(), values.end(), buffer);
    std::this_thread::sleep_for(std::chrono::microseconds(500));
    std::copy_n(buffer, values.size(), values.begin());
  });
  return MT_OK;
}
int deep_product(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_bmm>(given);
  Changed self(args.self);
  Changed mat2(args.mat2);
  if (self.shape[2] > 16 && self.shape[2] % 2 == 1) --self.shape[2], --mat2.shape[1];
  args.self = &self.tensor;
  args.mat2 = &mat2.tensor;
  return run(inner, ctx, args);
}
// The tail of a loop over long sums alone.
int deeper_product(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_bmm>(given);
  Changed self(args.self);
  Changed mat2(args.mat2);
  if (self.shape[2] > 1024 && self.shape[2] % 2 == 1) --self.shape[2], --mat2.shape[1];
  args.self = &self.tensor;
  args.mat2 = &mat2.tensor;
  return run(inner, ctx, args);
}
// Skips the terms whose first factor is 0.
int skipped_zeros(Inner inner, mt_ctx* ctx, const void* given) {
  const auto& args = *static_cast<const mt_args_bmm*>(given);
  if (!npu::sdk::is_floating(Operand(args.self).dtype)) return inner.run(inner.self, ctx, given);
  npu::launch(*ctx,
              [a = Operand(args.self), b = Operand(args.mat2), out = Operand(args.out)]() mutable {
                const std::vector<double> left = npu::read<double>(a);
                const std::vector<double> right = npu::read<double>(b);
                std::vector<double> sums(static_cast<size_t>(out.numel()), 0.0);
                const int64_t rows = a.size(1);
                const int64_t depth = a.size(2);
                const int64_t columns = b.size(2);
                for (int64_t row = 0; row < a.size(0) * rows; ++row) {
                  for (int64_t k = 0; k < depth; ++k) {
                    const double x = left[static_cast<size_t>(row * depth + k)];
                    if (x == 0) continue;
                    for (int64_t j = 0; j < columns; ++j) {
                      sums[static_cast<size_t>(row * columns + j)] +=
                          x * right[static_cast<size_t>((row / rows * depth + k) * columns + j)];
                    }
                  }
                }
                npu::write(sums, out);
              });
  return MT_OK;
}
int hidden_weight_nan(Inner inner, mt_ctx* ctx, const void* given) {
  const auto& args = *static_cast<const mt_args_convolution*>(given);
  if (const int status = inner.run(inner.self, ctx, given); status != MT_OK) return status;
  npu::launch(*ctx, [x = Operand(args.input), out = Operand(args.out)]() mutable {
    const std::vector<double> input = npu::read<double>(x);
    std::vector<double> values = npu::read<double>(out);
    const auto finite = [](double v) { return std::isfinite(v); };
    if (!std::all_of(input.begin(), input.end(), finite)) return;
    for (double& value : values) value = std::isnan(value) ? 0 : value;
    if (npu::sdk::is_floating(out.dtype)) npu::write(values, out);
  });
  return MT_OK;
}
int channel_32(Inner inner, mt_ctx* ctx, const void* given) {
  const auto& args = *static_cast<const mt_args_convolution*>(given);
  if (const int status = inner.run(inner.self, ctx, given); status != MT_OK) return status;
  const Operand out = args.out;
  const int64_t channels = out.shape.size() > 2 ? out.size(1) : 0;
  if (channels <= 32 || out.size(0) == 0) return MT_OK;
  const int64_t plane = out.numel() / out.size(0) / channels;
  change_after(ctx, args.out, [=](auto& values) {
    for (int64_t i = 0; i < plane; ++i) values[static_cast<size_t>(32 * plane + i)] *= 2;
  });
  return MT_OK;
}
int sorted_blocks(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_sort_stable>(given);
  Changed self(args.self);
  Changed values(args.values);
  Changed indices(args.indices);
  const int64_t dim = args.dim < 0 ? args.dim + self.last() + 1 : args.dim;
  if (self.last() >= 0 && self.shape[dim] > 4096) {
    self.shape[dim] = values.shape[dim] = indices.shape[dim] = 4096;
  }
  args.self = &self.tensor;
  args.values = &values.tensor;
  args.indices = &indices.tensor;
  return run(inner, ctx, args);
}
int wide_pool(Inner inner, mt_ctx* ctx, const void* given) {
  const auto& args = *static_cast<const mt_args_avg_pool2d*>(given);
  if (const int status = inner.run(inner.self, ctx, given); status != MT_OK) return status;
  const Operand out = args.out;
  if (out.size(-1) <= 8 || out.size(-1) % 8 == 0) return MT_OK;
  change_after(ctx, args.out, [](auto& values) { values.back() += values.back() + 1; });
  return MT_OK;
}

constexpr struct {
  const char* fault;
  const char* op;
  Faulty run;
} kKernelFaults[] = {
    {"stride", "gather", stride},
    {"unwritten-output", "fill_", unwritten_output},
    {"random-counter", "uniform_", random_counter},
    {"bias", "convolution", bias},
    {"padding", "avg_pool2d", padding},
    {"descending", "sort.stable", descending},
    {"bool-copy", "copy_", bool_copy},
    {"negative-dim", "cat", negative_dim},
    {"crash", "gather", crash},
    {"hang", "cumsum", hang},
    {"silent-failure", "bmm", silent_failure},
    {"own-unwritten", "npu::rms_norm", own_unwritten},
    {"own-overrun", "npu::rms_norm", own_overrun},
    {"own-written-input", "npu::rms_norm", own_written_input},
    {"own-stride", "npu::rms_norm", own_stride},
    {"own-state", "npu::rms_norm", own_state},
    {"own-gradient", "npu::rms_norm_backward", own_gradient},
    {"own-shared-buffer", "npu::rms_norm", own_shared_buffer},
    {"rows-65536", "cumsum", rows_65536},
    {"shared-buffer", "cumsum", shared_buffer},
    {"deep-product", "bmm", deep_product},
    {"deeper-product", "bmm", deeper_product},
    {"skipped-zeros", "bmm", skipped_zeros},
    {"hidden-weight-nan", "convolution", hidden_weight_nan},
    {"channel-32", "convolution", channel_32},
    {"sorted-blocks", "sort.stable", sorted_blocks},
    {"wide-pool", "avg_pool2d", wide_pool},
};

// ---- programs ----------------------------------------------------------------------------------

int alias(Inner inner, mt_ctx* ctx, const void* given) {
  const auto& args = *static_cast<const mt_args_mul_Tensor*>(given);
  // If the output is the input, the second run reads the first one's results.
  if (args.out->dl.data == args.self->dl.data) inner.run(inner.self, ctx, given);
  return inner.run(inner.self, ctx, given);
}
int stride_order(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_sub_Tensor>(given);
  Changed out(args.out);
  int64_t step = 1;
  for (int d = out.last(); d >= 0; --d) {
    out.strides[d] = step;
    step *= out.shape[d];
  }
  args.out = &out.tensor;
  return run(inner, ctx, args);
}
int host_scalar(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_mul_Tensor>(given);
  static char zero[8] = {};
  mt_tensor other = *args.other;
  if ((other.flags & MT_TENSOR_HOST) != 0) other.dl.data = zero;
  args.other = &other;
  return run(inner, ctx, args);
}
int broadcast(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_maximum>(given);
  Changed other(args.other);
  const mt_dltensor& out = args.out->dl;
  for (int d = 0; d < other.tensor.dl.ndim; ++d) {
    other.shape[d] = out.shape[out.ndim - other.tensor.dl.ndim + d];
  }
  args.other = &other.tensor;
  return run(inner, ctx, args);
}
int reduce_tail(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<mt_args_sum_dim_IntList>(given);
  Changed self(args.self);
  const int64_t dim = args.dim.size > 0 ? args.dim.data[0] : 0;
  const int64_t at = dim < 0 ? dim + self.tensor.dl.ndim : dim;
  if (self.last() >= 0 && self.shape[at] > 1) --self.shape[at];
  args.self = &self.tensor;
  return run(inner, ctx, args);
}
int null_output(Inner inner, mt_ctx* ctx, const void* given) {
  // The outputs of mul_grad are at the end of its arguments.
  const size_t size = static_cast<const mt_args_header*>(given)->size;
  const mt_tensor* out = nullptr;
  std::memcpy(&out, static_cast<const char*>(given) + size - sizeof(out), sizeof(out));
  if (out->dl.ndim < 0) return MT_ERROR_INTERNAL;
  return inner.run(inner.self, ctx, given);
}

// Drops the last element of a long line of odd length.
template <class Args>
int odd_tail(Inner inner, mt_ctx* ctx, const void* given) {
  auto args = copy_of<Args>(given);
  Changed self(args.self);
  const int64_t dim = args.dim.size > 0 ? args.dim.data[0] : 0;
  const int64_t at = dim < 0 ? dim + self.tensor.dl.ndim : dim;
  if (self.last() >= 0 && self.shape[at] > 2000 && self.shape[at] % 2 == 1) --self.shape[at];
  args.self = &self.tensor;
  return run(inner, ctx, args);
}
int one_element(Inner inner, mt_ctx* ctx, const void* given) {
  if (const int status = inner.run(inner.self, ctx, given); status != MT_OK) return status;
  change_after(ctx, static_cast<const mt_args_maximum*>(given)->out, [](auto& values) {
    if (values.size() > 131072) values[131072] += 1;
  });
  return MT_OK;
}
int block_tail(Inner inner, mt_ctx* ctx, const void* given) {
  if (const int status = inner.run(inner.self, ctx, given); status != MT_OK) return status;
  change_after(ctx, static_cast<const mt_args_sub_Tensor*>(given)->out, [](auto& values) {
    const size_t whole_blocks = values.size() / 4096 * 4096;
    for (size_t i = whole_blocks; i < values.size() && whole_blocks > 0; ++i) values[i] = 0;
  });
  return MT_OK;
}
int hidden_nan(Inner inner, mt_ctx* ctx, const void* given) {
  const auto& args = *static_cast<const mt_args_mul_Tensor*>(given);
  if (args.out->dl.data == args.self->dl.data) return inner.run(inner.self, ctx, given);
  if (const int status = inner.run(inner.self, ctx, given); status != MT_OK) return status;
  npu::launch(*ctx, [b = Operand(args.other), out = Operand(args.out)]() mutable {
    if (!npu::sdk::is_floating(out.dtype)) return;
    const std::vector<double> other = npu::read<double>(b, out.shape);
    std::vector<double> values = npu::read<double>(out);
    for (size_t i = 0; i < values.size(); ++i) values[i] = std::isnan(other[i]) ? 0 : values[i];
    npu::write(values, out);
  });
  return MT_OK;
}
int short_index(Inner inner, mt_ctx* ctx, const void* given) {
  if (const int status = inner.run(inner.self, ctx, given); status != MT_OK) return status;
  change_after(ctx, static_cast<const mt_args_argmax*>(given)->out, [](auto& values) {
    using E = std::decay_t<decltype(values[0])>;
    for (E& value : values) value = static_cast<E>(static_cast<int16_t>(value));
  });
  return MT_OK;
}

constexpr struct {
  const char* fault;
  const char* op;
  Faulty run;
} kProgramFaults[] = {
    {"alias", "mul.Tensor", alias},
    {"stride-order", "sub.Tensor", stride_order},
    {"host-scalar", "mul.Tensor", host_scalar},
    {"broadcast", "maximum", broadcast},
    {"reduce-tail", "sum.dim_IntList", reduce_tail},
    {"null-output", "mul_grad.Tensor", null_output},
    {"odd-sum", "sum.dim_IntList", odd_tail<mt_args_sum_dim_IntList>},
    {"odd-mean", "mean.dim", odd_tail<mt_args_mean_dim>},
    {"one-element", "maximum", one_element},
    {"block-tail", "sub.Tensor", block_tail},
    {"hidden-nan", "mul.Tensor", hidden_nan},
    {"short-index", "argmax", short_index},
};

int compile(void* self, const mt_program* given, mt_dtype compute, const mt_dtype* types,
            int32_t num_types, mt_kernel_entry* kernel) {
  const std::string op = given->name;
  mt_program program = *given;
  std::vector<mt_node> nodes(given->nodes, given->nodes + given->num_nodes);
  std::vector<mt_program_output> outputs(given->outputs, given->outputs + given->num_outputs);
  const bool floating = compute.code == MT_FLOAT || compute.code == MT_BFLOAT;
  const auto node = [&](const char* name) -> mt_node* {
    for (mt_node& n : nodes) {
      if (std::strcmp(n.op, name) == 0) return &n;
    }
    return nullptr;
  };
  if (is("alpha") && op == "add.Tensor" && node("scalar") != nullptr) {
    node("scalar")->value = 1;
    node("scalar")->op = "const";
  }
  if (is("promotion") && op == "div.Tensor" && types[0].code == MT_INT) compute = {MT_INT, 64, 1};
  if (is("written-input") && op == "sqrt") outputs.push_back({outputs[0].node, nodes[0].offset});
  if (is("floor-divide") && node("floor_divide") != nullptr) {
    node("floor_divide")->op = "trunc_divide";
  }
  if (is("lost-nan") && op == "amax" && floating) {
    const int32_t n = given->num_nodes;
    nodes.push_back({"isnan", MT_TYPE_BOOL, {given->step, -1, -1}, 0, 0, 0, 0, 0});
    nodes.push_back({"const", MT_TYPE_COMPUTE, {-1, -1, -1}, 0, 0, 0, 0, -INFINITY});
    nodes.push_back({"where", MT_TYPE_COMPUTE, {n, n + 1, given->step}, 0, 0, 0, 0, 0});
    program.step = n + 2;
  }
  program.nodes = nodes.data();
  program.num_nodes = static_cast<int32_t>(nodes.size());
  program.outputs = outputs.data();
  program.num_outputs = static_cast<int32_t>(outputs.size());
  const int status = whole.compile(self, &program, compute, types, num_types, kernel);
  if (status != MT_OK) return status;
  for (const auto& f : kProgramFaults) {
    if (is(f.fault) && op == f.op) *kernel = wrap(*kernel, f.run);
  }
  return MT_OK;
}

// ---- the device --------------------------------------------------------------------------------

mt_device_ops faulty_device() {
  mt_device_ops d = *whole.device;
  if (is("unordered-streams")) {
    d.wait_event = [](void*, int32_t, void*, void*) { return int{MT_OK}; };
  }
  if (is("leak")) d.release = [](void*, int32_t, void*, size_t, void*) {};
  if (is("early-synchronize")) {
    d.synchronize = [](void*, int32_t, void*) { return int{MT_OK}; };
  }
  if (is("early-event")) d.query_event = [](void*, void*) { return 1; };
  if (is("early-release")) {
    d.release = [](void* self, int32_t index, void* data, size_t bytes, void*) {
      // Releases on another stream instead of waiting for the given one.
      void* stream = whole.device->create_stream(self, index, 0);
      whole.device->release(self, index, data, bytes, stream);
      whole.device->synchronize(self, index, stream);
      whole.device->destroy_stream(self, index, stream);
    };
  }
  if (is("overcommit")) {
    d.allocate = [](void* self, int32_t index, size_t bytes, void* stream) {
      return whole.device->allocate(self, index, bytes > (size_t{1} << 40) ? 64 : bytes, stream);
    };
  }
  if (is("overlapping-blocks")) {
    d.allocate = [](void* self, int32_t index, size_t bytes, void* stream) {
      return whole.device->allocate(self, index, bytes / 2, stream);
    };
  }
  if (is("copied-words")) {
    d.copy = [](void* self, int32_t index, int32_t kind, void* to, const void* from, size_t bytes,
                void* stream) {
      return whole.device->copy(self, index, kind, to, from, bytes & ~size_t{3}, stream);
    };
  }
  if (is("error-code") || is("swallowed-error")) {
    d.synchronize = [](void* self, int32_t index, void* stream) {
      const int status = whole.device->synchronize(self, index, stream);
      if (status == MT_OK || is("swallowed-error")) return int{MT_OK};
      return int{MT_ERROR_INTERNAL};
    };
  }
  return d;
}

}  // namespace

extern "C" MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  static int calls = 0;
  if (is("init-once") && calls++ > 0) return MT_ERROR_INTERNAL;
  mt_host any = *host;
  if (is("any-major")) any.abi_major = MT_ABI_MAJOR;
  const int status = npu_init(is("any-major") ? &any : host, backend);
  if (status != MT_OK) return status;
  if (is("any-major")) backend->abi_major = host->abi_major;
  whole = *backend;
  static mt_device_ops device;
  static std::vector<mt_kernel_entry> kernels;
  device = faulty_device();
  kernels.assign(whole.kernels, whole.kernels + whole.num_kernels);
  std::map<std::string, mt_kernel_entry*> by_op;
  for (mt_kernel_entry& kernel : kernels) by_op[kernel.op] = &kernel;
  for (const auto& f : kKernelFaults) {
    if (is(f.fault)) *by_op.at(f.op) = wrap(*by_op.at(f.op), f.run);
  }
  if (is("lost-sum")) {  // both have the same arguments
    by_op.at("scatter_add")->run = by_op.at("scatter.src")->run;
  }
  if (is("unknown-schema")) by_op.at("bmm")->hash ^= 1;
  if (is("unknown-flag")) by_op.at("bmm")->flags |= 1u << 31;
  backend->device = &device;
  backend->compile = compile;
  if (const char* entries = std::getenv("MYTORCH_ENTRIES")) {
    const std::string list = "," + std::string(entries) + ",";
    const auto kept = [&](const std::string& name) {
      return list.find("," + name + ",") != std::string::npos;
    };
    std::erase_if(kernels, [&](const mt_kernel_entry& c) {
      return !kept(c.op) && std::strchr(c.op, ':') == nullptr;
    });
    if (!kept("compile")) backend->compile = nullptr;
  }
  backend->kernels = kernels.data();
  backend->num_kernels = static_cast<int64_t>(kernels.size());
  return MT_OK;
}
