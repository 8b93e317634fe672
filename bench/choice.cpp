// The cost of a choice between several kernels: the nanoseconds of a call whose kernel does
// nothing, alternately by priority and by measured choice. docs/choice.md has the budgets.
#include "mytorch/choice.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "mytorch/abi_ops/hypot.h"
#include "mytorch/backends.h"
#include "mytorch/grad_mode.h"
#include "mytorch/ops/empty.h"
#include "mytorch/ops/hypot.h"
#include "mytorch/threads.h"

namespace {

int nothing(void* /*self*/, mt_ctx* /*ctx*/, const void* /*args*/) { return MT_OK; }
int slowly(void* /*self*/, mt_ctx* /*ctx*/, const void* /*args*/) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(2);
  while (std::chrono::steady_clock::now() < end) {
  }
  return MT_OK;
}

constexpr uint32_t kAll =
    MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS;

template <mt_run_fn run, int32_t priority>
int init(const mt_host* /*host*/, mt_backend* backend) {
  static const mt_kernel_entry kernels[] = {{sizeof(mt_kernel_entry), "hypot", MT_HASH_hypot,
                                             "hypot", priority, kAll, nullptr, run, nullptr}};
  *backend = {};
  backend->size = sizeof(*backend);
  backend->abi_major = MT_ABI_MAJOR;
  backend->abi_minor = MT_ABI_MINOR;
  backend->name = run == nothing ? "does-nothing" : "is-slow";
  backend->version = "1";
  backend->device_type = "cpu";
  backend->kernels = kernels;
  backend->num_kernels = 1;
  return MT_OK;
}

double nanoseconds(const mytorch::Tensor& out, const mytorch::Tensor& a, const mytorch::Tensor& b) {
  constexpr int kCalls = 20000;
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < kCalls; ++i) mytorch::hypot_out(out, a, b);
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - begin;
  return spent.count() / kCalls;
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace

int main() {
  // Keeps measurements of these kernels out of the user's choice table.
  char folder[] = "/tmp/mytorch_bench_choice_XXXXXX";
  if (mkdtemp(folder) == nullptr) return 1;
  setenv("MYTORCH_CACHE", folder, 1);
  mytorch::set_num_threads(1);
  mytorch::load_default_backends();
  mytorch::register_backend(&init<nothing, 100>);
  mytorch::register_backend(&init<slowly, 50>);
  const mytorch::NoGradGuard no_grad;
  struct Case {
    const char* name;
    std::vector<int64_t> sizes;
    double bar;
    std::vector<double> by_priority = {}, measured = {}, extra = {};
  };
  const std::vector<int64_t> small = {2, 4}, large = {256, 256};
  Case cases[] = {{"below the threshold, 2 x 4", small, 2}, {"looked up, 256 x 256", large, 10}};
  {
    mytorch::Tuning tuning;
    const mytorch::Tensor x = mytorch::empty(large);
    mytorch::hypot_out(mytorch::empty(large), x, x);
  }
  bool met = true;
  for (Case& c : cases) {
    const mytorch::Tensor a = mytorch::empty(c.sizes), b = mytorch::empty(c.sizes),
                          out = mytorch::empty(c.sizes);
    for (int round = 0; round < 31; ++round) {
      mytorch::set_choice(mytorch::Choice::kPriority);
      c.by_priority.push_back(nanoseconds(out, a, b));
      mytorch::set_choice(mytorch::Choice::kMeasured);
      c.measured.push_back(nanoseconds(out, a, b));
      c.extra.push_back(c.measured.back() - c.by_priority.back());
    }
    const double extra = median(c.extra);
    met = met && extra <= c.bar;
    std::printf("%-28s by priority %6.1f ns  measured %6.1f ns  costs %5.1f ns  bar %2.0f  %s\n",
                c.name, median(c.by_priority), median(c.measured), extra, c.bar,
                extra <= c.bar ? "PASS" : "MISS");
  }
  std::filesystem::remove_all(folder);
  return met ? 0 : 1;
}
