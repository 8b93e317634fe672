// The cpu-onednn backend.
#pragma once

#include <string>
#include <string_view>

#include "mytorch/backend.h"
#include "tests/backends/reference/fake_host.h"

extern "C" int mytorch_cpu_onednn_init(const mt_host*, mt_backend*);

namespace mytorch::testing {

inline const mt_backend& onednn_backend() { return loaded<mytorch_cpu_onednn_init>(); }

template <class Args>
const mt_kernel_entry* taker(std::string_view op, Args& args, std::string* reasons = nullptr) {
  std::string unread;
  return taker(onednn_backend(), op, args, reasons == nullptr ? &unread : reasons);
}

// Empty, or the error message.
template <class Args>
std::string run_onednn(std::string_view op, Args& args, int threads = 1) {
  return run_on(onednn_backend(), op, args, args.header.compute, threads);
}

}  // namespace mytorch::testing
