// Random fills. mytorch/backend/philox.h is their definition; element i is the logical row-major
// one.
#include <cstdint>

#include "backends/reference/kernels.h"
#include "backends/reference/walk.h"
#include "mytorch/backend/dtype.h"
#include "mytorch/backend/philox.h"
#include "mytorch/backend/tensor.h"

namespace mytorch::reference {
namespace {

namespace philox = sdk::philox;

// Sets element i to value(i).
template <class T, class F>
void fill_by_index(const sdk::TensorView& tensor, F&& value) {
  Walk walk(tensor.shape());
  const int to = walk.add(tensor);
  int64_t i = 0;
  for (bool more = walk.start(); more; more = walk.next()) {
    *static_cast<T*>(walk.at(to)) = value(i++);
  }
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
    // As unsigned: the difference may be 2^63 and more; all of int64 gives 0, which means 2^64.
    const uint64_t from = static_cast<uint64_t>(args.from);
    const uint64_t range = args.to.present != 0
                               ? static_cast<uint64_t>(args.to.value) - from
                               : static_cast<uint64_t>(philox::largest_random<T>()) - from + 1;
    fill_by_index<T>(self,
                     [&](int64_t i) { return philox::integer<T>(stream, i, args.from, range); });
  });
}

}  // namespace mytorch::reference
