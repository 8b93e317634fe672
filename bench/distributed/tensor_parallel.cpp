// Forward and backward of one transformer block, whose products are divided over the ranks.
#include "mytorch/nn/parallel/tensor_parallel.h"

#include <cstdint>
#include <string>

#include "bench/distributed/bench.h"

namespace bench {
namespace {

using mytorch::Tensor;
namespace nn = mytorch::nn;

// x + out(attention(norm(x))), then x + down(gelu(up(norm(x)))). With `sequence`, norms and
// residuals work on a part of the sequence.
class Block final : public nn::Layer<Block> {
 public:
  Block(int64_t width, int64_t heads, bool sequence, const Group& group)
      : norm_1(width),
        norm_2(width),
        qkv(width, 3 * width, column(sequence, group)),
        up(width, 4 * width, column(sequence, group)),
        out(width, width, row(sequence, group)),
        down(4 * width, width, row(sequence, group)),
        heads_(heads / group.size()) {
    register_module("norm_1", norm_1);
    register_module("norm_2", norm_2);
    register_module("qkv", qkv);
    register_module("up", up);
    register_module("out", out);
    register_module("down", down);
    if (sequence) {
      nn::sum_gradients_of_ranks(norm_1, group);
      nn::sum_gradients_of_ranks(norm_2, group);
    }
  }
  Tensor forward(const Tensor& input) override {
    const Tensor y = qkv(norm_1(input));
    // A head's queries, keys and values lie side by side, so that a rank's columns are those of its
    // heads.
    const Tensor parts = y.view({y.size(0), y.size(1), heads_, 3, -1}).permute({3, 0, 2, 1, 4});
    const Tensor attention = scaled_dot_product_attention(
        parts.select(0, 0), parts.select(0, 1), parts.select(0, 2), {}, 0.0, /*is_causal=*/true);
    const Tensor joined = attention.transpose(1, 2).reshape({y.size(0), y.size(1), -1});
    const Tensor x = input + out(joined);
    return x + down(gelu(up(norm_2(x))));
  }

  nn::LayerNorm norm_1, norm_2;
  nn::ColumnParallelLinear qkv, up;
  nn::RowParallelLinear out, down;

 private:
  static nn::ColumnParallelArgs column(bool sequence, const Group& group) {
    return {.sequence_parallel = sequence, .sequence_dim = 1, .group = group};
  }
  static nn::RowParallelArgs row(bool sequence, const Group& group) {
    return {.sequence_parallel = sequence, .sequence_dim = 1, .group = group};
  }
  int64_t heads_;
};

}  // namespace

void tensor_parallel(const Group& world, const Settings& settings, int64_t width, bool sequence) {
  const int64_t batch = settings.size(4, 2), length = settings.size(2048, 16);
  const int64_t wide = width;
  width = settings.size(width, 64);
  const int64_t heads = settings.size(width / 128, 4);
  Block block(width, heads, sequence, world);
  block.to(settings.device, settings.dtype());
  const Tensor whole = mytorch::randn({batch, length, width}).to(settings.device, settings.dtype());
  const int64_t mine = length / world.size();
  const Tensor x = sequence ? whole.narrow(1, world.rank() * mine, mine).detach().clone() : whole;
  x.requires_grad_();
  Record record((wide == 4096 ? "tp" : "tp-wide") + std::string(sequence ? "-sequence" : ""),
                world);
  const auto step = [&] {
    block.zero_grad();
    x.set_grad({});
    const Tensor loss = block(x).to(mytorch::kFloat32).square().mean();
    loss.backward();
    return loss.detach();
  };
  measure(world, settings, record, step, static_cast<double>(batch * length), "tokens");
  mytorch::plan::Model shape = feed_forward_model(1, width, 4 * width, length, batch);
  shape.heads = shape.key_heads = heads;
  shape.head_width = width / heads;
  shape.biases = true;
  mytorch::plan::Layout layout;
  layout.tensor = world.size();
  layout.micro_batch = batch;
  predict(record, settings,
          {.model = shape,
           .layout = layout,
           .precision = kSixteenBits,
           .optimizer = false,
           .data = false});
  record.print();
}

}  // namespace bench
