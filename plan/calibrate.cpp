#include "plan/calibrate.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/types/errors.h"
#include "plan/json.h"

namespace mytorch::plan {
namespace {

using Collective = double (*)(const Machine&, const Ranks&, double);
const std::vector<std::pair<std::string, Collective>>& collectives() {
  static const std::vector<std::pair<std::string, Collective>> all = {
      {"all_gather", &all_gather_seconds},
      {"reduce_scatter", &reduce_scatter_seconds},
      {"all_reduce", &all_reduce_seconds},
      {"all_to_all", &all_to_all_seconds}};
  return all;
}
Collective collective_of(const std::string& kind) {
  for (const auto& [name, function] : collectives()) {
    if (name == kind) return function;
  }
  return nullptr;
}

bool flag(const Json& object, const char* name, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end()) return false;
  if (!found->is_boolean()) {
    fail(ErrorCode::kValue, "[plan] ", where, ": ", name, " is ", found->dump(),
         ": give true or false");
  }
  return found->get<bool>();
}

double error_of(const Machine& machine, const std::vector<const Point*>& points) {
  double sum = 0;
  for (const Point* point : points) {
    const double error = std::log(predicted_seconds(machine, *point) / point->seconds);
    sum += error * error;
  }
  return sum;
}

// A constant, and the largest value that it may have.
struct Constant {
  double* value;
  double most;
};

// Changes one constant after the other by a factor, which becomes smaller, while the error falls.
void fit(const Machine& machine, const std::vector<Constant>& constants,
         const std::vector<const Point*>& points) {
  if (points.empty()) return;
  double best = error_of(machine, points);
  for (double factor = 2; factor > 1.0005;) {
    bool better = false;
    for (const Constant& constant : constants) {
      for (const double times : {factor, 1 / factor}) {
        const double before = *constant.value;
        *constant.value = std::min(before * times, constant.most);
        const double error = error_of(machine, points);
        if (error < best - 1e-12) {
          best = error;
          better = true;
        } else {
          *constant.value = before;
        }
      }
    }
    if (!better) factor = std::sqrt(factor);
  }
}

}  // namespace

std::vector<Point> read_points(const std::string& path) {
  const Json json = read_json(path);
  if (!json.is_array() || json.empty()) {
    fail(ErrorCode::kValue, "[plan] ", path, " is no array of measured points");
  }
  std::vector<Point> points;
  for (size_t i = 0; i < json.size(); ++i) {
    const Json& object = json[i];
    const std::string where = absl::StrCat(path, ", point ", i);
    Point point;
    point.seconds = positive(object, "seconds", where);
    const auto kind = object.find("kind");
    point.kind = kind != object.end() && kind->is_string() ? kind->get<std::string>() : "";
    const auto take = [&](std::initializer_list<const char*> names) {
      size_t at = 0;
      for (const char* name : names) point.sizes[at++] = positive(object, name, where);
    };
    if (point.kind == "matmul") {
      take({"m", "n", "k"});
    } else if (point.kind == "attention") {
      take({"batch", "heads", "length", "width"});
      point.causal = flag(object, "causal", where);
      point.backward = flag(object, "backward", where);
    } else if (point.kind == "copy") {
      take({"bytes"});
    } else if (collective_of(point.kind) != nullptr) {
      take({"bytes"});
      point.ranks.size = whole(object, "ranks", where);
      if (object.contains("stride")) point.ranks.stride = whole(object, "stride", where);
      if (point.ranks.size < 2) {
        fail(ErrorCode::kValue, "[plan] ", where, ": ", point.kind, " among ", point.ranks.size,
             " ranks: give at least 2");
      }
    } else {
      std::vector<std::string> kinds = {"matmul", "attention", "copy"};
      for (const auto& [name, unused] : collectives()) kinds.push_back(name);
      fail(ErrorCode::kValue, "[plan] ", where, ": the kind is '", point.kind, "': give one of ",
           absl::StrJoin(kinds, ", "));
    }
    points.push_back(point);
  }
  return points;
}

double predicted_seconds(const Machine& machine, const Point& point) {
  const double* s = point.sizes;
  if (point.kind == "matmul") return matmul_seconds(machine.gpu, s[0], s[1], s[2]);
  if (point.kind == "attention") {
    return attention_seconds(machine.gpu, s[0], s[1], s[2], s[2], s[3], point.causal,
                             point.backward);
  }
  if (point.kind == "copy") return stream_seconds(machine.gpu, s[0], 1);
  return collective_of(point.kind)(machine, point.ranks, s[0]);
}

Machine calibrated(Machine machine, const std::vector<Point>& points) {
  const auto those = [&](const std::function<bool(const Point&)>& wanted) {
    std::vector<const Point*> found;
    for (const Point& point : points) {
      if (wanted(point)) found.push_back(&point);
    }
    return found;
  };
  const auto of_kind = [&](const char* kind) {
    return those([kind](const Point& p) { return p.kind == kind; });
  };
  Gpu& gpu = machine.gpu;
  // Products of small matrices depend on the memory's share, too.
  fit(machine, {{&gpu.stream, 1}}, of_kind("copy"));
  fit(machine, {{&gpu.matmul, 1}, {&gpu.matmul_half, 1e4}}, of_kind("matmul"));
  fit(machine,
      {{&gpu.attention_forward, 1}, {&gpu.attention_backward, 1}, {&gpu.attention_half, 1e5}},
      of_kind("attention"));
  const auto inside = [&](const Point& p) { return p.ranks.size <= machine.node / p.ranks.stride; };
  fit(machine, {{&machine.inner.efficiency, 1}, {&machine.inner.latency, 1}},
      those([&](const Point& p) { return collective_of(p.kind) != nullptr && inside(p); }));
  fit(machine, {{&machine.outer.efficiency, 1}, {&machine.outer.latency, 1}},
      those([&](const Point& p) { return collective_of(p.kind) != nullptr && !inside(p); }));
  return machine;
}

}  // namespace mytorch::plan
