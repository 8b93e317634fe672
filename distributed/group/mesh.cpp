#include <algorithm>
#include <utility>

#include "core/types/errors.h"
#include "distributed/group/state.h"

namespace mytorch::distributed {

DeviceMesh::DeviceMesh(const Group& world, std::vector<Dimension> dimensions)
    : world_(world), dimensions_(std::move(dimensions)) {
  int64_t product = 1;
  std::string shape;
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    const auto& [name, size] = dimensions_[i];
    if (size < 1) {
      fail(ErrorCode::kValue, "[DeviceMesh] dimension '", name, "' has size ", size,
           ": sizes are at least 1");
    }
    for (size_t j = 0; j < i; ++j) {
      if (dimensions_[j].first == name) {
        fail(ErrorCode::kValue, "[DeviceMesh] two dimensions are named '", name, "'");
      }
    }
    product = std::min<int64_t>(product * size, int64_t{1} << 40);
    absl::StrAppend(&shape, i == 0 ? "" : " x ", name, "=", size);
  }
  if (product != world.size()) {
    fail(ErrorCode::kValue, "[DeviceMesh] ", shape, " is ", product, " ranks, and the group has ",
         world.size(), ": the sizes must multiply to it");
  }
  int rest = world.rank();
  coordinates_.resize(dimensions_.size());
  for (size_t i = dimensions_.size(); i-- > 0;) {
    coordinates_[i] = rest % dimensions_[i].second;
    rest /= dimensions_[i].second;
  }
  for (const auto& [name, unused] : dimensions_) groups_.push_back(flatten({name}));
}

size_t DeviceMesh::index_of(std::string_view name) const {
  std::string names;
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    if (dimensions_[i].first == name) return i;
    absl::StrAppend(&names, i == 0 ? "" : ", ", dimensions_[i].first);
  }
  fail(ErrorCode::kValue, "[DeviceMesh] there is no dimension '", name, "': the mesh has ", names);
}

const Group& DeviceMesh::group(std::string_view name) const { return groups_[index_of(name)]; }
int DeviceMesh::size(std::string_view name) const { return dimensions_[index_of(name)].second; }
int DeviceMesh::coordinate(std::string_view name) const { return coordinates_[index_of(name)]; }

Group DeviceMesh::flatten(const std::vector<std::string>& names) const {
  std::vector<bool> joined(dimensions_.size(), false);
  for (const std::string& name : names) joined[index_of(name)] = true;
  // Ranks that agree in all other dimensions form a group.
  int color = 0;
  for (size_t i = 0; i < dimensions_.size(); ++i) {
    if (!joined[i]) color = color * dimensions_[i].second + coordinates_[i];
  }
  return world_.split(color, world_.rank());
}

}  // namespace mytorch::distributed
