#include "backends/cpu-openmp/pointwise/driver.h"

#include <algorithm>
#include <bit>
#include <string>

#include "backends/cpu-openmp/common/stream.h"
#include "backends/cpu-openmp/pointwise/compute_type.h"
#include "backends/cpu-openmp/pointwise/job.h"
#include "mytorch/backend/error.h"
#include "mytorch/backend/parallel.h"

namespace mytorch::cpu {
namespace {

// The minimum work of a thread, in additions: about 10 us, which justifies waking another thread.
constexpr int64_t kGrain = 64 * 1024;

int64_t grain_of(int64_t cost) { return std::max<int64_t>(kGrain / cost, kTile); }

bool is_dtype(const mt_tensor* t, mt_dtype dtype) {
  return std::bit_cast<uint32_t>(t->dl.dtype) == std::bit_cast<uint32_t>(dtype);
}

bool same_sizes(const mt_tensor* a, const mt_tensor* b) {
  if (a->dl.ndim != b->dl.ndim) return false;
  for (int32_t d = 0; d < a->dl.ndim; ++d) {
    if (a->dl.shape[d] != b->dl.shape[d]) return false;
  }
  return true;
}

mt_dtype tile_dtype(int32_t type, ComputeType compute_type) {
  return type == MT_TYPE_BOOL ? sdk::dtype_of<bool> : kComputeDtype[compute_type];
}

void set_scalars(const PointwiseCall& call, Scalars& scalars) {
  for (int32_t i = 0; i < call.program.num_scalars; ++i) {
    scalars.value[i] = number_of(call.args, call.program.scalars[i], call.compute);
  }
  if (sdk::is_bool(call.compute)) scalars.not_mask = 1;
  scalars.self = call.program.self;
}

[[gnu::noinline, gnu::cold]] int refuse_zero(mt_ctx* ctx, const char* base) {
  const std::string message = "[" + std::string(base) + "] integer division by zero";
  if (ctx->set_error != nullptr) ctx->set_error(ctx, MT_ERROR_VALUE, message.c_str());
  return MT_ERROR_VALUE;
}

// Returns whether every operand is present, contiguous, of the same shape and of the compute type.
bool is_simple(const PointwiseCall& call, ComputeType compute_type) {
  const PointwiseProgram& program = call.program;
  const mt_tensor* first = call.outputs[0];
  if (first == nullptr) return false;
  const auto fits = [&](const mt_tensor* t, int32_t type) {
    return t != nullptr && (t->flags & MT_TENSOR_CONTIGUOUS) != 0 &&
           is_dtype(t, tile_dtype(type, compute_type)) && same_sizes(t, first);
  };
  for (int32_t i = 0; i < program.num_outputs; ++i) {
    if (!fits(call.outputs[i], program.outputs[i].type)) return false;
  }
  for (int32_t i = 0; i < program.num_inputs; ++i) {
    if (!fits(call.inputs[i], program.inputs[i].type)) return false;
  }
  return true;
}

// Runs pieces of contiguous operands on several threads.
[[gnu::noinline]] int run_parallel(mt_ctx* ctx, const PointwiseCall& call, InnerLoop inner_loop,
                                   ComputeType compute_type, int64_t n, const void* const* inputs,
                                   void* const* outputs, const Scalars& scalars) {
  const PointwiseProgram& program = call.program;
  std::atomic<bool> refused{false};
  // At least a cache line, even for one-byte elements, so that no two threads share a line.
  constexpr int64_t kUnit = 64;
  sdk::parallel_for(*ctx, 0, (n + kUnit - 1) / kUnit, grain_of(program.cost) / kUnit,
                    [&](int64_t begin, int64_t end) noexcept {
                      begin *= kUnit;
                      end = std::min(end * kUnit, n);
                      const void* in[kMaxInputs];
                      void* out[kMaxOutputs];
                      const auto shift = [&](int32_t type) {
                        return begin * (type == MT_TYPE_BOOL ? 1 : kComputeBytes[compute_type]);
                      };
                      for (int32_t i = 0; i < program.num_inputs; ++i) {
                        in[i] = static_cast<const char*>(inputs[i]) + shift(program.inputs[i].type);
                      }
                      for (int32_t i = 0; i < program.num_outputs; ++i) {
                        out[i] = static_cast<char*>(outputs[i]) + shift(program.outputs[i].type);
                      }
                      if (!inner_loop(in, out, scalars, end - begin)) refused.store(true);
                      if (scalars.stream) stream_fence();
                    });
  return refused.load() ? refuse_zero(ctx, call.base) : MT_OK;
}

// Returns whether non-temporal stores pay off: for large results that share no memory with an
// input.
bool should_stream(const PointwiseCall& call, int64_t n) {
  const PointwiseProgram& program = call.program;
  for (int32_t k = 0; k < program.num_outputs; ++k) {
    const mt_tensor* output = call.outputs[k];
    if (output == nullptr) continue;
    if (n * (output->dl.dtype.bits / 8) < kStreamBytes) return false;
    for (int32_t i = 0; i < program.num_inputs; ++i) {
      const mt_tensor* input = call.inputs[i];
      if (input != nullptr && input->dl.data == output->dl.data) return false;
    }
  }
  return true;
}

// Runs the inner loop over whole contiguous operands.
int run_simple(mt_ctx* ctx, const PointwiseCall& call, InnerLoop inner_loop,
               ComputeType compute_type, int64_t n, bool stream) {
  const PointwiseProgram& program = call.program;
  Scalars scalars;
  set_scalars(call, scalars);
  scalars.stream = stream;
  const void* inputs[kMaxInputs];
  void* outputs[kMaxOutputs];
  for (int32_t i = 0; i < program.num_inputs; ++i)
    inputs[i] = sdk::TensorView(call.inputs[i]).raw();
  for (int32_t i = 0; i < program.num_outputs; ++i) {
    outputs[i] = sdk::TensorView(call.outputs[i]).raw();
  }
  if (n <= grain_of(program.cost) || ctx->num_threads <= 1) {
    const bool taken = inner_loop(inputs, outputs, scalars, n);
    if (stream) stream_fence();
    return taken ? MT_OK : refuse_zero(ctx, call.base);
  }
  return run_parallel(ctx, call, inner_loop, compute_type, n, inputs, outputs, scalars);
}

// Sets the job's operands, and stores the tensors in the job's order.
void set_operands(const PointwiseCall& call, ComputeType compute_type, Job& job,
                  const mt_tensor** tensors) {
  const PointwiseProgram& program = call.program;
  job.num_outputs = program.num_outputs;
  job.num_inputs = program.num_inputs;
  for (int k = 0; k < job.num_operands(); ++k) {
    const bool output = job.is_output(k);
    const int i = output ? k : k - job.num_outputs;
    tensors[k] = output ? call.outputs[i] : call.inputs[i];
    if (tensors[k] == nullptr) continue;
    const int32_t type = (output ? program.outputs : program.inputs)[i].type;
    const mt_dtype tile = tile_dtype(type, compute_type);
    // Numbers keep the precision of the compute type beside 16-bit floats, which they may exceed.
    const bool number = !output && tensors[k]->storage == nullptr;
    const bool direct = type == MT_TYPE_BOOL || (number && sdk::is_floating(call.compute));
    const mt_dtype compute = direct ? tile : call.compute;
    job.operands[k] =
        output ? make_output(tensors[k], compute, tile) : make_input(tensors[k], compute, tile);
  }
}

// Makes the loop a line and returns true if every operand is a single element, or contiguous with
// the output's shape.
bool make_line(Job& job, const mt_tensor* const* tensors, const mt_tensor* shaped, int64_t n) {
  for (int k = 0; k < job.num_operands(); ++k) {
    const mt_tensor* t = tensors[k];
    if (t == nullptr) {  // has an unused offset
      job.loop.set_stride(k, 0, 0);
      continue;
    }
    const bool contiguous = (t->flags & MT_TENSOR_CONTIGUOUS) != 0 && same_sizes(t, shaped);
    if (!contiguous && (job.is_output(k) || sdk::TensorView(t).numel() != 1)) return false;
    job.loop.set_stride(k, 0, contiguous ? job.operands[k].itemsize : 0);
  }
  job.loop.set_line(n, job.num_operands());
  return true;
}

void make_loop(Job& job, const mt_tensor* const* tensors, const mt_tensor* shaped) {
  sdk::TensorView views[kMaxOperands];
  // Absent operands take the layout of the output, which is not used.
  for (int k = 0; k < job.num_operands(); ++k) {
    views[k] = tensors[k] != nullptr ? tensors[k] : shaped;
  }
  set_loop(job.loop, sdk::TensorView(shaped).shape(),
           std::span(views, static_cast<size_t>(job.num_operands())));
}

// A separate function, to keep the frame of run_call small.
[[gnu::noinline]] int run_general(mt_ctx* ctx, const PointwiseCall& call, InnerLoop inner_loop,
                                  ComputeType compute_type, const mt_tensor* shaped,
                                  int64_t n) noexcept {
  const PointwiseProgram& program = call.program;
  return sdk::guarded(ctx, [&] {
    Job job;
    job.inner_loop = inner_loop;
    job.grain = grain_of(program.cost + 2);  // moving the operands also has a cost
    set_scalars(call, job.scalars);
    const mt_tensor* tensors[kMaxOperands];
    set_operands(call, compute_type, job, tensors);
    if (!make_line(job, tensors, shaped, n)) make_loop(job, tensors, shaped);
    job.stream = should_stream(call, n);
    job.loop_streams = program.streams;
    run_job(*ctx, job);
    if (job.refused.load()) {
      throw sdk::Error(MT_ERROR_VALUE, "[" + std::string(call.base) + "] integer division by zero");
    }
  });
}

}  // namespace

int run_call(mt_ctx* ctx, const PointwiseCall& call) {
  const PointwiseProgram& program = call.program;
  const ComputeType compute_type = compute_type_of(call.compute);
  const InnerLoop inner_loop = program.loops.fn[compute_type];
  if (inner_loop == nullptr) return MT_DECLINED;
  const mt_tensor* shaped = nullptr;
  for (int32_t i = 0; i < program.num_outputs && shaped == nullptr; ++i) shaped = call.outputs[i];
  if (shaped == nullptr) return MT_OK;
  const int64_t n = sdk::TensorView(shaped).numel();
  if (n == 0) return MT_OK;
  if (is_simple(call, compute_type)) {
    const bool stream = n * kComputeBytes[compute_type] >= kStreamBytes && should_stream(call, n);
    if (!stream || program.streams)
      return run_simple(ctx, call, inner_loop, compute_type, n, stream);
  }
  return run_general(ctx, call, inner_loop, compute_type, shaped, n);
}

namespace {

// Returns the compute type that equals `dtype`, or -1 if the dtype is staged.
int exact_compute_type(mt_dtype dtype) {
  for (int compute_type = 0; compute_type < kComputeTypes; ++compute_type) {
    if (std::bit_cast<uint32_t>(dtype) == std::bit_cast<uint32_t>(kComputeDtype[compute_type]))
      return compute_type;
  }
  return -1;
}

template <class T>
void spread(const mt_tensor* number, int64_t n, void* to) {
  std::fill_n(static_cast<T*>(to), n, sdk::scalar_value<T>(number));
}

// Runs a small call with a number among its operands, which is repeated on the stack.
[[gnu::noinline]] int run_with_number(mt_ctx* ctx, const PointwiseOp& op,
                                      const PointwiseProgram& program, int compute_type,
                                      const void* args, const void** inputs, void* const* outputs,
                                      const Scalars& scalars, int64_t n) {
  alignas(64) char room[1024];
  if (n * kComputeBytes[compute_type] > static_cast<int64_t>(sizeof(room))) return MT_DECLINED;
  bool room_taken = false;
  for (int32_t i = 0; i < program.num_inputs; ++i) {
    const mt_tensor* t = sdk::tensor_at(args, program.inputs[i].offset);
    if ((t->flags & MT_TENSOR_HOST) == 0) continue;
    if (room_taken || program.inputs[i].type != MT_TYPE_COMPUTE) return MT_DECLINED;
    room_taken = true;
    inputs[i] = room;
    switch (compute_type) {
      case kFloat32:
        spread<float>(t, n, room);
        break;
      case kFloat64:
        spread<double>(t, n, room);
        break;
      case kInt32:
        spread<int32_t>(t, n, room);
        break;
      default:
        spread<int64_t>(t, n, room);
        break;
    }
  }
  return program.loops.fn[compute_type](inputs, outputs, scalars, n) ? MT_OK
                                                                     : refuse_zero(ctx, op.base);
}

[[gnu::noinline]] void read_numbers(const PointwiseProgram& program, mt_dtype compute,
                                    const void* args, Scalars& scalars) {
  for (int32_t i = 0; i < program.num_scalars; ++i) {
    scalars.value[i] = number_of(args, program.scalars[i], compute);
  }
}

// Runs any call, after collecting its operands.
[[gnu::noinline]] int run_described(void* self, mt_ctx* ctx, const void* args) noexcept {
  const PointwiseOp& op = *static_cast<const PointwiseOp*>(self);
  const auto& header = *static_cast<const mt_args_header*>(args);
  PointwiseCall call(op.variants[header.variant], op.base, header.compute, args);
  const PointwiseProgram& program = call.program;
  if (is_narrow(header.compute) && !program.narrow && !sdk::is_floating(header.compute)) {
    return MT_DECLINED;
  }
  call.set_operands();
  return run_call(ctx, call);
}

}  // namespace

// The host has checked that the operands of a uniform call have the same layout and dtype, so a
// small call needs only their pointers. Rare cases are in separate functions, so that this one
// saves few registers.
int run_pointwise(void* self, mt_ctx* ctx, const void* args) noexcept {
  const PointwiseOp& op = *static_cast<const PointwiseOp*>(self);
  const auto& header = *static_cast<const mt_args_header*>(args);
  if (header.variant >= static_cast<uint32_t>(op.num_variants)) return MT_DECLINED;
  const PointwiseProgram& program = op.variants[header.variant];
  const int compute_type = exact_compute_type(header.compute);
  if ((header.flags & MT_ARGS_UNIFORM) == 0 || compute_type < 0)
    return run_described(self, ctx, args);
  const InnerLoop inner_loop = program.loops.fn[compute_type];
  if (inner_loop == nullptr) return run_described(self, ctx, args);
  const mt_tensor* shaped = nullptr;
  void* outputs[kMaxOutputs];
  for (int32_t i = 0; i < program.num_outputs; ++i) {
    const mt_tensor* t = sdk::tensor_at(args, program.outputs[i].offset);
    outputs[i] = nullptr;
    if (t == nullptr) continue;
    outputs[i] = t->dl.data;
    shaped = t;
  }
  const int64_t n = sdk::TensorView(shaped).numel();
  if (n * program.cost > kGrain &&
      (ctx->num_threads > 1 || n * kComputeBytes[compute_type] >= kStreamBytes)) {
    return run_described(self, ctx, args);
  }
  uint32_t flags = 0;
  const void* inputs[kMaxInputs];
  for (int32_t i = 0; i < program.num_inputs; ++i) {
    const mt_tensor* t = sdk::tensor_at(args, program.inputs[i].offset);
    if (t == nullptr) return run_described(self, ctx, args);
    inputs[i] = t->dl.data;
    flags |= t->flags;
  }
  if (n <= 0) return MT_OK;
  Scalars scalars;
  scalars.self = program.self;
  if (program.num_scalars != 0) read_numbers(program, header.compute, args, scalars);
  if ((flags & MT_TENSOR_HOST) != 0) [[unlikely]] {
    const int status =
        run_with_number(ctx, op, program, compute_type, args, inputs, outputs, scalars, n);
    return status != MT_DECLINED ? status : run_described(self, ctx, args);
  }
  if (inner_loop(inputs, outputs, scalars, n)) [[likely]]
    return MT_OK;
  return refuse_zero(ctx, op.base);
}

}  // namespace mytorch::cpu
