#include "backends/cpu-openmp/reduction/reduction.h"

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

#include "backends/cpu-openmp/common/gather_rows.h"
#include "backends/cpu-openmp/pointwise/compute_type.h"
#include "mytorch/backend/error.h"

namespace mytorch::cpu {
namespace {

// Shorter runs are folded as columns, which are better suited to vectors.
constexpr int64_t kShortRun = 32;
// Rows of this many columns are wide enough for vectors; narrower rows are joined.
constexpr int64_t kWide = 64;
constexpr int64_t kJoined = 16;

void set_scalars(const PointwiseProgram* program, const void* args, mt_dtype compute,
                 Scalars& scalars) {
  if (program == nullptr) return;
  for (int32_t i = 0; i < program->num_scalars; ++i) {
    scalars.value[i] = number_of(args, program->scalars[i], compute);
  }
  if (sdk::is_bool(compute)) scalars.not_mask = 1;
  scalars.self = program->self;
}

bool is_arg(Fold fold) { return fold == Fold::kArgmax || fold == Fold::kArgmin; }

int64_t magnitude(int64_t stride) { return stride < 0 ? -stride : stride; }

}  // namespace

Reduction::Reduction(const ReduceProgram& program, mt_dtype compute, const void* args)
    : program_(program), compute_(compute) {
  const sdk::TensorView x(sdk::tensor_at(args, program.input));
  const int ndim = x.ndim();
  const uint64_t reduced = sdk::reduced_dims(args, program.dim_field, program.dim_offset, ndim);
  int64_t shape[sdk::kMaxDims], strides[1 + kMaxOutputs][sdk::kMaxDims];
  const int64_t* pointers[1 + kMaxOutputs];
  for (int k = 0; k <= program.num_outputs; ++k) pointers[k] = strides[k];

  size_t dims = static_cast<size_t>(sdk::select_dims(reduced, x.shape(), shape));
  sdk::select_dims(reduced, x.strides(), strides[0]);
  // argmax counts indices in row-major order.
  reduced_.collapse({shape, dims}, std::span(pointers, 1),
                    is_arg(program.fold) ? sdk::Order::kRowMajor : sdk::Order::kMemory);
  reduced_.scale(0, x.itemsize());

  dims = static_cast<size_t>(sdk::select_dims(~reduced, x.shape(), shape));
  sdk::select_dims(~reduced, x.strides(), strides[0]);
  int64_t itemsizes[1 + kMaxOutputs] = {x.itemsize()};
  for (int k = 0; k < program.num_outputs; ++k) {
    const sdk::TensorView out = sdk::tensor_at(args, program.outputs[k].offset);
    if (!out) {
      std::fill_n(strides[1 + k], dims, 0);
      continue;
    }
    // With keepdim, the output also has the reduced dimensions, with size 1.
    sdk::select_dims(out.ndim() == ndim ? ~reduced : ~uint64_t{0}, out.strides(), strides[1 + k]);
    itemsizes[1 + k] = out.itemsize();
  }
  kept_.collapse({shape, dims}, std::span(pointers, 1 + static_cast<size_t>(program.num_outputs)));
  for (int k = 0; k <= program.num_outputs; ++k) kept_.scale(k, itemsizes[k]);

  set_fold();
  const mt_dtype through =
      program.step == nullptr && fns_->input.code == MT_BOOL ? staged_ : compute;
  input_ = make_input(x.get(), through, staged_);
  direct_ = input_.convert == nullptr && program.step == nullptr;
  each_ = fns_->each != nullptr && direct_ && reduced_.ndim() == 1 &&
          reduced_.inner_stride(0) == input_.itemsize;
  if (kept_.numel() > 1) {
    const int64_t inner = magnitude(reduced_.inner_stride(0));
    const int64_t outer = magnitude(kept_.inner_stride(0));
    across_ = reduced_.numel() <= 1 || outer < inner ||
              (!each_ && reduced_.inner_size() < kShortRun && kept_.inner_size() >= kShortRun);
  }
  each_ = each_ && !across_;
  pairs_ = fns_->pairs != nullptr && direct_ && kept_.inner_size() == 2 &&
           kept_.inner_stride(0) == input_.itemsize && reduced_.ndim() == 1 &&
           reduced_.inner_stride(0) == 2 * input_.itemsize;
  across_ = across_ && !pairs_;
  if (across_ && direct_ && kept_.inner_stride(0) == input_.itemsize) {
    group_ = kMaxStates;
  } else if (across_ && kept_.inner_stride(0) != input_.itemsize) {
    group_ = std::clamp<int64_t>(kTile / std::max<int64_t>(reduced_.inner_size(), 1), kShortRun,
                                 kStates);
  }
  set_scalars(program.step, args, compute, step_scalars_);
  // The result may be in the range of float32 although its square, such as a variance, is not.
  const bool widens = program.end != nullptr && program.end->loops.fn[kFloat64] != nullptr &&
                      compute_type_of(compute) == kFloat32 && sdk::is_dtype<double>(fns_->types[0]);
  end_ = widens ? sdk::dtype_of<double> : compute;
  set_scalars(program.end, args, end_, end_scalars_);
  int computed = 0;
  for (int k = 0; k < program.num_outputs; ++k) {
    const ReduceOutput& output = program.outputs[k];
    const mt_tensor* out = sdk::tensor_at(args, output.offset);
    wanted_[k] = out != nullptr;
    const int in_end = output.component < 0 ? computed++ : -1;
    if (out == nullptr) continue;
    mt_dtype tile = kComputeDtype[compute_type_of(end_)];
    mt_dtype passes = end_;
    if (in_end >= 0) {
      if (program.end->outputs[in_end].type == MT_TYPE_BOOL) tile = passes = sdk::dtype_of<bool>;
    } else {
      tile = fns_->types[output.component];
      if (output.type != MT_TYPE_COMPUTE || sdk::is_floating(compute)) passes = tile;
    }
    outputs_[k] = make_output(out, passes, tile);
  }
}

// Chooses the fold and the type of the input tiles.
void Reduction::set_fold() {
  ComputeType compute_type = compute_type_of(compute_);
  // The indices do not fit into int32.
  if (is_arg(program_.fold) && reduced_.numel() > std::numeric_limits<int32_t>::max()) {
    compute_type = compute_type == kFloat32 ? kFloat64
                   : compute_type == kInt32 ? kInt64
                                            : compute_type;
  }
  fns_ = find_fold(program_.fold, compute_type);
  if (fns_ == nullptr) throw sdk::Declined{};
  staged_ = fns_->input;
  if (program_.step == nullptr) return;
  const ComputeType steps = compute_type_of(compute_);
  if (program_.step->loops.fn[steps] == nullptr) throw sdk::Declined{};
  narrow_ = program_.fold == Fold::kSum && steps == kFloat32 &&
            program_.step->loops.fn[kFloat64] != nullptr &&
            (program_.end == nullptr || program_.end->loops.fn[kFloat64] != nullptr);
  staged_ = kComputeDtype[steps];
  const mt_dtype result =
      program_.step->outputs[0].type == MT_TYPE_BOOL ? sdk::dtype_of<bool> : kComputeDtype[steps];
  if (!sdk::same_dtype(result, fns_->input)) after_step_ = simd::get_convert(result, fns_->input);
}

int64_t Reduction::group(int64_t begin, int64_t end) const {
  int64_t n = std::min(end - begin, group_);
  // A group of columns lies in one row of the outputs.
  if (across_) n = std::min(n, kept_.inner_size() - begin % kept_.inner_size());
  return n;
}

const void* Reduction::step(char* tile, char* other, char* third, int64_t n) {
  if (program_.step == nullptr) return tile;
  const void* in[1] = {tile};
  void* out[1] = {other};
  if (!program_.step->loops.fn[compute_type_of(compute_)](in, out, step_scalars_, n)) {
    refused_.store(true, std::memory_order_relaxed);
  }
  if (after_step_ == nullptr) return other;
  after_step_(other, third, n);
  return third;
}

void Reduction::fold_one(const States& states, int64_t j, const char* base, int64_t from,
                         int64_t to) {
  const auto run = [&](const char* x, int64_t stride, int64_t n) {
    if (direct_ && stride == input_.itemsize) {
      fns_->along(states, j, x, n, from);
      from += n;
      return;
    }
    alignas(64) char tile[kTile * 8], other[kTile * 8], third[kTile * 8];
    for (int64_t i = 0; i < n; i += kTile) {
      const int64_t count = std::min(n - i, kTile);
      load_run(input_, x + i * stride, stride, count, tile);
      fns_->along(states, j, step(tile, other, third, count), count, from);
      from += count;
    }
  };
  if (reduced_.ndim() == 1) {
    const int64_t stride = reduced_.inner_stride(0);
    run(base + from * stride, stride, to - from);
    return;
  }
  Cursor cursor(reduced_, from);
  while (from < to) {
    const int64_t n = std::min(to - from, cursor.left());
    run(base + cursor.offset(0), reduced_.inner_stride(0), n);
    cursor.advance(n);
  }
}

namespace {

struct WideStates {
  alignas(64) char bytes[kMaxComponents][kMaxStates * 8];
};

}  // namespace

// Folds contiguous rows of a few columns: several of them form one wide row, whose states are
// merged at the end.
void Reduction::fold_narrow(const States& states, const char* x, int64_t rows, int64_t n,
                            int64_t from) {
  const int64_t stride = n * input_.itemsize;
  const int64_t joined = kJoined * std::max<int64_t>(1, 2 * kWide / (kJoined * n));
  const int64_t wide = joined * n;
  if (rows >= 4 * joined) {
    WideStates room;
    States sums;
    const auto at = [&](int64_t j) {
      States some;
      for (int k = 0; k < kMaxComponents; ++k) {
        some.component[k] = room.bytes[k] + j * sdk::itemsize(fns_->types[k]);
      }
      return some;
    };
    sums = at(0);
    fns_->reset(sums, wide);
    fns_->across(sums, x, joined * stride, rows / joined, wide, from);
    // By halves, which are wide; `joined` is a power of two.
    for (int64_t half = wide / 2; half >= n; half /= 2) fns_->merge(sums, at(half), half);
    fns_->merge(states, sums, n);
    x += rows / joined * joined * stride;
    rows %= joined;
  }
  fns_->across(states, x, stride, rows, n, from);
}

void Reduction::fold_rows(const States& states, const char* base, int64_t n, int64_t from,
                          int64_t to) {
  const int64_t column_stride = kept_.inner_stride(0);
  const bool direct = direct_ && (column_stride == input_.itemsize || n == 1);
  const int64_t row_stride = reduced_.inner_stride(0);
  const int64_t batch = std::max<int64_t>(1, kTile / n);
  const int64_t itemsize = sdk::itemsize(fns_->input);
  const bool narrow = direct && row_stride == n * input_.itemsize && !is_arg(program_.fold) &&
                      (n < kWide || (n % kJoined != 0 && n * kJoined <= kMaxStates));
  Cursor cursor(reduced_, from);
  while (from < to) {
    int64_t rows = std::min(to - from, cursor.left());
    const char* x = base + cursor.offset(0);
    if (narrow) {
      fold_narrow(states, x, rows, n, from);
    } else if (direct) {
      fns_->across(states, x, row_stride, rows, n, from);
    } else {
      alignas(64) char tile[kTile * 8], other[kTile * 8], third[kTile * 8];
      rows = std::min(rows, batch);
      if (column_stride == input_.itemsize) {
        for (int64_t r = 0; r < rows; ++r) {
          load_run(input_, x + r * row_stride, column_stride, n,
                   tile + r * n * input_.tile_itemsize);
        }
      } else {
        char* raw = input_.convert == nullptr ? tile : other;
        gather_rows(x, row_stride, column_stride, rows, n, input_.itemsize, raw);
        if (input_.convert != nullptr) convert_run(input_, raw, tile, rows * n);
      }
      fns_->across(states, step(tile, other, third, rows * n), n * itemsize, rows, n, from);
    }
    cursor.advance(rows);
    from += rows;
  }
}

void Reduction::fold(const States& states, int64_t begin, int64_t n, int64_t from, int64_t to) {
  if (from >= to || !(each_ || pairs_)) fns_->reset(states, n);
  if (from >= to) return;
  Cursor cursor(kept_, 0, 1, begin);
  if (across_) {
    fold_rows(states, input_.data + cursor.offset(0), n, from, to);
    return;
  }
  for (int64_t j = 0; j < n;) {
    const char* x = input_.data + cursor.offset(0);
    const int64_t rows = each_ ? std::min(n - j, cursor.left()) : unit();
    if (pairs_) {
      fns_->pairs(states, j, x + from * 2 * input_.itemsize, to - from);
    } else if (each_) {
      fns_->each(states, j, x + from * input_.itemsize, kept_.inner_stride(0), rows, to - from);
    } else {
      fold_one(states, j, x, from, to);
    }
    cursor.advance(rows);
    j += rows;
  }
}

void Reduction::store_output(int index, const void* tile, int64_t begin, int64_t n) {
  const StagedOperand& output = outputs_[index];
  Cursor cursor(kept_, 1 + index, 2 + index, begin);
  const char* from = static_cast<const char*>(tile);
  for (int64_t i = 0; i < n;) {
    const int64_t run = std::min(n - i, cursor.left());
    store_run(output, from + i * output.tile_itemsize, output.data + cursor.offset(1 + index),
              kept_.inner_stride(1 + index), run);
    cursor.advance(run);
    i += run;
  }
}

void Reduction::finish(const States& states, int64_t begin, int64_t n) {
  for (int64_t i = 0; i < n; i += kStates) {
    States some;
    for (int k = 0; k < kMaxComponents; ++k) {
      some.component[k] =
          static_cast<char*>(states.component[k]) + i * sdk::itemsize(fns_->types[k]);
    }
    finish_some(some, begin + i, std::min(n - i, kStates));
  }
}

void Reduction::finish_some(const States& states, int64_t begin, int64_t n) {
  alignas(64) char computed[kMaxOutputs][kStates * 8];
  if (program_.end != nullptr) {
    const PointwiseProgram& end = *program_.end;
    const ComputeType compute_type = compute_type_of(end_);
    alignas(64) char tiles[kMaxInputs][kStates * 8];
    const void* in[kMaxInputs];
    void* out[kMaxOutputs];
    for (int32_t i = 0; i < end.num_inputs; ++i) {
      in[i] = tiles[i];
      const uint32_t component = end.inputs[i].offset;
      if (component == kCountLeaf) {
        const int64_t count = reduced();
        simd::get_convert(sdk::dtype_of<int64_t>, kComputeDtype[compute_type])(&count, tiles[i], 1);
        repeat(tiles[i], kComputeBytes[compute_type], n, tiles[i]);
        continue;
      }
      const mt_dtype type =
          end.inputs[i].type == MT_TYPE_BOOL ? sdk::dtype_of<bool> : kComputeDtype[compute_type];
      simd::get_convert(fns_->types[component], type)(states.component[component], tiles[i], n);
    }
    for (int32_t i = 0; i < end.num_outputs; ++i) out[i] = computed[i];
    if (!end.loops.fn[compute_type](in, out, end_scalars_, n)) refused_.store(true);
  }
  int next = 0;
  for (int k = 0; k < program_.num_outputs; ++k) {
    const int component = program_.outputs[k].component;
    const void* tile = component < 0 ? computed[next++] : states.component[component];
    if (wanted_[k]) store_output(k, tile, begin, n);
  }
}

}  // namespace mytorch::cpu
