// Kernels that write elements without arithmetic on their inputs: copy_, fill_, arange.
#include <cstdint>
#include <vector>

#include "backends/reference/exact.h"
#include "backends/reference/kernels.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {

void copy_(mt_ctx& /*ctx*/, const mt_args_copy_& args) { copy(args.src, args.self); }

void fill_(mt_ctx& /*ctx*/, const mt_args_fill_& args) { copy(args.value, args.self); }

void arange(mt_ctx& /*ctx*/, const mt_args_arange_start_step& args) {
  const sdk::TensorView out = args.out;
  visit_domain(out.dtype(), [&](auto tag) {
    using E = typename decltype(tag)::type;
    const E start = sdk::to<E>(args.start);
    const E step = sdk::to<E>(args.step, E(1));
    std::vector<E> values(static_cast<size_t>(out.numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = add(start, mul(step, static_cast<E>(i)));
    write_exact(values, out);
  });
}

}  // namespace mytorch::reference
