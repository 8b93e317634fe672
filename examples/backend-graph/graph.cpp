// A small graph compiler for the CPU: regions of products of matrices and pointwise operators, in
// float32, become a list of loops over buffers.
#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "mytorch/abi_ops.h"
#include "mytorch/backend.h"
#include "mytorch/backend/parallel.h"
#include "mytorch/backend/region.h"
#include "operators.h"

namespace loops {
namespace {

bool is_dense(const sdk::Region& region, int32_t id) {
  return sdk::is_dtype<float>(region.value(id).dtype) && region.is_contiguous(id);
}

// Returns whether an operand repeats with the last dimensions of a result: of the same shape, a row
// of it, or one element.
bool repeats(const sdk::Region& region, int32_t operand, int32_t result) {
  const std::span<const int64_t> shape = region.shape(operand), of = region.shape(result);
  return is_dense(region, operand) && shape.size() <= of.size() &&
         std::equal(shape.rbegin(), shape.rend(), of.rbegin());
}

// out = a @ b + bias, by rows. Strides are in elements.
struct Product {
  int32_t out, a, b, bias = -1;  // values; bias: -1 if there is none
  bool transposed = false;       // b
  int64_t rows = 0, inner = 0, columns = 0;
  int64_t a_row = 0, a_inner = 0, b_inner = 0, b_column = 0;
};

// Returns the product that a node computes, if the compiler takes it.
std::optional<Product> product_of(const sdk::Region& region, const sdk::RegionNode& node) {
  Product p{node.result(), -1, -1};
  if (node.calls<mt_args_mm>()) {
    p.a = node.value("self"), p.b = node.value("mat2");
  } else if (node.calls<mt_args_linear>()) {
    p.a = node.value("input"), p.b = node.value("weight"), p.transposed = true;
    if (node.has("bias")) p.bias = node.value("bias");
  } else if (node.calls<mt_args_addmm>() && node.number("beta") == 1 && node.number("alpha") == 1) {
    p.a = node.value("mat1"), p.b = node.value("mat2"), p.bias = node.value("self");
  } else {
    return std::nullopt;
  }
  for (const int32_t id : {p.a, p.b}) {
    if (region.shape(id).size() != 2 || !sdk::is_dtype<float>(region.value(id).dtype)) return {};
  }
  if (!is_dense(region, p.out) || (p.bias >= 0 && !repeats(region, p.bias, p.out))) return {};
  p.rows = region.shape(p.a)[0], p.inner = region.shape(p.a)[1];
  p.columns = region.shape(p.out)[1];
  p.a_row = region.strides(p.a)[0], p.a_inner = region.strides(p.a)[1];
  p.b_inner = region.strides(p.b)[p.transposed ? 1 : 0];
  p.b_column = region.strides(p.b)[p.transposed ? 0 : 1];
  return p;
}

struct Instruction {
  Body body;
  int32_t out, a, b = -1;  // values; b: -1 for a constant
  float constant = 0;      // in place of b
  float number = 1;
};
// Instructions over one number of elements, a block at a time.
struct Loop {
  int64_t numel;
  std::vector<Instruction> body;
};

std::optional<Instruction> instruction_of(const sdk::Region& region, const sdk::RegionNode& node) {
  const Operator op = operator_of(node);
  if (op.body == nullptr || !is_dense(region, node.result())) return {};
  Instruction made{op.body, node.result(), node.value("self")};
  if (op.binary && node.is_value("other")) {
    made.b = node.value("other");
  } else if (op.binary) {
    made.constant = static_cast<float>(node.number("other"));
  }
  if (op.number != nullptr) made.number = static_cast<float>(node.number(op.number));
  for (const int32_t id : {made.a, made.b}) {
    if (id >= 0 && !repeats(region, id, made.out)) return {};
  }
  return made;
}

// Marks the nodes that a region may have.
void claim(const sdk::Region& region, std::span<int32_t> wanted) {
  for (const sdk::RegionNode node : region.nodes()) {
    wanted[node.index()] = product_of(region, node) || instruction_of(region, node) ? 1 : 0;
  }
}

class Compiled final : public sdk::CompiledRegion {
 public:
  explicit Compiled(const sdk::Region& region) {
    std::vector<bool> made(region.num_values());
    for (const sdk::RegionNode node : region.nodes()) {
      for (int32_t i = 0; i < node.num_args(); ++i) {
        for (const int32_t id : node.values_at(i)) {
          // A view, which none of the claimed nodes makes.
          if (region.value(id).kind == MT_REGION_INSIDE && !made[id]) throw sdk::Declined{};
        }
      }
      made[node.result()] = true;
      if (const std::optional<Product> product = product_of(region, node)) {
        steps_.emplace_back(*product);
      } else if (const std::optional<Instruction> instruction = instruction_of(region, node)) {
        const int64_t numel = region.numel(node.result());
        Loop* last = steps_.empty() ? nullptr : std::get_if<Loop>(&steps_.back());
        if (last == nullptr || last->numel != numel) {
          last = &std::get<Loop>(steps_.emplace_back(Loop{numel, {}}));
        }
        last->body.push_back(*instruction);
      } else {
        throw sdk::Declined{};
      }
    }
    for (int32_t id = 0; id < region.num_values(); ++id) {
      const mt_region_value& value = region.value(id);
      Place place{value.kind, value.index, value.data, region.numel(id)};
      if (made[id] && value.kind == MT_REGION_INSIDE) {
        place.at = static_cast<int64_t>(scratch_);
        scratch_ += (static_cast<uint64_t>(place.numel) * sizeof(float) + 63) / 64 * 64;
      }
      places_.push_back(place);
    }
  }

