#include "graph/run/branches.h"

#include <gtest/gtest.h>

#include <vector>

#include "core/runtime/device_registry.h"
#include "dispatcher/table/fields.h"
#include "mytorch/tensor_impl.h"
#include "tests/core/random_seed.h"
#include "tests/graph/device.h"
#include "tests/graph/random_function.h"

namespace mytorch::graph {
namespace {

struct Use {
  size_t step;
  uintptr_t begin, end;
  bool writes;
};

// A plan of a function whose tensors lie as they do when its steps are captured.
class Planned {
 public:
  template <class F>
  Planned(const F& function, const std::vector<Tensor>& arguments) : arguments_(arguments) {
    const NoGradGuard no_grad;
    {
      OperatorCapture capture(arguments_);
      recorded_ = capture.finish(function(arguments_));
    }
    parts_ = std::make_unique<PlanParts>(recorded_, CompileMode::kExact);
    run_first(parts_.get(), arguments_);
    for (const int32_t buffer : parts_->sources) {
      const Tensor found = parts_->source(buffer, arguments_);
      move(parts_->memories[parts_->buffers[buffer]], found.impl()->storage, false,
           parts_->begin_of(buffer, found));
    }
    for (const int32_t id : parts_->allocated) {
      PlanMemory& memory = parts_->memories[id];
      if (memory.kind == PlanMemory::kUnplanned) continue;
      const int slot = checked_device_slot(memory.device);
      move(memory, allocate_storage(memory.device, slot, memory.bytes), true);
    }
  }
  const PlanParts& parts() const { return *parts_; }

  std::vector<Use> uses() const {
    std::vector<Use> found;
    for (size_t i = parts_->num_kept; i < parts_->steps.size(); ++i) {
      const PlanStep& step = parts_->steps[i];
      const auto add = [&](const mt_tensor& t, bool writes) {
        if ((t.flags & MT_TENSOR_HOST) != 0) return;
        int64_t last = 0;
        for (int d = 0; d < t.dl.ndim; ++d) {
          if (t.dl.shape[d] == 0) return;
          last += (t.dl.shape[d] - 1) * t.dl.strides[d];
        }
        const auto begin = reinterpret_cast<uintptr_t>(t.dl.data);
        const auto bytes = static_cast<uintptr_t>((last + 1) * (t.dl.dtype.bits / 8));
        found.push_back({i, begin, begin + bytes, writes});
      };
      const OpInfo& op = *step.entry->info;
      for_each_input(op, step.args.get(),
                     [&](const mt_tensor*& t, const ArgInfo& arg) { add(*t, arg.written); });
      for_each_output(op, step.args.get(),
                      [&](const mt_tensor*& t, const OutputInfo&) { add(*t, true); });
    }
    return found;
  }

 private:
  std::vector<Tensor> arguments_;
  Recorded recorded_;
  std::unique_ptr<PlanParts> parts_;
};

// Returns, for each step, the steps that have run before it whatever the streams do.
std::vector<std::vector<bool>> order_of(const Branches& branches) {
  const size_t n = branches.steps.size();
  std::vector<std::vector<bool>> before(n, std::vector<bool>(n));
  std::vector<size_t> last(static_cast<size_t>(branches.streams), SIZE_MAX);
  for (size_t i = 0; i < n; ++i) {
    std::vector<size_t> direct = branches.steps[i].waits;
    size_t& tail = last[static_cast<size_t>(branches.steps[i].stream)];
    if (tail != SIZE_MAX) direct.push_back(tail);
    tail = i;
    for (const size_t each : direct) {
      before[i][each] = true;
      for (size_t k = 0; k < each; ++k) before[i][k] = before[i][k] || before[each][k];
    }
  }
  return before;
}

TEST(Branches, StepsThatUseTheSameBytesAreOrdered) {
  const uint64_t seed = testing::random_seed();
  SCOPED_TRACE(seed);
  size_t unordered = 0;
  for (uint64_t round = 0; round < 60; ++round) {
    const auto draw = Generator(seed + round);
    const std::vector<Tensor> arguments = {randn({3, 4}, kFloat32, {}, draw).to(test_device()),
                                           randn({4, 4}, kFloat32, {}, draw).to(test_device())};
    const Planned plan(
        [&](const std::vector<Tensor>& given) {
          return RandomFunction(seed + round, 40, Kind::kAny)(given);
        },
        arguments);
    for (const int most : {1, 2, 4}) {
      const Branches branches = branches_of(plan.parts(), plan.parts().num_kept, most);
      EXPECT_LE(branches.streams, most);
      const auto before = order_of(branches);
      const std::vector<Use> uses = plan.uses();
      for (const Use& a : uses) {
        for (const Use& b : uses) {
          if (a.step >= b.step) continue;
          const bool conflict = (a.writes || b.writes) && a.begin < b.end && b.begin < a.end;
          if (!before[b.step][a.step]) ++unordered;
          EXPECT_TRUE(!conflict || before[b.step][a.step])
              << "round " << round << ": steps " << a.step << " and " << b.step << " of " << most
              << " streams";
        }
      }
      for (const Branches::StepPlace& place : branches.steps) {
        for (const size_t each : place.waits) EXPECT_TRUE(branches.steps[each].awaited);
      }
    }
  }
  EXPECT_GT(unordered, 0u) << "nothing may run beside anything";
}

TEST(Branches, IndependentChainsHaveStreamsOfTheirOwn) {
  const Planned plan(
      [](const std::vector<Tensor>& x) {
        Tensor a = x[0], b = x[1];
        for (int i = 0; i < 4; ++i) {
          a = mm(a, a);
          b = mm(b, b);
        }
        return std::vector<Tensor>{mm(a, b)};
      },
      {randn({4, 4}).to(test_device()), randn({4, 4}).to(test_device())});
  const Branches branches = branches_of(plan.parts(), 0, 4);
  ASSERT_EQ(branches.steps.size(), 9u);
  EXPECT_EQ(branches.streams, 2);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_EQ(branches.steps[i].stream, static_cast<int>(i % 2)) << i;
  }
  const auto before = order_of(branches);
  EXPECT_FALSE(before[1][0]);
  EXPECT_TRUE(before[8][6] && before[8][7]);
}

}  // namespace
}  // namespace mytorch::graph
