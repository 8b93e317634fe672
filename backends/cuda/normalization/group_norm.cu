// Group normalization: selects between the kernels for groups in shared memory and for pieces of
// groups.
#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "backends/cuda/normalization/group_held.cuh"
#include "backends/cuda/normalization/group_pieces.cuh"
#include "backends/cuda/normalization/operands.cuh"
#include "backends/cuda/registry.h"
#include "backends/cuda/runtime/launch.h"
#include "backends/cuda/runtime/sdk.h"
#include "mytorch/abi_ops/native_group_norm.h"
#include "mytorch/abi_ops/native_group_norm_backward.h"

namespace mytorch::cuda {
namespace {

using sdk::TensorView;

constexpr int64_t kMostBlocks = 0x7FFFFFFF;

// Whether channels are contiguous and everything else is row-major around them.
bool channels_last(const TensorView& x) {
  int64_t expected = 1;
  const auto lies = [&](int d) {
    const bool fits = x.size(d) == 1 || x.stride(d) == expected;
    expected *= x.size(d);
    return fits;
  };
  bool all = lies(1);
  for (int d = x.ndim() - 1; d >= 2; --d) all = lies(d) && all;
  return lies(0) && all;
}

// The common layout of a call's operands. Throws sdk::Declined if they differ.
struct Layout {
  Groups groups;
  bool last = false;
  bool packs = true;  // all operands are aligned to whole packs

  Layout(const TensorView& input, int64_t group, std::initializer_list<TensorView> others) {
    if (input.numel() == 0) throw sdk::Declined{};
    groups.samples = input.size(0);
    groups.groups = group;
    groups.each = input.size(1) / group;
    groups.plane = input.numel() / (input.size(0) * input.size(1));
    last = !input.is_contiguous();
    add(input, input);
    for (const TensorView& other : others) {
      if (other) add(other, input);
    }
    if (groups.samples * groups.channels() > kMostBlocks) throw sdk::Declined{};
  }

 private:
  void add(const TensorView& x, const TensorView& input) {
    if (!sdk::same_dtype(x.dtype(), input.dtype()) ||
        !(last ? channels_last(x) : x.is_contiguous())) {
      throw sdk::Declined{};
    }
    packs = packs && aligned(x.raw());
  }
};

// Returns the dynamic shared memory available to a block; the kernels' static shared memory is less
// than 1 KiB.
size_t room_of(const mt_ctx& ctx) { return properties(ctx.device.index).shared - 1024; }

// Allows a kernel to use it; once for each device.
void allow_room(const mt_ctx& ctx, const void* kernel) {
  thread_local std::map<std::pair<const void*, int32_t>, bool> allowed;
  bool& known = allowed[{kernel, ctx.device.index}];
  if (known) return;
  use_device(ctx);
  CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                            static_cast<int>(room_of(ctx))));
  CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                            cudaSharedmemCarveoutMaxShared));
  known = true;
}

// One block for each group of each sample, with about 1024 threads per multiprocessor in all of its
// resident blocks.
Grid held_grid(const mt_ctx& ctx, const Groups& groups, int64_t packs, size_t bytes) {
  const size_t resident = std::max<size_t>(1, room_of(ctx) / bytes);
  Grid grid;
  unsigned threads = kHeldThreads;
  while (threads > 64 && (threads * resident > 1024 || threads > packs)) threads /= 2;
  grid.threads = dim3(threads);
  grid.blocks = dim3(static_cast<unsigned>(groups.rows()));
  grid.shared = bytes;
  return grid;
}

// Whether to use one block per group of `bytes` bytes: groups fit, and there are at least as many
// as multiprocessors, or they are short.
bool held(const mt_ctx& ctx, const Layout& layout, size_t bytes) {
  return !layout.last && bytes <= room_of(ctx) &&
         (layout.groups.rows() >= properties(ctx.device.index).multiprocessors ||
          bytes <= 32 * 1024);
}

// Calls f with the relation of packs to channels as a constant.
template <class T, class F>
void with_planes(const Layout& layout, F&& f) {
  if (!layout.packs || layout.groups.length() % kPack<T> != 0) {
    f(std::integral_constant<Planes, Planes::kElements>{});
  } else if (layout.groups.plane % kPack<T> != 0) {
    f(std::integral_constant<Planes, Planes::kCut>{});
  } else {
    f(std::integral_constant<Planes, Planes::kPacked>{});
  }
}

// Calls f with two constants: whether threads are assigned neighbouring channels, and the elements
// of a pack.
template <class T, class F>
void with_pieces(const Layout& layout, F&& f) {
  const bool last = layout.last || layout.groups.plane == 1;
  const int64_t along = last ? layout.groups.channels() : layout.groups.plane;
  const auto with_width = [&](auto last) {
    if (layout.packs && along % kPack<T> == 0) {
      f(last, std::integral_constant<int, kPack<T>>{});
    } else {
      f(last, std::integral_constant<int, 1>{});
    }
  };
  last ? with_width(std::true_type{}) : with_width(std::false_type{});
}

