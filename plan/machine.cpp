#include "plan/machine.h"

#include <algorithm>
#include <map>

#include "core/types/errors.h"
#include "plan/json.h"

namespace mytorch::plan {
namespace {

Gpu gpu_of(const char* name, double teraflops, double gigabytes, double gigabytes_a_second) {
  Gpu gpu;
  gpu.name = name;
  gpu.flops = teraflops * 1e12;
  gpu.memory = gigabytes * 1e9;
  gpu.bandwidth = gigabytes_a_second * 1e9;
  return gpu;
}

struct Known {
  Gpu gpu;
  double inner;  // GB/s of NVLink, in one direction
};
// Datasheets of NVIDIA: dense bfloat16, memory, its bandwidth, half of NVLink's two directions.
const std::vector<Known>& known_gpus() {
  static const std::vector<Known> gpus = {{gpu_of("a100", 312, 80, 2039), 300},
                                          {gpu_of("h100", 989, 80, 3350), 450},
                                          {gpu_of("h200", 989, 141, 4800), 450},
                                          {gpu_of("b200", 2250, 180, 7700), 900}};
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
          {"gpu", "memory_gb", &m.gpu.memory, 1e9, 0},
          {"gpu", "bandwidth_gb_s", &m.gpu.bandwidth, 1e9, 0},
          {"gpu", "matmul", &m.gpu.matmul, 1, 1},
          {"gpu", "matmul_half", &m.gpu.matmul_half, 1, 0},
          {"gpu", "attention_forward", &m.gpu.attention_forward, 1, 1},
          {"gpu", "attention_backward", &m.gpu.attention_backward, 1, 1},
          {"gpu", "attention_half", &m.gpu.attention_half, 1, 0},
          {"gpu", "stream", &m.gpu.stream, 1, 1},
          {"gpu", "kernel_us", &m.gpu.kernel, 1e-6, 0},
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

double saturated(double x, double half) { return x / (x + half); }

// The bandwidth and latency of a ring through the ranks. Of the ranks on a node, each has its own
// adapter, so that a ring is divided among as many.
struct Ring {
  double bandwidth;
  double latency;  // of a turn
};
Ring ring_of(const Machine& m, const Ranks& ranks) {
  const double inner = m.inner.bandwidth * m.inner.efficiency;
  const int64_t on_node = std::max<int64_t>(1, std::min(ranks.size, m.node / ranks.stride));
  const int64_t nodes = (ranks.size + on_node - 1) / on_node;
  const double turn = static_cast<double>(ranks.size - nodes) * m.inner.latency;
  if (nodes == 1) return {inner, turn};
  const double outer = m.outer.bandwidth * m.outer.efficiency * static_cast<double>(on_node);
  // Messages of consecutive nodes overlap; a tree's depth is what remains.
  double depth = 0;
  for (int64_t n = nodes; n > 1; n = (n + 1) / 2) ++depth;
  return {on_node > 1 ? std::min(inner, outer) : outer, turn + depth * m.outer.latency};
}

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
    std::vector<std::string> sections;
    for (const Field& field : fields) {
      if (sections.empty() || sections.back() != field.section) sections.push_back(field.section);
    }
    if (!values.is_object() ||
        std::find(sections.begin(), sections.end(), section) == sections.end()) {
      fail(ErrorCode::kValue, "[plan] ", path, ": unknown section '", section,
           "': there are objects ", absl::StrJoin(sections, ", "));
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
  return json.dump(2) + "\n";
}

double matmul_seconds(const Gpu& gpu, double m, double n, double k) {
  if (m <= 0) return 0;
  const double reached = gpu.matmul * saturated(m, gpu.matmul_half) *
                         saturated(n, gpu.matmul_half) * saturated(k, gpu.matmul_half);
  const double products = 2 * m * n * k / (gpu.flops * reached);
  const double memory = 2 * (m * k + k * n + m * n) / (gpu.bandwidth * gpu.stream);
  return std::max(products, memory) + gpu.kernel;
}

double attention_seconds(const Gpu& gpu, double batch, double heads, double length, double keys,
                         double width, bool causal, bool backward) {
  const double flops =
      (backward ? 10 : 4) * batch * heads * length * keys * width * (causal ? 0.5 : 1);
  const double reached = (backward ? gpu.attention_backward : gpu.attention_forward) *
                         saturated(length, gpu.attention_half) *
                         std::min(1.0, 1.5 * saturated(width, 64));
  return flops / (gpu.flops * reached) + gpu.kernel;
}

double stream_seconds(const Gpu& gpu, double bytes, int kernels) {
  return bytes / (gpu.bandwidth * gpu.stream) + kernels * gpu.kernel;
}

double all_gather_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  if (ranks.size <= 1) return 0;
  const Ring ring = ring_of(machine, ranks);
  const auto n = static_cast<double>(ranks.size);
  return ring.latency + bytes * (n - 1) / n / ring.bandwidth;
}
double reduce_scatter_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  return all_gather_seconds(machine, ranks, bytes);
}
double all_reduce_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  return 2 * all_gather_seconds(machine, ranks, bytes);
}

double all_to_all_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  if (ranks.size <= 1) return 0;
  const auto n = static_cast<double>(ranks.size);
  const auto on_node =
      static_cast<double>(std::max<int64_t>(1, std::min(ranks.size, machine.node / ranks.stride)));
  const double inside =
      bytes * (on_node - 1) / n / (machine.inner.bandwidth * machine.inner.efficiency);
  const double outside =
      bytes * (n - on_node) / n / (machine.outer.bandwidth * machine.outer.efficiency);
  return std::max(inside, outside) + (n > on_node ? machine.outer.latency : machine.inner.latency);
}

double message_seconds(const Machine& machine, const Ranks& ranks, double bytes) {
  if (ranks.size <= 1) return 0;
  const Link& link = ranks.size <= machine.node / ranks.stride ? machine.inner : machine.outer;
  return link.latency + bytes / (link.bandwidth * link.efficiency);
}

}  // namespace mytorch::plan
