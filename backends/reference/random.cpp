// Random fills, defined by mytorch/backend/philox.h; element i is element i in row-major order.
#include <cstdint>

#include "backends/reference/elements.h"
#include "backends/reference/kernels.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/philox.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

namespace philox = sdk::philox;

// Sets element i to value(i).
template <class T, class F>
void fill_by_index(const sdk::TensorView& tensor, F&& value) {
  const Elements to(tensor);
  for (int64_t i = 0; i < to.count(); ++i) *static_cast<T*>(to[i]) = value(i);
}

}  // namespace

void uniform_(mt_ctx& /*ctx*/, const mt_args_uniform_& args) {
  const philox::Stream stream(args.generator);
  const sdk::TensorView self = args.self;
  sdk::visit_floating(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    fill_by_index<T>(self,
                     [&](int64_t i) { return philox::uniform<T>(stream, i, args.from, args.to); });
  });
}

void normal_(mt_ctx& /*ctx*/, const mt_args_normal_& args) {
  const philox::Stream stream(args.generator);
  const sdk::TensorView self = args.self;
  sdk::visit_floating(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    fill_by_index<T>(self,
                     [&](int64_t i) { return philox::normal<T>(stream, i, args.mean, args.std); });
  });
}

void random_(mt_ctx& /*ctx*/, const mt_args_random__from& args) {
  const philox::Stream stream(args.generator);
  const sdk::TensorView self = args.self;
  sdk::visit_dtype(self.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    // Unsigned, because the difference may exceed 2^63; 0 means 2^64, the range of all of int64.
    const uint64_t from = static_cast<uint64_t>(args.from);
    const uint64_t range = args.to.present != 0
                               ? static_cast<uint64_t>(args.to.value) - from
                               : static_cast<uint64_t>(philox::largest_random<T>()) - from + 1;
    fill_by_index<T>(self,
                     [&](int64_t i) { return philox::integer<T>(stream, i, args.from, range); });
  });
}

}  // namespace mytorch::reference