void group_norm_forward(mt_ctx& ctx, const mt_args_native_group_norm& args) {
  const TensorView input = args.input, out = args.out;
  const Layout layout(input, args.group, {out});
  const Groups& groups = layout.groups;
  const char* name = "native_group_norm";
  visit_floating(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    const PerChannel weight(args.weight), bias(args.bias);
    W* means = statistic<W>(args.mean);
    W* rstds = statistic<W>(args.rstd);
    const auto* const x = static_cast<const T*>(input.raw());
    T* const y = out ? out.data<T>() : nullptr;
    const auto eps = static_cast<W>(args.eps);
    const size_t bytes = held_bytes<T>(groups);
    if (held(ctx, layout, bytes)) {
      with_planes<T>(layout, [&](auto planes) {
        const auto kernel = normalize_held<planes(), T>;
        allow_room(ctx, reinterpret_cast<const void*>(kernel));
        launch(ctx, name, kernel,
               held_grid(ctx, groups, groups.length() / kWidthOf<T, planes()>, bytes),
               static_cast<int>(groups.groups), static_cast<int>(groups.each),
               static_cast<int>(groups.plane),
               static_cast<W>(1.0 / static_cast<double>(groups.length())), eps, x, weight, bias, y,
               means, rstds);
      });
      return;
    }
    with_pieces<T>(layout, [&](auto last, auto width) {
      Grid grid;
      const Pieces cut = Pieces::of(ctx, groups, last(), width(), grid);
      auto* const found = scratch<Moments<W>>(ctx, groups.samples * groups.channels() * cut.pieces);
      if (means == nullptr) means = scratch<W>(ctx, groups.rows());
      if (rstds == nullptr) rstds = scratch<W>(ctx, groups.rows());
      launch(ctx, name, moments_of_pieces<last(), T, width()>, grid, groups, cut, x, found);
      Grid rows;
      rows.threads = dim3(kMergeThreads);
      rows.blocks = dim3(static_cast<unsigned>(groups.rows()));
      launch(ctx, name, merge_moments<last(), T>, rows, groups, groups.each * cut.pieces, eps, x,
             static_cast<const Moments<W>*>(found), means, rstds);
      if (y == nullptr) return;
      launch(ctx, name, normalize_pieces<last(), T, width()>, grid, groups, cut, x,
             static_cast<const W*>(means), static_cast<const W*>(rstds), weight, bias, y);
    });
  });
}

void group_norm_backward(mt_ctx& ctx, const mt_args_native_group_norm_backward& args) {
  const TensorView input = args.input, grad = args.grad_out;
  const TensorView out = wanted(args.output_mask, 0, args.grad_input);
  const Sums to_weight(wanted(args.output_mask, 1, args.grad_weight));
  const Sums to_bias(wanted(args.output_mask, 2, args.grad_bias));
  const bool wants_sums = to_weight.data != nullptr || to_bias.data != nullptr;
  const Layout layout(input, args.group, {grad, out});
  const Groups& groups = layout.groups;
  const char* name = "native_group_norm_backward";
  visit_floating(input.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    const PerChannel weight(args.weight);
    const W* const means = statistic<W>(args.mean);
    const W* const rstds = statistic<W>(args.rstd);
    const auto* const x = static_cast<const T*>(input.raw());
    const auto* const g = static_cast<const T*>(grad.raw());
    T* const to = out ? out.data<T>() : nullptr;
    const int64_t columns = 2 * groups.channels();
    W* sums = nullptr;
    // Sized for the largest number of threads.
    const size_t bytes = held_gradient_bytes<T>(groups, kHeldThreads);
    if (held(ctx, layout, bytes)) {
      if (wants_sums) sums = scratch<W>(ctx, groups.samples * columns);
      with_planes<T>(layout, [&](auto planes) {
        const auto kernel = gradients_held<planes(), T>;
        allow_room(ctx, reinterpret_cast<const void*>(kernel));
        launch(ctx, name, kernel,
               held_grid(ctx, groups, groups.length() / kWidthOf<T, planes()>, bytes),
               static_cast<int>(groups.groups), static_cast<int>(groups.each),
               static_cast<int>(groups.plane),
               static_cast<W>(1.0 / static_cast<double>(groups.length())), g, x, means, rstds,
               weight, to, sums);
      });
    } else {
      with_pieces<T>(layout, [&](auto last, auto width) {
        Grid grid;
        const Pieces cut = Pieces::of(ctx, groups, last(), width(), grid);
        auto* const found =
            scratch<TwoSums<W>>(ctx, groups.samples * groups.channels() * cut.pieces);
        auto* const terms = scratch<TwoSums<W>>(ctx, groups.rows());
        sums = scratch<W>(ctx, groups.samples * columns);
        launch(ctx, name, sums_of_pieces<last(), T, width()>, grid, groups, cut, g, x, means, rstds,
               found);
        Grid rows;
        rows.threads = dim3(kMergeThreads);
        rows.blocks = dim3(static_cast<unsigned>(groups.rows()));
        launch(ctx, name, merge_sums<W>, rows, groups, cut.pieces,
               static_cast<const TwoSums<W>*>(found), weight, sums, terms);
        if (to == nullptr) return;
        launch(ctx, name, combine_pieces<last(), T, width()>, grid, groups, cut, g, x, means, rstds,
               weight, static_cast<const TwoSums<W>*>(terms), to);
      });
    }
    if (!wants_sums) return;
    Grid grid;
    grid.threads = dim3(32, kShares);
    grid.blocks = dim3(static_cast<unsigned>((columns + 31) / 32));
    launch(ctx, name, add_owners<W>, grid, groups.samples, groups.channels(), columns,
           static_cast<const W*>(sums), to_weight, to_bias);
  });
}

}  // namespace

void register_group_norm(KernelEntries& kernels) {
  kernels.push_back(sdk::kernel<&group_norm_forward>("groups", MT_TAKES_STRIDED));
  kernels.push_back(sdk::kernel<&group_norm_backward>("groups", MT_TAKES_STRIDED));
}

}  // namespace mytorch::cuda
