// NVRTC compiles the kernel text of every pointwise program. Needs no GPU.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "backends/cuda/pointwise/text.h"
#include "backends/cuda/programs/compiler.h"
#include "tests/backends/cuda/programs/joined.h"
#include "tests/backends/cuda/record_programs.h"

namespace mytorch::cuda {
namespace {

using namespace pointwise_key;

Code stored(int32_t type, Code compute) {
  return type == MT_TYPE_BOOL ? kBool : type == MT_TYPE_INDEX ? kInt64 : compute;
}

Key key_of(const Program& program, Code compute, uint8_t form, Kind input, int run) {
  Key key;
  key.set(kCompute, compute);
  key.set(kForm, form);
  key.set(kRun, static_cast<uint8_t>(run));
  if (form != kLine) key.set(kDims, 2);
  int byte = kOperands;
  for (const auto& argument : program.inputs) {
    key.set(byte++, operand_key(input, stored(argument.type, compute)));
  }
  for (const auto& argument : program.outputs) {
    key.set(byte++, operand_key(Kind::kElements, stored(argument.type, compute)));
  }
  return key;
}

// Returns the specialization of a kernel.
struct Form {
  const char* name;
  Code compute;
  uint8_t form;
  Kind input;
  int run;
};

class PointwiseTexts : public ::testing::TestWithParam<Form> {};

TEST_P(PointwiseTexts, OfEveryProgramCompile) {
  const auto [name, compute, form, input, run] = GetParam();
  Key prelude;
  prelude.set(kCompute, compute);
  Joined joined{pointwise_prelude(prelude)};
  for (const testing::RecordPrograms& op : testing::record_programs()) {
    for (size_t v = 0; v < op.variants.size(); ++v) {
      if (op.variants[v]->fold != nullptr) continue;
      const Program program(*op.variants[v]);
      if (!program.takes(compute)) continue;
      // Records promote integers to floating point for functions, so few integer variants are used.
      const bool is_float = compute >= kFloat16;
      if (!is_float && v + 1 < op.variants.size()) continue;
      joined.add(pointwise_text(program, key_of(program, compute, form, input, run)));
    }
  }
  joined.compile();
}

std::string name_of(const ::testing::TestParamInfo<Form>& info) { return info.param.name; }

// Each compiles every program for seconds. After each change, the forms that differ most.
INSTANTIATE_TEST_SUITE_P(
    , PointwiseTexts,
    ::testing::Values(Form{"StridedBfloat16", kBfloat16, kStrided, Kind::kRepeated, 8},
                      Form{"ContiguousComplex64", kComplex64, kLine, Kind::kElements, 2},
                      Form{"SingleInt64", kInt64, kLine, Kind::kSingle, 2}),
    name_of);
INSTANTIATE_TEST_SUITE_P(
    Full, PointwiseTexts,
    ::testing::Values(Form{"ContiguousFloat32", kFloat32, kLine, Kind::kElements, 4},
                      Form{"WideBool", kBool, kWide, Kind::kElements, 1},
                      Form{"TiledFloat16", kFloat16, kTiled, Kind::kTransposed, 1},
                      Form{"StridedComplex128", kComplex128, kStrided, Kind::kRepeated, 1},
                      Form{"AnyTypes", kFloat32, kAny, Kind::kElements, 1},
                      Form{"NumbersInt8", kInt8, kLine, Kind::kNumber, 1}),
    name_of);

// Pins the text of one kernel, to reveal changes.
TEST(PointwiseText, OfAddIsPinned) {
  const Program program(*testing::program_of("add.Tensor", 1));
  Key key = key_of(program, kBfloat16, kLine, Kind::kElements, 8);
  EXPECT_EQ(pointwise_text(program, key), R"(
// add.Tensor
struct P {
  const bf16* i0;
  const bf16* i1;
  Scalar<float> s2;
  bf16* o0;
  i64 n;
};
FN void body(const P& p, const float v0, const float v1, float& o0) {
  const float v2 = p.s2.value;
  const float v3 = node::mul(v2, v1);
  const float v4 = node::multiply_add(v2, v1, v0);
  o0 = v4;
}
extern "C" __global__ void __launch_bounds__(128, 10) kernel(const __grid_constant__ P p) {
  begin();
  constexpr int T = 128, V = 8, U = 2;
  const i64 tile = static_cast<i64>(blockIdx.x) * (T * V * U);
  if (tile + T * V * U > p.n) {
#pragma unroll 1
    for (i64 i = tile + threadIdx.x; i < p.n; i += T) {
      float y_o0;
      body(p, input<bf16>(p.i0[i]), input<bf16>(p.i1[i]), y_o0);
      p.o0[i] = convert<bf16>(y_o0);
    }
    return;
  }
  const i64 at = tile + threadIdx.x * V;
  Pack<bf16, V> a_i0[U];
  Pack<bf16, V> a_i1[U];
#pragma unroll
  for (int u = 0; u < U; ++u) {
    a_i0[u] = load<V>(p.i0 + at + u * (T * V));
    a_i1[u] = load<V>(p.i1 + at + u * (T * V));
  }
#pragma unroll
  for (int u = 0; u < U; ++u) {
    float y_o0[V];
#pragma unroll
    for (int k = 0; k < V; ++k) {
      body(p, input<bf16>(a_i0[u].at[k]), input<bf16>(a_i1[u].at[k]), y_o0[k]);
    }
    store<V>(p.o0 + at + u * (T * V), y_o0);
  }
}
)");
}

}  // namespace
}  // namespace mytorch::cuda
