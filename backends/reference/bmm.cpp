// Products of batches of matrices.
#include <cstdint>
#include <vector>

#include "backends/reference/exact.h"
#include "backends/reference/kernels.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {

void bmm(mt_ctx& /*ctx*/, const mt_args_bmm& args) {
  const sdk::TensorView self = args.self;
  const sdk::TensorView mat2 = args.mat2;
  const int64_t batch = self.size(0);
  const int64_t rows = self.size(1);
  const int64_t depth = self.size(2);
  const int64_t columns = mat2.size(2);
  visit_domain(args.header.compute, [&](auto tag) {
    using E = typename decltype(tag)::type;
    const std::vector<E> a = read_exact<E>(self, args.header.compute);
    const std::vector<E> b = read_exact<E>(mat2, args.header.compute);
    std::vector<E> out;
    out.reserve(static_cast<size_t>(batch * rows * columns));
    for (int64_t n = 0; n < batch; ++n) {
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
          Sum<E> sum;
          for (int64_t k = 0; k < depth; ++k) {
            sum.add(mul(a[static_cast<size_t>((n * rows + i) * depth + k)],
                        b[static_cast<size_t>((n * depth + k) * columns + j)]));
          }
          out.push_back(sum.value());
        }
      }
    }
    write_exact(out, args.out);
  });
}

}  // namespace mytorch::reference
