// The cpu-onednn backend, loaded once, and its candidates by op.
#pragma once

#include <string>
#include <string_view>

#include "mytorch/backend.h"
#include "tests/backends/reference/fake_host.h"

extern "C" int mytorch_cpu_onednn_init(const mt_host*, mt_backend*);

namespace mytorch::testing {

inline const mt_backend& onednn_backend() {
  static mt_host host{};
  static const mt_backend backend = [] {
    host.size = sizeof(mt_host);
    host.abi_major = MT_ABI_MAJOR;
    mt_backend filled{};
    filled.size = sizeof(mt_backend);
    if (mytorch_cpu_onednn_init(&host, &filled) != MT_OK) std::abort();
    return filled;
  }();
  return backend;
}

// The candidate that takes the call; NULL, and every candidate's reason, where none does.
template <class Args>
const mt_candidate* taker(std::string_view op, Args& args, std::string* reasons = nullptr) {
  args.header.size = sizeof(Args);
  for (int64_t i = 0; i < onednn_backend().num_candidates; ++i) {
    const mt_candidate& c = onednn_backend().candidates[i];
    if (c.op != op) continue;
    const char* why = c.supports == nullptr ? nullptr : c.supports(c.self, &args);
    if (why == nullptr) return &c;
    if (reasons != nullptr) *reasons += std::string(c.name) + ": " + why + "\n";
  }
  return nullptr;
}

// Runs the candidate that takes the call. Empty, or what went wrong.
template <class Args>
std::string run_onednn(std::string_view op, Args& args, int threads = 1) {
  std::string reasons;
  const mt_candidate* candidate = taker(op, args, &reasons);
  if (candidate == nullptr) return reasons;
  TestContext context(threads);
  const int status = candidate->run(candidate->self, context.get(), &args);
  return status == MT_OK ? "" : "status " + std::to_string(status) + ": " + context.error;
}

}  // namespace mytorch::testing
