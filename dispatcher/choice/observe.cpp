#include "dispatcher/choice/observe.h"

#include <atomic>
#include <utility>

#include "dispatcher/choice/state.h"
#include "mytorch/backends.h"

namespace mytorch {
namespace {

std::atomic<int> observers{0};  // of all threads
thread_local Observe* innermost = nullptr;

}  // namespace

Observe::Observe(std::function<void(const KernelCall&)> seen)
    : seen_(std::move(seen)), outer_(std::exchange(innermost, this)) {
  load_default_backends();
  if (observers.fetch_add(1) == 0) resolve_all();
}

Observe::~Observe() {
  innermost = outer_;
  if (observers.fetch_sub(1) == 1) resolve_all();
}

bool anybody_observes() { return observers.load(std::memory_order_relaxed) > 0; }

bool observed(const KernelCall& call) {
  Observe* const observer = innermost;
  if (observer == nullptr) return false;
  // What it calls itself is not for it. It may throw.
  struct Aside {
    Observe* self;
    ~Aside() { innermost = self; }
  } const aside{std::exchange(innermost, observer->outer_)};
  observer->seen_(call);
  return true;
}

}  // namespace mytorch
