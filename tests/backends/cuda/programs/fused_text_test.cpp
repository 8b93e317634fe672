// NVRTC compiles the kernel text of a fused program of rows: reductions of each kind, elements that
// an index selects, and places of elements. Needs no GPU.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <string>
#include <vector>

#include "backends/cuda/fused/text.h"
#include "backends/cuda/programs/compiler.h"
#include "mytorch/backend/dtype.h"
#include "tests/backends/cuda/fused_program.h"
#include "tests/backends/cuda/record_programs.h"

namespace mytorch::cuda {
namespace {

using namespace fused_key;

constexpr mt_dtype kF32 = sdk::dtype_of<float>, kI64 = sdk::dtype_of<int64_t>;

using testing::program_of;

mt_node node_of(const char* op, int32_t type, std::array<int32_t, 3> a = {-1, -1, -1}) {
  mt_node node{};
  node.op = op;
  node.type = type;
  std::copy(a.begin(), a.end(), node.a);
  return node;
}

// The loss of rows of logits and its gradient, and the variance of the rows.
class LossOfRows {
 public:
  explicit LossOfRows(mt_dtype dtype, int64_t size = 50) {
    const int x = value(MT_FUSED_INPUT, false, dtype), label = value(MT_FUSED_INPUT, true, kI64);
    const int table = value(MT_FUSED_TABLE, true, dtype);
    const int here = value(MT_FUSED_POSITION, false, kI64),
              one = value(MT_FUSED_NUMBER, true, kF32);
    values_.back().number = 1;
    mt_scalar number{};
    number.kind = MT_SCALAR_INT;
    number.v.i = size;
    const int index = call(&bound_, {label}, true, kI64, kI64, {number, number});
    const int own = call(&load_, {table, index}, true, dtype, dtype, {});
    const int lse = call(program_of("logsumexp"), {x}, true, kF32, kF32, {});
    const int loss = call(program_of("sub.Tensor"), {lse, own}, true, kF32, kF32, {});
    const int less = call(program_of("sub.Tensor"), {x, lse}, false, kF32, kF32, {});
    const int p = call(program_of("exp"), {less}, false, kF32, kF32, {});
    const mt_dtype truth = sdk::dtype_of<bool>;
    const int is_own = call(program_of("eq.Tensor"), {index, here}, false, truth, kI64, {});
    const int minus = call(program_of("sub.Tensor"), {p, one}, false, kF32, kF32, {});
    const int grad = call(program_of("where.self"), {is_own, minus, p}, false, dtype, kF32, {});
    const int spread = call(program_of("var.correction"), {x}, true, kF32, kF32, {number});
    outputs_ = {grad, loss, spread};
  }

  std::string text(Key key) {
    const mt_fused_program program =
        testing::fused_program("loss_of_rows", values_, calls_, outputs_);
    int byte = kOperands;
    const auto add = [&](int32_t at, bool elements) {
      const mt_fused_value& v = values_[static_cast<size_t>(at)];
      key.set(byte++, operand_key(elements ? Kind::kElements : Kind::kSingle, code_of(v.dtype)));
    };
    add(0, true);
    add(1, false);
    add(2, true);
    for (const int32_t at : outputs_) add(at, values_[static_cast<size_t>(at)].row == 0);
    key.set(kDims, 1);
    return fused_text(FusedSource(program), key);
  }

 private:
  int value(int32_t kind, bool row, mt_dtype dtype) {
    values_.push_back({kind, row ? 1 : 0, dtype, 0, 0});
    return static_cast<int>(values_.size()) - 1;
  }
  int call(const mt_program* program, std::vector<int32_t> inputs, bool row, mt_dtype dtype,
           mt_dtype compute, std::vector<mt_scalar> numbers) {
    const int result = value(MT_FUSED_RESULT, row, dtype);
    const auto& in = lists_.emplace_back(std::move(inputs));
    const auto& out = lists_.emplace_back(1, result);
    const auto& scalars = scalars_.emplace_back(std::move(numbers));
    calls_.push_back({program, compute, 0, in.data(), scalars.data(), out.data()});
    return result;
  }
  static mt_program made(const std::vector<mt_node>& nodes, const mt_program_output* output) {
    mt_program program{};
    program.size = sizeof(program);
    program.name = "gather";
    program.nodes = nodes.data();
    program.num_nodes = static_cast<int32_t>(nodes.size());
    program.outputs = output;
    program.num_outputs = 1;
    program.step = -1;
    return program;
  }

  std::vector<mt_fused_value> values_;
  std::vector<mt_fused_call> calls_;
  std::deque<std::vector<int32_t>> lists_;
  std::deque<std::vector<mt_scalar>> scalars_;
  std::vector<int32_t> outputs_;
  const std::vector<mt_node> bound_nodes_ = {
      node_of("input", MT_TYPE_INDEX), node_of("scalar", MT_TYPE_INDEX),
      node_of("scalar", MT_TYPE_INDEX), node_of("bound", MT_TYPE_INDEX, {0, 1, 2})};
  const std::vector<mt_node> load_nodes_ = {node_of("input", MT_TYPE_COMPUTE),
                                            node_of("input", MT_TYPE_INDEX),
                                            node_of("load", MT_TYPE_COMPUTE, {0, 1, -1})};
  const mt_program_output bound_output_{3, 0}, load_output_{2, 0};
  const mt_program bound_ = made(bound_nodes_, &bound_output_);
  const mt_program load_ = made(load_nodes_, &load_output_);
};

struct Form {
  const char* name;
  mt_dtype dtype;
  uint8_t form;
  int run, log_threads, parts;
};

class FusedTexts : public ::testing::TestWithParam<Form> {};

TEST_P(FusedTexts, OfALossOfRowsCompiles) {
  const auto [name, dtype, form, run, log_threads, parts] = GetParam();
  Key key;
  key.set(kForm, form);
  key.set(kRun, static_cast<uint8_t>(run));
  key.set(kThreads, static_cast<uint8_t>(log_threads));
  key.set(kParts, static_cast<uint8_t>(parts));
  EXPECT_FALSE(compile(LossOfRows(dtype).text(key), 90).empty());
}

TEST(FusedText, OfOtherSizesAreTheSame) {
  Key key;
  key.set(kForm, kRows);
  key.set(kRun, 4);
  key.set(kParts, 2);
  const std::string text = LossOfRows(kF32).text(key);
  EXPECT_EQ(LossOfRows(kF32, 51).text(key), text);
  EXPECT_NE(LossOfRows(kF32, 1).text(key), text);
}

INSTANTIATE_TEST_SUITE_P(
    , FusedTexts,
    ::testing::Values(Form{"WarpsOfFloat32", kF32, kRows, 4, 0, 2},
                      Form{"BlocksOfBfloat16", sdk::dtype_of<sdk::BFloat16>, kRows, 8, 3, 4},
                      Form{"LongRowsOfFloat16", sdk::dtype_of<sdk::Half>, kRows, 8, 5, 0},
                      Form{"WideRowsOfFloat64", sdk::dtype_of<double>, kWideRows, 2, 2, 1}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mytorch::cuda
