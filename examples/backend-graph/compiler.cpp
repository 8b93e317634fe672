#include "compiler.h"

#include <algorithm>
#include <array>

#include "mytorch/abi_ops/addmm.h"
#include "mytorch/abi_ops/linear.h"
#include "mytorch/abi_ops/mm.h"
#include "mytorch/backend/parallel.h"

namespace loops {
namespace {

constexpr int64_t kBlock = 256;  // elements; the values of a block stay in the first-level cache

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

// Returns the factors of a product, and what it adds to each row (-1: nothing), or nothing for
// another node.
struct Factors {
  int32_t a, b, bias;
  bool transposed;  // b
};
std::optional<Factors> factors_of(const sdk::RegionNode& node) {
  if (node.calls<mt_args_mm>()) return Factors{node.value("self"), node.value("mat2"), -1, false};
  if (node.calls<mt_args_linear>()) {
    const int32_t bias = node.has("bias") ? node.value("bias") : -1;
    return Factors{node.value("input"), node.value("weight"), bias, true};
  }
  if (node.calls<mt_args_addmm>() && node.number("beta") == 1 && node.number("alpha") == 1) {
    return Factors{node.value("mat1"), node.value("mat2"), node.value("self"), false};
  }
  return std::nullopt;
}

bool takes_product(const sdk::Region& region, const Factors& of, int32_t result) {
  const auto is_matrix = [&](int32_t id) {
    return region.shape(id).size() == 2 && sdk::is_dtype<float>(region.value(id).dtype);
  };
  return is_matrix(of.a) && is_matrix(of.b) && is_dense(region, result) &&
         (of.bias < 0 || repeats(region, of.bias, result));
}

bool takes_pointwise(const sdk::Region& region, const sdk::RegionNode& node) {
  const Operator op = operator_of(node);
  if (op.body == nullptr || !is_dense(region, node.result())) return false;
  const bool takes_other =
      !op.binary || !node.is_value("other") || repeats(region, node.value("other"), node.result());
  return repeats(region, node.value("self"), node.result()) && takes_other;
}

bool takes(const sdk::Region& region, const sdk::RegionNode& node) {
  const std::optional<Factors> factors = factors_of(node);
  return factors.has_value() ? takes_product(region, *factors, node.result())
                             : takes_pointwise(region, node);
}

}  // namespace

void claim(const sdk::Region& region, std::span<int32_t> wanted) {
  for (const sdk::RegionNode node : region.nodes()) wanted[node.index()] = takes(region, node);
}

Compiled::Compiled(const sdk::Region& region) {
  std::vector<bool> made(region.num_values());
  for (const sdk::RegionNode node : region.nodes()) {
    if (!takes(region, node)) throw sdk::Declined{};
    for (int32_t i = 0; i < node.num_args(); ++i) {
      for (const int32_t id : node.values_at(i)) {
        // A view, which none of the claimed nodes makes.
        if (region.value(id).kind == MT_REGION_INSIDE && !made[id]) throw sdk::Declined{};
      }
    }
    made[node.result()] = true;
    if (factors_of(node).has_value()) {
      add_product(region, node);
    } else {
      add_pointwise(region, node);
    }
  }
  place_values(region);
}

void Compiled::add_product(const sdk::Region& region, const sdk::RegionNode& node) {
  const Factors of = *factors_of(node);
  const std::span<const int64_t> a = region.strides(of.a), b = region.strides(of.b);
  const std::span<const int64_t> shape = region.shape(node.result());
  steps_.emplace_back(Product{node.result(), of.a, of.b, of.bias, shape[0], region.shape(of.a)[1],
                              shape[1], a[0], a[1], b[of.transposed ? 1 : 0],
                              b[of.transposed ? 0 : 1]});
}

// Adds an instruction to the last loop, or to a new one.
void Compiled::add_pointwise(const sdk::Region& region, const sdk::RegionNode& node) {
  const Operator op = operator_of(node);
  Instruction made{op.body, node.result(), node.value("self"), -1};
  if (op.binary && node.is_value("other")) {
    made.b = node.value("other");
  } else if (op.binary) {
    made.constant = static_cast<float>(node.number("other"));
  }
  if (op.number != nullptr) made.number = static_cast<float>(node.number(op.number));
  const int64_t numel = region.numel(node.result());
  Loop* last = steps_.empty() ? nullptr : std::get_if<Loop>(&steps_.back());
  if (last == nullptr || last->numel != numel) {
    steps_.emplace_back(Loop{numel, {}, {}});
    last = &std::get<Loop>(steps_.back());
  }
  last->body.push_back(made);
}

// Decides where the elements of each value are: with the host, in scratch memory, or, if one loop
// makes and uses them, in a block.
void Compiled::place_values(const sdk::Region& region) {
  std::vector<int32_t> used_by(static_cast<size_t>(region.num_values()),
                               -1);  // a step; -2: several
  const auto use = [&](int32_t id, size_t step) {
    if (id < 0) return;
    int32_t& by = used_by[id];
    const bool first = by == -1 || by == static_cast<int32_t>(step);
    by = first ? static_cast<int32_t>(step) : -2;
  };
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (const auto* product = std::get_if<Product>(&steps_[i])) {
      for (const int32_t id : {product->out, product->a, product->b, product->bias}) {
        use(id, i);
        if (id >= 0) used_by[id] = -2;
      }
      continue;
    }
    for (const Instruction& each : std::get<Loop>(steps_[i]).body) {
      for (const int32_t id : {each.out, each.a, each.b}) use(id, i);
    }
  }
  for (int32_t id = 0; id < region.num_values(); ++id) {
    const mt_region_value& value = region.value(id);
    Place place{Place::kBlock, value.index, value.data, region.numel(id)};
    if (value.kind == MT_REGION_INPUT) {
      place.kind = Place::kInput;
    } else if (value.kind == MT_REGION_OUTPUT) {
      place.kind = Place::kOutput;
    } else if (value.kind == MT_REGION_CONSTANT) {
      place.kind = Place::kConstant;
    } else if (used_by[id] == -2) {
      place.kind = Place::kScratch;
      place.at = static_cast<int64_t>(scratch_);
      scratch_ += (static_cast<uint64_t>(place.numel) * sizeof(float) + 63) / 64 * 64;
    } else if (used_by[id] >= 0) {
      std::get<Loop>(steps_[used_by[id]]).blocks.push_back(id);
    }
    places_.push_back(place);
  }
}

