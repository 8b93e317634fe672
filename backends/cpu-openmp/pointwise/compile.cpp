#include "backends/cpu-openmp/pointwise/compile.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "backends/cpu-openmp/common/stage.h"
#include "backends/cpu-openmp/pointwise/complex.h"
#include "backends/cpu-openmp/pointwise/compute_type.h"
#include "backends/cpu-openmp/pointwise/driver.h"
#include "backends/cpu-openmp/simd/convert.h"
#include "mytorch/backend/error.h"

namespace mytorch::cpu {
namespace {

// The elements of a tile: few, so that all values of a program stay in the cache.
constexpr int64_t kValues = 256;
constexpr int kMaxTiles = 96;
constexpr int64_t kTileBytes = kValues * 8;

const NodeLoop* find_node(std::string_view name, int32_t type, int32_t operand) {
  for (const NodeLoop& node : programs().nodes) {
    if (name == node.name && node.type == type && node.operand == operand) return &node;
  }
  return nullptr;
}

Number constant_of(double value, mt_dtype compute) {
  Number number{};
  switch (compute_type_of(compute)) {
    case kFloat32:
      number.f32 = static_cast<float>(value);
      break;
    case kFloat64:
      number.f64 = value;
      break;
    case kInt32:
      sdk::visit_dtype(compute, [&](auto tag) {
        using T = typename decltype(tag)::type;
        if constexpr (!sdk::is_float_type<T>) {
          number.i32 = static_cast<int32_t>(sdk::convert<T>(sdk::convert<int64_t>(value)));
        }
      });
      break;
    case kInt64:
      number.i64 = sdk::convert<int64_t>(value);
      break;
  }
  return number;
}

}  // namespace

TileProgram::TileProgram(const mt_program& program, mt_dtype compute,
                         std::span<const mt_program_output> roots)
    : compute_(compute), compute_type_(compute_type_of(compute)) {
  std::vector<bool> needed(static_cast<size_t>(program.num_nodes), false);
  for (const mt_program_output& root : roots) needed[static_cast<size_t>(root.node)] = true;
  for (int32_t i = program.num_nodes; i-- > 0;) {
    if (!needed[static_cast<size_t>(i)]) continue;
    for (const int32_t operand : program.nodes[i].a) {
      if (operand >= 0) needed[static_cast<size_t>(operand)] = true;
    }
  }
  const bool narrow = !sdk::is_floating(compute) && is_narrow(compute);
  std::vector<Place> places(static_cast<size_t>(program.num_nodes));
  int64_t cost = 1;
  for (int32_t i = 0; i < program.num_nodes; ++i) {
    if (!needed[static_cast<size_t>(i)]) continue;
    const mt_node& node = program.nodes[i];
    if (node.type == MT_TYPE_INDEX) throw sdk::Declined{};
    const std::string_view name = node.op;
    Place& place = places[static_cast<size_t>(i)];
    if (name == "input" || name == "state" || name == "count") {
      const uint32_t offset = name == "input"   ? node.offset
                              : name == "count" ? kCountLeaf
                                                : static_cast<uint32_t>(node.component);
      place = {true, static_cast<int>(inputs_.size())};
      inputs_.push_back({offset, node.type});
      continue;
    }
    place = {false, num_tiles_++};
    if (name == "scalar" || name == "const") {
      Constant constant{place.index, {}, -1, node.type == MT_TYPE_BOOL};
      if (name == "const") {
        constant.value = constant_of(node.value, compute);
        if (constant.logical) constant.value.i64 = node.value != 0;
      } else if (constant.logical) {
        throw sdk::Declined{};
      } else {
        constant.scalar = static_cast<int>(scalars_.size());
        scalars_.push_back({node.offset, node.field});
      }
      constants_.push_back(constant);
      continue;
    }
    const int32_t operand = program.nodes[node.a[0]].type;
    if (name == "cast" && operand == node.type) {
      place = places[static_cast<size_t>(node.a[0])];
      --num_tiles_;
      continue;
    }
    const NodeLoop* found = find_node(name, node.type, operand);
    if (found == nullptr || found->loops.fn[compute_type_] == nullptr) throw sdk::Declined{};
    Step step{found->loops.fn[compute_type_],
              {},
              found->arity,
              place.index,
              narrow && node.type == MT_TYPE_COMPUTE};
    for (int k = 0; k < found->arity; ++k) {
      step.args[k] = places[static_cast<size_t>(node.a[k])];
    }
    steps_.push_back(step);
    cost += found->cost + 1;
  }
  for (const mt_program_output& root : roots) {
    const int32_t type = program.nodes[root.node].type;
    outputs_.push_back({root.offset, type});
    Place from = places[static_cast<size_t>(root.node)];
    if (from.input && roots.size() > 1) {
      copies_.push_back({from.index, num_tiles_, type == MT_TYPE_BOOL});
      from = {false, num_tiles_++};
    }
    roots_.push_back(from);
  }
  if (num_tiles_ > kMaxTiles || inputs_.size() > kMaxInputs || outputs_.size() > kMaxOutputs ||
      scalars_.size() > kMaxScalars) {
    throw sdk::Declined{};
  }
  program_ = {inputs_.data(),
              scalars_.data(),
              outputs_.data(),
              static_cast<int32_t>(inputs_.size()),
              static_cast<int32_t>(scalars_.size()),
              static_cast<int32_t>(outputs_.size()),
              static_cast<int32_t>(cost),
              true,  // each step truncates
              false,
              {},
              this};
  program_.loops.fn[compute_type_] = &TileProgram::run;
}

bool TileProgram::run(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                      int64_t n) {
  const auto& self = *static_cast<const TileProgram*>(scalars.self);
  alignas(64) char tiles[kMaxTiles * kTileBytes];
  const int64_t width = std::min(n, kValues);
  for (const Constant& constant : self.constants_) {
    const Number value = constant.scalar >= 0 ? scalars.value[constant.scalar] : constant.value;
    repeat(&value, self.itemsize(constant.logical), width, tiles + constant.tile * kTileBytes);
  }
  const void* in[kMaxInputs];
  void* out[kMaxOutputs];
  for (int64_t i = 0; i < n; i += kValues) {
    const auto bytes = [&](const OperandField& operand) {
      return i * self.itemsize(operand.type == MT_TYPE_BOOL);
    };
    for (size_t k = 0; k < self.inputs_.size(); ++k) {
      in[k] = static_cast<const char*>(inputs[k]) + bytes(self.inputs_[k]);
    }
    for (size_t k = 0; k < self.outputs_.size(); ++k) {
      out[k] = outputs[k] == nullptr ? nullptr
                                     : static_cast<char*>(outputs[k]) + bytes(self.outputs_[k]);
    }
    if (!self.run_tile(in, out, scalars, tiles, std::min(n - i, kValues))) return false;
  }
  return true;
}

bool TileProgram::run_tile(const void* const* inputs, void* const* outputs, const Scalars& scalars,
                           char* tiles, int64_t n) const {
  const auto at = [&](const Place& place) -> const void* {
    return place.input ? inputs[place.index] : tiles + place.index * kTileBytes;
  };
  for (const Step& step : steps_) {
    const void* args[3];
    for (int k = 0; k < step.arity; ++k) args[k] = at(step.args[k]);
    void* result = tiles + step.result * kTileBytes;
    if (!step.inner_loop(args, &result, scalars, n)) return false;
    if (step.wraps) {
      alignas(64) char narrow[kValues * 2];
      simd::get_convert(kComputeDtype[compute_type_], compute_)(result, narrow, n);
      simd::get_convert(compute_, kComputeDtype[compute_type_])(narrow, result, n);
    }
  }
  // Outputs are stored last, because an output may be an input.
  for (const Copy& copy : copies_) {
    std::memcpy(tiles + copy.tile * kTileBytes, inputs[copy.input],
                static_cast<size_t>(n * itemsize(copy.logical)));
  }
  for (size_t k = 0; k < roots_.size(); ++k) {
    if (outputs[k] == nullptr) continue;
    std::memcpy(outputs[k], at(roots_[k]),
                static_cast<size_t>(n * itemsize(outputs_[k].type == MT_TYPE_BOOL)));
  }
  return true;
}

// ---- kernels

namespace {

struct CompiledPointwise {
  CompiledPointwise(const mt_program& program, mt_dtype compute)
      : base(program.name, std::string_view(program.name).find('.') == std::string_view::npos
                               ? std::strlen(program.name)
                               : std::string_view(program.name).find('.')),
        tiles(program, compute,
              std::span(program.outputs, static_cast<size_t>(program.num_outputs))) {}
  std::string base;
  TileProgram tiles;
};

int run_compiled(void* self, mt_ctx* ctx, const void* args) noexcept {
  const auto& compiled = *static_cast<const CompiledPointwise*>(self);
  const auto& header = *static_cast<const mt_args_header*>(args);
  PointwiseCall call(compiled.tiles.program(), compiled.base.c_str(), header.compute, args);
  call.set_operands();
  return run_call(ctx, call);
}

}  // namespace

void compile(const mt_program& program, mt_dtype compute, std::span<const mt_dtype> /*types*/,
             mt_kernel_entry& kernel) {
  const bool complex = sdk::is_complex(compute);
  if (complex) {
    compile_complex(program, compute, kernel);
  } else if (program.fold != nullptr) {
    compile_reduce(program, compute, kernel);
  } else {
    kernel.self = std::make_unique<CompiledPointwise>(program, compute).release();
    kernel.run = &run_compiled;
  }
  kernel.size = sizeof(mt_kernel_entry);
  kernel.name = complex ? "complex_tiles" : "tile_program";
  kernel.supports = nullptr;
  kernel.flags = MT_TAKES_STRIDED | MT_TAKES_BROADCAST | MT_TAKES_MIXED_DTYPES | MT_TAKES_ALIAS |
                 (complex ? uint32_t{MT_TAKES_COMPLEX} : 0);
}

}  // namespace mytorch::cpu
