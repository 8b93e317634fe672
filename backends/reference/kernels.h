// The kernels of the primitives. The host has checked shapes, dtypes and ranges of arguments;
// kernels check index values only.
#pragma once

#include "mytorch/abi_ops/arange.h"
#include "mytorch/abi_ops/avg_pool2d.h"
#include "mytorch/abi_ops/avg_pool2d_backward.h"
#include "mytorch/abi_ops/bmm.h"
#include "mytorch/abi_ops/cat.h"
#include "mytorch/abi_ops/convolution.h"
#include "mytorch/abi_ops/convolution_backward_input.h"
#include "mytorch/abi_ops/convolution_backward_weight.h"
#include "mytorch/abi_ops/copy_.h"
#include "mytorch/abi_ops/cummax.h"
#include "mytorch/abi_ops/cummin.h"
#include "mytorch/abi_ops/cumprod.h"
#include "mytorch/abi_ops/cumsum.h"
#include "mytorch/abi_ops/fill_.h"
#include "mytorch/abi_ops/gather.h"
#include "mytorch/abi_ops/geqrf.h"
#include "mytorch/abi_ops/linalg_cholesky_ex.h"
#include "mytorch/abi_ops/linalg_eig_forward.h"
#include "mytorch/abi_ops/linalg_eigh_forward.h"
#include "mytorch/abi_ops/linalg_householder_product.h"
#include "mytorch/abi_ops/linalg_ldl_factor_ex.h"
#include "mytorch/abi_ops/linalg_ldl_solve.h"
#include "mytorch/abi_ops/linalg_lu_factor_ex.h"
#include "mytorch/abi_ops/linalg_lu_permutation.h"
#include "mytorch/abi_ops/linalg_lu_solve.h"
#include "mytorch/abi_ops/linalg_qr.h"
#include "mytorch/abi_ops/linalg_solve_triangular.h"
#include "mytorch/abi_ops/linalg_svd_forward.h"
#include "mytorch/abi_ops/logcumsumexp.h"
#include "mytorch/abi_ops/max_pool2d_with_indices.h"
#include "mytorch/abi_ops/max_pool2d_with_indices_backward.h"
#include "mytorch/abi_ops/nonzero.h"
#include "mytorch/abi_ops/normal_.h"
#include "mytorch/abi_ops/random_.h"
#include "mytorch/abi_ops/scatter.h"
#include "mytorch/abi_ops/scatter_add.h"
#include "mytorch/abi_ops/sort.h"
#include "mytorch/abi_ops/uniform_.h"

namespace mytorch::reference {

void copy_(mt_ctx& ctx, const mt_args_copy_& args);
void fill_(mt_ctx& ctx, const mt_args_fill_& args);
void arange(mt_ctx& ctx, const mt_args_arange_start_step& args);

void uniform_(mt_ctx& ctx, const mt_args_uniform_& args);
void normal_(mt_ctx& ctx, const mt_args_normal_& args);
void random_(mt_ctx& ctx, const mt_args_random__from& args);

void bmm(mt_ctx& ctx, const mt_args_bmm& args);
void convolution(mt_ctx& ctx, const mt_args_convolution& args);
void convolution_backward_input(mt_ctx& ctx, const mt_args_convolution_backward_input& args);
void convolution_backward_weight(mt_ctx& ctx, const mt_args_convolution_backward_weight& args);

void max_pool2d(mt_ctx& ctx, const mt_args_max_pool2d_with_indices& args);
void max_pool2d_backward(mt_ctx& ctx, const mt_args_max_pool2d_with_indices_backward& args);
void avg_pool2d(mt_ctx& ctx, const mt_args_avg_pool2d& args);
void avg_pool2d_backward(mt_ctx& ctx, const mt_args_avg_pool2d_backward& args);

void gather(mt_ctx& ctx, const mt_args_gather& args);
void scatter(mt_ctx& ctx, const mt_args_scatter_src& args);
void scatter_add(mt_ctx& ctx, const mt_args_scatter_add& args);
void nonzero(mt_ctx& ctx, const mt_args_nonzero& args);

void cat(mt_ctx& ctx, const mt_args_cat& args);
void cumsum(mt_ctx& ctx, const mt_args_cumsum& args);
void cummax(mt_ctx& ctx, const mt_args_cummax& args);
void cummin(mt_ctx& ctx, const mt_args_cummin& args);
void cumprod(mt_ctx& ctx, const mt_args_cumprod& args);
void logcumsumexp(mt_ctx& ctx, const mt_args_logcumsumexp& args);
void sort(mt_ctx& ctx, const mt_args_sort_stable& args);

void linalg_cholesky_ex(mt_ctx& ctx, const mt_args_linalg_cholesky_ex& args);
void linalg_lu_factor_ex(mt_ctx& ctx, const mt_args_linalg_lu_factor_ex& args);
void linalg_lu_solve(mt_ctx& ctx, const mt_args_linalg_lu_solve& args);
void linalg_solve_triangular(mt_ctx& ctx, const mt_args_linalg_solve_triangular& args);
void linalg_lu_permutation(mt_ctx& ctx, const mt_args_linalg_lu_permutation& args);
void linalg_ldl_factor_ex(mt_ctx& ctx, const mt_args_linalg_ldl_factor_ex& args);
void linalg_ldl_solve(mt_ctx& ctx, const mt_args_linalg_ldl_solve& args);
void linalg_qr(mt_ctx& ctx, const mt_args_linalg_qr& args);
void geqrf(mt_ctx& ctx, const mt_args_geqrf& args);
void linalg_householder_product(mt_ctx& ctx, const mt_args_linalg_householder_product& args);
void linalg_eig(mt_ctx& ctx, const mt_args_linalg_eig_forward& args);
void linalg_eigh(mt_ctx& ctx, const mt_args_linalg_eigh_forward& args);
void linalg_svd(mt_ctx& ctx, const mt_args_linalg_svd_forward& args);

}  // namespace mytorch::reference
