// How long fused operators live, with backends that count the kernels they make and destroy.
#include "graph/fusion/fused_op.h"

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace mytorch::graph {
namespace {

size_t kernels_made, kernels_destroyed;

// Programs of different backends are different ones.
const Backend& counting_backend(const std::string& name,
                                decltype(mt_backend::compile_fused) compile) {
  static auto* const all = new std::deque<Backend>;
  Backend& added = all->emplace_back();
  added.name = name;
  added.abi.compile_fused = compile;
  return added;
}

int make_forever(void* /*self*/, const mt_fused_program* /*program*/, mt_kernel_entry* kernel) {
  ++kernels_made;
  kernel->run = [](void*, mt_ctx*, const void*) -> int { return MT_OK; };
  return MT_OK;
}
int make_with_end(void* self, const mt_fused_program* program, mt_kernel_entry* kernel) {
  *program->destroy = [](void*) { ++kernels_destroyed; };
  return make_forever(self, program, kernel);
}
int decline_program(void* /*self*/, const mt_fused_program* program, mt_kernel_entry* /*kernel*/) {
  *program->destroy = [](void*) { ++kernels_destroyed; };
  ++kernels_made;
  return MT_DECLINED;
}

FusedProgram empty_program() {
  static const TensorPlaces none;
  return {CompileMode::kDefault, LoopSpace{}, none};
}

// Asks for `count` other operators.
void ask_for_others(size_t count) {
  static size_t next = 0;
  for (size_t i = 0; i < count; ++i) {
    FusedOp::find(counting_backend("other " + std::to_string(next++), make_with_end),
                  empty_program());
  }
}

class FusedOps : public ::testing::Test {
 protected:
  void SetUp() override {
    ask_for_others(FusedOp::kKept);
    kernels_made = kernels_destroyed = 0;
  }
};

TEST_F(FusedOps, OneThatIsHeldStaysAndIsFound) {
  const Backend& own = counting_backend("held", make_with_end);
  std::shared_ptr<const FusedOp> op = FusedOp::find(own, empty_program());
  EXPECT_EQ(kernels_destroyed, 1u);  // the one that was asked for first
  ask_for_others(FusedOp::kKept + 20);
  EXPECT_EQ(kernels_made, FusedOp::kKept + 21);
  EXPECT_EQ(kernels_destroyed, FusedOp::kKept + 20);
  EXPECT_EQ(FusedOp::find(own, empty_program()), op);
  EXPECT_EQ(kernels_made, FusedOp::kKept + 21);
  ask_for_others(FusedOp::kKept);
  const size_t before = kernels_destroyed, count = FusedOp::count();
  op.reset();
  EXPECT_EQ(kernels_destroyed, before + 1);
  EXPECT_EQ(FusedOp::count(), count - 1);
  FusedOp::find(own, empty_program());
  EXPECT_EQ(kernels_made, 2 * FusedOp::kKept + 22);
}

TEST_F(FusedOps, ThoseAskedForLastStay) {
  const Backend& own = counting_backend("asked for", make_with_end);
  FusedOp::find(own, empty_program());
  for (int i = 0; i < 3; ++i) {
    ask_for_others(FusedOp::kKept - 1);
    kernels_made = 0;
    FusedOp::find(own, empty_program());
    EXPECT_EQ(kernels_made, 0u);
  }
}

TEST_F(FusedOps, KernelsThatCannotBeDestroyedAreMadeOnce) {
  const Backend& own = counting_backend("without an end", make_forever);
  FusedOp::find(own, empty_program());
  ask_for_others(FusedOp::kKept + 20);
  kernels_made = 0;
  EXPECT_NE(FusedOp::find(own, empty_program()), nullptr);
  EXPECT_EQ(kernels_made, 0u);
}

TEST_F(FusedOps, RefusalsAreKeptLikeOperators) {
  const Backend& own = counting_backend("declines", decline_program);
  const size_t count = FusedOp::count();
  for (int i = 0; i < 2; ++i) EXPECT_EQ(FusedOp::find(own, empty_program()), nullptr);
  EXPECT_EQ(kernels_made, 1u);
  EXPECT_EQ(FusedOp::count(), count - 1);  // it took the place of one
  EXPECT_EQ(kernels_destroyed, 1u);
  ask_for_others(FusedOp::kKept);
  kernels_made = 0;
  EXPECT_EQ(FusedOp::find(own, empty_program()), nullptr);
  EXPECT_EQ(kernels_made, 1u);
}

}  // namespace
}  // namespace mytorch::graph
