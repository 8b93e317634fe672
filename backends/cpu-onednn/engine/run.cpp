#include "backends/cpu-onednn/engine/run.h"

#include <array>
#include <memory>
#include <utility>

#include "backends/cpu-onednn/engine/threads.h"

namespace mytorch::onednn {
namespace {

// The calls that this thread has bound, so that a repeated call takes no lock. Each key maps to one
// entry.
struct Bound {
  Bound(const Key& of, std::shared_ptr<const Plan> shared)
      : key(of), plan(std::move(shared)), call(*plan) {}

  Key key;
  std::shared_ptr<const Plan> plan;  // declared before `call`, which refers to it
  BoundPlan call;
};
using Places = std::array<std::unique_ptr<Bound>, 256>;

}  // namespace

void run(mt_ctx& ctx, Key key, std::initializer_list<Data> data, Make make) {
  thread_local Places places;
  const int threads = threads_of(ctx);
  const ThreadScope scope(ctx, threads);
  key.number(int64_t{threads});
  std::unique_ptr<Bound>& place = places[key.hash() % std::tuple_size_v<Places>];
  if (place == nullptr || !(place->key == key)) {
    std::shared_ptr<const Plan> plan = plan_cache().find_or_make(key, make);
    if (plan == nullptr) throw sdk::Declined{};
    place = std::make_unique<Bound>(key, std::move(plan));
  }
  place->call.run(ctx, std::span(data.begin(), data.size()));
}

}  // namespace mytorch::onednn
