// The reference backend: the oracle that other backends are tested against. It interprets programs
// and computes primitives by their definitions, in exact integers or doubles, on one thread. It is
// chosen only where it is pinned or allowed as the fallback.
#include "backends/reference/kernels.h"
#include "backends/reference/program.h"
#include "mytorch/backend/kernel.h"

// A static registration gives the function a name of its own, so that several backends can be
// linked into one program.
#ifndef MYTORCH_BACKEND_INIT
#define MYTORCH_BACKEND_INIT mt_backend_init
#endif

namespace mytorch::reference {
namespace {

// Kernels read their inputs before they write, and know no dtype or layout that is not theirs.
constexpr uint32_t kTakes = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;

// copy_ and fill_ also broadcast. An element may be narrower than what it is copied to, so an
// operand that is the output with another dtype would be overwritten: no alias there.
constexpr uint32_t kCopies = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES;

template <auto kernel_fn>
constexpr mt_candidate entry(const char* op, uint64_t hash, uint32_t flags = kTakes) {
  return sdk::kernel<kernel_fn>(op, hash, "definition", 0, flags);
}

constexpr mt_candidate kCandidates[] = {
    entry<&copy_>("copy_", MT_HASH_copy_, kCopies),
    entry<&fill_>("fill_", MT_HASH_fill_, kCopies),
    entry<&arange>("arange.start_step", MT_HASH_arange_start_step),
    entry<&uniform_>("uniform_", MT_HASH_uniform_),
    entry<&normal_>("normal_", MT_HASH_normal_),
    entry<&random_>("random_.from", MT_HASH_random__from),
    entry<&bmm>("bmm", MT_HASH_bmm),
    entry<&convolution>("convolution", MT_HASH_convolution),
    entry<&convolution_backward_input>("convolution_backward_input",
                                       MT_HASH_convolution_backward_input),
    entry<&convolution_backward_weight>("convolution_backward_weight",
                                        MT_HASH_convolution_backward_weight),
    entry<&max_pool2d>("max_pool2d_with_indices", MT_HASH_max_pool2d_with_indices),
    entry<&max_pool2d_backward>("max_pool2d_with_indices_backward",
                                MT_HASH_max_pool2d_with_indices_backward),
    entry<&avg_pool2d>("avg_pool2d", MT_HASH_avg_pool2d),
    entry<&avg_pool2d_backward>("avg_pool2d_backward", MT_HASH_avg_pool2d_backward),
    entry<&gather>("gather", MT_HASH_gather),
    entry<&scatter>("scatter.src", MT_HASH_scatter_src),
    entry<&scatter_add>("scatter_add", MT_HASH_scatter_add),
    entry<&nonzero>("nonzero", MT_HASH_nonzero),
    entry<&cat>("cat", MT_HASH_cat),
    entry<&cumsum>("cumsum", MT_HASH_cumsum),
    entry<&sort>("sort.stable", MT_HASH_sort_stable),
};

const char* describe(void* /*self*/) { return "one thread, double and int64, no vector code"; }

}  // namespace
}  // namespace mytorch::reference

extern "C" MT_EXPORT int MYTORCH_BACKEND_INIT(const mt_host* host, mt_backend* backend) {
  using namespace mytorch;
  return sdk::fill_backend(host, backend,
                           {.name = "reference",
                            .version = "1.0",
                            .device_type = "cpu",
                            .candidates = reference::kCandidates,
                            .compile = &sdk::compile_entry<&reference::compile>,
                            .flags = MT_BACKEND_ORACLE,
                            .describe = &reference::describe});
}
