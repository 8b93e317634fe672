#include "plan/machine.h"

#include <algorithm>
#include <map>

#include "core/types/errors.h"
#include "plan/json.h"

namespace mytorch::plan {
namespace {

Gpu gpu_of(const char* name, double teraflops, double single, double gigabytes,
           double gigabytes_a_second) {
  Gpu gpu;
  gpu.name = name;
  gpu.flops = teraflops * 1e12;
  gpu.single = single * 1e12;
  gpu.memory = gigabytes * 1e9;
  gpu.bandwidth = gigabytes_a_second * 1e9;
  return gpu;
}

struct Known {
  Gpu gpu;
  double inner;  // GB/s of NVLink, in one direction
};
// Datasheets of NVIDIA: dense bfloat16, float32, memory, its bandwidth, half of NVLink's two
// directions.
const std::vector<Known>& known_gpus() {
  static const std::vector<Known> gpus = {{gpu_of("a100", 312, 19.5, 80, 2039), 300},
                                          {gpu_of("h100", 989, 67, 80, 3350), 450},
                                          {gpu_of("h200", 989, 67, 141, 4800), 450},
                                          {gpu_of("b200", 2250, 75, 180, 7700), 900}};
  return gpus;
}

// One adapter for each GPU.
const std::vector<Link>& known_networks() {
  static const std::vector<Link> links = {{"ib200", 25e9, 8e-6, 0.85},
                                          {"ib400", 50e9, 8e-6, 0.85},
                                          {"ib800", 100e9, 8e-6, 0.85},
                                          {"eth100", 12.5e9, 15e-6, 0.75},
                                          {"eth400", 50e9, 12e-6, 0.75}};
  return links;
}

template <class T, class Name>
const T& find(const std::vector<T>& all, const std::string& wanted, const char* what, Name name) {
  std::vector<std::string> names;
  for (const T& item : all) {
    if (name(item) == wanted) return item;
    names.push_back(name(item));
  }
  fail(ErrorCode::kValue, "[plan] unknown ", what, " '", wanted, "': give one of ",
       absl::StrJoin(names, ", "), ", or a machine file (--machine)");
}

// The fields of a machine file, by section and key, and what a number of theirs is in the program.
struct Field {
  const char* section;
  const char* key;
  double* value;
  double unit;
  double most;  // 0: any positive number
};
std::vector<Field> fields_of(Machine& m) {
  return {{"gpu", "teraflops", &m.gpu.flops, 1e12, 0},
          {"gpu", "float32_teraflops", &m.gpu.single, 1e12, 0},
          {"gpu", "memory_gb", &m.gpu.memory, 1e9, 0},
          {"gpu", "bandwidth_gb_s", &m.gpu.bandwidth, 1e9, 0},
          {"gpu", "matmul", &m.gpu.matmul, 1, 1},
          {"gpu", "matmul_half", &m.gpu.matmul_half, 1, 0},
          {"gpu", "attention_forward", &m.gpu.attention_forward, 1, 1},
          {"gpu", "attention_backward", &m.gpu.attention_backward, 1, 1},
          {"gpu", "attention_half", &m.gpu.attention_half, 1, 0},
          {"gpu", "stream", &m.gpu.stream, 1, 1},
          {"gpu", "kernel_us", &m.gpu.kernel, 1e-6, 0},
          {"gpu", "host_us", &m.gpu.host, 1e-6, 0},
          {"gpu", "step_ms", &m.gpu.step, 1e-3, 0},
          {"gpu", "reserved_gb", &m.gpu.reserved, 1e9, 0},
          {"node", "bandwidth_gb_s", &m.inner.bandwidth, 1e9, 0},
          {"node", "latency_us", &m.inner.latency, 1e-6, 0},
          {"node", "efficiency", &m.inner.efficiency, 1, 1},
          {"network", "bandwidth_gb_s", &m.outer.bandwidth, 1e9, 0},
          {"network", "latency_us", &m.outer.latency, 1e-6, 0},
          {"network", "efficiency", &m.outer.efficiency, 1, 1},
          {"overlap", "tensor", &m.tensor_overlap, 1, 1},
          {"overlap", "data", &m.data_overlap, 1, 1},
          {"overlap", "pipeline", &m.pipeline_overlap, 1, 1}};
}

// The array of a machine file's measured curves.
std::vector<Curve> read_curves(const Json& array, const std::string& path) {
  if (!array.is_array()) fail(ErrorCode::kValue, "[plan] ", path, ": curves is no array");
  std::vector<Curve> curves;
  for (size_t i = 0; i < array.size(); ++i) {
    const Json& object = array[i];
    const std::string where = absl::StrCat(path, ", curve ", i);
    check_keys(object, {"collective", "ranks", "stride", "bytes", "seconds"}, where);
    Curve curve{one_of(object, "collective", collective_names(), where),
                {whole(object, "ranks", where), whole(object, "stride", where)},
                {}};
    const std::vector<double> bytes = positives(object, "bytes", where);
    const std::vector<double> seconds = positives(object, "seconds", where);
    if (bytes.empty() || bytes.size() != seconds.size()) {
      fail(ErrorCode::kValue, "[plan] ", where, " has ", bytes.size(), " bytes and ",
           seconds.size(), " seconds: give as many of both, one at least");
    }
    for (size_t k = 0; k < bytes.size(); ++k) {
      if (k > 0 && bytes[k] <= bytes[k - 1]) {
        fail(ErrorCode::kValue, "[plan] ", where, ": bytes are not in ascending order");
      }
      curve.times.emplace_back(bytes[k], seconds[k]);
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

Json curves_json(const std::vector<Curve>& curves) {
  Json array = Json::array();
  for (const Curve& curve : curves) {
    Json object = {{"collective", curve.collective},
                   {"ranks", curve.ranks.size},
                   {"stride", curve.ranks.stride},
                   {"bytes", Json::array()},
                   {"seconds", Json::array()}};
    for (const auto& [bytes, seconds] : curve.times) {
      object["bytes"].push_back(bytes);
      object["seconds"].push_back(seconds);
    }
    array.push_back(std::move(object));
  }
  return array;
}

double saturated(double x, double half) { return x / (x + half); }

}  // namespace

Machine machine_of(const std::string& gpu, const std::string& network) {
  const Known& known = find(known_gpus(), gpu, "GPU", [](const Known& k) { return k.gpu.name; });
  Machine m;
  m.gpu = known.gpu;
  m.inner = {"nvlink", known.inner * 1e9, 2e-6, 0.8};
  m.outer = find(known_networks(), network, "network", [](const Link& l) { return l.name; });
  return m;
}

Machine read_machine(const std::string& path) {
  const Json json = read_json(path);
  Machine m = machine_of("h100", "ib400");
  const std::vector<Field> fields = fields_of(m);
  if (!json.is_object()) fail(ErrorCode::kValue, "[plan] ", path, " is no JSON object");
  for (const auto& [section, values] : json.items()) {
    if (section == "curves") {
      m.curves = read_curves(values, path);
      continue;
    }
    std::vector<std::string> sections;
    for (const Field& field : fields) {
      if (sections.empty() || sections.back() != field.section) sections.push_back(field.section);
    }
    if (!values.is_object() ||
        std::find(sections.begin(), sections.end(), section) == sections.end()) {
      fail(ErrorCode::kValue, "[plan] ", path, ": unknown section '", section,
           "': there are objects ", absl::StrJoin(sections, ", "), ", and the array curves");
    }
    const std::string where = absl::StrCat(path, ", ", section);
    for (const auto& [key, value] : values.items()) {
      if (key == "name" && value.is_string()) {
        (section == "gpu"    ? m.gpu.name
         : section == "node" ? m.inner.name
                             : m.outer.name) = value.get<std::string>();
        continue;
      }
      if (section == "node" && key == "gpus") {
        m.node = whole(values, "gpus", where);
        continue;
      }
      const auto field = std::find_if(
          fields.begin(), fields.end(),
          [&, k = key, s = section](const Field& f) { return s == f.section && k == f.key; });
      if (field == fields.end()) {
        std::vector<std::string> keys = {"name"};
        if (section == "node") keys.emplace_back("gpus");
        for (const Field& f : fields) {
          if (section == f.section) keys.emplace_back(f.key);
        }
        fail(ErrorCode::kValue, "[plan] ", where, ": unknown key '", key, "': there are ",
             absl::StrJoin(keys, ", "));
      }
      const double given = positive(values, field->key, where);
      if (field->most > 0 && given > field->most) {
        fail(ErrorCode::kValue, "[plan] ", where, ": ", field->key, " is ", given,
             ": it is a share, at most 1");
      }
      *field->value = given * field->unit;
    }
  }
  return m;
}

std::string machine_text(const Machine& machine) {
  Machine m = machine;
  Json json;
  json["gpu"]["name"] = m.gpu.name;
  json["node"]["name"] = m.inner.name;
  json["node"]["gpus"] = m.node;
  json["network"]["name"] = m.outer.name;
  for (const Field& field : fields_of(m)) {
    json[field.section][field.key] = *field.value / field.unit;
  }
  if (!m.curves.empty()) json["curves"] = curves_json(m.curves);
  return json.dump(2) + "\n";
}

double matmul_rate(const Gpu& gpu, double m, double n, double k, double bytes) {
  return (bytes > 2 ? gpu.single : gpu.flops) * gpu.matmul * saturated(m, gpu.matmul_half) *
         saturated(n, gpu.matmul_half) * saturated(k, gpu.matmul_half);
}

double matmul_seconds(const Gpu& gpu, double m, double n, double k, double bytes) {
  if (m <= 0) return 0;
  const double products = 2 * m * n * k / matmul_rate(gpu, m, n, k, bytes);
  const double memory = bytes * (m * k + k * n + m * n) / (gpu.bandwidth * gpu.stream);
  return std::max(products, memory) + gpu.kernel;
}

double attention_rate(const Gpu& gpu, double length, double width, bool backward) {
  return gpu.flops * (backward ? gpu.attention_backward : gpu.attention_forward) *
         saturated(length, gpu.attention_half) * std::min(1.0, 1.5 * saturated(width, 64));
}

double attention_seconds(const Gpu& gpu, double batch, double heads, double length, double keys,
                         double width, bool causal, bool backward) {
  const double flops =
      (backward ? 10 : 4) * batch * heads * length * keys * width * (causal ? 0.5 : 1);
  return flops / attention_rate(gpu, length, width, backward) + gpu.kernel;
}

double stream_seconds(const Gpu& gpu, double bytes, int kernels) {
  return bytes / (gpu.bandwidth * gpu.stream) + kernels * gpu.kernel;
}

}  // namespace mytorch::plan
