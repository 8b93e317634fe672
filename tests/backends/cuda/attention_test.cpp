// cuDNN's attention: which calls it declines, and that the library accepts the graphs. Neither
// needs a GPU. `mytorch check` compares the results.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "backends/cuda/attention/cudnn_graph.h"
#include "backends/cuda/registry.h"
#include "mytorch/abi_ops/attention_backward.h"
#include "mytorch/abi_ops/attention_forward.h"

namespace mytorch::cuda {
namespace {

struct Tensor4 {
  Sizes4 size, stride;
  mt_tensor tensor{};

  Tensor4(const Sizes4& sizes, mt_dtype dtype)
      : size(sizes), stride{size[1] * size[2] * size[3], size[2] * size[3], size[3], 1} {
    tensor.dl = {nullptr, {}, 4, dtype, size.data(), stride.data(), 0};
  }
  Tensor4(const Tensor4&) = delete;
};

constexpr mt_dtype kType = sdk::dtype_of<sdk::BFloat16>;

// A call, and the reason why cuDNN declines it; "" if nothing but the device can.
struct Call {
  Tensor4 query, key, value, output;
  mt_args_attention_forward args{};

  explicit Call(mt_dtype dtype = kType, int64_t queries = 40, int64_t width = 32)
      : query({2, 4, queries, width}, dtype),
        key({2, 2, 60, width}, dtype),
        value({2, 2, 60, 16}, dtype),
        output({2, 4, queries, 16}, dtype) {
    args.header.size = sizeof(args);
    args.query = &query.tensor;
    args.key = &key.tensor;
    args.value = &value.tensor;
    args.output = &output.tensor;
    args.left = args.right = -1;
    args.scale = 1;
  }
  std::string reason() const {
    KernelEntries kernels;
    register_cudnn_attention(kernels);
    const char* text = kernels[0].supports(nullptr, &args);
    return text != nullptr ? text : "";
  }
};

::testing::AssertionResult names(const Call& call, const char* part) {
  const std::string reason = call.reason();
  if (reason.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << reason << "\" does not contain " << part;
}

TEST(CudnnAttention, DeclinesTypesOfMoreThan16Bits) {
  EXPECT_TRUE(names(Call(sdk::dtype_of<float>), "bfloat16 and float16"));
}

TEST(CudnnAttention, DeclinesWidthsThatItsTilesDoNotTake) {
  EXPECT_TRUE(names(Call(kType, 40, 12), "multiples of 8"));
  EXPECT_TRUE(names(Call(kType, 40, 264), "wider than 256"));
}

TEST(CudnnAttention, DeclinesWhatTheRecordAddsToTheScores) {
  Call call;
  call.args.softcap = 1;
  EXPECT_TRUE(names(call, "softcap"));
  call.args.softcap = 0;
  call.args.slopes = call.args.query;
  EXPECT_TRUE(names(call, "slopes"));
  call.args.slopes = nullptr;
  call.args.dropout_p = 0.1;
  EXPECT_TRUE(names(call, "dropout"));
}

TEST(CudnnAttention, DeclinesWhatTheLibraryComputesWrongly) {
  EXPECT_TRUE(names(Call(kType, 1), "single query"));
  Call call(kType, 192);
  const Tensor4 mask({1, 1, 192, 60}, sdk::dtype_of<bool>);
  call.args.attn_mask = &mask.tensor;
  EXPECT_TRUE(names(call, "% 128 is 64"));
}

TEST(CudnnAttention, DeclinesEmptyOperands) { EXPECT_TRUE(names(Call(kType, 0), "empty")); }

// ---- the kernels of compute capability 9.0

struct Sm90Call {
  Tensor4 query, key, value, sums, draw;
  mt_args_attention_forward forward{};
  mt_args_attention_backward backward{};

  explicit Sm90Call(int64_t width = 64, mt_dtype dtype = kType)
      : query({2, 4, 40, width}, dtype),
        key({2, 2, 60, width}, dtype),
        value({2, 2, 60, width}, dtype),
        sums({1, 2, 4, 40}, sdk::dtype_of<float>),
        draw({1, 1, 1, 2}, sdk::dtype_of<int64_t>) {
    set(forward);
    set(backward);
    backward.grad_output = &query.tensor;
    backward.grad_query = &query.tensor;
    backward.grad_key = &key.tensor;
    backward.grad_value = &value.tensor;
  }
  template <class Args>
  void set(Args& args) {
    args.header.size = sizeof(args);
    args.query = args.output = &query.tensor;
    args.key = &key.tensor;
    args.value = &value.tensor;
    args.logsumexp = &sums.tensor;
    args.draw = &draw.tensor;
    args.left = args.right = -1;
    args.scale = 1;
  }
  template <class F>
  void change(F&& f) {
    f(forward);
    f(backward);
  }
  // Whether both kernels give a reason that contains the words.
  ::testing::AssertionResult names(const char* part) const {
    KernelEntries kernels;
    register_attention_sm90(kernels);
    register_attention_backward_sm90(kernels);
    const void* calls[] = {&forward, &backward};
    for (size_t i = 0; i < 2; ++i) {
      const char* text = kernels[i].supports(nullptr, calls[i]);
      if (text == nullptr || std::string(text).find(part) == std::string::npos) {
        return ::testing::AssertionFailure() << (text != nullptr ? text : "no reason") << ": " << i;
      }
    }
    return ::testing::AssertionSuccess();
  }
};

TEST(AttentionSm90, DeclinesWhatItsTilesDoNotTake) {
  EXPECT_TRUE(Sm90Call(64, sdk::dtype_of<float>).names("bfloat16 and float16"));
  EXPECT_TRUE(Sm90Call(72).names("heads of width"));
  Sm90Call call;
  call.query.stride[2] = 68;
  EXPECT_TRUE(call.names("aligned to 16 bytes"));
  call.query.stride[2] = 0;
  EXPECT_TRUE(call.names("broadcast"));
}

TEST(AttentionSm90, DeclinesWhatTheRecordAddsToTheScores) {
  Sm90Call call;
  call.change([](auto& args) { args.softcap = 1; });
  EXPECT_TRUE(call.names("softcap"));
  call.change([](auto& args) {
    args.softcap = 0;
    args.slopes = args.query;
  });
  EXPECT_TRUE(call.names("slopes"));
  call.change([](auto& args) {
    args.slopes = nullptr;
    args.scale = -1;
  });
  EXPECT_TRUE(call.names("positive scale"));
}

TEST(AttentionSm90, DeclinesAdditiveMasksAndMasksWithDropout) {
  Sm90Call call;
  const Tensor4 added({1, 1, 40, 60}, kType), seen({1, 1, 40, 60}, sdk::dtype_of<bool>);
  call.change([&](auto& args) { args.attn_mask = &added.tensor; });
  EXPECT_TRUE(call.names("additive mask"));
  call.change([&](auto& args) {
    args.attn_mask = &seen.tensor;
    args.dropout_p = 0.5;
  });
  EXPECT_TRUE(call.names("together with dropout"));
}

// ---- graphs

Layout4 layout(int64_t batch, int64_t heads, int64_t rows, int64_t width) {
  return {{batch, heads, rows, width}, {heads * rows * width, width, heads * width, 1}};
}

CudnnAttention attention(int64_t queries, int64_t keys) {
  CudnnAttention call;
  call.type = CUDNN_DATA_BFLOAT16;
  call.query = call.grad_query = layout(2, 4, queries, 64);
  call.key = call.grad_key = layout(2, 2, keys, 64);
  call.value = call.grad_value = layout(2, 2, keys, 32);
  call.output = call.grad_output = layout(2, 4, queries, 32);
  return call;
}

size_t constants(const std::optional<CudnnGraph>& graph) { return graph->constants.size(); }

TEST(CudnnGraph, IsAcceptedWithoutAndWithABand) {
  CudnnAttention call = attention(100, 200);
  ASSERT_TRUE(forward_graph(nullptr, call));
  ASSERT_TRUE(backward_graph(nullptr, call));
  EXPECT_EQ(constants(forward_graph(nullptr, call)), 0u);
  call.highest = 0;  // -infinity is the only number
  EXPECT_EQ(constants(forward_graph(nullptr, call)), 1u);
  call.highest = 100;  // the lower right corner: the lengths are numbers, too
  EXPECT_EQ(constants(forward_graph(nullptr, call)), 3u);
  call.highest = 7;
  EXPECT_EQ(constants(forward_graph(nullptr, call)), 2u);
  call.lowest = -5;
  EXPECT_EQ(constants(forward_graph(nullptr, call)), 4u);
  EXPECT_TRUE(backward_graph(nullptr, call));
}

TEST(CudnnGraph, IsAcceptedWithAMaskAndItsGradient) {
  CudnnAttention call = attention(100, 200);
  call.mask = Layout4{{2, 1, 100, 200}, {20000, 20000, 200, 1}};
  EXPECT_TRUE(forward_graph(nullptr, call));
  EXPECT_TRUE(backward_graph(nullptr, call));
  call.grad_mask = call.mask;
  EXPECT_TRUE(backward_graph(nullptr, call));
  call.deterministic = false;
  EXPECT_TRUE(backward_graph(nullptr, call));
}

TEST(CudnnGraph, IsAbsentIfTheLibraryRefusesAnOperand) {
  CudnnAttention call = attention(100, 200);
  call.query.size[3] = -1;
  EXPECT_FALSE(forward_graph(nullptr, call));
  EXPECT_FALSE(backward_graph(nullptr, call));
}

}  // namespace
}  // namespace mytorch::cuda
