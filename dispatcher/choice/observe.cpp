#include "dispatcher/choice/observe.h"

#include <atomic>
#include <mutex>
#include <utility>

#include "core/runtime/context.h"
#include "dispatcher/choice/state.h"
#include "mytorch/backends.h"
#include "mytorch/tensor_impl.h"

namespace mytorch {
namespace {

std::atomic<int> looking{0};  // observers of all threads, plus one for the watcher
std::atomic<Watcher*> the_watcher{nullptr};
thread_local Observe* innermost = nullptr;

// Held until the kernels are resolved, so that no observer begins before its calls are observed.
std::mutex resolving;

void one_more() {
  load_default_backends();
  const std::lock_guard<std::mutex> lock(resolving);
  if (looking.fetch_add(1) == 0) resolve_all();
}
void one_less() {
  const std::lock_guard<std::mutex> lock(resolving);
  if (looking.fetch_sub(1) == 1) resolve_all();
}

}  // namespace

Observe::Observe(Seen seen, Ran ran)
    : seen_(std::move(seen)), ran_(std::move(ran)), outer_(std::exchange(innermost, this)) {
  one_more();
}

Observe::~Observe() {
  innermost = outer_;
  one_less();
}

void set_watcher(Watcher* watcher) {
  const Watcher* before = the_watcher.exchange(watcher);
  if (before == nullptr && watcher != nullptr) one_more();
  if (before != nullptr && watcher == nullptr) one_less();
}

bool anybody_observes() { return looking.load(std::memory_order_relaxed) > 0; }

// An observer does not see the calls that it makes itself.
struct Aside {
  explicit Aside(Observe* observer, Observe* outer) : self(observer) { innermost = outer; }
  ~Aside() { innermost = self; }
  Aside(const Aside&) = delete;
  Aside& operator=(const Aside&) = delete;
  Observe* self;
};

Observed::Observed(const KernelCall& call)
    : ran{MT_ERROR_INTERNAL, nullptr}, call_(call), observer_(innermost) {
  if (observer_ == nullptr) return;
  const Aside aside(observer_, observer_->outer_);
  observer_->seen_(call);  // may throw
}

Observed::~Observed() {
  if (observer_ == nullptr || observer_->ran_ == nullptr) return;
  const Aside aside(observer_, observer_->outer_);
  observer_->ran_(call_, ran);
}

Substitution::Substitution(const KernelCall& call, int how)
    : call_(call), how_(how), watching_(watcher()) {
  if (watching_ != nullptr) watching_->before(call_);
}

Substitution::Substitution(const OpEntry& entry, const TensorImpl* out, const void* args)
    : Substitution({const_cast<OpEntry*>(&entry), out->device_slot,
                    context(out->device_slot, out->abi.dl.device), args},
                   kDecomposed) {}

Substitution::~Substitution() {
  if (watching_ != nullptr) watching_->after(call_, {how_, nullptr});
}

Watcher* watcher() { return the_watcher.load(std::memory_order_acquire); }

}  // namespace mytorch
