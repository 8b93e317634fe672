// The reference backend, with which other backends are compared. It interprets programs and
// computes primitives by their definitions, in exact integers or doubles, on one thread. It is
// chosen only if it is pinned or allowed as the fallback.
#include "backends/reference/kernels.h"
#include "backends/reference/program.h"
#include "mytorch/backend/kernel.h"

// Static registration defines another name for the function, so that a program can link several
// backends.
#ifndef MYTORCH_BACKEND_INIT
#define MYTORCH_BACKEND_INIT mt_backend_init
#endif

namespace mytorch::reference {
namespace {

// Kernels take any dtypes and layouts, and read their inputs before they write.
constexpr uint32_t kTakes = MT_TAKES_STRIDED | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;

// copy_ and fill_ also broadcast. They take no aliases: a source with narrower elements than the
// output would be overwritten before it is read.
constexpr uint32_t kCopies = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES;

// Factorizations read single matrices of a batch before they write them, so a result is no operand.
constexpr uint32_t kMatrices = MT_TAKES_STRIDED | MT_TAKES_COMPLEX;

template <auto kernel_fn>
constexpr mt_kernel_entry entry(uint32_t flags = kTakes) {
  return sdk::kernel<kernel_fn>("definition", flags);
}

constexpr mt_kernel_entry kKernels[] = {
    entry<&copy_>(kCopies),
    entry<&fill_>(kCopies),
    entry<&arange>(),
    entry<&uniform_>(),
    entry<&normal_>(),
    entry<&random_>(),
    entry<&bmm>(),
    entry<&convolution>(),
    entry<&convolution_backward_input>(),
    entry<&convolution_backward_weight>(),
    entry<&max_pool2d>(),
    entry<&max_pool2d_backward>(),
    entry<&avg_pool2d>(),
    entry<&avg_pool2d_backward>(),
    entry<&gather>(),
    entry<&scatter>(),
    entry<&scatter_add>(),
    entry<&nonzero>(),
    entry<&cat>(),
    entry<&cumsum>(),
    entry<&cummax>(),
    entry<&cummin>(),
    entry<&cumprod>(),
    entry<&logcumsumexp>(),
    entry<&sort>(),
    entry<&linalg_cholesky_ex>(kMatrices),
    entry<&linalg_lu_factor_ex>(kMatrices),
    entry<&linalg_lu_solve>(kMatrices),
    entry<&linalg_solve_triangular>(kMatrices),
    entry<&linalg_lu_permutation>(kMatrices),
    entry<&linalg_ldl_factor_ex>(kMatrices),
    entry<&linalg_ldl_solve>(kMatrices),
    entry<&linalg_qr>(kMatrices),
    entry<&geqrf>(kMatrices),
    entry<&linalg_householder_product>(kMatrices),
    entry<&linalg_eig>(kMatrices),
    entry<&linalg_eigh>(kMatrices),
    entry<&linalg_svd>(kMatrices),
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
                            .kernels = reference::kKernels,
                            .compile = &sdk::compile_entry<&reference::compile>,
                            .flags = MT_BACKEND_REFERENCE | MT_BACKEND_COMPLEX,
                            .describe = &reference::describe});
}