void Compiled::run(mt_ctx& ctx, const mt_region_args& args) {
  std::vector<float*> data;  // of each value; null for a block
  for (const Place& place : places_) {
    const void* at = nullptr;
    if (place.kind == Place::kInput) at = sdk::TensorView(args.inputs[place.at]).raw();
    if (place.kind == Place::kOutput) at = sdk::TensorView(args.outputs[place.at]).raw();
    if (place.kind == Place::kConstant) at = place.data;
    if (place.kind == Place::kScratch) at = static_cast<const char*>(args.scratch) + place.at;
    data.push_back(static_cast<float*>(const_cast<void*>(at)));
  }
  for (const Step& step : steps_) {
    std::visit([&](const auto& each) { run(ctx, each, data); }, step);
  }
}

void Compiled::run(mt_ctx& ctx, const Product& p, const std::vector<float*>& data) const {
  const float *a = data[p.a], *b = data[p.b];
  const float* bias = p.bias < 0 ? nullptr : data[p.bias];
  const int64_t period = p.bias < 0 ? 1 : places_[p.bias].numel;
  float* out = data[p.out];
  sdk::parallel_for(ctx, 0, p.rows, 1, [&](int64_t begin, int64_t end) noexcept {
    for (int64_t row = begin; row < end; ++row) {
      float* to = out + row * p.columns;
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

void Compiled::run(mt_ctx& ctx, const Loop& loop, const std::vector<float*>& data) const {
  const int64_t blocks = (loop.numel + kBlock - 1) / kBlock;
  sdk::parallel_for(ctx, 0, blocks, 8, [&](int64_t begin, int64_t end) {
    std::vector<std::array<float, kBlock>> own(loop.blocks.size());
    std::vector<float*> at(data);
    for (size_t i = 0; i < own.size(); ++i) at[loop.blocks[i]] = own[i].data();
    std::array<float, kBlock> first, second;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t start = block * kBlock, n = std::min(kBlock, loop.numel - start);
      const auto in_block = [&](int32_t id) {
        const bool is_own = places_[id].kind == Place::kBlock;
        return at[id] + (is_own ? 0 : start);
      };
      // Returns the elements of an operand, repeated if it has fewer than the loop.
      const auto operand = [&](int32_t id, std::array<float, kBlock>& copy) -> const float* {
        const int64_t numel = places_[id].numel;
        if (numel == loop.numel) return in_block(id);
        const float* from = at[id];
        for (int64_t i = 0; i < n; ++i) copy[i] = from[(start + i) % numel];
        return copy.data();
      };
      for (const Instruction& each : loop.body) {
        const float* a = operand(each.a, first);
        const float* b = a;
        if (each.b >= 0) {
          b = operand(each.b, second);
        } else {
          second.fill(each.constant);
          b = second.data();
        }
        each.body(in_block(each.out), a, b, each.number, n);
      }
    }
  });
}

}  // namespace loops
