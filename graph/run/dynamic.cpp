#include "graph/run/dynamic.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "core/types/errors.h"

namespace mytorch::graph {
namespace {

bool is_name(const std::string& name) {
  static const std::set<std::string> kWords = {"in",  "none", "true", "false", "inf",
                                               "nan", "over", "all",  "sqrt",  "float32"};
  return absl::ascii_isalpha(static_cast<unsigned char>(name[0])) && !kWords.contains(name) &&
         std::all_of(name.begin(), name.end(),
                     [](unsigned char c) { return absl::ascii_isalnum(c) || c == '_'; });
}

}  // namespace

DynamicShapes::DynamicShapes(std::vector<DynamicDim> dims, int64_t most_families)
    : dims_(std::move(dims)), most_(static_cast<size_t>(most_families)) {
  for (const DynamicDim& each : dims_) {
    if (!each.name.empty() && !is_name(each.name)) {
      fail(ErrorCode::kValue, "[compile] '", each.name,
           "' is no name of a dimension: write letters and digits, such as batch");
    }
    const auto found = std::find(names_.begin(), names_.end(), each.name);
    if (!each.name.empty() && found != names_.end()) {
      symbol_of_.push_back(static_cast<size_t>(found - names_.begin()));
      declared_[symbol_of_.back()] = declared_[symbol_of_.back()] || each.any_size;
      continue;
    }
    symbol_of_.push_back(names_.size());
    names_.push_back(each.name);
    declared_.push_back(each.any_size);
  }
}

size_t DynamicShapes::dim_of(const DynamicDim& each, const Guards& call) const {
  if (each.argument < 0 || static_cast<size_t>(each.argument) >= call.arguments.size()) {
    fail(ErrorCode::kValue, "[compile] dynamic_dims names argument ", each.argument, " of ",
         call.arguments.size(), " tensors");
  }
  const auto ndim =
      static_cast<int64_t>(call.arguments[static_cast<size_t>(each.argument)].sizes.size());
  const int64_t dim = each.dim < 0 ? each.dim + ndim : each.dim;
  if (dim < 0 || dim >= ndim) {
    fail(ErrorCode::kValue, "[compile] dynamic_dims names dimension ", each.dim, " of argument ",
         each.argument, ", which has ", ndim, " dimensions");
  }
  return static_cast<size_t>(dim);
}

std::optional<SymbolValues> DynamicShapes::sizes_of(const Guards& call, std::string* reason) const {
  SymbolValues found(names_.size(), -1);
  for (size_t i = 0; i < dims_.size(); ++i) {
    const size_t dim = dim_of(dims_[i], call);
    const int64_t size = call.arguments[static_cast<size_t>(dims_[i].argument)].sizes[dim];
    int64_t& known = found[symbol_of_[i]];
    if (known >= 0 && known != size) {
      *reason = "dimensions of the name '" + dims_[i].name + "' have different sizes";
      return std::nullopt;
    }
    known = size;
    // Operators broadcast along a size of 1, and skip what has none.
    if (size < 2) {
      *reason = "a dynamic dimension of size 0 or 1 is recorded by itself";
      return std::nullopt;
    }
  }
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    if (call.arguments[i].alias == static_cast<int32_t>(i)) continue;
    *reason = "arguments share memory, and dynamic_dims takes only those that do not";
    return std::nullopt;
  }
  return found;
}

// Returns whether a call differs from the recordings of a family in sizes and strides alone.
bool DynamicShapes::belongs(const KnownFamily& known, const Guards& call) const {
  const Guards& guards = known.guards;
  if (guards.constants != call.constants || !(guards.thread == call.thread) ||
      guards.epoch != call.epoch || guards.arguments.size() != call.arguments.size()) {
    return false;
  }
  for (size_t i = 0; i < call.arguments.size(); ++i) {
    TensorGuard given = call.arguments[i];
    const TensorGuard& first = guards.arguments[i];
    if (given.sizes.size() != first.sizes.size()) return false;
    for (size_t d = 0; d < dims_.size(); ++d) {
      if (dims_[d].argument != static_cast<int64_t>(i)) continue;
      const size_t dim = dim_of(dims_[d], call);
      given.sizes[dim] = first.sizes[dim];
    }
    given.strides = first.strides;
    given.offset = first.offset;
    given.alignment = first.alignment;
    if (!(given == first)) return false;
  }
  return true;
}

