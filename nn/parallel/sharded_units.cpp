// How FullyShardedDataParallel splits a module into units, and their parameters into shards.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/types/errors.h"
#include "mytorch/nn/container.h"
#include "mytorch/nn/deferred.h"
#include "mytorch/ops/copy_.h"
#include "mytorch/ops/to.h"
#include "mytorch/ops/zeros.h"
#include "nn/parallel/sharded_state.h"
#include "nn/parameter_access.h"

namespace mytorch::nn {

using sharded::Flat;
using sharded::Parameter;

namespace {

// Parameters and shards begin at multiples of 32 elements, so that vector loads are aligned.
constexpr int64_t kAlignment = 32;
int64_t aligned(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

struct ByImpl {
  bool operator()(const Tensor& a, const Tensor& b) const { return a.impl() < b.impl(); }
};

}  // namespace

void FullyShardedDataParallel::State::split(Module& module) {
  const auto is_list_element = [](const std::set<std::string>& lists, const std::string& name) {
    const size_t dot = name.rfind('.');
    return lists.count(dot == std::string::npos ? "" : name.substr(0, dot)) != 0;
  };
  units.push_back({&module, ""});
  std::set<std::string> lists;
  for (const auto& [name, child] : module.named_modules()) {
    if (detail::ParameterAccess::is_parametrized(*child)) {
      fail(ErrorCode::kUnsupported, "[FullyShardedDataParallel] '", name,
           "' is parametrized, and its parameters cannot be split: remove the parametrization");
    }
    const bool inside =
        std::any_of(units.begin() + 1, units.end(),
                    [&name = name](const Unit& unit) { return name.starts_with(unit.name + "."); });
    const bool in_list =
        std::any_of(lists.begin(), lists.end(), [&name = name](const std::string& list) {
          return list.empty() || name.starts_with(list + ".");
        });
    const bool is_unit = name.empty()      ? false
                         : options.is_unit ? options.is_unit(name, *child)
                                           : !inside && is_list_element(lists, name);
    if (child->as<ModuleList>() != nullptr && (!in_list || lists.empty())) lists.insert(name);
    if (is_unit && !child->parameters().empty()) units.push_back({child, name});
  }
  // The innermost unit that contains all members of a parameter.
  const auto unit_of = [&](const std::string& name) {
    size_t found = 0;
    for (size_t i = 1; i < units.size(); ++i) {
      if (name.starts_with(units[i].name + ".") &&
          (found == 0 || units[i].name.size() > units[found].name.size())) {
        found = i;
      }
    }
    return found;
  };
  struct Found {
    Parameter parameter;
    size_t unit;
  };
  std::vector<Found> parameters;
  std::map<const TensorImpl*, size_t> known;
  detail::ParameterAccess::visit(module, [&](const std::string& name, Tensor& member) {
    const auto [place, is_new] = known.emplace(member.impl(), parameters.size());
    if (is_new) {
      const bool deferred = is_deferred(member);
      if (parameters.empty() && group.size() == 1 && !options.device && !deferred) {
        device = member.device();
      }
      if (!(member.device() == device) && !member.device().is_cpu() && !deferred) {
        fail(ErrorCode::kDevice, "[FullyShardedDataParallel] '", name, "' is on ",
             member.device().str(), ", and units compute on ", device.str(),
             ": move the module there, or to the CPU, first");
      }
      parameters.push_back(
          {{{name}, {&member}, member.sizes().vec(), member.numel()}, unit_of(name)});
      return;
    }
    Found& found = parameters[place->second];
    found.parameter.names.push_back(name);
    if (std::find(found.parameter.members.begin(), found.parameter.members.end(), &member) ==
        found.parameter.members.end()) {
      found.parameter.members.push_back(&member);
    }
    if (unit_of(name) != found.unit) found.unit = 0;
  });
  if (parameters.empty()) {
    fail(ErrorCode::kValue,
         "[FullyShardedDataParallel] the module has no parameters: there is nothing to split");
  }
  for (Found& found : parameters) {
    std::vector<Flat>& flats = units[found.unit].flats;
    const Tensor& value = *found.parameter.members[0];
    auto flat = std::find_if(flats.begin(), flats.end(), [&](const Flat& f) {
      return f.dtype == value.dtype() && f.trains == value.requires_grad();
    });
    if (flat == flats.end()) {
      flats.push_back({value.dtype(), value.requires_grad()});
      flat = flats.end() - 1;
    }
    flat->parameters.push_back(std::move(found.parameter));
  }
  if (options.cpu_offload.offload_params) {
    copies = std::make_unique<sharded::SideCopies>(device, options.cpu_offload.pin_memory);
  }
  for (Unit& unit : units) cut(unit);
}

void FullyShardedDataParallel::State::move_buffers(Module& module) const {
  std::map<Tensor, Tensor, ByImpl> moved;  // modules may share them
  detail::ParameterAccess::visit_buffers(module, [&](const std::string&, Tensor& member) {
    if (member.device() == device) return;
    const auto [at, is_new] = moved.try_emplace(member);
    if (is_new) {
      at->second = is_deferred(member) ? materialize(member, device) : mytorch::to(member, device);
    }
    member = at->second;
  });
}

void FullyShardedDataParallel::State::cut(Unit& unit) {
  const NoGradGuard no_grad;
  for (Flat& flat : unit.flats) {
    for (Parameter& p : flat.parameters) {
      p.offset = flat.total;
      flat.total += aligned(p.numel);
    }
    flat.length = aligned((flat.total + group.size() - 1) / group.size());
    flat.total = flat.length * group.size();
    const Tensor full = mytorch::zeros({flat.total}, flat.dtype, device);
    for (const Parameter& p : flat.parameters) {
      const Tensor& member = *p.members[0];
      // Those of other ranks than the first are replaced by its.
      const bool drawn = options.draw_parameters && (group.rank() == 0 || !options.sync_parameters);
      if (is_deferred(member) && !drawn) continue;
      full.narrow(0, p.offset, p.numel).view(p.sizes).copy_(materialize(member.detach(), device));
    }
    if (options.sync_parameters) group.broadcast(full, 0);
    const int64_t first = flat.length * group.rank();
    const Tensor part = full.narrow(0, first, flat.length);
    if (copies != nullptr) {
      flat.shard = copies->host_tensor(flat.length, flat.dtype);
      flat.shard.copy_(part);
    } else {
      flat.shard = part.clone();
    }
    for (Parameter& p : flat.parameters) {
      p.begin = std::clamp<int64_t>(first - p.offset, 0, p.numel);
      p.end = std::clamp<int64_t>(first + flat.length - p.offset, 0, p.numel);
      p.shard =
          flat.shard.narrow(0, p.begin == p.end ? 0 : p.offset + p.begin - first, p.end - p.begin)
              .detach();
      if (flat.trains) p.shard.requires_grad_();
      for (Tensor* member : p.members) *member = p.shard;
      if (copies == nullptr) flat.leaves.push_back(p.shard);
    }
    if (copies != nullptr && flat.trains) {
      flat.leaves.push_back(mytorch::zeros({0}, flat.dtype, device).requires_grad_());
    }
  }
}

}  // namespace mytorch::nn
