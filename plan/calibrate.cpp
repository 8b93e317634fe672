#include "plan/calibrate.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "core/types/errors.h"
#include "plan/json.h"

namespace mytorch::plan {
namespace {

Collective collective_of(const std::string& kind) {
  for (const auto& [name, function] : collectives()) {
    if (name == kind) return function;
  }
  return nullptr;
}

// Kinds whose sizes have names of their own.
struct Kind {
  const char* name;
  std::vector<const char*> sizes;
};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"matmul", {"m", "n", "k"}}, {"attention", {"batch", "heads", "length", "width"}},
      {"copy", {"bytes"}},         {"kernels", {"count"}},
      {"host", {"count"}},         {"step", {}}};
  return all;
}
// The names of a point's sizes.
std::vector<const char*> sizes_of(const std::string& kind) {
  for (const Kind& known : kinds()) {
    if (known.name == kind) return known.sizes;
  }
  return {"bytes"};
}

bool flag(const Json& object, const char* name, const std::string& where) {
  const auto found = object.find(name);
  if (found == object.end()) return false;
  if (!found->is_boolean()) {
    fail(ErrorCode::kValue, "[plan] ", where, ": ", name, " is ", shown(*found),
         ": give true or false");
  }
  return found->get<bool>();
}

Point read_point(const Json& object, const std::string& where) {
  std::vector<std::string> names;
  for (const Kind& kind : kinds()) names.emplace_back(kind.name);
  for (const std::string& name : collective_names()) names.push_back(name);
  Point point;
  point.seconds = positive(object, "seconds", where);
  point.kind = one_of(object, "kind", names, where);
  std::vector<std::string> keys = {"kind", "seconds"};
  size_t at = 0;
  for (const char* name : sizes_of(point.kind)) {
    point.sizes[at++] = positive(object, name, where);
    keys.emplace_back(name);
  }
  if (point.kind == "matmul" && object.contains("dtype")) {
    point.single = one_of(object, "dtype", {"bfloat16", "float16", "float32"}, where) == "float32";
  }
  if (point.kind == "matmul") keys.emplace_back("dtype");
  if (point.kind == "attention") {
    point.causal = flag(object, "causal", where);
    point.backward = flag(object, "backward", where);
    keys.insert(keys.end(), {"causal", "backward"});
  }
  if (collective_of(point.kind) != nullptr) {
    point.ranks.size = whole(object, "ranks", where);
    if (object.contains("stride")) point.ranks.stride = whole(object, "stride", where);
    keys.insert(keys.end(), {"ranks", "stride"});
    if (point.ranks.size < 2) {
      fail(ErrorCode::kValue, "[plan] ", where, ": ", point.kind, " among ", point.ranks.size,
           " ranks: give at least 2");
    }
  }
  check_keys(object, keys, where);
  return point;
}

// Points of the same collective among the same ranks, as curves; of equal sizes, the mean.
std::vector<Curve> curves_of(const std::vector<Point>& points) {
  std::vector<Curve> curves;
  for (const Point& point : points) {
    if (collective_of(point.kind) == nullptr) continue;
    const auto same = [&](const Curve& c) {
      return c.collective == point.kind && c.ranks == point.ranks;
    };
    auto curve = std::find_if(curves.begin(), curves.end(), same);
    if (curve == curves.end()) curve = curves.insert(curve, {point.kind, point.ranks, {}});
    curve->times.emplace_back(point.sizes[0], point.seconds);
  }
  for (Curve& curve : curves) {
    std::sort(curve.times.begin(), curve.times.end());
    std::vector<std::pair<double, double>> joined;
    for (size_t i = 0; i < curve.times.size();) {
      const double bytes = curve.times[i].first;
      double sum = 0, count = 0;
      for (; i < curve.times.size() && curve.times[i].first == bytes; ++i, ++count) {
        sum += curve.times[i].second;
      }
      joined.emplace_back(bytes, sum / count);
    }
    curve.times = std::move(joined);
  }
  return curves;
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
    points.push_back(read_point(json[i], absl::StrCat(path, ", point ", i)));
  }
  return points;
}

std::string points_text(const std::vector<Point>& points) {
  Json array = Json::array();
  for (const Point& point : points) {
    Json object = {{"kind", point.kind}, {"seconds", point.seconds}};
    size_t at = 0;
    for (const char* name : sizes_of(point.kind)) object[name] = point.sizes[at++];
    if (point.kind == "attention") {
      object["causal"] = point.causal;
      object["backward"] = point.backward;
    }
    if (point.single) object["dtype"] = "float32";
    if (collective_of(point.kind) != nullptr) {
      object["ranks"] = point.ranks.size;
      object["stride"] = point.ranks.stride;
    }
    array.push_back(std::move(object));
  }
  return array.dump(1) + "\n";
}

double predicted_seconds(const Machine& machine, const Point& point) {
  const double* s = point.sizes;
  if (point.kind == "matmul") {
    return matmul_seconds(machine.gpu, s[0], s[1], s[2], point.single ? 4 : 2);
  }
  if (point.kind == "kernels") return s[0] * machine.gpu.kernel;
  if (point.kind == "host") return s[0] * machine.gpu.host;
  if (point.kind == "step") return machine.gpu.step;
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
  std::vector<Curve> curves = curves_of(points);
  for (const Curve& curve : machine.curves) {
    const auto same = [&](const Curve& c) {
      return c.collective == curve.collective && c.ranks == curve.ranks;
    };
    if (std::none_of(curves.begin(), curves.end(), same)) curves.push_back(curve);
  }
  machine.curves.clear();  // what is fitted are the formulas
  // Each kind of the others depends on those before it.
  fit(machine, {{&gpu.kernel, 1}}, of_kind("kernels"));
  fit(machine, {{&gpu.host, 1}}, of_kind("host"));
  fit(machine, {{&gpu.step, 10}}, of_kind("step"));
  // Products of small matrices depend on the memory's share, too.
  fit(machine, {{&gpu.stream, 1}}, of_kind("copy"));
  fit(machine, {{&gpu.matmul, 1}, {&gpu.matmul_half, 1e4}},
      those([](const Point& p) { return p.kind == "matmul" && !p.single; }));
  fit(machine, {{&gpu.single, 1e18}},
      those([](const Point& p) { return p.kind == "matmul" && p.single; }));
  fit(machine,
      {{&gpu.attention_forward, 1}, {&gpu.attention_backward, 1}, {&gpu.attention_half, 1e5}},
      of_kind("attention"));
  const auto inside = [&](const Point& p) { return p.ranks.size <= machine.node / p.ranks.stride; };
  fit(machine, {{&machine.inner.efficiency, 1}, {&machine.inner.latency, 1}},
      those([&](const Point& p) { return collective_of(p.kind) != nullptr && inside(p); }));
  fit(machine, {{&machine.outer.efficiency, 1}, {&machine.outer.latency, 1}},
      those([&](const Point& p) { return collective_of(p.kind) != nullptr && !inside(p); }));
  machine.curves = std::move(curves);
  return machine;
}

}  // namespace mytorch::plan