std::optional<DynamicShapes::Instance> DynamicShapes::instance(const Guards& call,
                                                               const std::vector<Tensor>& arguments,
                                                               std::string* reason) {
  const std::optional<SymbolValues> sizes = sizes_of(call, reason);
  if (!sizes) return std::nullopt;
  std::optional<Instance> found;
  for (const KnownFamily& known : known_) {
    if (!belongs(known, call)) continue;
    if (const char* differs = has_changed(known.family.base()[0]); differs != nullptr) {
      *reason = differs;
      continue;
    }
    std::optional<std::vector<Recorded>> parts = known.family.at(*sizes, reason);
    if (!parts) continue;
    if (found) {
      *reason = "the function does different things at sizes below and above this one";
      return std::nullopt;
    }
    Instance made{known.guards, {}, nullptr};
    made.guards.arguments = call.arguments;
    if (known.joint != nullptr) {
      made.joint = known.joint->at_other_sizes(std::move((*parts)[0]), std::move((*parts)[1]));
    } else {
      made.recorded = std::move((*parts)[0]);
    }
    const Recorded& forward = made.joint != nullptr ? made.joint->forward() : made.recorded;
    const auto has_strides = [&](size_t i) {
      const ValueInfo& info = forward.graph.values[static_cast<size_t>(forward.graph.arguments[i])];
      return info.strides == call.arguments[i].strides && info.sizes == call.arguments[i].sizes;
    };
    bool same = true;
    for (size_t i = 0; i < call.arguments.size(); ++i) same = same && has_strides(i);
    if (!same) {
      *reason = "an argument has other strides than at other sizes";
      continue;
    }
    if (const char* differs = made.guards.mismatch(arguments, call.constants, forward);
        differs != nullptr) {
      *reason = differs;
      continue;
    }
    found = std::move(made);
  }
  return found;
}

std::string DynamicShapes::add(const Guards& guards, const Recorded& recorded,
                               const std::shared_ptr<Joint>& joint) {
  std::string reason;
  const std::optional<SymbolValues> sizes = sizes_of(guards, &reason);
  if (!sizes) return reason;
  for (const int32_t shared : guards.shared) {
    if (shared >= 0) return "an argument shares memory with a tensor from outside";
  }
  const Recorded& forward = joint != nullptr ? joint->forward() : recorded;
  if (!forward.views.empty()) return "the function uses a view from outside";
  if (!forward.host_reads.empty()) return "the host reads a tensor from outside";
  std::vector<Recorded> parts;
  if (joint != nullptr) {
    parts = {joint->forward(), joint->backward_graph()};
  } else {
    parts = {recorded};
  }
  // Recordings from before an option changed hold for no call any more.
  known_.remove_if([&](const KnownFamily& known) { return known.guards.epoch != guards.epoch; });
  for (auto known = known_.begin(); known != known_.end(); ++known) {
    if (!belongs(*known, guards) || has_changed(known->family.base()[0]) != nullptr) continue;
    std::string differs = known->family.add(parts, *sizes);
    if (differs.empty()) {
      known->guards.outside_replaced = guards.outside_replaced;
      known_.splice(known_.begin(), known_, known);
      return "";
    }
    if (reason.empty()) reason = std::move(differs);
  }
  known_.push_front({guards, joint, Family(std::move(parts), *sizes, names_, declared_)});
  if (known_.size() > most_) known_.pop_back();
  return reason;
}

std::optional<DynamicShapes::Symbolic> DynamicShapes::symbolic(const Guards& guards) const {
  std::vector<Family::SymbolPlace> places(names_.size());
  for (const KnownFamily& known : known_) {
    if (!belongs(known, guards) || !known.family.ready()) continue;
    for (size_t i = dims_.size(); i-- > 0;) {
      places[symbol_of_[i]] = {static_cast<size_t>(dims_[i].argument), dim_of(dims_[i], guards)};
    }
    return Symbolic{known.family.base().data(), known.family.text(places)};
  }
  return std::nullopt;
}

}  // namespace mytorch::graph