  uint64_t scratch_bytes() const override { return scratch_; }

  void run(mt_ctx& ctx, const mt_region_args& args) override {
    std::vector<float*> data;  // of each value
    for (const Place& place : places_) {
      const void* at = place.data;  // of a constant
      if (place.kind == MT_REGION_INPUT) at = sdk::TensorView(args.inputs[place.at]).raw();
      if (place.kind == MT_REGION_OUTPUT) at = sdk::TensorView(args.outputs[place.at]).raw();
      if (place.kind == MT_REGION_INSIDE) at = static_cast<const char*>(args.scratch) + place.at;
      data.push_back(static_cast<float*>(const_cast<void*>(at)));
    }
    for (const auto& step : steps_) {
      std::visit([&](const auto& each) { run(ctx, each, data); }, step);
    }
  }

 private:
  // Where the elements of a value are.
  struct Place {
    int32_t kind;      // MT_REGION_INPUT, ...
    int64_t at;        // the input, the output, or the offset in the scratch memory
    const void* data;  // of a constant
    int64_t numel;
  };

  void run(mt_ctx& ctx, const Product& p, const std::vector<float*>& data) const {
    const float *a = data[p.a], *b = data[p.b];
    const float* bias = p.bias < 0 ? nullptr : data[p.bias];
    const int64_t period = p.bias < 0 ? 1 : places_[p.bias].numel;
    sdk::parallel_for(ctx, 0, p.rows, 1, [&](int64_t begin, int64_t end) noexcept {
      for (int64_t row = begin; row < end; ++row) {
        float* to = data[p.out] + row * p.columns;
        for (int64_t c = 0; c < p.columns; ++c) {
          to[c] = bias == nullptr ? 0 : bias[(row * p.columns + c) % period];
        }
        for (int64_t k = 0; k < p.inner; ++k) {
          const float factor = a[row * p.a_row + k * p.a_inner];
          const float* from = b + k * p.b_inner;
          for (int64_t c = 0; c < p.columns; ++c) to[c] += factor * from[c * p.b_column];
        }
      }
    });
  }

  // All instructions work on one block before the next, so that it stays in the first-level cache.
  void run(mt_ctx& ctx, const Loop& loop, const std::vector<float*>& data) const {
    constexpr int64_t kBlock = 256;  // elements
    const int64_t blocks = (loop.numel + kBlock - 1) / kBlock;
    sdk::parallel_for(ctx, 0, blocks, 8, [&](int64_t begin, int64_t end) {
      std::array<float, kBlock> first, second;
      for (int64_t start = begin * kBlock; start < std::min(end * kBlock, loop.numel);
           start += kBlock) {
        const int64_t n = std::min(kBlock, loop.numel - start);
        // Returns the elements of an operand, repeated if it has fewer than the loop.
        const auto operand = [&](int32_t id, std::array<float, kBlock>& copy) -> const float* {
          const int64_t numel = places_[id].numel;
          if (numel == loop.numel) return data[id] + start;
          for (int64_t i = 0; i < n; ++i) copy[i] = data[id][(start + i) % numel];
          return copy.data();
        };
        for (const Instruction& each : loop.body) {
          if (each.b < 0) second.fill(each.constant);
          const float* b = each.b < 0 ? second.data() : operand(each.b, second);
          each.body(data[each.out] + start, operand(each.a, first), b, each.number, n);
        }
      }
    });
  }

  std::vector<Place> places_;  // by value
  std::vector<std::variant<Product, Loop>> steps_;
  uint64_t scratch_ = 0;
};

}  // namespace
}  // namespace loops

extern "C" MT_EXPORT int mt_backend_init(const mt_host* host, mt_backend* backend) {
  static constexpr mt_region_ops kRegions =
      mytorch::sdk::region_ops<&loops::claim, loops::Compiled>();
  mytorch::sdk::BackendInfo info;
  info.name = "graph";
  info.version = "1.0";
  info.device_type = "cpu";
  info.regions = &kRegions;
  info.describe = [](void*) { return "products and pointwise operators as loops over buffers"; };
  return mytorch::sdk::fill_backend(host, backend, info);
}
